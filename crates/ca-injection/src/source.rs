//! Where authorities come from: Secrets that a flag names and that allow it, and what of them can be used.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use sallyport_pki::Bundle;
use sallyport_pki::MAX_AUTHORITIES;
use sallyport_pki::certificate::CertificateError;
use sallyport_pki::names::{dns_label, dns_subdomain};

use crate::annotations::{ALLOW_INJECTION, INJECT_CA_FROM};

/// The key of a Secret that is injected.
const KEY: &str = "ca.crt";
/// The most bytes that are taken for a bundle: a few times what [`MAX_AUTHORITIES`] large certificates have.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// A Secret that a flag names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretName {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for SecretName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').ok_or("use NAMESPACE/NAME")?;
        dns_label("the namespace", namespace).map_err(|error| error.to_string())?;
        dns_subdomain("the Secret's name", name).map_err(|error| error.to_string())?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// Why nothing is injected into an object that asks for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The annotation does not name a Secret.
    #[error("the annotation {} does not name a Secret as namespace/name", INJECT_CA_FROM)]
    Annotation,
    /// No flag names the Secret.
    #[error("the Secret {0} is not among those of --inject-from")]
    NotNamed(SecretName),
    /// The Secret is not there.
    #[error("the Secret {0} does not exist")]
    Absent(SecretName),
    /// The Secret did not opt in.
    #[error("the Secret {0} does not carry the annotation {ALLOW_INJECTION}: \"true\"")]
    NotAllowed(SecretName),
    /// The Secret has no bundle.
    #[error("the Secret {0} has no {KEY}")]
    NoBundle(SecretName),
    /// The bundle cannot be read.
    #[error("{KEY} of the Secret {secret} cannot be used: {problem}")]
    Unreadable {
        /// The Secret.
        secret: SecretName,
        /// What is wrong with it.
        problem: CertificateError,
    },
    /// The bundle is too large.
    #[error("{KEY} of the Secret {0} has more than {MAX_BYTES} bytes or {MAX_AUTHORITIES} authorities")]
    TooLarge(SecretName),
    /// The time of every authority is over.
    #[error("every certificate in {KEY} of the Secret {0} has expired")]
    Expired(SecretName),
    /// A rotator registered the object and keeps its bundle.
    #[error("a cert-rotator registered the object, and keeps its caBundle by itself")]
    Registered,
}

/// The authorities to inject from `secret` at `now`: at least one, and none that has expired.
pub(crate) fn bundle(name: &SecretName, secret: Option<&Secret>, now: SystemTime) -> Result<Bundle, Unfit> {
    let named = || name.clone();
    let secret = secret.ok_or_else(|| Unfit::Absent(named()))?;
    let annotations = secret.metadata.annotations.as_ref();
    if annotations.and_then(|all| all.get(ALLOW_INJECTION)).map(String::as_str) != Some("true") {
        return Err(Unfit::NotAllowed(named()));
    }
    let ByteString(pem) =
        secret.data.as_ref().and_then(|data| data.get(KEY)).ok_or_else(|| Unfit::NoBundle(named()))?;
    if pem.len() > MAX_BYTES {
        return Err(Unfit::TooLarge(named()));
    }
    let all = Bundle::from_pem(pem).map_err(|problem| Unfit::Unreadable { secret: named(), problem })?;
    let current = all.current(now, usize::MAX);
    match current.certificates().len() {
        0 => Err(Unfit::Expired(named())),
        1..=MAX_AUTHORITIES => Ok(current),
        // Leaving out some would be a guess at which of them nobody needs.
        _ => Err(Unfit::TooLarge(named())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_pki::{Algorithm, Authority};

    use super::*;

    fn authority(begun: SystemTime, life: Duration) -> String {
        Authority::generate(Algorithm::EcdsaP256, begun, life).unwrap().key_pair().certificate_pem
    }

    fn secret(allowed: Option<&str>, pem: Option<&[u8]>) -> Secret {
        let mut secret = Secret::default();
        let annotations = allowed.map(|value| [(ALLOW_INJECTION.to_owned(), value.to_owned())].into());
        secret.metadata.annotations = annotations;
        secret.data = pem.map(|pem| [(KEY.to_owned(), ByteString(pem.to_vec()))].into());
        secret
    }

    #[test]
    fn names_are_checked_r13() {
        for (text, wanted) in [
            ("a/b", true),
            ("a/b.c", true),
            ("a", false),
            ("a/", false),
            ("/b", false),
            ("a.b/c", false),
            ("a/b/c", false),
            ("A/b", false),
        ] {
            assert_eq!(text.parse::<SecretName>().is_ok(), wanted, "{text:?}");
        }
    }

    #[test]
    fn only_current_authorities_of_a_willing_secret_are_injected() {
        let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
        let good = authority(now, hour);
        let expired = authority(now - 4 * hour, hour);
        let both = format!("{expired}{good}");
        let many: String = (0..=MAX_AUTHORITIES).map(|_| authority(now, hour)).collect();
        let name: SecretName = "a/b".parse().unwrap();
        let unreadable = |problem| Unfit::Unreadable { secret: name.clone(), problem };
        let rows: [(&str, Option<Secret>, Unfit); 11] = [
            ("no Secret", None, Unfit::Absent(name.clone())),
            ("no consent", Some(secret(None, Some(good.as_bytes()))), Unfit::NotAllowed(name.clone())),
            (
                "another word",
                Some(secret(Some("yes"), Some(good.as_bytes()))),
                Unfit::NotAllowed(name.clone()),
            ),
            ("no bundle", Some(secret(Some("true"), None)), Unfit::NoBundle(name.clone())),
            ("empty", Some(secret(Some("true"), Some(b" \n"))), unreadable(CertificateError::Empty)),
            ("no PEM", Some(secret(Some("true"), Some(b"hello"))), unreadable(CertificateError::NotPem)),
            (
                "one good, one broken",
                Some(secret(
                    Some("true"),
                    Some(
                        format!("{good}-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")
                            .as_bytes(),
                    ),
                )),
                unreadable(CertificateError::NotX509),
            ),
            (
                "no certificate",
                Some(secret(
                    Some("true"),
                    Some(b"-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"),
                )),
                unreadable(CertificateError::NotPem),
            ),
            (
                "too large",
                Some(secret(Some("true"), Some(&vec![b' '; MAX_BYTES + 1]))),
                Unfit::TooLarge(name.clone()),
            ),
            ("too many", Some(secret(Some("true"), Some(many.as_bytes()))), Unfit::TooLarge(name.clone())),
            ("expired", Some(secret(Some("true"), Some(expired.as_bytes()))), Unfit::Expired(name.clone())),
        ];
        for (what, secret, wanted) in rows {
            assert_eq!(bundle(&name, secret.as_ref(), now).unwrap_err(), wanted, "{what}");
        }
        let usable = bundle(&name, Some(&secret(Some("true"), Some(both.as_bytes()))), now).unwrap();
        assert_eq!(usable.to_pem(), good, "what has expired is left out");
    }
}
