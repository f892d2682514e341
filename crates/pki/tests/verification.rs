//! What authorities issue, and what checks make of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use sallyport_pki::authority::{AUTHORITY_LIFE, BACKDATE, LEAF_LIFE};
use sallyport_pki::names::Extras;
use sallyport_pki::{
    Algorithm, Authority, Bundle, Certificate, Defect, KeyPair, LeafRequest, Renewal, ServiceName, check,
};

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + HOUR * 490_000
}

fn service(name: &str) -> LeafRequest {
    LeafRequest::for_service(&ServiceName::new(name, "prod", "cluster.local").unwrap())
}

fn authority() -> Authority {
    Authority::generate(Algorithm::EcdsaP256, now(), AUTHORITY_LIFE).unwrap()
}

fn bundle(authorities: &[&Authority]) -> Bundle {
    let mut bundle = Bundle::empty();
    for authority in authorities {
        bundle.add(authority.certificate().clone());
    }
    bundle
}

fn leaf(pair: &KeyPair) -> Certificate {
    Certificate::from_pem(pair.certificate_pem.as_bytes()).unwrap()
}

#[test]
fn what_is_issued_passes_r02() {
    for algorithm in [Algorithm::EcdsaP256, Algorithm::Rsa2048] {
        let authority = Authority::generate(algorithm, now(), AUTHORITY_LIFE).unwrap();
        let wanted = service("hook").with_extras(&Extras::loopback()).unwrap().with_client_auth();
        let pair = authority.issue(&wanted, now(), LEAF_LIFE).unwrap();
        let validity =
            check::leaf(&pair, &bundle(&[&authority]), &wanted, now(), Renewal::TwoThirds).unwrap();
        assert_eq!(validity.not_before, now() - BACKDATE);
        assert_eq!(validity.not_after, now() + LEAF_LIFE);
        assert!(validity.due.unwrap() < now() + LEAF_LIFE.mul_f64(2.0 / 3.0));
        check::authority(&authority.key_pair(), now(), Renewal::TwoThirds).unwrap();

        let leaf = leaf(&pair);
        assert!(!leaf.is_authority() && leaf.server_auth() && leaf.client_auth());
        assert_eq!(leaf.authority_key_id(), authority.certificate().subject_key_id());
        assert!(leaf.subject_key_id().is_some());
    }
}

#[test]
fn an_authority_read_back_issues_what_verifies_against_the_first() {
    let first = authority();
    let again = Authority::from_pem(&first.key_pair()).unwrap();
    let wanted = service("hook");
    let pair = again.issue(&wanted, now(), LEAF_LIFE).unwrap();
    check::leaf(&pair, &bundle(&[&first]), &wanted, now(), Renewal::TwoThirds).unwrap();
}

