//! Binding an address and accepting connections, the same for every server of a process.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pause after a failed accept, mostly for want of file descriptors: time for others to close theirs.
const PAUSE: Duration = Duration::from_millis(50);

/// Binds an address. `[::]` takes IPv4 connections too; where the host has no IPv6, `0.0.0.0` is bound instead.
///
/// # Errors
/// When the address is taken, or is none of the host's.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if falls_back(address, &error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Returns whether `[::]` was refused for another reason than its port: hosts without IPv6 say so in many ways.
fn falls_back(address: SocketAddr, error: &io::Error) -> bool {
    address.is_ipv6() && address.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse
}

/// One of a listener's connections: counts against its limit until it is dropped.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

/// Accepts connections and runs `serve` on each in a task of its own, until `stop` resolves. Connections that are
/// open then are left to their tasks.
///
/// At most `connections` are open at once, as counted by their [`Place`]s; more wait in the kernel's queue. A failed
/// accept is logged and does not end the loop.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let listener = sallyport_net::bind("127.0.0.1:0".parse().unwrap()).await?;
/// let address = listener.local_addr()?;
/// let shutdown = sallyport_net::Shutdown::new();
/// let stop = shutdown.clone();
/// let accepting = tokio::spawn(async move {
///     let serve = |mut stream: tokio::net::TcpStream, place| async move {
///         let _ = stream.write_all(b"hello").await;
///         drop(place);
///     };
///     sallyport_net::accept(listener, 16, stop.started(), serve).await;
/// });
///
/// let mut greeting = String::new();
/// tokio::net::TcpStream::connect(address).await?.read_to_string(&mut greeting).await?;
/// assert_eq!(greeting, "hello");
/// shutdown.trigger();
/// accepting.await?;
/// # Ok(())
/// # }
/// ```
pub async fn accept<S, F>(listener: TcpListener, connections: usize, stop: impl Future<Output = ()>, serve: S)
where
    S: Fn(TcpStream, Place) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS)));
    let mut stop = pin!(stop);
    loop {
        let next = async {
            // Never closed, so acquiring cannot fail.
            let permit = places.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = listener.accept().await?;
            Ok::<_, io::Error>((stream, Place { _permit: permit }))
        };
        let accepted = tokio::select! {
            accepted = next => accepted,
            () = &mut stop => return,
        };
        match accepted {
            Ok((stream, place)) => {
                tokio::spawn(serve(stream, place));
            }
            Err(error) => {
                let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
                tracing::warn!(%error, address, "failed to accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;

    use super::{accept, bind, falls_back};

    #[test]
    fn only_any_address_of_a_host_without_ipv6_falls_back() {
        let (any, one, four): (SocketAddr, SocketAddr, SocketAddr) =
            ("[::]:1".parse().unwrap(), "[::1]:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        for (address, error, expected) in [
            (any, Error::from_raw_os_error(97), true), // EAFNOSUPPORT
            (any, ErrorKind::AddrNotAvailable.into(), true),
            (any, ErrorKind::Unsupported.into(), true),
            (any, ErrorKind::AddrInUse.into(), false),
            (any, ErrorKind::PermissionDenied.into(), true), // a sandbox without IPv6
            (one, ErrorKind::AddrNotAvailable.into(), false),
            (four, ErrorKind::AddrNotAvailable.into(), false),
        ] {
            assert_eq!(falls_back(address, &error), expected, "{address} {error:?}");
        }
    }

    #[tokio::test]
    async fn any_address_takes_ipv4_connections() {
        let listener = bind("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_is_served_when_a_place_is_free_and_none_after_the_stop() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (served, mut serving) = mpsc::unbounded_channel();
        let stop = crate::Shutdown::new();
        let accepting = tokio::spawn({
            let stop = stop.clone();
            async move {
                let serve = |stream, place| {
                    let _ = served.send((stream, place));
                    std::future::ready(())
                };
                accept(listener, 1, stop.started(), serve).await;
            }
        });
        let _clients =
            [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let first = serving.recv().await.unwrap();
        tokio::task::yield_now().await;
        assert!(serving.try_recv().is_err(), "a second connection was accepted");
        drop(first);
        let (mut second, _place) = serving.recv().await.unwrap();
        // Also with every place taken.
        stop.trigger();
        accepting.await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
        assert!(futures::FutureExt::now_or_never(second.read_u8()).is_none(), "its connection stays open");
    }
}
