//! A plain HTTP/1.1 GET, for the admin endpoints of our services (`/readyz`, `/metrics`) and for an API server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time;
use tokio_rustls::TlsConnector;

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
    exchange(connect(&uri).await?, &uri, None).await
}

/// The same of an `https://address:port/path` URL, whose server's certificate chains to one in `ca_file`, with a
/// bearer token.
pub(crate) async fn get_securely(
    url: &str,
    ca_file: &Path,
    token: &str,
    timeout: Duration,
) -> Result<Answer> {
    time::timeout(timeout, fetch_securely(url, ca_file, token))
        .await
        .with_context(|| format!("no answer from {url} within {timeout:?}"))?
}

async fn fetch_securely(url: &str, ca_file: &Path, token: &str) -> Result<Answer> {
    let uri: Uri = url.parse().context("the URL is malformed")?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_file_iter(ca_file)?.filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(uri.host().context("the URL has no host")?.to_owned())?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, connect(&uri).await?).await?;
    exchange(stream, &uri, Some(token)).await
}

async fn connect(uri: &Uri) -> Result<TcpStream> {
    let authority = uri.authority().context("the URL has no host")?;
    Ok(TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80))).await?)
}

async fn exchange<S>(stream: S, uri: &Uri, token: Option<&str>) -> Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header("host", uri.authority().map_or("", |authority| authority.as_str()))
        .header("connection", "close");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new())?;
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
