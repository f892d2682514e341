//! A certificate with its private key, as PEM text.

use std::fmt;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// A certificate (chain) and its private key, both PEM.
///
/// The text is not checked on construction: it may come from a Secret that somebody edited. [`crate::check`]
/// judges it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, leaf first if there are several.
    pub certificate_pem: String,
    /// The private key, PKCS #8. Never log it.
    pub key_pem: String,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair")
            .field("certificate_pem", &self.certificate_pem)
            .field("key_pem", &"[hidden]")
            .finish()
    }
}

/// The public key that belongs to a PEM private key, as DER of its `SubjectPublicKeyInfo`.
///
/// `None` when the text holds no private key that the TLS library can use.
pub(crate) fn public_key(key_pem: &[u8]) -> Option<Vec<u8>> {
    let key = PrivateKeyDer::from_pem_slice(key_pem).ok()?;
    let signer = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).ok()?;
    Some(signer.public_key()?.as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_key_r09() {
        let pair = KeyPair { certificate_pem: "public".into(), key_pem: "very private".into() };
        let text = format!("{pair:?} {pair:#?}");
        assert!(text.contains("public") && !text.contains("very private"), "{text}");
    }
}
