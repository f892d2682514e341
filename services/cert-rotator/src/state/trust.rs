//! Which authorities a bundle has to hold.

use std::time::SystemTime;

use sallyport_pki::{Bundle, Certificate, Identity, KeyPair, MAX_AUTHORITIES, check};

pub(super) fn certificate(pair: &KeyPair) -> Option<Certificate> {
    Certificate::from_pem(pair.certificate_pem.as_bytes()).ok()
}

/// The stored bundle with all of `named`, without those whose time is over, in the order of the stored one: the
/// same authorities in another order would be given out for nothing.
pub(super) fn bundle(stored: &Bundle, named: &[Certificate], now: SystemTime) -> Bundle {
    let mut others = Bundle::empty();
    for certificate in stored.certificates().iter().filter(|certificate| !named.contains(certificate)) {
        others.add(certificate.clone());
    }
    let others = others.current(now, MAX_AUTHORITIES - named.len());
    let mut bundle = Bundle::empty();
    for certificate in stored.certificates() {
        if others.contains(certificate) || named.contains(certificate) {
            bundle.add(certificate.clone());
        }
    }
    for certificate in named {
        bundle.add(certificate.clone());
    }
    bundle
}

/// The authorities of `bundle` of which each alone suffices to verify an identity's certificate.
pub(super) fn issuers(identity: &Identity, bundle: &Bundle, now: SystemTime) -> Vec<Certificate> {
    let chain = Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes()).unwrap_or_default();
    let suffices = |authority: &&Certificate| {
        let mut alone = Bundle::empty();
        authority.is_authority() && alone.add((*authority).clone()) && check::verifies(&chain, &alone, now)
    };
    bundle.certificates().iter().filter(suffices).cloned().collect()
}
