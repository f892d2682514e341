//! One X.509 certificate, read: the facts that checks, metrics and tables need.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::{GeneralName, ParsedExtension};

/// The most PEM text that is read, in bytes: a Secret holds no more than 1 MiB.
pub const MAX_PEM: usize = 1 << 20;
/// The most certificates that are read from one text.
pub const MAX_CERTIFICATES: usize = 64;

/// Why a text is no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Nothing there, or white space only.
    #[error("it is empty")]
    Empty,
    /// No PEM block of type CERTIFICATE, or a broken one.
    #[error("it is not PEM with a CERTIFICATE block")]
    NotPem,
    /// The PEM block does not hold an X.509 certificate.
    #[error("its PEM block is not an X.509 certificate")]
    NotX509,
    /// More than [`MAX_PEM`] bytes or [`MAX_CERTIFICATES`] certificates.
    #[error("it is larger than {MAX_PEM} bytes or has more than {MAX_CERTIFICATES} certificates")]
    TooLarge,
}

/// A certificate that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    der: CertificateDer<'static>,
    serial: Vec<u8>,
    not_before: SystemTime,
    not_after: SystemTime,
    subject: String,
    issuer: String,
    subject_key_id: Option<Vec<u8>>,
    authority_key_id: Option<Vec<u8>>,
    is_authority: bool,
    server_auth: bool,
    client_auth: bool,
    dns_names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    public_key: Vec<u8>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("subject", &self.subject)
            .field("issuer", &self.issuer)
            .field("serial", &self.serial())
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads the first certificate of a PEM text.
    pub fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let mut all = Self::all_from_pem(pem)?;
        Ok(all.swap_remove(0))
    }

    /// Reads every certificate of a PEM text, at least one. Blocks of other types are passed over.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, CertificateError> {
        if pem.len() > MAX_PEM {
            return Err(CertificateError::TooLarge);
        }
        if pem.iter().all(u8::is_ascii_whitespace) {
            return Err(CertificateError::Empty);
        }
        let mut all = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem) {
            if all.len() == MAX_CERTIFICATES {
                return Err(CertificateError::TooLarge);
            }
            all.push(Self::from_der(der.map_err(|_| CertificateError::NotPem)?)?);
        }
        if all.is_empty() { Err(CertificateError::NotPem) } else { Ok(all) }
    }

    /// Reads a DER certificate, such as one that a TLS peer presented.
    pub fn from_der(der: CertificateDer<'static>) -> Result<Self, CertificateError> {
        let (rest, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|_| CertificateError::NotX509)?;
        if !rest.is_empty() {
            return Err(CertificateError::NotX509);
        }
        let mut facts = Self {
            serial: parsed.serial.to_bytes_be(),
            not_before: system_time(parsed.validity().not_before.timestamp()),
            not_after: system_time(parsed.validity().not_after.timestamp()),
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            subject_key_id: None,
            authority_key_id: None,
            is_authority: false,
            server_auth: false,
            client_auth: false,
            dns_names: BTreeSet::new(),
            addresses: BTreeSet::new(),
            public_key: parsed.public_key().raw.to_vec(),
            der: CertificateDer::from(Vec::new()),
        };
        let mut may_sign = true;
        for extension in parsed.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => facts.subject_key_id = Some(id.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    facts.authority_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                ParsedExtension::BasicConstraints(constraints) => facts.is_authority = constraints.ca,
                ParsedExtension::KeyUsage(usage) => may_sign = usage.key_cert_sign(),
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    facts.server_auth = usage.server_auth || usage.any;
                    facts.client_auth = usage.client_auth || usage.any;
                }
                ParsedExtension::SubjectAlternativeName(names) => {
                    for name in &names.general_names {
                        match name {
                            GeneralName::DNSName(name) => {
                                facts.dns_names.insert((*name).to_owned());
                            }
                            GeneralName::IPAddress(bytes) => facts.addresses.extend(address(bytes)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        facts.is_authority &= may_sign;
        facts.der = der;
        Ok(facts)
    }

    /// The certificate as DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The certificate as PEM, with a line feed at its end.
    pub fn to_pem(&self) -> String {
        let encoded = STANDARD.encode(&self.der);
        let mut pem = String::with_capacity(encoded.len() + encoded.len() / 64 + 64);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            // Base64 is ASCII, so every index is a boundary.
            let (line, tail) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = tail;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    /// The serial number in lower-case hexadecimal, without leading zeros.
    pub fn serial(&self) -> String {
        let text = hex::encode(&self.serial);
        let trimmed = text.trim_start_matches('0');
        if trimmed.is_empty() { "0".to_owned() } else { trimmed.to_owned() }
    }

    /// SHA-256 of the DER form, in lower-case hexadecimal.
    pub fn fingerprint(&self) -> String {
        hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.der))
    }

    /// A fraction from 0 to 1 that is the certificate's own: the same for everyone who looks at it, different
    /// from certificate to certificate. Renewal uses it, so that replicas agree and certificates spread.
    pub fn jitter(&self) -> f64 {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.der);
        let first = digest.as_ref().iter().take(4).fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        f64::from(first) / f64::from(u32::MAX)
    }

    /// The subject's distinguished name.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The issuer's distinguished name.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The subject key identifier, which tells authorities of one name apart.
    pub fn subject_key_id(&self) -> Option<&[u8]> {
        self.subject_key_id.as_deref()
    }

    /// The issuer's key identifier.
    pub fn authority_key_id(&self) -> Option<&[u8]> {
        self.authority_key_id.as_deref()
    }

    /// First instant of validity.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// Last instant of validity.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether the certificate may sign others: CA by basic constraints, and `keyCertSign` if usages are given.
    pub fn is_authority(&self) -> bool {
        self.is_authority
    }

    /// Whether the certificate may identify a TLS server.
    pub fn server_auth(&self) -> bool {
        self.server_auth
    }

    /// Whether the certificate may identify a TLS client.
    pub fn client_auth(&self) -> bool {
        self.client_auth
    }

    /// DNS names among the subject alternative names.
    pub fn dns_names(&self) -> &BTreeSet<String> {
        &self.dns_names
    }

    /// IP addresses among the subject alternative names.
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// DER of the `SubjectPublicKeyInfo`.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn system_time(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_refused_without_a_panic() {
        let rows: [(&[u8], CertificateError); 5] = [
            (b"", CertificateError::Empty),
            (b" \n\t", CertificateError::Empty),
            (b"hello", CertificateError::NotPem),
            (b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", CertificateError::NotPem),
            (
                b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
                CertificateError::NotX509,
            ),
        ];
        for (text, wanted) in rows {
            assert_eq!(Certificate::from_pem(text).unwrap_err(), wanted, "{text:?}");
        }
        assert_eq!(Certificate::from_pem(&vec![b'a'; MAX_PEM + 1]).unwrap_err(), CertificateError::TooLarge);
    }

    #[test]
    fn addresses_have_four_or_sixteen_bytes() {
        assert_eq!(address(&[127, 0, 0, 1]), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(address(&[0; 16]), Some("::".parse().unwrap()));
        assert_eq!(address(&[1, 2, 3]), None);
    }
}
