//! A certificate authority: makes itself, reads itself back from storage, issues leaves.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType, SerialNumber,
};
use time::OffsetDateTime;

use crate::certificate::{Certificate, CertificateError};
use crate::key_pair::{KeyPair, public_key};
use crate::leaf::LeafRequest;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an authority lives if nothing else is said.
pub const AUTHORITY_LIFE: Duration = DAY.saturating_mul(365);
/// How long a leaf lives if nothing else is said: a rotator that cannot run leaves a month to notice.
pub const LEAF_LIFE: Duration = DAY.saturating_mul(90);
/// The longest life that is accepted for anything.
pub const MAX_LIFE: Duration = DAY.saturating_mul(36_500);
/// How far `notBefore` lies in the past, for clocks that are behind (R-02).
pub const BACKDATE: Duration = Duration::from_secs(10 * 60);
/// The common name of every authority that is made here. Key identifiers tell them apart.
const SUBJECT: &str = "Sallyport CA";

/// The kind of key that an authority and its leaves have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    #[default]
    EcdsaP256,
    /// RSA with 2048 bits, for cipher policies that know nothing else.
    Rsa2048,
}

impl Algorithm {
    pub(crate) fn generate(self) -> Result<rcgen::KeyPair, IssueError> {
        match self {
            Self::EcdsaP256 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::Rsa2048 => {
                rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)
            }
        }
        .map_err(IssueError::Key)
    }
}

