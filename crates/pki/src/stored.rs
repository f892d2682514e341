//! The stored form: the keys of a `kubernetes.io/tls` Secret, which are also the files of a mounted directory.

use std::collections::BTreeMap;

use crate::bundle::Bundle;
use crate::key_pair::KeyPair;

/// Key of the certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the private key.
pub const PRIVATE_KEY: &str = "tls.key";
/// Key of the trust bundle.
pub const TRUST: &str = "ca.crt";

/// Keys and their bytes, as in a Secret's `data`. Its `Debug` form shows the names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stored(pub BTreeMap<String, Vec<u8>>);

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What a service is given: its certificate with its key, and whom to trust. An authority is stored the same
/// way: its certificate, its key, and the bundle that all others are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Certificate and key.
    pub pair: KeyPair,
    /// Whom to trust; empty when it is absent or unreadable.
    pub bundle: Bundle,
}

impl Identity {
    /// Reads what is stored. Never fails: what is absent or no text reads as empty, and [`crate::check`] then
    /// says so.
    pub fn from_stored(stored: &Stored) -> Self {
        let text = |key: &str| {
            stored.0.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default().to_owned()
        };
        Self {
            pair: KeyPair { certificate_pem: text(CERTIFICATE), key_pem: text(PRIVATE_KEY) },
            bundle: stored.0.get(TRUST).and_then(|pem| Bundle::from_pem(pem).ok()).unwrap_or_default(),
        }
    }

    /// Writes the three keys into `stored` and leaves every other key alone.
    pub fn store(&self, stored: &mut Stored) {
        let mut put = |key: &str, text: &str| stored.0.insert(key.to_owned(), text.as_bytes().to_vec());
        put(CERTIFICATE, &self.pair.certificate_pem);
        put(PRIVATE_KEY, &self.pair.key_pem);
        put(TRUST, &self.bundle.to_pem());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_survive_and_absent_ones_read_as_empty_r_01() {
        let mut stored = Stored(BTreeMap::from([("mine".to_owned(), b"kept".to_vec())]));
        let empty = Identity::from_stored(&stored);
        assert!(
            empty.pair.certificate_pem.is_empty() && empty.pair.key_pem.is_empty() && empty.bundle.is_empty()
        );
        let identity = Identity {
            pair: KeyPair { certificate_pem: "c".into(), key_pem: "k".into() },
            bundle: Bundle::empty(),
        };
        identity.store(&mut stored);
        assert_eq!(stored.0["mine"], b"kept");
        assert_eq!(stored.0[CERTIFICATE], b"c");
        assert_eq!(Identity::from_stored(&stored), identity);
    }

    #[test]
    fn bytes_that_are_no_text_read_as_empty() {
        let stored = Stored(BTreeMap::from([(PRIVATE_KEY.to_owned(), vec![0xff, 0xfe])]));
        assert_eq!(Identity::from_stored(&stored).pair.key_pem, "");
    }

    #[test]
    fn debug_shows_keys_of_the_map_only_r_09() {
        let stored = Stored(BTreeMap::from([(PRIVATE_KEY.to_owned(), b"private text".to_vec())]));
        assert_eq!(format!("{stored:?}"), "{\"tls.key\"}");
    }
}
