//! A plain HTTP/1.1 GET, for the admin endpoints of our services (`/readyz`, `/metrics`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time;

/// The largest body that [`get`] reads, in bytes.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// An HTTP answer, read wholly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The body, with invalid UTF-8 replaced.
    pub body: String,
}

/// Fetches an `http://host:port/path` URL on a connection of its own, in at most `timeout`.
pub async fn get(url: &str, timeout: Duration) -> Result<Answer> {
    time::timeout(timeout, fetch(url))
        .await
        .with_context(|| format!("no answer from {url} within {timeout:?}"))?
        .with_context(|| format!("failed to get {url}"))
}

async fn fetch(url: &str) -> Result<Answer> {
    let uri: Uri = url.parse().context("the URL is malformed")?;
    ensure!(uri.scheme_str() == Some("http"), "the URL's scheme is not http");
    let authority = uri.authority().context("the URL has no host")?;
    let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header("host", authority.as_str())
        .header("connection", "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_LIMIT)
            .collect()
            .await
            .map_err(|error| anyhow::anyhow!("failed to read the body: {error}"))?
            .to_bytes();
        anyhow::Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
    };
    // The connection's own result matters only through what the exchange sees of it.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}
