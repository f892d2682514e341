//! A small TCP balancer that stands in for a Kubernetes Service: each new connection goes to the next backend
//! that accepts it, and stays there. As with a Service, taking a backend away does not cut its connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time;

/// A backend that takes longer than this to accept is passed over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Backends {
    addresses: Vec<SocketAddr>,
    next: usize,
    connections: HashMap<SocketAddr, usize>,
}

#[derive(Default)]
struct Shared {
    backends: Mutex<Backends>,
    cut: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Backends> {
        self.backends.lock()
    }

    /// Every backend once, beginning with the one whose turn it is.
    fn turn(&self) -> Vec<SocketAddr> {
        let mut backends = self.lock();
        let mut order = backends.addresses.clone();
        if !order.is_empty() {
            let first = backends.next % order.len();
            order.rotate_left(first);
            backends.next = first + 1;
        }
        order
    }
}

/// A running balancer. Dropping it closes the listener and all connections.
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Balancer {
    /// Listens on a free loopback port and spreads connections over `backends`, in turn.
    pub async fn start(backends: impl IntoIterator<Item = SocketAddr>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("failed to bind the balancer")?;
        let address = listener.local_addr().context("failed to read the balancer's address")?;
        let shared = Arc::new(Shared::default());
        shared.lock().addresses.extend(backends);
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a backend for new connections.
    pub fn add(&self, backend: SocketAddr) {
        let mut backends = self.shared.lock();
        if !backends.addresses.contains(&backend) {
            backends.addresses.push(backend);
        }
    }

    /// Sends no new connections to a backend; those that it has go on.
    pub fn remove(&self, backend: SocketAddr) {
        self.shared.lock().addresses.retain(|address| *address != backend);
    }

    /// Cuts all connections, as a network does that fails for a moment; new ones are served.
    pub fn cut(&self) {
        self.shared.cut.notify_one();
    }

    /// How many connections a backend has been given since the start.
    pub fn connections(&self, backend: SocketAddr) -> usize {
        self.shared.lock().connections.get(&backend).copied().unwrap_or(0)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Owned by this task, so that ending it ends the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error concerns one connection that never was, as on any listener.
                if let Ok((client, _)) = accepted {
                    connections.spawn(serve(client, shared.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
            () = shared.cut.notified() => connections.abort_all(),
        }
    }
}

async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    for backend in shared.turn() {
        if let Ok(Ok(mut server)) = time::timeout(CONNECT_TIMEOUT, TcpStream::connect(backend)).await {
            *shared.lock().connections.entry(backend).or_default() += 1;
            // Best effort: without it only timing differs.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            // A broken connection is the peers' affair: both ends see it close.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}
