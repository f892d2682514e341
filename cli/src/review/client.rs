//! An HTTPS client of one front, with connections that are kept alive.
//!
//! It behaves like an API server: HTTP/1.1, a certificate that must verify for the host called, and another try
//! when the front asks for one with `Retry-After`.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sallyport_error_chain::format_chain;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time for one review with all its tries: the webhook timeout that the API server has by default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Tries of one review.
const TRIES: u32 = 4;
/// Longest wait before another try, whatever the front asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Largest answer, in bytes.
const MAX_ANSWER: usize = 32 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The address is not one.
    #[error("{0:?} is not an address such as https://127.0.0.1:8443")]
    Address(String),
    /// The name to verify is not one.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
    /// The bundle holds no certificate.
    #[error("the CA file holds no certificate in PEM that can be trusted")]
    Bundle,
    /// TLS cannot be configured.
    #[error("failed to configure TLS")]
    Tls(#[source] rustls::Error),
    /// Nobody answers there.
    #[error("failed to connect to {address}")]
    Connect {
        /// Host and port.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to {address} broke")]
    Broken {
        /// Host and port.
        address: String,
        /// Why.
        source: hyper::Error,
    },
    /// The answer could not be read.
    #[error("failed to read the answer of {address}")]
    Answer {
        /// Host and port.
        address: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The front took too long.
    #[error("no answer from {0} within {seconds} s", seconds = TIMEOUT.as_secs())]
    TimedOut(String),
}

/// What a front answered.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Bytes,
}

type Sender = SendRequest<Full<Bytes>>;

/// A client of one front.
pub(crate) struct Client {
    tls: TlsConnector,
    host: String,
    port: u16,
    name: ServerName<'static>,
    idle: Mutex<Vec<Sender>>,
}

impl Client {
    /// A client of the front at `url`, whose certificate must verify against the PEM certificates of `bundle`
    /// for `name`, or else for the host of `url`.
    pub(crate) fn new(url: &str, bundle: &[u8], name: Option<&str>) -> Result<Self, ClientError> {
        let address = || ClientError::Address(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| address())?;
        if uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(address());
        }
        let host = uri.host().ok_or_else(address)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = name.unwrap_or(bare).to_owned();
        let name = ServerName::try_from(name.clone()).map_err(|_| ClientError::Name(name))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            let certificate = certificate.map_err(|_| ClientError::Bundle)?;
            roots.add(certificate).map_err(|_| ClientError::Bundle)?;
        }
        if roots.is_empty() {
            return Err(ClientError::Bundle);
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(ClientError::Tls)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
            host: bare.to_owned(),
            port: uri.port_u16().unwrap_or(443),
            name,
            idle: Mutex::default(),
        })
    }

    /// Sends a review to a path and waits for the answer, trying again as often as the front asks for it and
    /// the time allows. The last answer counts, whatever its status.
    pub(crate) async fn post(&self, path: &str, review: &Bytes) -> Result<Reply, ClientError> {
        let mut last = None;
        let tries = async {
            for attempt in 1..=TRIES {
                let (reply, wait) = self.send(path, review).await?;
                last = Some(reply);
                match wait {
                    Some(wait) if attempt < TRIES => tokio::time::sleep(wait.min(LONGEST_WAIT)).await,
                    _ => break,
                }
            }
            Ok(())
        };
        match timeout(TIMEOUT, tries).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => last.ok_or_else(|| ClientError::TimedOut(self.address())),
        }
    }

    /// One try, on a connection that is open or else on a new one. A review may be sent twice: deciding it has
    /// no side effects.
    async fn send(&self, path: &str, review: &Bytes) -> Result<(Reply, Option<Duration>), ClientError> {
        loop {
            let kept = self.idle.lock().pop();
            let reused = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match self.exchange(&mut sender, path, review).await {
                Ok(answer) => {
                    if !sender.is_closed() {
                        self.idle.lock().push(sender);
                    }
                    return Ok(answer);
                }
                // The front had closed it in the meantime.
                Err(ClientError::Broken { .. }) if reused => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn exchange(
        &self,
        sender: &mut Sender,
        path: &str,
        review: &Bytes,
    ) -> Result<(Reply, Option<Duration>), ClientError> {
        let broken = |source| ClientError::Broken { address: self.address(), source };
        sender.ready().await.map_err(broken)?;
        let mut request = Request::new(Full::new(review.clone()));
        *request.method_mut() = Method::POST;
        let uri = format!("/{path}?timeout={}s", TIMEOUT.as_secs());
        *request.uri_mut() = uri.parse().map_err(|_| ClientError::Address(uri))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(host) = HeaderValue::from_str(&self.address()) {
            headers.insert(HOST, host);
        }
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = wait.filter(|_| matches!(status, 429 | 503)).map(Duration::from_secs);
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|source| ClientError::Answer { address: self.address(), source })?.to_bytes();
        Ok((Reply { status, body }, wait))
    }

    async fn connect(&self) -> Result<Sender, ClientError> {
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            self.tls.connect(self.name.clone(), stream).await
        };
        let stream =
            connect.await.map_err(|source| ClientError::Connect { address: self.address(), source })?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            handshake.map_err(|source| ClientError::Broken { address: self.address(), source })?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = format_chain(&error), "connection ended early");
            }
        });
        Ok(sender)
    }

    fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Client, ClientError};

    #[test]
    fn addresses_names_and_bundles_are_checked_before_anything_is_sent() {
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for address in
            ["127.0.0.1:8443", "http://127.0.0.1", "https://", "https://h/mutate", "https://h?x=1", ""]
        {
            let error = Client::new(address, b"", None).err();
            assert!(matches!(error, Some(ClientError::Address(_))), "{address}: {error:?}");
        }
        let error = Client::new("https://h", b"", Some("not a name")).err();
        assert!(matches!(error, Some(ClientError::Name(_))), "{error:?}");
        for bundle in ["", "no PEM at all", pem] {
            let error = Client::new("https://[::1]:8443", bundle.as_bytes(), None).err();
            assert!(matches!(error, Some(ClientError::Bundle)), "{bundle}: {error:?}");
        }
    }
}
