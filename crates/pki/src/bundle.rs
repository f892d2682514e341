//! A trust bundle: the authorities that verify, as one PEM text.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::TrustAnchor;

use crate::certificate::{Certificate, CertificateError};

/// The most authorities that a bundle holds by rule: an authority that keeps breaking must not grow it without bound.
pub const MAX_AUTHORITIES: usize = 8;

/// Several authority certificates, each once, newest first by convention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    certificates: Vec<Certificate>,
}

impl Bundle {
    /// A bundle without any authority: nothing verifies against it.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads a PEM text. Duplicates are dropped; at least one certificate is required.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let mut bundle = Self::empty();
        for certificate in Certificate::all_from_pem(pem)? {
            bundle.add(certificate);
        }
        Ok(bundle)
    }

    /// Adds a certificate at the end, unless it is there already. Tells whether it was added.
    pub fn add(&mut self, certificate: Certificate) -> bool {
        let new = !self.contains(&certificate);
        if new {
            self.certificates.push(certificate);
        }
        new
    }

    /// Whether this very certificate is in the bundle.
    pub fn contains(&self, certificate: &Certificate) -> bool {
        self.certificates.iter().any(|known| known.der() == certificate.der())
    }

    /// Whether both hold the same certificates. Their order says nothing to who trusts them.
    pub fn holds_same(&self, other: &Self) -> bool {
        self.certificates.len() == other.certificates.len()
            && self.certificates.iter().all(|certificate| other.contains(certificate))
    }

    /// The certificates in their order.
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// The bundle without certificates whose time is over at `now`, and with at most `limit` of the first.
    #[must_use]
    pub fn current(&self, now: SystemTime, limit: usize) -> Self {
        let current = self.certificates.iter().filter(|c| c.not_after() > now).take(limit);
        Self { certificates: current.cloned().collect() }
    }

    /// All certificates as PEM, one after the other.
    pub fn to_pem(&self) -> String {
        self.certificates.iter().map(Certificate::to_pem).collect()
    }

    /// The form that `caBundle` fields hold: base64 of the PEM text.
    pub fn to_ca_bundle(&self) -> String {
        STANDARD.encode(self.to_pem())
    }

    /// SHA-256 of the PEM text, in lower-case hexadecimal: two processes with the same fingerprint trust the
    /// same authorities in the same order.
    pub fn fingerprint(&self) -> String {
        hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, self.to_pem().as_bytes()))
    }

    /// Trust anchors of the authorities that are valid at `now`.
    ///
    /// webpki does not look at an anchor's dates, but Go's verifier does; so an authority out of its time is
    /// left out here.
    pub(crate) fn anchors(&self, now: SystemTime) -> Vec<TrustAnchor<'_>> {
        self.certificates
            .iter()
            .filter(|c| c.not_before() <= now && now <= c.not_after())
            .filter_map(|c| webpki::anchor_from_trusted_cert(c.der()).ok())
            .collect()
    }
}
