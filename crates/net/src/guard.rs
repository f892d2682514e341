//! The clock of one HTTP/1.1 connection, seen from below the HTTP parser.
//!
//! Two limits that hyper's one header timeout cannot tell apart: an idle
//! keep-alive connection must live longer than the API server keeps it (90 s;
//! closing it races a POST that is never retried, C-04), while the head of a
//! request that has begun must arrive soon (slow loris). So the guard watches
//! the bytes: the first byte after an idle time begins a head.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const BUSY: u8 = 2;

/// Where a connection stands between two requests. Shared by the guard below
/// the HTTP parser and the service above it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A request's head is complete; what follows is bounded by its handler.
    pub(crate) fn begin_request(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }

    /// The answer is ready; the next byte begins another request.
    pub(crate) fn end_request(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

/// How long a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) idle: Duration,
    pub(crate) head: Duration,
}

/// A stream that fails with `TimedOut` when idle or in a head for too long.
#[derive(Debug)]
pub(crate) struct Guard<S> {
    stream: S,
    phase: Phase,
    patience: Patience,
    timed: u8,
    timer: Pin<Box<Sleep>>,
}

impl<S> Guard<S> {
    pub(crate) fn new(stream: S, phase: Phase, patience: Patience) -> Self {
        // A connection without a request yet is idle like any other: the API server's pool
        // also keeps connections that it opened and did not need after all.
        let timer = Box::pin(tokio::time::sleep(patience.idle));
        Self { stream, phase, patience, timed: IDLE, timer }
    }

    fn set_timer(&mut self, phase: u8, limit: Duration) {
        self.timed = phase;
        self.timer.as_mut().reset(Instant::now() + limit);
    }

    fn expired(&mut self, context: &mut Context<'_>) -> bool {
        let phase = self.phase.0.load(Ordering::Relaxed);
        if phase == BUSY {
            self.timed = BUSY;
            return false;
        }
        // Not only after BUSY: an answer that is ready at once leads from a head straight to idleness.
        if phase == IDLE && self.timed != IDLE {
            self.set_timer(IDLE, self.patience.idle);
        }
        self.timer.as_mut().poll(context).is_ready()
    }

    fn pending(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.expired(context) { Poll::Ready(io::ErrorKind::TimedOut.into()) } else { Poll::Pending }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() {
            return self.pending(context).map(Err);
        }
        let read = buffer.filled().len() > before;
        let begun = self.phase.0.compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed);
        if read && begun.is_ok() {
            let head = self.patience.head;
            self.set_timer(HEAD, head);
        } else if !read && begun.is_ok() {
            self.phase.end_request(); // end of stream: nothing has begun
        } else if read && self.expired(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into())); // one byte at a time does not buy time
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if polled.is_pending() { self.pending(context).map(Err) } else { polled }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        if polled.is_pending() { self.pending(context).map(Err) } else { polled }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        if polled.is_pending() { self.pending(context).map(Err) } else { polled }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if polled.is_pending() { self.pending(context).map(Err) } else { polled }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{Guard, Patience, Phase};

    const PATIENCE: Patience = Patience { idle: Duration::from_secs(100), head: Duration::from_secs(10) };

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_in_is_cut_after_the_head_limit() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut guard = Guard::new(server, Phase::default(), PATIENCE);
        let begun = tokio::time::Instant::now();
        let trickle = tokio::spawn(async move {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let error = loop {
            if let Err(error) = guard.read_u8().await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() <= Duration::from_secs(12), "{:?}", begun.elapsed());
        drop(guard);
        trickle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_outlives_the_api_servers_ninety_seconds_c04() {
        let (mut client, server) = tokio::io::duplex(64);
        let phase = Phase::default();
        let mut guard = Guard::new(server, phase.clone(), PATIENCE);
        client.write_all(b"x").await.unwrap();
        guard.read_u8().await.unwrap();
        phase.begin_request();
        phase.end_request();
        assert!(
            tokio::time::timeout(Duration::from_secs(95), guard.read_u8()).await.is_err(),
            "closed too soon"
        );
        let error =
            tokio::time::timeout(Duration::from_secs(20), guard.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_being_served_is_not_timed_here() {
        let (_client, server) = tokio::io::duplex(64);
        let phase = Phase::default();
        let mut guard = Guard::new(server, phase.clone(), PATIENCE);
        phase.begin_request();
        assert!(tokio::time::timeout(Duration::from_secs(500), guard.read_u8()).await.is_err());
    }
}
