//! Stands between a rotator and the API server, and can stop at any write: before it is passed on, or after it was
//! answered and before the answer is given back.
//!
//! Plain HTTP on the rotator's side; the administrator's token is added on the other. Only what a rotation consists
//! of counts as a write: Secrets and webhook configurations, not Leases and Events.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use sallyport_testkit::ControlPlane;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Which side of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It was not passed on.
    Before,
    /// It was answered; nobody has got the answer.
    After,
}

/// A write that was stopped at. It stays so until this value is dropped, and is lost then.
#[derive(Debug)]
pub struct Stop {
    /// What it was.
    pub write: String,
    /// Where.
    pub side: Side,
    _done: oneshot::Sender<()>,
}

/// Where to stop next.
#[derive(Debug, Clone, Copy)]
struct Plan {
    side: Side,
    /// How many writes pass first.
    passing: usize,
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    stops: mpsc::UnboundedReceiver<Stop>,
    plan: Arc<Mutex<Option<Plan>>>,
    directory: TempDir,
    serving: JoinHandle<()>,
}

struct Upstream {
    authority: String,
    token: HeaderValue,
    sender: SendRequest<Full<Bytes>>,
    plan: Arc<Mutex<Option<Plan>>>,
    stops: mpsc::UnboundedSender<Stop>,
    /// The certificate that was last written into each Secret.
    certificates: Mutex<BTreeMap<String, Value>>,
}

impl Gateway {
    /// A gateway that lets everything pass at first.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let authority = plane.url().trim_start_matches("https://").to_owned();
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(plane.ca_file())? {
            roots.add(certificate?)?;
        }
        let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(&authority).await?;
        let stream = TlsConnector::from(Arc::new(tls)).connect("127.0.0.1".try_into()?, stream).await?;
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);

        let plan: Arc<Mutex<Option<Plan>>> = Arc::default();
        let (stopped, stops) = mpsc::unbounded_channel();
        let upstream = Arc::new(Upstream {
            authority,
            token: HeaderValue::from_str(&format!("Bearer {}", plane.token()))?,
            sender,
            plan: plan.clone(),
            stops: stopped,
            certificates: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let directory = TempDir::with_prefix("sallyport-gateway-")?;
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{}", listener.local_addr()?)}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "nobody"}}],
        });
        std::fs::write(directory.path().join("kubeconfig"), config.to_string())?;
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let upstream = upstream.clone();
                let service = service_fn(move |request| {
                    let upstream = upstream.clone();
                    async move { Ok::<_, Infallible>(upstream.pass(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Ok(Self { stops, plan, directory, serving })
    }

    /// The kubeconfig of those who go through it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Stops at one write, on that side of it, after so many have passed.
    pub fn stop_after(&self, passing: usize, side: Side) {
        *self.plan.lock() = Some(Plan { side, passing });
    }

    /// Lets everything pass from now on.
    pub fn open(&self) {
        *self.plan.lock() = None;
    }

    /// Waits for the next stop.
    pub async fn stopped(&mut self) -> Option<Stop> {
        self.stops.recv().await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Upstream {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        match self.try_pass(request).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = Response::new(Body::from(format!("gateway: {error:#}\n")));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }
        }
    }

    async fn try_pass(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let target = parts.uri.path_and_query().context("no target")?.to_string();
        let write = self.write(&parts.method, parts.uri.path(), &body);
        let side = write.as_ref().and_then(|_| self.due());
        if let (Some(write), Some(Side::Before)) = (&write, side) {
            self.stop(write, Side::Before).await;
            anyhow::bail!("not passed on");
        }
        let mut outgoing =
            Request::builder().method(parts.method).uri(format!("https://{}{target}", self.authority));
        for (name, value) in parts.headers.iter().filter(|(name, _)| **name != HOST && **name != CONNECTION) {
            outgoing = outgoing.header(name, value);
        }
        let outgoing = outgoing.header(AUTHORIZATION, self.token.clone()).body(Full::new(body))?;
        let answer = self.sender.clone().send_request(outgoing).await?;
        if let (Some(write), Some(Side::After)) = (&write, side) {
            answer.into_body().collect().await?;
            self.stop(write, Side::After).await;
            anyhow::bail!("nobody is told");
        }
        Ok(answer.map(Body::new))
    }

    /// Waits until the one who is told of it is done.
    async fn stop(&self, write: &str, side: Side) {
        let (done, ended) = oneshot::channel();
        let _ = self.stops.send(Stop { write: write.to_owned(), side, _done: done });
        let _ = ended.await;
    }

    /// Whether it is time to stop, and where.
    fn due(&self) -> Option<Side> {
        let mut plan = self.plan.lock();
        let Plan { side, passing } = (*plan)?;
        *plan = passing.checked_sub(1).map(|passing| Plan { side, passing });
        plan.is_none().then_some(side)
    }

    /// What a request writes, if it is a part of a rotation.
    fn write(&self, method: &Method, path: &str, body: &[u8]) -> Option<String> {
        let is_write = [Method::PATCH, Method::POST, Method::PUT, Method::DELETE].contains(method);
        if !is_write {
            return None;
        }
        let object: Value = serde_json::from_slice(body).unwrap_or_default();
        let data = &object["data"];
        if path.ends_with("/secrets") {
            let name = object["metadata"]["name"].as_str()?.to_owned();
            self.certificates.lock().insert(name.clone(), data["tls.crt"].clone());
            return Some(format!("{name}: made"));
        }
        let (rest, name) = path.rsplit_once('/')?;
        let (_, resource) = rest.rsplit_once('/')?;
        if resource.ends_with("webhookconfigurations") {
            return Some(format!("{resource}: caBundle"));
        }
        if resource != "secrets" {
            return None;
        }
        let is_new = {
            let mut certificates = self.certificates.lock();
            let former = certificates.insert(name.to_owned(), data["tls.crt"].clone());
            former.is_some_and(|former| former != data["tls.crt"])
        };
        let what = match (data.get("next.crt"), is_new) {
            (Some(Value::Null), _) => "successor in office",
            (Some(_), _) => "successor",
            (None, true) => "certificate",
            (None, false) => "bundle",
        };
        Some(format!("{name}: {what}"))
    }
}
