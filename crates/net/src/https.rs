//! The HTTPS server: HTTP/1.1 for the API server, h2 for who asks for it.
//!
//! Connections are never closed while idle before the API server itself would
//! do so. They are retired by `Connection: close` on an answer, after a while
//! (or replicas added under load would get none) and when draining: the
//! client then opens a new connection, and no POST is lost (C-04, C-102).

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use sallyport_error_chain::format_chain;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::Service;

use crate::accept::accept;
use crate::guard::{Guard, Patience, Phase};
use crate::linger::Linger;
use crate::listener::{AcceptLimits, Connection, Handshakes, OpenConnections};
use crate::shutdown::Shutdown;

/// An h2 connection lives at least this long: GOAWAY before the first request would leave it no use.
const LEAST_H2_AGE: Duration = Duration::from_secs(1);

/// Limits of an HTTPS server.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections and handshakes.
    pub accept: AcceptLimits,
    /// An idle connection is closed after this; more than the API server's 90 s. So is one of h2
    /// that has been retired and does not end.
    pub idle: Duration,
    /// Time for a request's head, from its first byte.
    pub head: Duration,
    /// After about this age (90 to 110 %) a connection is retired; at once, and after every answer, if zero.
    pub age: Duration,
    /// At a shutdown, new connections are served at least this long: until
    /// every node has heard that the endpoint is going.
    pub drain_least: Duration,
    /// At a shutdown, connections still open after this are closed.
    pub drain_most: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            accept: AcceptLimits::default(),
            idle: Duration::from_secs(100),
            head: Duration::from_secs(10),
            age: Duration::from_secs(60),
            drain_least: Duration::from_secs(5),
            drain_most: Duration::from_secs(100),
        }
    }
}

/// Serves until the shutdown, then drains: goes on accepting and answering,
/// every answer retiring its connection, until none is open.
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    service: S,
    options: Options,
    open: OpenConnections,
    shutdown: Shutdown,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let handshakes = Handshakes::new(tls, options.accept.handshake, open.clone());
    let closing = Shutdown::new();
    let serve = |stream, place| {
        let handshake = handshakes.begin(stream, place);
        let (service, shutdown, closing) = (service.clone(), shutdown.clone(), closing.clone());
        async move {
            let serving = async {
                if let Some(connection) = handshake.await {
                    serve_connection(connection, service, options, shutdown).await;
                }
            };
            tokio::select! {
                () = serving => {}
                () = closing.started() => {}
            }
        }
    };
    accept(listener, options.accept.connections, wait_until_drained(shutdown.clone(), open, options), serve)
        .await;
    closing.trigger(); // whatever is open now has had its time
}

/// Resolves once the server may stop.
async fn wait_until_drained(shutdown: Shutdown, open: OpenConnections, options: Options) {
    shutdown.started().await;
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let elapsed = begun.elapsed();
        if elapsed >= options.drain_most || (elapsed >= options.drain_least && open.count() == 0) {
            return;
        }
    }
}

async fn serve_connection<S, B>(connection: Connection, service: S, options: Options, shutdown: Shutdown)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let age = options.age.mul_f64(0.9 + 0.2 * fastrand::f64());
    let is_h2 = connection.protocol() == Some(b"h2");
    let connection = Linger::new(connection);
    let ended = if is_h2 {
        let service = hyper_util::service::TowerToHyperService::new(service);
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(250)
            .max_header_list_size(16 << 10)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10));
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(connection), service));
        tokio::select! {
            ended = &mut serving => ended,
            // GOAWAY: h2 clients finish what is in flight and know what was not taken.
            () = wait_until_retired(age.max(LEAST_H2_AGE), &shutdown) => {
                serving.as_mut().graceful_shutdown();
                // hyper would wait without end for a client that never begins or never reads.
                tokio::time::timeout(options.idle, serving).await.unwrap_or(Ok(()))
            }
        }
    } else {
        let phase = Phase::default();
        let patience = Patience { idle: options.idle, head: options.head };
        let io = TokioIo::new(Guard::new(connection, phase.clone(), patience));
        let service = Retiring { service, phase, retire_at: Instant::now() + age, shutdown };
        hyper::server::conn::http1::Builder::new()
            .max_headers(100)
            .max_buf_size(64 << 10)
            .serve_connection(io, hyper_util::service::TowerToHyperService::new(service))
            .await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, cause = error.source().map(format_chain), "connection ended early");
    }
}

async fn wait_until_retired(age: Duration, shutdown: &Shutdown) {
    tokio::select! {
        () = tokio::time::sleep(age) => {}
        () = shutdown.started() => {}
    }
}

/// Keeps the connection's phase, and retires it on an answer when it is time.
#[derive(Clone)]
struct Retiring<S> {
    service: S,
    phase: Phase,
    retire_at: Instant,
    shutdown: Shutdown,
}

impl<S, B> Service<Request<Incoming>> for Retiring<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.phase.begin_request();
        let answer = self.service.call(request);
        let (phase, shutdown, retire_at) = (self.phase.clone(), self.shutdown.clone(), self.retire_at);
        Box::pin(async move {
            let mut response = answer.await?;
            if shutdown.is_started() || Instant::now() >= retire_at {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            phase.end_request();
            Ok(response)
        })
    }
}
