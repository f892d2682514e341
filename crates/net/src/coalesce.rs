//! Fewer, larger writes for gRPC connections.
//!
//! An h2 connection flushes after nearly every frame: a call is headers, data
//! and the end of its stream, an answer headers, data and trailers, each a TLS
//! record and a system call of its own, which cost more than the review. Here a
//! flush waits until the tasks that can run now have run; what they write for
//! the same connection goes out with it.
//!
//! The invariant: written bytes never wait for another write. A postponed flush
//! wakes the connection's task, which flushes or reads again, and either sends
//! them.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// Most bytes that are gathered; two TLS records.
const MOST: usize = 32 << 10;

enum Flush {
    /// Nobody has asked.
    Idle,
    /// Asked for; to be done once others have run.
    Postponed(Arc<Turn>),
    /// Being done.
    Due,
}

/// One turn of the runtime, and the task to wake when it is over.
struct Turn {
    over: AtomicBool,
    task: Waker,
}

impl Turn {
    fn begin(task: &Waker) -> Arc<Self> {
        let turn = Arc::new(Self { over: AtomicBool::new(false), task: task.clone() });
        // Polled once, a yield has the runtime wake its caller after those that can run now.
        let waker = Waker::from(turn.clone());
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
        turn
    }

    /// Whether this task may rely on being woken when the turn is over.
    fn holds_for(&self, task: &Waker) -> bool {
        !self.over.load(Ordering::Acquire) && self.task.will_wake(task)
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.over.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

/// A stream whose flushes are postponed by one turn of the runtime.
pub struct Coalesce<S> {
    stream: S,
    buffer: BytesMut,
    flush: Flush,
}

impl<S> Coalesce<S> {
    /// Gathers what is written to `stream`.
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), flush: Flush::Idle }
    }
}

impl<S: AsyncWrite + Unpin> Coalesce<S> {
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffer.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.buffer))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesce<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.buffer.len() >= MOST {
            ready!(self.poll_drain(context))?;
        }
        let mut taken = 0;
        for slice in slices {
            let room = MOST.saturating_sub(self.buffer.len()).min(slice.len());
            self.buffer.extend_from_slice(&slice[..room]);
            taken += room;
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() {
            if matches!(self.flush, Flush::Idle) {
                self.flush = Flush::Postponed(Turn::begin(context.waker()));
            }
            if let Flush::Postponed(turn) = &self.flush {
                if turn.holds_for(context.waker()) {
                    return Poll::Ready(Ok(()));
                }
                self.flush = Flush::Due;
            }
            ready!(self.poll_drain(context))?;
        }
        self.flush = Flush::Idle;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesce<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !matches!(self.flush, Flush::Idle) {
            // A task that only waits for an answer need not flush again to get its question out.
            if let Poll::Ready(Err(error)) = self.as_mut().poll_flush(context) {
                return Poll::Ready(Err(error));
            }
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: Connected> Connected for Coalesce<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

    use super::{Coalesce, MOST};

    #[tokio::test]
    async fn several_flushes_of_one_turn_are_one_write() {
        let (mut peer, stream) = tokio::io::duplex(1 << 20);
        let mut coalesced = Coalesce::new(stream);
        let mut seen = [0; 16];
        for part in [&b"headers "[..], b"data ", b"end"] {
            coalesced.write_all(part).await.unwrap();
            coalesced.flush().await.unwrap();
        }
        let early = futures::FutureExt::now_or_never(peer.read(&mut seen));
        assert!(early.is_none(), "nothing is out before others had their turn");
        tokio::task::yield_now().await;
        coalesced.flush().await.unwrap();
        let read = peer.read(&mut seen).await.unwrap();
        assert_eq!(&seen[..read], b"headers data end");
    }

    /// What an h2 connection does: it flushes whenever it is polled, and is polled when woken.
    #[tokio::test]
    async fn a_postponed_flush_wakes_its_task() {
        let (mut peer, stream) = tokio::io::duplex(1 << 20);
        let mut coalesced = Coalesce::new(stream);
        coalesced.write_all(b"x").await.unwrap();
        tokio::spawn(poll_fn(move |context| {
            let _ = Pin::new(&mut coalesced).poll_flush(context);
            std::task::Poll::<()>::Pending
        }));
        assert_eq!(peer.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn more_than_the_buffer_goes_through_in_order_and_shutdown_leaves_nothing_behind() {
        let (mut peer, stream) = tokio::io::duplex(1000);
        let mut coalesced = Coalesce::new(stream);
        let sent: Vec<u8> = (0..5 * MOST).map(|number| u8::try_from(number % 251).unwrap()).collect();
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            coalesced.write_all(&sent).await.unwrap();
            coalesced.shutdown().await.unwrap();
        });
        let mut seen = Vec::new();
        peer.read_to_end(&mut seen).await.unwrap();
        writer.await.unwrap();
        assert!(seen == expected);
    }
}
