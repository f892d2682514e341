//! Stands between the API server and the front and holds every answer against
//! the API server's own table (contract 2.13).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sallyport_net::https::{self, Options};
use sallyport_net::listener::OpenConnections;
use sallyport_net::{Credentials, Shutdown};
use sallyport_testkit::verdict::{self, Broken, Door, Verdict};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// One review as it passed.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Path and query.
    pub target: String,
    /// What the API server sent.
    pub request: serde_json::Value,
    /// HTTP status of the answer.
    pub status: u16,
    /// Body of the answer.
    pub response: Vec<u8>,
    /// What the API server makes of it.
    pub verdict: Result<Verdict, Broken>,
}

/// The proxy.
#[derive(Debug)]
pub struct Inspector {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Passed>>>,
    shutdown: Shutdown,
}

struct Upstream {
    address: SocketAddr,
    tls: TlsConnector,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Inspector {
    /// Forwards to the front at `upstream`, showing the front's own certificate
    /// from `tls_directory`.
    pub async fn start(tls_directory: &Path, upstream: SocketAddr) -> Result<Self> {
        let credentials = Credentials::load(tls_directory)?;
        let mut client = (*credentials.client_config()?).clone();
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        let upstream = Arc::new(Upstream {
            address: upstream,
            tls: TlsConnector::from(Arc::new(client)),
            idle: Mutex::default(),
        });
        let seen: Arc<Mutex<Vec<Passed>>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let record = seen.clone();
        let router = Router::new().fallback(move |request: Request<Body>| {
            let (upstream, record) = (upstream.clone(), record.clone());
            async move { pass(&upstream, &record, request).await }
        });
        let shutdown = Shutdown::new();
        tokio::spawn(https::serve(
            listener,
            credentials.https_config()?,
            router,
            Options { drain_least: Duration::ZERO, drain_most: Duration::ZERO, ..Options::default() },
            OpenConnections::default(),
            shutdown.clone(),
        ));
        Ok(Self { address, seen, shutdown })
    }

    /// Where the API server is to be sent.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Every review so far, in the order of their answers.
    pub fn seen(&self) -> Vec<Passed> {
        self.seen.lock().clone()
    }

    /// Reviews for objects with this name or generateName.
    pub fn of(&self, name: &str) -> Vec<Passed> {
        let named = |passed: &Passed| {
            let request = &passed.request["request"];
            request["name"] == name || request["object"]["metadata"]["generateName"] == name
        };
        self.seen().into_iter().filter(named).collect()
    }

    /// Fails when any answer with status 200 was one that the API server does
    /// not take, or takes with a remark.
    ///
    /// # Panics
    /// Then, naming the answer.
    pub fn assert_clean(&self) {
        let seen = self.seen();
        assert!(!seen.is_empty(), "nothing has passed the inspector");
        for passed in seen.iter().filter(|passed| passed.status == 200) {
            let verdict = passed.verdict.as_ref().unwrap_or_else(|broken| {
                panic!("{}: {broken}: {}", passed.target, String::from_utf8_lossy(&passed.response))
            });
            assert!(verdict.remarks.is_empty(), "{}: {:?}", passed.target, verdict.remarks);
        }
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

async fn pass(upstream: &Upstream, record: &Mutex<Vec<Passed>>, request: Request<Body>) -> Response<Body> {
    match forward(upstream, record, request).await {
        Ok(response) => response,
        Err(error) => {
            let mut response = Response::new(Body::from(format!("inspector: {error:#}\n")));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

async fn forward(
    upstream: &Upstream,
    record: &Mutex<Vec<Passed>>,
    request: Request<Body>,
) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let sent = body.collect().await?.to_bytes();
    let target = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let mut outgoing = Request::builder().method(parts.method).uri(&target);
    for (name, value) in &parts.headers {
        outgoing = outgoing.header(name, value);
    }
    let outgoing = outgoing.body(Full::new(sent.clone()))?;
    let mut sender = upstream.connection().await?;
    let (answer, body) = sender.send_request(outgoing).await.context("the front")?.into_parts();
    let body = body.collect().await?.to_bytes();
    if answer.headers.get(CONNECTION).is_none_or(|value| value != "close") {
        upstream.idle.lock().push(sender);
    }
    let door = if target.starts_with("/mutate/") { Door::Mutating } else { Door::Validating };
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let verdict = verdict::check(door, &sent, answer.status.as_u16(), kind, &body);
    record.lock().push(Passed {
        target,
        request: serde_json::from_slice(&sent).unwrap_or_default(),
        status: answer.status.as_u16(),
        response: body.to_vec(),
        verdict,
    });
    let mut response = Response::from_parts(answer, Body::from(body));
    response.headers_mut().remove(CONNECTION);
    Ok(response)
}

impl Upstream {
    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>> {
        loop {
            let Some(idle) = self.idle.lock().pop() else { break };
            if !idle.is_closed() && idle.is_ready() {
                return Ok(idle);
            }
        }
        let stream = TcpStream::connect(self.address).await.context("connecting to the front")?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect("127.0.0.1".try_into()?, stream).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