#[test]
fn each_defect_is_told_apart_r03() {
    let authority = authority();
    let other = self::authority();
    let trust = bundle(&[&authority]);
    let wanted = service("hook");
    let good = authority.issue(&wanted, now(), LEAF_LIFE).unwrap();
    let another = authority.issue(&wanted, now(), LEAF_LIFE).unwrap();
    let foreign = other.issue(&wanted, now(), LEAF_LIFE).unwrap();
    let pair = |certificate: &str, key: &str| KeyPair {
        certificate_pem: certificate.to_owned(),
        key_pem: key.to_owned(),
    };
    let long_ago = Authority::generate(Algorithm::EcdsaP256, now() - HOUR * 10, HOUR).unwrap();
    let expired = long_ago.issue(&wanted, now() - HOUR * 10, HOUR).unwrap();
    let truncated = &good.certificate_pem[..good.certificate_pem.len() / 2];
    let check = |pair: &KeyPair| check::leaf(pair, &trust, &wanted, now(), Renewal::TwoThirds).unwrap_err();

    assert_eq!(check(&pair("", "")), Defect::Absent);
    assert!(matches!(check(&pair("", &good.key_pem)), Defect::Certificate(_)));
    assert!(matches!(check(&pair("rubbish", &good.key_pem)), Defect::Certificate(_)));
    assert!(matches!(check(&pair(truncated, &good.key_pem)), Defect::Certificate(_)));
    assert_eq!(check(&pair(&good.certificate_pem, "")), Defect::KeyEmpty);
    assert_eq!(check(&pair(&good.certificate_pem, "rubbish")), Defect::KeyUnreadable);
    assert_eq!(check(&pair(&good.certificate_pem, &another.key_pem)), Defect::KeyMismatch);
    assert!(matches!(check(&foreign), Defect::Chain(_)));
    assert_eq!(check(&authority.key_pair()), Defect::Kind);
    assert_eq!(check(&expired), Defect::Expired);

    let at = |pair: &KeyPair, trust: &Bundle, wanted: &LeafRequest, now| {
        check::leaf(pair, trust, wanted, now, Renewal::TwoThirds).unwrap_err()
    };
    assert_eq!(at(&good, &Bundle::empty(), &wanted, now()), Defect::NoAuthority);
    assert_eq!(at(&good, &trust, &wanted, now() - HOUR), Defect::NotYetValid);
    assert_eq!(at(&good, &trust, &wanted, now() + LEAF_LIFE.mul_f64(0.67)), Defect::Due);
    assert_eq!(at(&good, &trust, &wanted.clone().with_client_auth(), now()), Defect::Usage("clientAuth"));
    let Defect::Names { missing, surplus } = at(&good, &trust, &service("renamed"), now()) else {
        panic!("a renamed Service must show as other names")
    };
    assert!(missing.contains(&"renamed.prod.svc".to_owned()) && surplus.contains(&"hook".to_owned()));
}

#[test]
fn an_authoritys_defects_r03() {
    let authority = authority();
    let pair = authority.key_pair();
    let leaf = authority.issue(&service("hook"), now(), LEAF_LIFE).unwrap();
    let check = |pair: &KeyPair, now| check::authority(pair, now, Renewal::TwoThirds).unwrap_err();
    assert_eq!(check(&leaf, now()), Defect::Kind);
    assert_eq!(check(&pair, now() - HOUR), Defect::NotYetValid);
    assert_eq!(check(&pair, now() + AUTHORITY_LIFE + HOUR), Defect::Expired);
    assert_eq!(check(&pair, now() + AUTHORITY_LIFE.mul_f64(0.67)), Defect::Due);
    let mixed = KeyPair { key_pem: leaf.key_pem, ..pair };
    assert_eq!(check(&mixed, now()), Defect::KeyMismatch);
}

#[test]
fn the_backdate_is_not_counted_as_life_r03() {
    let authority = authority();
    let wanted = service("hook");
    let pair = authority.issue(&wanted, now(), Duration::from_secs(20)).unwrap();
    let at = |seconds| {
        let now = now() + Duration::from_secs(seconds);
        check::leaf(&pair, &bundle(&[&authority]), &wanted, now, Renewal::TwoThirds)
    };
    assert!(at(0).is_ok() && at(11).is_ok());
    assert_eq!(at(14).unwrap_err(), Defect::Due);
}

#[test]
fn look_ahead_can_be_given_as_a_duration_r03() {
    let authority = authority();
    let wanted = service("hook");
    let pair = authority.issue(&wanted, now(), LEAF_LIFE).unwrap();
    let trust = bundle(&[&authority]);
    let ahead = Renewal::Before(HOUR * 24 * 30);
    check::leaf(&pair, &trust, &wanted, now() + LEAF_LIFE - HOUR * 24 * 31, ahead).unwrap();
    let due = check::leaf(&pair, &trust, &wanted, now() + LEAF_LIFE - HOUR * 24 * 29, ahead).unwrap_err();
    assert!(due.is_usable());
    // A look-ahead beyond the whole life would renew for ever; the usual rule takes its place.
    check::leaf(&pair, &trust, &wanted, now(), Renewal::Before(LEAF_LIFE * 2)).unwrap();
}

