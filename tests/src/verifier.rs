//! Looks again and again at every certificate that is served and every trust bundle that is in use, and verifies
//! each against each.
//!
//! Bundles are read before and after the certificates. One that is the same both times was in use when the
//! certificates were shown, so they have to verify against it; where it changed meanwhile, against one of the two.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::{Api, Client};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use sallyport_net::Credentials;
use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, check};
use sallyport_testkit::probe;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::kubelet::Kubelet;

/// Time between two samples.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one handshake or page may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most violations that are kept with their text.
const TEXTS: usize = 20;

/// A process that serves.
#[derive(Debug, Clone)]
pub struct Server {
    /// The pod.
    pub pod: String,
    /// Of which service it is.
    pub member: Member,
    /// Where it serves.
    pub address: SocketAddr,
    /// Base URL of its admin endpoint.
    pub admin: String,
    /// The name that callers verify.
    pub name: String,
    /// What is mounted for it.
    pub directory: PathBuf,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many times everything was looked at.
    pub samples: usize,
    /// How many times a certificate was verified against a bundle.
    pub verified: usize,
    /// How many of those were against the bundle before or the one after.
    pub either: usize,
    /// Serial numbers of the certificates.
    pub leaves: BTreeSet<String>,
    /// Fingerprints of the bundles.
    pub bundles: BTreeSet<String>,
    /// What did not verify, the first of them.
    pub violations: Vec<String>,
}

impl Report {
    fn violation(&mut self, text: String) {
        if self.violations.len() < TEXTS {
            self.violations.push(text);
        }
    }
}

/// A running verifier.
#[derive(Debug)]
pub struct Verifier {
    stop: watch::Sender<bool>,
    task: JoinHandle<Report>,
}

struct Subject {
    client: Client,
    configuration: String,
    servers: Vec<Server>,
    kubelet: Arc<Kubelet>,
}

impl Verifier {
    /// Begins to look at `servers` and at both configurations named `configuration`.
    pub fn start(client: Client, configuration: &str, servers: Vec<Server>, kubelet: Arc<Kubelet>) -> Self {
        let subject = Subject { client, configuration: configuration.to_owned(), servers, kubelet };
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(verify(subject, stopped)) }
    }

    /// Ends it, and says what was seen.
    ///
    /// # Panics
    /// When it has.
    pub async fn finish(self) -> Report {
        let _ = self.stop.send(true);
        self.task.await.expect("the verifier")
    }
}

async fn verify(subject: Subject, stopped: watch::Receiver<bool>) -> Report {
    let mut report = Report::default();
    let mut before = subject.bundles().await;
    while !*stopped.borrow() {
        let chains = join_all(subject.servers.iter().map(|server| subject.chain(server))).await;
        let after = subject.bundles().await;
        match (&before, &after) {
            (Ok(before), Ok(after)) => subject.compare(before, after, &chains, &mut report),
            (_, Err(error)) => report.violation(format!("{error:#}")),
            // It has been told already.
            (Err(_), Ok(_)) => {}
        }
        before = after;
        tokio::time::sleep(PAUSE).await;
    }
    report
}

type Chain = Vec<CertificateDer<'static>>;

impl Subject {
    fn compare(
        &self,
        before: &BTreeMap<String, Bundle>,
        after: &BTreeMap<String, Bundle>,
        chains: &[Result<Chain>],
        report: &mut Report,
    ) {
        report.samples += 1;
        let now = SystemTime::now();
        for (server, chain) in self.servers.iter().zip(chains) {
            let chain = match chain {
                Ok(chain) => chain,
                Err(error) => {
                    report.violation(format!("{}: {error:#}", server.pod));
                    continue;
                }
            };
            for (place, bundle) in after {
                let former = before.get(place).unwrap_or(bundle);
                report.verified += 1;
                report.either += usize::from(former != bundle);
                report.bundles.insert(bundle.fingerprint());
                let verdict = judge(server, chain, bundle, now);
                let verdict = verdict.or_else(|error| judge(server, chain, former, now).map_err(|_| error));
                match verdict {
                    Ok(serial) => drop(report.leaves.insert(serial)),
                    Err(error) => report.violation(format!(
                        "{}'s certificate against the bundle of {place} ({} authorities): {error:#}",
                        server.pod,
                        bundle.certificates().len()
                    )),
                }
            }
        }
    }

