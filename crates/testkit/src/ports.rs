//! Loopback ports for programs that cannot be told to choose one themselves.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use tokio::net::TcpSocket;

/// Where ports are looked for: below the range that the kernel takes ports of outgoing connections from (32768
/// on Linux), or one of a load test's connections could have the port before its server does.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// How many ports a process takes at once.
const BLOCK: u16 = 50;

/// The ports that are this process's alone.
struct Taken {
    /// The locks on them, one a block. Each ends with the process.
    blocks: Vec<File>,
    rest: std::ops::Range<u16>,
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken { blocks: Vec::new(), rest: 0..0 });

/// `N` loopback ports that were free a moment ago. No port is given twice while the process lives, not to another test
/// program either: between the answer and the start of a server, nobody else is told of its port. Callers that can
/// listen on port 0 themselves should.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut taken = TAKEN.lock();
    let mut ports = [0; N];
    for port in &mut ports {
        *port = loop {
            match taken.rest.next() {
                Some(candidate) if TcpListener::bind(("127.0.0.1", candidate)).is_ok() => break candidate,
                Some(_) => {}
                None => taken.take_block()?,
            }
        };
    }
    Ok(ports)
}

impl Taken {
    fn take_block(&mut self) -> Result<()> {
        // Another user's files cannot be locked.
        let user = std::env::var("USER").unwrap_or_default();
        let directory = std::env::temp_dir().join(format!("sallyport-test-ports-{user}"));
        std::fs::create_dir_all(&directory).context("failed to make the directory of port locks")?;
        let count = (PORTS.end - PORTS.start) / BLOCK;
        // Processes begin at different places: what one has left may linger in its children for a moment.
        let first = u16::try_from(std::process::id() % u32::from(count)).unwrap_or_default();
        for step in 0..count {
            let start = PORTS.start + (first + step) % count * BLOCK;
            let file =
                File::create(directory.join(start.to_string())).context("failed to make a port lock")?;
            if file.try_lock().is_ok() {
                self.blocks.push(file);
                self.rest = start..start + BLOCK;
                return Ok(());
            }
        }
        anyhow::bail!("every port from {} to {} is taken by tests", PORTS.start, PORTS.end)
    }
}

/// An address on loopback that nobody listens on, and nobody else can while this is held: connections are refused.
#[derive(Debug)]
pub struct Unreachable {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl Unreachable {
    /// Takes one.
    pub fn take() -> Result<Self> {
        let socket = TcpSocket::new_v4().context("failed to make a socket")?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("failed to bind to a port")?;
        Ok(Self { address: socket.local_addr()?, _socket: socket })
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: std::collections::BTreeSet<u16> =
            (0..2 * BLOCK).flat_map(|_| free_ports::<1>().unwrap()).collect();
        assert_eq!(ports.len(), usize::from(2 * BLOCK));
    }

    #[tokio::test]
    async fn an_unreachable_address_refuses_and_stays_taken() {
        let unreachable = Unreachable::take().unwrap();
        let refused = tokio::net::TcpStream::connect(unreachable.address()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        TcpListener::bind(unreachable.address()).unwrap_err();
    }
}
