//! The two halves of a TLS credential as rustls sees them, each replaceable
//! while connections are open: existing connections stay, new ones see the new.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

/// What a process shows: its leaf certificate and key, for either direction.
#[derive(Debug)]
pub(crate) struct Identity(pub(crate) ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl rustls::client::ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Verifiers over one trust bundle.
#[derive(Debug)]
pub(crate) struct Anchors {
    server: Arc<dyn ServerCertVerifier>,
    client: Arc<dyn ClientCertVerifier>,
}

impl Anchors {
    pub(crate) fn new(
        roots: RootCertStore,
        provider: &Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Self, rustls::client::VerifierBuilderError> {
        let roots = Arc::new(roots);
        let server =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
                .build()?;
        let client =
            rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
        Ok(Self { server, client })
    }
}

/// Whom a process believes: verifies servers that it calls by their name.
#[derive(Debug)]
pub(crate) struct Trust(pub(crate) ArcSwap<Anchors>);

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.load().server.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.load().server.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.load().server.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.load().server.supported_verify_schemes()
    }
}

/// Accepts clients of the trusted bundle that own one name, and refuses all
/// others in the handshake, before any byte of a request is read.
#[derive(Debug)]
pub(crate) struct NamedClient {
    pub(crate) trust: Arc<Trust>,
    pub(crate) name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClient {
    // No hints: the bundle changes while the process lives, and the one client has one certificate.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.trust.0.load().client.verify_client_cert(end_entity, intermediates, now)?;
        rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.0.load().client.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.0.load().client.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.0.load().client.supported_verify_schemes()
    }
}
