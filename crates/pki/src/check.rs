//! Judging what is stored: is a certificate still what it has to be, and if not, why.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::{CertificateDer, UnixTime};

use crate::bundle::Bundle;
use crate::certificate::{Certificate, CertificateError};
use crate::key_pair::{KeyPair, public_key};
use crate::leaf::LeafRequest;
use crate::renewal::Renewal;

/// Why a stored certificate has to be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Certificate and key are both absent: nothing was ever stored, or the Secret was made empty.
    #[error("nothing is stored")]
    Absent,
    /// The certificate cannot be read.
    #[error("the certificate cannot be read: {0}")]
    Certificate(CertificateError),
    /// There is a certificate but no key.
    #[error("the private key is empty")]
    KeyEmpty,
    /// The key is not PEM, or of a kind that is not known.
    #[error("the private key cannot be read")]
    KeyUnreadable,
    /// The key is another certificate's.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The bundle is empty.
    #[error("there is no authority to verify against")]
    NoAuthority,
    /// The certificate does not verify against the bundle.
    #[error("the chain does not verify: {0}")]
    Chain(String),
    /// An authority's certificate is not an authority's, or a leaf is one.
    #[error("the certificate is of the wrong kind: basic constraints or key usage")]
    Kind,
    /// Subject alternative names are not the wanted ones.
    #[error("the names differ: missing {missing:?}, not wanted {surplus:?}")]
    Names {
        /// Wanted but not there.
        missing: Vec<String>,
        /// There but not wanted.
        surplus: Vec<String>,
    },
    /// A wanted extended key usage is missing.
    #[error("the extended key usage {0} is missing")]
    Usage(&'static str),
    /// The certificate's time has not come, by more than any skew it allows for.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// The certificate's time is over.
    #[error("the certificate has expired")]
    Expired,
    /// The certificate is still good, but due for renewal.
    #[error("the certificate is due for renewal")]
    Due,
}

impl Defect {
    /// Whether the certificate still does its job until it is replaced.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Due)
    }
}

/// What is known of a certificate that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// First instant of validity.
    pub not_before: SystemTime,
    /// Last instant of validity.
    pub not_after: SystemTime,
    /// When it will be due for renewal, if ever.
    pub due: Option<SystemTime>,
    /// Serial number in hexadecimal.
    pub serial: String,
}

/// Judges a leaf: readable, its key fits, it verifies against `bundle` at `now`, its names and uses are those
/// `wanted`, and it is not due for renewal.
pub fn leaf(
    pair: &KeyPair,
    bundle: &Bundle,
    wanted: &LeafRequest,
    now: SystemTime,
    renewal: Renewal,
) -> Result<Validity, Defect> {
    let certificates = read(pair)?;
    let [certificate, intermediates @ ..] = certificates.as_slice() else {
        return Err(Defect::Absent);
    };
    if certificate.is_authority() {
        return Err(Defect::Kind);
    }
    dates(certificate, now)?;
    verify(certificate, intermediates, bundle, now)?;
    names(certificate, wanted)?;
    if !certificate.server_auth() {
        return Err(Defect::Usage("serverAuth"));
    }
    if wanted.client_auth() && !certificate.client_auth() {
        return Err(Defect::Usage("clientAuth"));
    }
    due(certificate, now, renewal)
}

/// Judges an authority: readable, its key fits, it may sign, and it is not due for renewal.
pub fn authority(pair: &KeyPair, now: SystemTime, renewal: Renewal) -> Result<Validity, Defect> {
    let certificates = read(pair)?;
    let Some(certificate) = certificates.first() else {
        return Err(Defect::Absent);
    };
    if !certificate.is_authority() || certificate.subject_key_id().is_none() {
        return Err(Defect::Kind);
    }
    dates(certificate, now)?;
    due(certificate, now, renewal)
}

