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

/// Key of the certificate of the authority that is to follow, beside the one in office.
pub const SUCCESSOR_CERTIFICATE: &str = "next.crt";
/// Key of its private key.
pub const SUCCESSOR_PRIVATE_KEY: &str = "next.key";

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
        Self {
            pair: stored.pair(CERTIFICATE, PRIVATE_KEY),
            bundle: stored.0.get(TRUST).and_then(|pem| Bundle::from_pem(pem).ok()).unwrap_or_default(),
        }
    }

    /// Writes the three keys into `stored` and leaves every other key alone.
    pub fn store(&self, stored: &mut Stored) {
        stored.put(CERTIFICATE, &self.pair.certificate_pem);
        stored.put(PRIVATE_KEY, &self.pair.key_pem);
        stored.put(TRUST, &self.bundle.to_pem());
    }
}

impl Stored {
    /// The authority that is to follow the stored one, if there is any trace of one.
    pub fn successor(&self) -> Option<KeyPair> {
        let is_there =
            [SUCCESSOR_CERTIFICATE, SUCCESSOR_PRIVATE_KEY].iter().any(|key| self.0.contains_key(*key));
        is_there.then(|| self.pair(SUCCESSOR_CERTIFICATE, SUCCESSOR_PRIVATE_KEY))
    }

    /// Writes the authority that is to follow, or removes it.
    pub fn set_successor(&mut self, successor: Option<&KeyPair>) {
        match successor {
            Some(pair) => {
                self.put(SUCCESSOR_CERTIFICATE, &pair.certificate_pem);
                self.put(SUCCESSOR_PRIVATE_KEY, &pair.key_pem);
            }
            None => self.0.retain(|key, _| key != SUCCESSOR_CERTIFICATE && key != SUCCESSOR_PRIVATE_KEY),
        }
    }

    fn pair(&self, certificate: &str, key: &str) -> KeyPair {
        let text = |key: &str| {
            self.0.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default().to_owned()
        };
        KeyPair { certificate_pem: text(certificate), key_pem: text(key) }
    }

    fn put(&mut self, key: &str, text: &str) {
        self.0.insert(key.to_owned(), text.as_bytes().to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_survive_and_absent_ones_read_as_empty_r01() {
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
    fn a_successor_comes_and_goes_beside_the_authority() {
        let mut stored = Stored(BTreeMap::from([("mine".to_owned(), b"kept".to_vec())]));
        assert_eq!(stored.successor(), None);
        let pair = KeyPair { certificate_pem: "c".into(), key_pem: "k".into() };
        stored.set_successor(Some(&pair));
        assert_eq!(stored.successor(), Some(pair));
        stored.0.remove(SUCCESSOR_PRIVATE_KEY);
        assert_eq!(
            stored.successor().map(|pair| pair.key_pem),
            Some(String::new()),
            "half of one is a trace"
        );
        stored.set_successor(None);
        assert_eq!(stored.0.keys().collect::<Vec<_>>(), ["mine"]);
    }

    #[test]
    fn bytes_that_are_no_text_read_as_empty() {
        let stored = Stored(BTreeMap::from([(PRIVATE_KEY.to_owned(), vec![0xff, 0xfe])]));
        assert_eq!(Identity::from_stored(&stored).pair.key_pem, "");
    }

    #[test]
    fn debug_shows_keys_of_the_map_only_r09() {
        let stored = Stored(BTreeMap::from([(PRIVATE_KEY.to_owned(), b"private text".to_vec())]));
        assert_eq!(format!("{stored:?}"), "{\"tls.key\"}");
    }
}
