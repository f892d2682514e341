//! One replica of a backend: its channel, its load, and whether it answers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Channel;

use crate::coalesce::Coalesce;
use crate::credentials::{CredentialsError, dns_name};

/// A replica that has not answered yet counts as this slow, so that it is not
/// taken for free (linkerd floors its estimate likewise).
const INITIAL_LATENCY: Duration = Duration::from_millis(1);

/// Replicas that answer faster than this are equally fast. Nobody waits noticeably for so little, and differences
/// below it are noise, which would leave the unlucky ones idle.
const EQUALLY_FAST: Duration = Duration::from_millis(10);

/// How fast an old latency peak is forgotten.
const DECAY: Duration = Duration::from_secs(2);

/// Exponentially weighted latency that follows peaks at once.
#[derive(Debug)]
struct PeakEwma {
    seconds: f64,
    updated: Instant,
}

impl PeakEwma {
    fn decayed(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.seconds * (-elapsed / DECAY.as_secs_f64()).exp()
    }

    fn observe(&mut self, latency: Duration, now: Instant) {
        let (sample, current) = (latency.as_secs_f64(), self.decayed(now));
        // A peak counts in full; below it, each sample moves the estimate a tenth of the way.
        self.seconds = if sample > current { sample } else { current + (sample - current) / 10.0 };
        self.updated = now;
    }
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) channel: Channel,
    in_flight: AtomicUsize,
    latency: Mutex<PeakEwma>,
    /// When it was last picked, as the number of that pick.
    picked: AtomicU64,
    down: AtomicBool,
}

impl Endpoint {
    /// An endpoint that connects when it is first called. Must be made inside a tokio runtime.
    pub(crate) fn new(
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
        let latency = PeakEwma { seconds: INITIAL_LATENCY.as_secs_f64(), updated: Instant::now() };
        Ok(Self {
            address,
            channel,
            in_flight: AtomicUsize::new(0),
            latency: Mutex::new(latency),
            picked: AtomicU64::new(0),
            down: AtomicBool::new(false),
        })
    }

    /// What another call would cost here: latency times the calls it would share it with.
    pub(crate) fn load(&self) -> f64 {
        let latency = self.latency.lock().decayed(Instant::now()).max(EQUALLY_FAST.as_secs_f64());
        #[allow(clippy::cast_precision_loss)] // counts of calls, far below 2^52
        let calls = (self.in_flight.load(Ordering::Relaxed) + 1) as f64;
        latency * calls
    }

    /// Whether a call is better made here than there: for less, or, at the same cost, where the last pick was
    /// longer ago.
    pub(crate) fn is_better_than(&self, other: &Self) -> bool {
        let order = self.load().total_cmp(&other.load());
        order
            .then_with(|| self.picked.load(Ordering::Relaxed).cmp(&other.picked.load(Ordering::Relaxed)))
            .is_lt()
    }

    /// Notes the number of the pick that chose it.
    pub(crate) fn note_pick(&self, number: u64) {
        self.picked.store(number, Ordering::Relaxed);
    }

    /// Counts a call for as long as the guard lives.
    pub(crate) fn enter(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight { endpoint: self, begun: Instant::now() }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Marks the endpoint as not answering; true when it was not marked before.
    pub(crate) fn mark_down(&self) -> bool {
        !self.down.swap(true, Ordering::Relaxed)
    }

    /// Marks it as answering again, with a clean slate.
    pub(crate) fn mark_up(&self) {
        *self.latency.lock() = PeakEwma { seconds: INITIAL_LATENCY.as_secs_f64(), updated: Instant::now() };
        self.down.store(false, Ordering::Relaxed);
    }
}

/// A call in flight.
pub(crate) struct InFlight<'a> {
    endpoint: &'a Endpoint,
    begun: Instant,
}

impl InFlight<'_> {
    /// Records the latency of a call that was answered. A call that failed is
    /// not recorded: failing fast must not look like being fast.
    pub(crate) fn answered(&self) {
        self.endpoint.latency.lock().observe(self.begun.elapsed(), Instant::now());
    }

    /// Records a failure that does not speak of a lost connection: the
    /// endpoint counts as slow for a while and is spared.
    pub(crate) fn penalise(&self, penalty: Duration) {
        self.endpoint.latency.lock().observe(penalty, Instant::now());
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{DECAY, PeakEwma};
    use std::time::{Duration, Instant};

    #[test]
    fn a_peak_counts_at_once_and_is_forgotten_with_time() {
        let start = Instant::now();
        let mut latency = PeakEwma { seconds: 0.001, updated: start };
        latency.observe(Duration::from_secs(1), start);
        assert!((latency.decayed(start) - 1.0).abs() < 1e-9);
        latency.observe(Duration::from_millis(1), start);
        assert!(latency.decayed(start) > 0.8, "one fast answer does not hide a peak");
        assert!(latency.decayed(start + DECAY * 10) < 0.001, "time does");
    }
}