/// Judges a chain that a server presented, leaf first: does it verify for `server_name` against `bundle` at
/// `now`? Only subject alternative names count, as in Go.
pub fn presented(
    chain: &[CertificateDer<'static>],
    bundle: &Bundle,
    server_name: &str,
    now: SystemTime,
) -> Result<Certificate, Defect> {
    let mut certificates = Vec::with_capacity(chain.len().min(crate::certificate::MAX_CERTIFICATES));
    for der in chain.iter().take(crate::certificate::MAX_CERTIFICATES) {
        certificates.push(Certificate::from_der(der.clone()).map_err(Defect::Certificate)?);
    }
    let [certificate, intermediates @ ..] = certificates.as_slice() else {
        return Err(Defect::Absent);
    };
    dates(certificate, now)?;
    verify(certificate, intermediates, bundle, now)?;
    if !certificate.server_auth() {
        return Err(Defect::Usage("serverAuth"));
    }
    if is_valid_for(certificate, server_name) {
        Ok(certificate.clone())
    } else {
        Err(Defect::Names { missing: vec![server_name.to_owned()], surplus: Vec::new() })
    }
}

/// Whether a chain, leaf first, verifies against `bundle` at `now`, whatever its names and uses.
pub fn verifies(chain: &[Certificate], bundle: &Bundle, now: SystemTime) -> bool {
    match chain {
        [certificate, intermediates @ ..] => {
            dates(certificate, now).is_ok() && verify(certificate, intermediates, bundle, now).is_ok()
        }
        [] => false,
    }
}

fn read(pair: &KeyPair) -> Result<Vec<Certificate>, Defect> {
    let key_empty = pair.key_pem.trim().is_empty();
    if key_empty && pair.certificate_pem.trim().is_empty() {
        return Err(Defect::Absent);
    }
    let certificates =
        Certificate::all_from_pem(pair.certificate_pem.as_bytes()).map_err(Defect::Certificate)?;
    if key_empty {
        return Err(Defect::KeyEmpty);
    }
    let key = public_key(pair.key_pem.as_bytes()).ok_or(Defect::KeyUnreadable)?;
    if certificates.first().is_some_and(|c| c.public_key() == key) {
        Ok(certificates)
    } else {
        Err(Defect::KeyMismatch)
    }
}

fn dates(certificate: &Certificate, now: SystemTime) -> Result<(), Defect> {
    if now < certificate.not_before() {
        Err(Defect::NotYetValid)
    } else if now > certificate.not_after() {
        Err(Defect::Expired)
    } else {
        Ok(())
    }
}

fn verify(
    certificate: &Certificate,
    intermediates: &[Certificate],
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), Defect> {
    if bundle.is_empty() {
        return Err(Defect::NoAuthority);
    }
    let anchors = bundle.anchors(now);
    let intermediates: Vec<CertificateDer<'_>> = intermediates.iter().map(|c| c.der().clone()).collect();
    let chain = |error: webpki::Error| Defect::Chain(error.to_string());
    let since_epoch: Duration = now.duration_since(UNIX_EPOCH).map_err(|_| Defect::NotYetValid)?;
    let leaf = webpki::EndEntityCert::try_from(certificate.der()).map_err(chain)?;
    leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        &intermediates,
        UnixTime::since_unix_epoch(since_epoch),
        // Extended usages are judged by the caller, with a better message.
        webpki::KeyUsage::server_auth(),
        None,
        None,
    )
    .map(|_| ())
    .map_err(chain)
}

/// Whether a client that knows the server by `name` accepts a certificate's names.
fn is_valid_for(certificate: &Certificate, name: &str) -> bool {
    rustls::pki_types::ServerName::try_from(name).is_ok_and(|name| {
        webpki::EndEntityCert::try_from(certificate.der())
            .is_ok_and(|leaf| leaf.verify_is_valid_for_subject_name(&name).is_ok())
    })
}

fn names(certificate: &Certificate, wanted: &LeafRequest) -> Result<(), Defect> {
    if wanted.allows_more() {
        let missing = wanted.dns_names().iter().filter(|name| !is_valid_for(certificate, name));
        let missing: Vec<String> = missing.cloned().collect();
        return if missing.is_empty() { Ok(()) } else { Err(Defect::Names { missing, surplus: Vec::new() }) };
    }
    let difference = |left: &LeafNames<'_>, right: &LeafNames<'_>| -> Vec<String> {
        let names = left.dns_names.difference(right.dns_names).cloned();
        names.chain(left.addresses.difference(right.addresses).map(IpAddr::to_string)).collect()
    };
    let there = LeafNames { dns_names: certificate.dns_names(), addresses: certificate.addresses() };
    let wanted = LeafNames { dns_names: wanted.dns_names(), addresses: wanted.addresses() };
    let (missing, surplus) = (difference(&wanted, &there), difference(&there, &wanted));
    if missing.is_empty() && surplus.is_empty() { Ok(()) } else { Err(Defect::Names { missing, surplus }) }
}

struct LeafNames<'a> {
    dns_names: &'a std::collections::BTreeSet<String>,
    addresses: &'a std::collections::BTreeSet<IpAddr>,
}

fn due(certificate: &Certificate, now: SystemTime, renewal: Renewal) -> Result<Validity, Defect> {
    let due = renewal.due(certificate);
    if due.is_some_and(|due| now >= due) {
        return Err(Defect::Due);
    }
    Ok(Validity {
        not_before: certificate.not_before(),
        not_after: certificate.not_after(),
        due,
        serial: certificate.serial(),
    })
}
