//! TLS connections: handshakes run beside each other, each under a timeout, and a connection holds its place for as
//! long as it lives.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::accept::{Place, accept};
use crate::coalesce::Coalesce;

/// Bytes that are read at once. rustls alone asks for 4 KiB, three system calls for a usual review.
const READ: usize = 12 << 10;

/// How many connections, and how long a handshake.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections open at once, handshakes included. More wait in the kernel's queue.
    pub connections: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
}

impl Default for AcceptLimits {
    fn default() -> Self {
        Self { connections: 4096, handshake: Duration::from_secs(5) }
    }
}

/// Connections open now, handshakes included; shared with whoever exports the number.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(Arc<AtomicUsize>);

impl OpenConnections {
    /// The number.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Counted(OpenConnections);

impl Counted {
    fn new(open: &OpenConnections) -> Self {
        open.0.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An established TLS connection.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<BufReader<TcpStream>>,
    _place: Place,
    _counted: Counted,
}

impl Connection {
    /// The protocol that client and server agreed on, such as `h2`.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.alpn_protocol()
    }
}

impl Connected for Connection {
    // Who may connect was settled in the handshake; handlers need to know nothing more.
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Establishes the TLS connections of one listener.
pub(crate) struct Handshakes {
    acceptor: TlsAcceptor,
    limit: Duration,
    open: OpenConnections,
}

impl Handshakes {
    /// Handshakes that each end within `limit`; their connections are counted in `open`.
    pub(crate) fn new(tls: Arc<ServerConfig>, limit: Duration, open: OpenConnections) -> Self {
        Self { acceptor: TlsAcceptor::from(tls), limit, open }
    }

    /// Shakes hands over an accepted stream, which counts as open from this call on. Resolves to `None` when the
    /// handshake fails or takes too long.
    pub(crate) fn begin(
        &self,
        stream: TcpStream,
        place: Place,
    ) -> impl Future<Output = Option<Connection>> + Send + use<> {
        let (acceptor, limit) = (self.acceptor.clone(), self.limit);
        let counted = Counted::new(&self.open);
        async move {
            let _ = stream.set_nodelay(true); // only latency is at stake
            let handshake = acceptor.accept(BufReader::with_capacity(READ, stream));
            match tokio::time::timeout(limit, handshake).await {
                Ok(Ok(stream)) => return Some(Connection { stream, _place: place, _counted: counted }),
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            }
            None
        }
    }
}

/// TLS connections for tonic's `serve_with_incoming_shutdown`.
pub fn grpc_incoming(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: AcceptLimits,
) -> impl Stream<Item = io::Result<Coalesce<Connection>>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(64);
    let handshakes = Handshakes::new(tls, limits.handshake, OpenConnections::default());
    tokio::spawn(async move {
        let serve = |stream, place| {
            let (handshake, sender) = (handshakes.begin(stream, place), sender.clone());
            async move {
                if let Some(connection) = handshake.await {
                    let _ = sender.send(connection).await;
                }
            }
        };
        accept(listener, limits.connections, sender.closed(), serve).await;
    });
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|connection| (Ok(Coalesce::new(connection)), receiver))
    })
}
