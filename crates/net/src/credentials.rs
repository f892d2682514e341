//! The certificates of one process, read from a directory and kept current.
//!
//! kubelet replaces a mounted Secret by swapping the `..data` symlink, other
//! tools rename or overwrite files. Only the content tells all of these apart
//! from a half-written state, so the directory is polled and hashed; a change
//! counts once two reads agree, and takes effect only when certificate, key
//! and bundle fit together. Until then the last good set stays in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::shutdown::Shutdown;
use crate::trust::{Anchors, Identity, NamedClient, Trust};

/// Largest certificate, key or bundle file that is read, in bytes. A Secret holds at most 1 MiB.
const MAX_FILE: u64 = 1 << 20;

/// Names of the files of a `kubernetes.io/tls` Secret with its trust bundle.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";

/// Why a directory's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file is missing or cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is larger than any certificate.
    #[error("{} is larger than {MAX_FILE} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The files changed between two reads; the next poll sees them whole.
    #[error("the files in {} are being replaced", directory.display())]
    Changing {
        /// The directory.
        directory: PathBuf,
    },
    /// A file holds no usable PEM of the expected kind.
    #[error("{file} holds no usable PEM {expected}")]
    Pem {
        /// The file's name.
        file: &'static str,
        /// What was looked for.
        expected: &'static str,
    },
    /// The key is of an unknown kind or does not belong to the certificate.
    #[error("tls.key does not belong to tls.crt")]
    KeyMismatch {
        /// What rustls said.
        source: rustls::Error,
    },
    /// The leaf certificate cannot be parsed.
    #[error("tls.crt holds a certificate that cannot be parsed: {reason}")]
    Certificate {
        /// What the parser said.
        reason: String,
    },
    /// The bundle cannot serve as trust anchors.
    #[error("ca.crt holds no usable trust anchor")]
    Anchors {
        /// What the verifier said.
        source: rustls::client::VerifierBuilderError,
    },
    /// A CA certificate of the bundle is malformed.
    #[error("ca.crt holds a certificate that cannot be a trust anchor")]
    Anchor {
        /// What rustls said.
        source: rustls::Error,
    },
    /// The peer's name is not a DNS name.
    #[error("{name:?} is not a DNS name")]
    Name {
        /// The name.
        name: String,
        /// What the parser said.
        source: InvalidDnsNameError,
    },
    /// TLS cannot be configured.
    #[error("failed to configure TLS")]
    Tls {
        /// What rustls said.
        source: rustls::Error,
    },
}

/// What a process shows and trusts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The leaf's serial number, lower-case hexadecimal.
    pub serial: String,
    /// End of the leaf's validity, seconds since the Unix epoch.
    pub not_after: i64,
    /// SHA-256 of the trust bundle's file, lower-case hexadecimal.
    pub bundle_sha256: String,
}

/// What a poll of the directory found.
#[derive(Debug)]
pub enum Reload {
    /// New files are in use.
    Replaced(CertificateStatus),
    /// New files cannot be used; the last good ones stay.
    Refused(CredentialsError),
}

/// Hot-reloaded identity and trust of one process.
#[derive(Debug)]
pub struct Credentials {
    directory: PathBuf,
    provider: Arc<CryptoProvider>,
    identity: Arc<Identity>,
    trust: Arc<Trust>,
    status: ArcSwap<CertificateStatus>,
    /// What the directory held when it was loaded; where watching begins.
    loaded: Digest,
}

impl Credentials {
    /// Loads `tls.crt`, `tls.key` and `ca.crt` of a directory.
    ///
    /// # Errors
    /// When the files cannot be read or do not fit together.
    pub fn load(directory: impl Into<PathBuf>) -> Result<Arc<Self>, CredentialsError> {
        let directory = directory.into();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let files = Files::read_settled(&directory)?;
        let loaded = Loaded::parse(&files, &provider)?;
        Ok(Arc::new(Self {
            directory,
            provider,
            identity: Arc::new(Identity(ArcSwap::from_pointee(loaded.identity))),
            trust: Arc::new(Trust(ArcSwap::from_pointee(loaded.anchors))),
            status: ArcSwap::from_pointee(loaded.status),
            loaded: files.digest(),
        }))
    }

    /// What is shown and trusted now.
    pub fn status(&self) -> Arc<CertificateStatus> {
        self.status.load_full()
    }

