//! Bare TLS servers and clients: handshakes and bytes, no HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sallyport_net::{AcceptLimits, grpc_incoming};
use sallyport_pki::Certificate;
pub use sallyport_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::Ca;

/// Longest that anything here is waited for. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Sends back what it gets, and counts the connections that it was given.
pub struct Echo {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Echo {
    pub async fn start(tls: Arc<ServerConfig>, limits: AcceptLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = accepted.clone();
        let mut incoming = Box::pin(grpc_incoming(listener, tls, limits));
        tokio::spawn(async move {
            while let Some(Ok(connection)) = incoming.next().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(connection);
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        Self { address, accepted }
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// A client that trusts one authority and shows nothing; the protocols as given.
pub fn plain_client(ca: &Ca, protocols: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(ca))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

pub fn roots(ca: &Ca) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().der().clone()).unwrap();
    roots
}

/// Connects and shakes hands. With TLS 1.3 the server's refusal comes only with the first read.
pub async fn connect(
    address: SocketAddr,
    name: &str,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let handshake = TlsConnector::from(config).connect(name, stream);
    tokio::time::timeout(PATIENCE, handshake).await.expect("the handshake hangs")
}

/// Sends a word and reads it back.
pub async fn echo(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let exchange = async {
        stream.write_all(b"hello").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"hello");
        Ok(())
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("the echo hangs")
}

/// Whether a whole connection works, there and back.
pub async fn reaches(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> bool {
    match connect(address, name, config).await {
        Ok(mut stream) => echo(&mut stream).await.is_ok(),
        Err(_) => false,
    }
}

/// The serial that a server shows on this connection.
pub fn shown(stream: &TlsStream<TcpStream>) -> String {
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    Certificate::from_der(chain[0].clone().into_owned()).unwrap().serial()
}
