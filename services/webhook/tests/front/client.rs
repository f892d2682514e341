//! An HTTP/1.1 client that sends exactly what it is given.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest that anything here is waited for. Only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// TLS towards the front, trusting the suite's authority.
pub fn tls(roots: RootCertStore, protocol: &[u8]) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config)
}

pub async fn connect(
    address: SocketAddr,
    name: &str,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(config).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// One connection.
pub struct Client {
    stream: BufReader<TlsStream<TcpStream>>,
}

/// The head of a POST, without a length.
pub fn head(path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: front\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head
}

impl Client {
    pub fn new(stream: TlsStream<TcpStream>) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Posts JSON and reads the answer.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> Answer {
        self.post_with(path, &[("Content-Type", "application/json")], body).await
    }

    /// Posts with headers of one's own.
    pub async fn post_with(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request =
            format!("{}Content-Length: {}\r\n\r\n", head(path, headers), body.len()).into_bytes();
        request.extend_from_slice(body);
        self.exchange(&request).await
    }

    /// Sends bytes and reads one answer, even when the front answers before all is sent.
    pub async fn exchange(&mut self, request: &[u8]) -> Answer {
        let (read, mut write) = tokio::io::split(&mut self.stream);
        let mut read = BufReader::new(read);
        let sending = async {
            // A front that has answered need not take the rest.
            let _ = write.write_all(request).await;
            let _ = write.flush().await;
            std::future::pending::<()>().await;
        };
        let exchange = async {
            tokio::select! {
                answer = receive(&mut read) => answer,
                () = sending => unreachable!(),
            }
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .expect("no answer comes")
            .expect("the connection broke")
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    pub async fn answer(&mut self) -> io::Result<Answer> {
        tokio::time::timeout(PATIENCE, receive(&mut self.stream)).await.expect("no answer comes")
    }

    /// The first line of an answer, for answers without a body.
    pub async fn status(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let reading = tokio::io::AsyncBufReadExt::read_line(&mut self.stream, &mut line);
        tokio::time::timeout(PATIENCE, reading).await.expect("no answer comes")?;
        Ok(line)
    }

    /// Whether the front ends the connection now.
    pub async fn is_closed(&mut self) -> bool {
        let read = tokio::time::timeout(Duration::from_secs(5), self.stream.read_u8()).await;
        matches!(read, Ok(Err(_)))
    }
}

async fn receive(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    let length = answer.header("content-length").expect("an answer without a length").parse().unwrap();
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body).await?;
    Ok(answer)
}