/// Why an authority could not be made, read, or could not issue.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// Generating a key failed.
    #[error("failed to generate a private key")]
    Key(#[source] rcgen::Error),
    /// Signing failed.
    #[error("failed to sign the certificate")]
    Sign(#[source] rcgen::Error),
    /// The operating system gave no random bytes.
    #[error("failed to get random bytes for a serial number")]
    Random,
    /// A time or lifetime that a certificate cannot express.
    #[error("a life of {} seconds from that time on is not possible in a certificate", .0.as_secs())]
    Life(Duration),
    /// The authority's time is over, so nothing that it issues would verify.
    #[error("the authority is no longer valid")]
    Expired,
    /// The stored authority's certificate cannot be read.
    #[error("failed to read the authority's certificate")]
    Certificate(#[source] CertificateError),
    /// The stored certificate is not an authority's.
    #[error("the certificate is not an authority's")]
    NotAuthority,
    /// The stored key is not one, or not this certificate's.
    #[error("the authority's private key does not belong to its certificate")]
    KeyMismatch,
}

/// A certificate authority with its key.
pub struct Authority {
    certificate: Certificate,
    key_pem: String,
    algorithm: Algorithm,
    issuer: Issuer<'static, rcgen::KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority with a new key, valid from [`BACKDATE`] before `now` until `life` after it.
    pub fn generate(algorithm: Algorithm, now: SystemTime, life: Duration) -> Result<Self, IssueError> {
        let key = algorithm.generate()?;
        let mut params = params(now, life)?;
        params.distinguished_name.push(DnType::CommonName, SUBJECT);
        // No intermediate below: a leaf's key can never be made to sign.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let signed = params.self_signed(&key).map_err(IssueError::Sign)?;
        let certificate = Certificate::from_der(signed.into()).map_err(IssueError::Certificate)?;
        let key_pem = key.serialize_pem();
        Ok(Self { certificate, key_pem, algorithm, issuer: Issuer::new(params, key) })
    }

    /// Reads a stored authority back. Its dates are not judged here; see [`crate::check::authority`].
    pub fn from_pem(pair: &KeyPair) -> Result<Self, IssueError> {
        let certificate =
            Certificate::from_pem(pair.certificate_pem.as_bytes()).map_err(IssueError::Certificate)?;
        if !certificate.is_authority() {
            return Err(IssueError::NotAuthority);
        }
        if public_key(pair.key_pem.as_bytes()).as_deref() != Some(certificate.public_key()) {
            return Err(IssueError::KeyMismatch);
        }
        let key = rcgen::KeyPair::from_pem(&pair.key_pem).map_err(|_| IssueError::KeyMismatch)?;
        let algorithm = if key.is_compatible(&rcgen::PKCS_RSA_SHA256) {
            Algorithm::Rsa2048
        } else {
            Algorithm::EcdsaP256
        };
        let issuer =
            Issuer::from_ca_cert_der(certificate.der(), key).map_err(|_| IssueError::NotAuthority)?;
        Ok(Self { certificate, key_pem: pair.key_pem.clone(), algorithm, issuer })
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The authority's certificate and key, to be stored.
    pub fn key_pair(&self) -> KeyPair {
        KeyPair { certificate_pem: self.certificate.to_pem(), key_pem: self.key_pem.clone() }
    }

    /// Issues a leaf with a new key of the authority's own kind, valid for `life`, never beyond the authority.
    ///
    /// # Guarantees
    ///
    /// What it returns, [`check::leaf`] accepts against a bundle that holds the authority, until it is due or expires.
    ///
    /// ```
    /// use std::time::SystemTime;
    ///
    /// use sallyport_pki::authority::{AUTHORITY_LIFE, LEAF_LIFE};
    /// use sallyport_pki::{Algorithm, Authority, Bundle, LeafRequest, Renewal, ServiceName, check};
    ///
    /// let now = SystemTime::now();
    /// let authority = Authority::generate(Algorithm::EcdsaP256, now, AUTHORITY_LIFE)?;
    /// let service = ServiceName::new("webhook", "sallyport", "cluster.local")?;
    /// let request = LeafRequest::for_service(&service);
    /// let pair = authority.issue(&request, now, LEAF_LIFE)?;
    ///
    /// let mut bundle = Bundle::empty();
    /// bundle.add(authority.certificate().clone());
    /// check::leaf(&pair, &bundle, &request, now, Renewal::TwoThirds)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A duration that is zero or too long, an authority that has expired, or a name that cannot be put into a
    /// certificate.
    ///
    /// [`check::leaf`]: crate::check::leaf
    pub fn issue(
        &self,
        request: &LeafRequest,
        now: SystemTime,
        life: Duration,
    ) -> Result<KeyPair, IssueError> {
        let left = self.certificate.not_after().duration_since(now).map_err(|_| IssueError::Expired)?;
        if left.is_zero() {
            return Err(IssueError::Expired);
        }
        let mut params = params(now, life.min(left))?;
        params.not_before = params.not_before.max(offset_time(self.certificate.not_before(), life)?);
        if let Some(name) = request.common_name() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = match self.algorithm {
            Algorithm::EcdsaP256 => vec![KeyUsagePurpose::DigitalSignature],
            // TLS 1.2 has key exchanges in which the RSA key deciphers.
            Algorithm::Rsa2048 => vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment],
        };
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        if request.client_auth() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        for name in request.dns_names() {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.as_str().try_into().map_err(IssueError::Sign)?));
        }
        params.subject_alt_names.extend(request.addresses().iter().copied().map(SanType::IpAddress));

        let key = self.algorithm.generate()?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(IssueError::Sign)?;
        Ok(KeyPair { certificate_pem: leaf.pem().replace("\r\n", "\n"), key_pem: key.serialize_pem() })
    }
}

/// Parameters that authorities and leaves share: dates, a random serial, an empty subject.
fn params(now: SystemTime, life: Duration) -> Result<CertificateParams, IssueError> {
    if life.is_zero() || life > MAX_LIFE {
        return Err(IssueError::Life(life));
    }
    let start = now.checked_sub(BACKDATE).ok_or(IssueError::Life(life))?;
    let end = now.checked_add(life).ok_or(IssueError::Life(life))?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = offset_time(start, life)?;
    params.not_after = offset_time(end, life)?;
    params.serial_number = Some(serial()?);
    Ok(params)
}

fn offset_time(time: SystemTime, life: Duration) -> Result<OffsetDateTime, IssueError> {
    let impossible = || IssueError::Life(life);
    let seconds = time.duration_since(UNIX_EPOCH).map_err(|_| impossible())?.as_secs();
    let seconds = i64::try_from(seconds).map_err(|_| impossible())?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| impossible())
}

/// A random positive serial number of 128 bits: the sign bit is clear, the bit after it set, so that every
/// serial has the same length.
fn serial() -> Result<SerialNumber, IssueError> {
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| IssueError::Random)?;
    if let Some(first) = bytes.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    Ok(SerialNumber::from_slice(&bytes))
}
