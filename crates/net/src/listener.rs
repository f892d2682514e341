//! Accepting TLS connections: handshakes run beside each other, each under a
//! timeout, and a connection holds its permit for as long as it lives.

use crate::coalesce::Coalesce;
use futures::Stream;
use rustls::ServerConfig;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

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
    _permit: OwnedSemaphorePermit,
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

/// Accepts connections and gives those whose handshake succeeded to `sender`,
/// until nobody receives.
pub(crate) async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: AcceptLimits,
    open: OpenConnections,
    sender: mpsc::Sender<Connection>,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or the client has gone: neither ends the server.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let counted = Counted::new(&open);
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true); // only latency is at stake
            match tokio::time::timeout(
                limits.handshake,
                acceptor.accept(BufReader::with_capacity(READ, stream)),
            )
            .await
            {
                Ok(Ok(stream)) => {
                    let _ = sender.send(Connection { stream, _permit: permit, _counted: counted }).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            }
        });
    }
}

/// TLS connections for tonic's `serve_with_incoming_shutdown`.
pub fn grpc_incoming(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: AcceptLimits,
) -> impl Stream<Item = io::Result<Coalesce<Connection>>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(accept(listener, tls, limits, OpenConnections::default(), sender));
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|connection| (Ok(Coalesce::new(connection)), receiver))
    })
}
