//! A close that the client can read to its end.
//!
//! A socket that is closed while bytes arrive is reset. A client that is writing then fails, before it has read the
//! answer that says `Connection: close`, or the GOAWAY that says which requests were not begun: Go's gives up every
//! request of that connection. So the end of our own side is sent first, and what still arrives is read and dropped
//! until the client has closed too.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long the client has to close. It needs a round trip and the time to read what was sent.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is read and dropped at a time.
const CHUNK: usize = 4 << 10;

/// A stream whose shutdown ends when both sides are closed, or after [`PATIENCE`].
#[derive(Debug)]
pub(crate) struct Linger<S> {
    stream: S,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    /// Nobody has asked for the end yet, or our own side is still being closed.
    No,
    /// Our own side is closed; the client's is not.
    Until(Pin<Box<Sleep>>),
    Done,
}

impl<S> Linger<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, closing: Closing::No }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Linger<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Linger<S> {
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
        let this = &mut *self;
        loop {
            match &mut this.closing {
                Closing::No => {
                    ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
                    this.closing = Closing::Until(Box::pin(tokio::time::sleep(PATIENCE)));
                }
                Closing::Until(patience) => {
                    if patience.as_mut().poll(context).is_pending() {
                        let mut dropped = [0; CHUNK];
                        let mut dropped = ReadBuf::new(&mut dropped);
                        let read = ready!(Pin::new(&mut this.stream).poll_read(context, &mut dropped));
                        if read.is_ok() && !dropped.filled().is_empty() {
                            continue;
                        }
                    }
                    this.closing = Closing::Done;
                }
                Closing::Done => return Poll::Ready(Ok(())),
            }
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::{Linger, PATIENCE};

    /// Whether a client can go on writing to a server that has written a last word and closed, and what it reads then.
    async fn write_to_closed(lingers: bool) -> (bool, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        client.write_all(b"a request that nobody reads").await.unwrap();
        server.readable().await.unwrap();
        server.write_all(b"the last word").await.unwrap();
        let closing = if lingers {
            tokio::spawn(async move { Linger::new(server).shutdown().await.unwrap() })
        } else {
            drop(server);
            tokio::spawn(async {})
        };
        let mut written = true;
        for _ in 0..100 {
            written &= client.write_all(&[0; 1 << 10]).await.is_ok();
        }
        let mut word = String::new();
        let _ = client.read_to_string(&mut word).await;
        drop(client);
        closing.await.unwrap();
        (written, word)
    }

    #[tokio::test]
    async fn a_client_that_goes_on_writing_meets_no_reset_c102() {
        assert_eq!(write_to_closed(true).await, (true, "the last word".to_owned()));
        assert!(!write_to_closed(false).await.0, "a plain close resets the connection");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_is_not_waited_for() {
        let (mut client, server) = tokio::io::duplex(64);
        let begun = Instant::now();
        let closing = tokio::spawn(async move { Linger::new(server).shutdown().await });
        while client.write_all(b"still here").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        closing.await.unwrap().unwrap();
        assert!((PATIENCE..PATIENCE * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_the_client_has_closed() {
        let (client, server) = tokio::io::duplex(64);
        let begun = Instant::now();
        drop(client);
        Linger::new(server).shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
