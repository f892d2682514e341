//! Which authorities an object is to have: those of the Secret, and for a while those that it had before.

use std::time::{Duration, SystemTime};

use sallyport_pki::MAX_AUTHORITIES;
use sallyport_pki::{Bundle, Certificate};

/// What is to be in an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The authorities: the Secret's, then former ones.
    pub bundle: Bundle,
    /// When the first of them is to leave, at the latest.
    pub until: Option<SystemTime>,
}

/// Adds to the `current` authorities those of `injected` that are to stay, at `now`.
///
/// `injected` is what was put into the object's fields, last at `since`. Former authorities stay until the current
/// ones have been there for `overlap`: a current one that is not there yet begins its time with the write that
/// brings it. What somebody else put into a field is not among `injected`, and so does not stay.
pub(crate) fn wanted(
    current: &Bundle,
    injected: &[&Bundle],
    since: Option<SystemTime>,
    overlap: Duration,
    now: SystemTime,
) -> Wanted {
    let mut bundle = current.clone();
    let begins = injected.iter().any(|there| current.certificates().iter().any(|c| !there.contains(c)));
    // Clocks differ; one that is ahead by more than the overlap itself is no reason to wait for it.
    let end = since.filter(|since| *since <= now + overlap).map(|since| since + overlap);
    let stay = if begins { Some(now + overlap) } else { end.filter(|end| *end > now) };
    let mut until = None;
    if let Some(end) = stay {
        let former = injected.iter().flat_map(|there| there.certificates());
        for certificate in former.filter(|certificate| certificate.not_after() > now) {
            if bundle.certificates().len() == MAX_AUTHORITIES {
                break;
            }
            if bundle.add(certificate.clone()) {
                until = Some(end);
            }
        }
    }
    let expiry = bundle.certificates().iter().map(Certificate::not_after).min();
    Wanted { bundle, until: [until, expiry].into_iter().flatten().min() }
}

#[cfg(test)]
mod tests {
    use sallyport_pki::{Algorithm, Authority};

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// What is wanted, what was injected, since when; then what is to be there, and until when.
    type Row<'a> = (
        &'a str,
        &'a [&'a Certificate],
        &'a [&'a [&'a Certificate]],
        Option<SystemTime>,
        &'a [&'a Certificate],
        SystemTime,
    );

    fn certificate(now: SystemTime, life: Duration) -> Certificate {
        Authority::generate(Algorithm::EcdsaP256, now, life).unwrap().certificate().clone()
    }

    fn bundle(certificates: &[&Certificate]) -> Bundle {
        let mut bundle = Bundle::empty();
        for certificate in certificates {
            bundle.add((*certificate).clone());
        }
        bundle
    }

    #[test]
    fn former_authorities_stay_as_long_as_the_overlap_r04() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let [a, b, c] = [20, 20, 20].map(|hours| certificate(now - 8 * HOUR, hours * HOUR));
        let expired = certificate(now - 8 * HOUR, HOUR);
        let dying = certificate(now - HOUR, HOUR + HOUR / 2);
        let ago = |hours: u32| Some(now - hours * HOUR);
        let life = a.not_after();
        let rows: [Row<'_>; 13] = [
            ("nothing was there", &[&a], &[], None, &[&a], life),
            ("nothing new", &[&a], &[&[&a]], ago(9), &[&a], life),
            ("another authority, long after the last", &[&b], &[&[&a]], ago(9), &[&b, &a], now + 2 * HOUR),
            ("within the overlap", &[&b], &[&[&b, &a]], ago(1), &[&b, &a], now + HOUR),
            ("at its end", &[&b], &[&[&b, &a]], ago(2), &[&b], life),
            ("after it", &[&b], &[&[&b, &a]], ago(9), &[&b], life),
            ("a third within the overlap", &[&c], &[&[&b, &a]], ago(1), &[&c, &b, &a], now + 2 * HOUR),
            ("the Secret overlaps by itself", &[&b], &[&[&a, &b]], ago(9), &[&b], life),
            ("expired ones do not stay", &[&b], &[&[&b, &expired]], ago(1), &[&b], life),
            ("nor longer than they live", &[&b], &[&[&b, &dying]], ago(0), &[&b, &dying], now + HOUR / 2),
            ("one field was not injected yet", &[&b], &[&[&b, &a], &[&b, &a]], ago(1), &[&b, &a], now + HOUR),
            ("no time is known", &[&b], &[&[&b, &a]], None, &[&b], life),
            ("a time beyond belief", &[&b], &[&[&b, &a]], Some(now + 3 * HOUR), &[&b], life),
        ];
        for (what, current, injected, since, there, until) in rows {
            let injected: Vec<Bundle> = injected.iter().map(|certificates| bundle(certificates)).collect();
            let injected: Vec<&Bundle> = injected.iter().collect();
            let wanted = wanted(&bundle(current), &injected, since, 2 * HOUR, now);
            assert_eq!(wanted, Wanted { bundle: bundle(there), until: Some(until) }, "{what}");
        }
        // A clock that is behind the API server's by less than the overlap costs nobody anything.
        let ahead = wanted(&bundle(&[&b]), &[&bundle(&[&b, &a])], Some(now + HOUR), 2 * HOUR, now);
        assert_eq!(ahead.bundle, bundle(&[&b, &a]));
    }

    #[test]
    fn their_number_is_bounded_and_the_oldest_leave() {
        let now = SystemTime::now();
        let all: Vec<Certificate> = (0..12).map(|_| certificate(now, HOUR)).collect();
        let mut there = bundle(&[&all[0]]);
        for index in 1..all.len() {
            let next = wanted(&bundle(&[&all[index]]), &[&there], Some(now), HOUR, now).bundle;
            assert_eq!(next.certificates().len(), MAX_AUTHORITIES.min(index + 1));
            assert_eq!(next.certificates()[..2], [all[index].clone(), all[index - 1].clone()]);
            let again = wanted(&bundle(&[&all[index]]), &[&next], Some(now), HOUR, now).bundle;
            assert_eq!(again, next, "what was written is what is wanted");
            there = next;
        }
    }

    #[test]
    fn order_is_no_difference() {
        let now = SystemTime::now();
        let [a, b] = [certificate(now, HOUR), certificate(now, HOUR)];
        for (one, other, same) in [
            (bundle(&[&a, &b]), bundle(&[&b, &a]), true),
            (bundle(&[&a]), bundle(&[&a, &b]), false),
            (bundle(&[&a]), bundle(&[&b]), false),
            (bundle(&[]), bundle(&[]), true),
        ] {
            assert_eq!(one.holds_same(&other), same);
        }
    }
}
