//! The admin endpoint: `/metrics`, `/healthz`, `/readyz` and read-only pages, over plain HTTP/1.1.
//!
//! It stands apart from what serves reviews: own port, own bounds. It reads no request body, writes only what
//! it computed, and holds a bounded number of connections for a bounded time each.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::process;
use crate::readiness::Readiness;

/// Connections served at a time; more wait in the listen queue.
const MAX_CONNECTIONS: usize = 64;
/// For the headers of a request, and for an idle connection to send the next one.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection is asked to end after this, so that stalled readers cannot keep their places.
const CONNECTION_LIFE: Duration = Duration::from_secs(120);
/// How long an answer under way may take once the connection was asked to end.
const CLOSING_TIME: Duration = Duration::from_secs(5);
/// Bound of the head of a request.
const MAX_HEAD_BYTES: usize = 16 * 1024;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const METRICS: HeaderValue = HeaderValue::from_static(prometheus::TEXT_FORMAT);

type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// What one service shows: its registry, its readiness and its pages.
#[derive(Clone)]
pub struct Admin {
    service: &'static str,
    registry: Registry,
    readiness: Readiness,
    pages: Vec<(&'static str, Page)>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Admin {
    /// An admin endpoint with a registry of its own, which holds `sallyport_build_info` and the process metrics.
    pub fn new(service: &'static str) -> Self {
        let registry = Registry::new();
        let registered = process::build_info(service)
            .and_then(|info| registry.register(Box::new(info)))
            .and_then(|()| registry.register(Box::new(process::ProcessCollector::new()?)));
        if let Err(error) = registered {
            // Constant names in an empty registry: if it fails at all, metrics are poorer and nothing else.
            tracing::error!(%error, "failed to register the process metrics");
        }
        Self { service, registry, readiness: Readiness::new(), pages: Vec::new() }
    }

    /// The short name of the service.
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// Where the service registers its metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What `/readyz` answers from.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Adds a read-only JSON page. `render` runs at each request and must be quick and free of secrets: the
    /// port is open to the cluster. A page added later at the same path replaces the earlier one.
    pub fn page(&mut self, path: &'static str, render: impl Fn() -> String + Send + Sync + 'static) {
        self.pages.retain(|(known, _)| *known != path);
        self.pages.push((path, Arc::new(render)));
    }

    /// Binds the endpoint. `[::]` takes IPv4 too, and falls back to `0.0.0.0` where the host has no IPv6.
    pub async fn bind(&self, address: SocketAddr) -> io::Result<AdminServer> {
        let listener = sallyport_net::bind(address).await?;
        Ok(AdminServer { listener, admin: Arc::new(self.clone()) })
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut response =
                respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "method not allowed\n".to_owned());
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/healthz" => respond(StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => match self.readiness.missing() {
                missing if missing.is_empty() => respond(StatusCode::OK, TEXT, "ok\n".to_owned()),
                missing => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, missing.join("\n") + "\n"),
            },
            "/metrics" => match TextEncoder::new().encode_to_string(&self.registry.gather()) {
                Ok(text) => respond(StatusCode::OK, METRICS, text),
                Err(error) => {
                    tracing::error!(%error, "failed to write the metrics");
                    respond(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        TEXT,
                        "failed to write the metrics\n".to_owned(),
                    )
                }
            },
            _ => match self.pages.iter().find(|(known, _)| *known == path) {
                Some((_, render)) => respond(StatusCode::OK, JSON, render()),
                None => respond(StatusCode::NOT_FOUND, TEXT, "not found\n".to_owned()),
            },
        }
    }
}

fn respond(status: StatusCode, content_type: HeaderValue, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// A bound admin endpoint.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    admin: Arc<Admin>,
}

impl AdminServer {
    /// The bound address, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` resolves, then lets answers under way finish for a few seconds.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let (closing, _) = watch::channel(false);
        let serve = |stream, place| {
            let (admin, closed) = (Arc::clone(&self.admin), closing.subscribe());
            async move {
                serve_connection(admin, stream, closed).await;
                drop(place);
            }
        };
        sallyport_net::accept(self.listener, MAX_CONNECTIONS, shutdown, serve).await;
        closing.send_replace(true);
        // Each connection ends within this by its own clock.
        let _ = tokio::time::timeout(CLOSING_TIME, closing.closed()).await;
    }
}

async fn serve_connection(admin: Arc<Admin>, stream: TcpStream, mut closing: watch::Receiver<bool>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let response = admin.answer(request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut connection = pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let retire = async {
        // Either value of the result means: stop. The sender is gone when the server was dropped.
        let _ = tokio::time::timeout(CONNECTION_LIFE, closing.wait_for(|closing| *closing)).await;
    };
    tokio::select! {
        // A peer that breaks off or talks nonsense is its own trouble.
        _ = connection.as_mut() => return,
        () = retire => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(CLOSING_TIME, connection).await;
}