#[test]
fn only_subject_alternative_names_count_as_in_go() {
    let authority = authority();
    let pair = authority.issue(&service("hook"), now(), LEAF_LIFE).unwrap();
    let chain = [leaf(&pair).der().clone()];
    let trust = bundle(&[&authority]);
    let rows = [
        ("hook.prod.svc", true),
        ("hook.prod.svc.cluster.local", true),
        ("hook", true),
        ("other.prod.svc", false),
        ("Sallyport CA", false),
        ("127.0.0.1", false),
        ("", false),
    ];
    for (name, good) in rows {
        assert_eq!(check::presented(&chain, &trust, name, now()).is_ok(), good, "{name:?}");
    }
    assert_eq!(check::presented(&[], &trust, "hook", now()).unwrap_err(), Defect::Absent);
}

#[test]
fn an_expired_authority_verifies_nothing_as_in_go() {
    let short = Authority::generate(Algorithm::EcdsaP256, now(), HOUR).unwrap();
    let wanted = service("hook");
    let pair = short.issue(&wanted, now(), LEAF_LIFE).unwrap();
    assert_eq!(leaf(&pair).not_after(), now() + HOUR, "a leaf never outlives its authority");
    let late = now() + HOUR * 2;
    assert!(short.issue(&wanted, late, LEAF_LIFE).is_err());
    assert!(check::presented(&[leaf(&pair).der().clone()], &bundle(&[&short]), "hook", late).is_err());
}

#[test]
fn authorities_of_one_subject_are_told_apart_r02() {
    let (old, new) = (authority(), authority());
    assert_eq!(old.certificate().subject(), new.certificate().subject());
    assert_ne!(old.certificate().subject_key_id(), new.certificate().subject_key_id());
    let wanted = service("hook");
    let by = |authority: &Authority| authority.issue(&wanted, now(), LEAF_LIFE).unwrap();
    let verifies =
        |pair: &KeyPair, trust: &Bundle| check::leaf(pair, trust, &wanted, now(), Renewal::TwoThirds).is_ok();
    let both = bundle(&[&old, &new]);
    assert!(verifies(&by(&old), &both) && verifies(&by(&new), &both));
    assert!(!verifies(&by(&old), &bundle(&[&new])) && !verifies(&by(&new), &bundle(&[&old])));
}

#[test]
fn serials_are_positive_random_and_of_128_bits_r02() {
    let authority = authority();
    let wanted = service("hook");
    let mut seen = HashSet::from([authority.certificate().serial()]);
    for _ in 0..64 {
        let serial = leaf(&authority.issue(&wanted, now(), LEAF_LIFE).unwrap()).serial();
        assert_eq!(serial.len(), 32, "{serial}");
        assert!(('4'..='7').contains(&serial.chars().next().unwrap()), "positive: {serial}");
        assert!(seen.insert(serial));
    }
}

#[test]
fn a_bundle_is_a_set_with_an_order() {
    let (old, new) = (authority(), authority());
    let mut both = bundle(&[&new, &old, &new]);
    assert_eq!(both.certificates().len(), 2);
    assert!(!both.add(old.certificate().clone()));
    let text = format!("a comment\n{}{}", both.to_pem(), both.to_pem());
    let read = Bundle::from_pem(text.as_bytes()).unwrap();
    assert_eq!(read, both);
    assert_eq!(read.fingerprint(), both.fingerprint());
    assert_ne!(bundle(&[&old, &new]).fingerprint(), both.fingerprint());
    assert!(both.current(now() + AUTHORITY_LIFE + HOUR, 8).is_empty());
    assert_eq!(both.current(now(), 1).certificates(), [new.certificate().clone()]);
}

#[test]
fn lifetimes_that_no_certificate_can_have_are_errors() {
    for life in [Duration::ZERO, Duration::MAX, HOUR * 24 * 365 * 200] {
        assert!(Authority::generate(Algorithm::EcdsaP256, now(), life).is_err(), "{life:?}");
        assert!(life.is_zero() == authority().issue(&service("hook"), now(), life).is_err(), "{life:?}");
    }
    assert!(Authority::generate(Algorithm::EcdsaP256, SystemTime::UNIX_EPOCH, HOUR).is_err());
}

#[test]
fn no_debug_form_shows_a_key_r09() {
    let authority = authority();
    let pair = authority.issue(&service("hook"), now(), LEAF_LIFE).unwrap();
    let text = format!("{authority:?} {pair:?} {:?}", authority.key_pair());
    assert!(!text.contains("PRIVATE KEY"), "{text}");
}