    /// Polls the directory every `interval` until the shutdown and tells
    /// `observer` what changed. The same defect is told once, not at each poll.
    pub async fn watch<F>(self: Arc<Self>, interval: Duration, observer: F, shutdown: Shutdown)
    where
        F: Fn(&Reload) + Send + 'static,
    {
        let mut seen = self.loaded;
        let mut unreadable = false;
        loop {
            tokio::select! {
                () = shutdown.started() => return,
                () = tokio::time::sleep(interval) => {}
            }
            let files = match Files::read_settled(&self.directory) {
                Ok(files) => files,
                Err(CredentialsError::Changing { .. }) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut unreadable, true) {
                        observer(&Reload::Refused(error));
                    }
                    continue;
                }
            };
            unreadable = false;
            let found = files.digest();
            if std::mem::replace(&mut seen, found) == found {
                continue;
            }
            let outcome = match Loaded::parse(&files, &self.provider) {
                Ok(loaded) => {
                    // Trust first: a peer may already show what only the new bundle knows.
                    self.trust.0.store(Arc::new(loaded.anchors));
                    self.identity.0.store(Arc::new(loaded.identity));
                    self.status.store(Arc::new(loaded.status.clone()));
                    Reload::Replaced(loaded.status)
                }
                Err(error) => Reload::Refused(error),
            };
            observer(&outcome);
        }
    }

    /// TLS for a public HTTPS server: h2 and HTTP/1.1, no client certificate.
    ///
    /// # Errors
    /// When rustls refuses the configuration.
    pub fn https_config(&self) -> Result<Arc<ServerConfig>, CredentialsError> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|source| CredentialsError::Tls { source })?
            .with_no_client_auth()
            .with_cert_resolver(self.identity.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// TLS for a gRPC server that only the client with `client_name` may call.
    ///
    /// # Errors
    /// When the name is no DNS name or rustls refuses the configuration.
    pub fn mutual_server_config(&self, client_name: &str) -> Result<Arc<ServerConfig>, CredentialsError> {
        let verifier = NamedClient { trust: self.trust.clone(), name: dns_name(client_name)? };
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|source| CredentialsError::Tls { source })?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(self.identity.clone());
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A resumed session skips the client certificate: after a CA change it would outlive its trust.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Arc::new(config))
    }

    /// TLS for calling a gRPC server, showing our own certificate.
    ///
    /// # Errors
    /// When rustls refuses the configuration.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, CredentialsError> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|source| CredentialsError::Tls { source })?
            .dangerous() // rustls' word for a verifier of one's own; ours delegates to webpki's
            .with_custom_certificate_verifier(self.trust.clone())
            .with_client_cert_resolver(self.identity.clone());
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// A name to verify, without the trailing dot of an absolute DNS name.
pub(crate) fn dns_name(name: &str) -> Result<ServerName<'static>, CredentialsError> {
    ServerName::try_from(name.strip_suffix('.').unwrap_or(name).to_owned())
        .map_err(|source| CredentialsError::Name { name: name.to_owned(), source })
}

/// SHA-256 of the three files.
type Digest = [u8; aws_lc_rs::digest::SHA256_OUTPUT_LEN];

/// The bytes of the three files.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    bundle: Vec<u8>,
}

impl Files {
    /// Reads twice, so that a set caught in the middle of a replacement is not taken.
    fn read_settled(directory: &Path) -> Result<Self, CredentialsError> {
        let first = Self::read(directory)?;
        if first == Self::read(directory)? {
            Ok(first)
        } else {
            Err(CredentialsError::Changing { directory: directory.to_owned() })
        }
    }

    fn read(directory: &Path) -> Result<Self, CredentialsError> {
        let read = |name: &str| {
            let path = directory.join(name);
            let failed = |source| CredentialsError::Read { path: path.clone(), source };
            let file = std::fs::File::open(&path).map_err(failed)?;
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(file, MAX_FILE + 1), &mut bytes).map_err(failed)?;
            if bytes.len() as u64 > MAX_FILE { Err(CredentialsError::TooLarge { path }) } else { Ok(bytes) }
        };
        Ok(Self { certificate: read(CERTIFICATE)?, key: read(KEY)?, bundle: read(BUNDLE)? })
    }

    /// Of the lengths too, so that no byte can move from one file to the next unseen.
    fn digest(&self) -> Digest {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for file in [&self.certificate, &self.key, &self.bundle] {
            context.update(&file.len().to_le_bytes());
            context.update(file);
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }
}

struct Loaded {
    identity: CertifiedKey,
    anchors: Anchors,
    status: CertificateStatus,
}

impl Loaded {
    fn parse(files: &Files, provider: &Arc<CryptoProvider>) -> Result<Self, CredentialsError> {
        let chain = certificates(&files.certificate, CERTIFICATE)?;
        let key = PrivateKeyDer::from_pem_slice(&files.key)
            .map_err(|_| CredentialsError::Pem { file: KEY, expected: "private key" })?;
        let (serial, not_after) = describe(&chain[0])?;
        let identity = CertifiedKey::from_der(chain, key, provider)
            .map_err(|source| CredentialsError::KeyMismatch { source })?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.bundle, BUNDLE)? {
            roots.add(certificate).map_err(|source| CredentialsError::Anchor { source })?;
        }
        let anchors = Anchors::new(roots, provider).map_err(|source| CredentialsError::Anchors { source })?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &files.bundle);
        let status = CertificateStatus { serial, not_after, bundle_sha256: hex(digest.as_ref()) };
        Ok(Self { identity, anchors, status })
    }
}

/// The certificates of a PEM file; at least one.
fn certificates(pem: &[u8], file: &'static str) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(CredentialsError::Pem { file, expected: "certificate" }),
    }
}

/// Serial number and end of validity of a certificate.
fn describe(certificate: &CertificateDer<'_>) -> Result<(String, i64), CredentialsError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| CredentialsError::Certificate { reason: error.to_string() })?;
    Ok((hex(&parsed.serial.to_bytes_be()), parsed.validity().not_after.timestamp()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}
