//! One endpoint of a backend: its channel, its load, and whether it answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tonic::transport::Channel;

use super::load::Load;
use super::picker::Candidate;
use crate::coalesce::Coalesce;
use crate::credentials::{CredentialsError, dns_name};

/// One endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) channel: Channel,
    load: Mutex<Load>,
    down: AtomicBool,
}

impl Endpoint {
    /// An endpoint that connects when it is first called. Must be made inside a tokio runtime.
    pub(super) fn new(
        address: SocketAddr,
        server_name: &str,
        tls: Arc<ClientConfig>,
    ) -> Result<Self, CredentialsError> {
        let name = dns_name(server_name)?;
        let connector = TlsConnector::from(tls);
        let connect = tower::service_fn(move |_: http::Uri| {
            let (connector, name) = (connector.clone(), name.clone());
            async move {
                let connecting = async {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    connector.connect(name, stream).await
                };
                let limit = Duration::from_secs(2);
                let stream = tokio::time::timeout(limit, connecting)
                    .await
                    .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connecting timed out"))??;
                Ok::<_, io::Error>(TokioIo::new(Coalesce::new(stream)))
            }
        });
        // tonic refuses https:// with a connector of one's own; TLS is the connector's business.
        let channel = tonic::transport::Endpoint::from_static("http://backend")
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(8 << 20)
            .http2_keep_alive_interval(Duration::from_secs(3))
            .keep_alive_timeout(Duration::from_secs(3))
            .keep_alive_while_idle(true)
            .connect_with_connector_lazy(connect);
        let load = Mutex::new(Load::new(Instant::now()));
        Ok(Self { address, channel, load, down: AtomicBool::new(false) })
    }

    /// Records the number of the pick that chose it.
    pub(super) fn record_pick(&self, number: u64) {
        self.load.lock().record_pick(number);
    }

    /// Counts a call for as long as the guard lives.
    pub(super) fn enter(&self) -> InFlight<'_> {
        self.load.lock().begin_call();
        InFlight { endpoint: self, begun: Instant::now() }
    }

    pub(super) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Marks the endpoint as not answering. Returns whether it was not marked before.
    pub(super) fn mark_down(&self) -> bool {
        !self.down.swap(true, Ordering::Relaxed)
    }

    /// Marks it as answering again, with a clean slate.
    pub(super) fn mark_up(&self) {
        self.load.lock().reset_latency(Instant::now());
        self.down.store(false, Ordering::Relaxed);
    }
}

impl Candidate for Arc<Endpoint> {
    fn is_up(&self) -> bool {
        !self.is_down()
    }

    fn load(&self) -> Load {
        *self.load.lock()
    }
}

/// A call in flight.
pub(super) struct InFlight<'a> {
    endpoint: &'a Endpoint,
    begun: Instant,
}

impl InFlight<'_> {
    /// Records the latency of a call that was answered.
    pub(super) fn record_answer(&self) {
        let now = Instant::now();
        self.endpoint.load.lock().record_latency(now.saturating_duration_since(self.begun), now);
    }

    /// Records a failure that does not speak of a lost connection: the
    /// endpoint counts as slow for a while and is spared.
    pub(super) fn penalise(&self, penalty: Duration) {
        self.endpoint.load.lock().record_latency(penalty, Instant::now());
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.endpoint.load.lock().end_call();
    }
}