    /// Every bundle in use, by the place that uses it.
    async fn bundles(&self) -> Result<BTreeMap<String, Bundle>> {
        let pages = try_join_all(self.servers.iter().map(|server| self.loaded(server)));
        let (pages, entries) = tokio::try_join!(pages, self.entries())?;
        Ok(pages.into_iter().chain(entries).collect())
    }

    /// What a process says that it has loaded.
    async fn loaded(&self, server: &Server) -> Result<(String, Bundle)> {
        let url = format!("{}{}", server.admin, sallyport_telemetry::certificate::PAGE);
        let page: Value = serde_json::from_str(&probe::get(&url, PATIENCE).await?.body)?;
        let bundle = page["bundleSha256"].as_str().and_then(|fingerprint| self.kubelet.bundle(fingerprint));
        Ok((server.pod.clone(), bundle.with_context(|| format!("{} has an unknown bundle", server.pod))?))
    }

    /// The caBundle of every entry of both configurations.
    async fn entries(&self) -> Result<Vec<(String, Bundle)>> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mutating = mutating.get(&self.configuration).await?.webhooks.unwrap_or_default();
        let validating = validating.get(&self.configuration).await?.webhooks.unwrap_or_default();
        let entries = mutating.into_iter().map(|entry| (entry.name, entry.client_config.ca_bundle));
        let entries = entries.chain(validating.into_iter().map(|e| (e.name, e.client_config.ca_bundle)));
        let bundle = |(name, bundle): (String, Option<ByteString>)| {
            let ByteString(pem) = bundle.with_context(|| format!("{name} has no caBundle"))?;
            Ok((name, Bundle::from_pem(&pem)?))
        };
        entries.map(bundle).collect()
    }

    /// The chain that a server shows: fronts to anybody, backends to a caller with what is mounted for a front.
    async fn chain(&self, server: &Server) -> Result<Chain> {
        let fronts: Vec<_> = self.servers.iter().filter(|server| server.member == Member::Webhook).collect();
        let front = fastrand::choice(fronts).context("there is no front")?;
        tokio::time::timeout(PATIENCE, shown(server, front)).await.context("no handshake in time")?
    }
}

fn judge(server: &Server, chain: &Chain, bundle: &Bundle, now: SystemTime) -> Result<String> {
    let certificate = check::presented(chain, bundle, &server.name, now)?;
    ensure!(
        certificate.client_auth() == (server.member == Member::Webhook),
        "only a front's certificate is also a client's"
    );
    Ok(certificate.serial())
}

async fn shown(server: &Server, front: &Server) -> Result<Chain> {
    let stream = TcpStream::connect(server.address).await?;
    let is_front = server.member == Member::Webhook;
    let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
    let mut config = builder.with_no_client_auth();
    if !is_front {
        let front = settled(front).await?.client_config()?;
        config.client_auth_cert_resolver = front.client_auth_cert_resolver.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let name = ServerName::try_from(server.name.clone())?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().context("no certificate")?.to_vec();
    if !is_front {
        // A server of TLS 1.3 judges the client's certificate after the client is done; one that accepts it speaks.
        let first = stream.read_u8().await;
        first.with_context(|| format!("the certificate of {} was refused as a client's", front.pod))?;
    }
    Ok(chain)
}

/// What is mounted for a front; it may be swapped while it is read.
async fn settled(front: &Server) -> Result<Arc<Credentials>> {
    for _ in 0..20 {
        if let Ok(credentials) = Credentials::load(&front.directory) {
            return Ok(credentials);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("what is mounted for {} cannot be read", front.pod)
}

/// Accepts every server: what it shows is judged afterwards.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
