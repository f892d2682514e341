//! Certificates that somebody else issues, carried to the services in the same phases as our own.
//!
//! Whoever issues them writes into Secrets of its own, which no service mounts. From there a certificate goes to its
//! service only once everybody who may meet it trusts its authority: the bundle first, the certificate second. So an
//! issuer may change its authority from one moment to the next, for one service or for all, and no call fails.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Certificate, Defect, Identity, LeafRequest, MAX_AUTHORITIES, Renewal, check};

use super::step::{Next, Observed, Phase, Step, Wanted};
use super::trust::{bundle, issuers};

/// What to do next when `offered` is what the other issuer has issued.
pub(super) fn next(
    observed: &Observed,
    offered: &BTreeMap<Member, Identity>,
    wanted: &Wanted,
    now: SystemTime,
) -> Next {
    let stored = &observed.authority.bundle;
    let offer = |member| -> Option<&Identity> {
        offered.get(member).filter(|offer| judge(offer, &wanted.leaves[member], now).is_ok())
    };
    let good: BTreeMap<Member, &Identity> =
        wanted.leaves.keys().filter_map(|member| Some((*member, offer(member)?))).collect();
    let named = named(observed, &good, now);
    let trusted = bundle(stored, named.certificates(), now);
    if trusted != *stored {
        return Next::Step(Step::PublishBundle { bundle: trusted });
    }
    let mut awaited = None;
    for (member, leaf) in &wanted.leaves {
        let identity = observed.members.get(member);
        let judged = identity.map_or(Err(Defect::Absent), |identity| {
            check::leaf(&identity.pair, &trusted, leaf, now, Renewal::Never)
        });
        match (judged, good.get(member), identity) {
            // Nobody can be served by what is there, so nobody is waited for.
            (Err(defect), Some(_), _) => return Next::Step(Step::IssueLeaf { member: *member, defect }),
            (Ok(_), Some(offer), Some(identity)) if offer.pair != identity.pair && !observed.is_frozen => {
                let known = issuers(identity, &trusted, now);
                if issuers(offer, &trusted, now).iter().any(|issuer| known.contains(issuer)) {
                    return Next::Step(Step::IssueLeaf { member: *member, defect: Defect::Due });
                }
                awaited = awaited.or(Some(*member));
            }
            _ => {}
        }
        let is_stored = identity.is_some_and(|identity| !identity.pair.certificate_pem.is_empty());
        if is_stored && identity.is_some_and(|identity| identity.bundle != trusted) {
            return Next::Step(Step::DistributeBundle { member: *member });
        }
    }
    if let Some(member) = awaited {
        return Next::Confirm(Phase::Published, Step::IssueLeaf { member, defect: Defect::Due });
    }
    let mut left = Bundle::empty();
    for certificate in trusted.certificates().iter().filter(|certificate| named.contains(certificate)) {
        left.add(certificate.clone());
    }
    if left != trusted && !left.is_empty() {
        return Next::Confirm(Phase::Switched, Step::DropFormer { bundle: left });
    }
    Next::Done
}

/// What is not offered, or cannot be used, a line each.
pub(super) fn missing(offered: &BTreeMap<Member, Identity>, wanted: &Wanted, now: SystemTime) -> Vec<String> {
    let judged = wanted.leaves.iter().map(|(member, leaf)| {
        let judged = offered.get(member).map_or(Err(Defect::Absent), |offer| judge(offer, leaf, now));
        judged.err().map(|defect| format!("the certificate brought for the {}: {defect}", member.word()))
    });
    judged.flatten().collect()
}

/// Whether a leaf that was issued can be given to its service.
fn judge(offer: &Identity, leaf: &LeafRequest, now: SystemTime) -> Result<(), Defect> {
    check::leaf(&offer.pair, &offer.bundle, leaf, now, Renewal::Never)?;
    // One that does not verify by a single authority could not be told from a former one.
    if issuers(offer, &offer.bundle, now).is_empty() { Err(Defect::NoAuthority) } else { Ok(()) }
}

/// The authorities that have to be trusted: of what is offered, and of what the services have.
fn named(observed: &Observed, good: &BTreeMap<Member, &Identity>, now: SystemTime) -> Bundle {
    let stored = &observed.authority.bundle;
    let mut named = Bundle::empty();
    let mut add = |certificates: Vec<Certificate>| {
        for certificate in certificates {
            named.add(certificate);
        }
    };
    for offer in good.values() {
        add(issuers(offer, &offer.bundle, now));
    }
    for identity in observed.members.values() {
        // What a service's own Secret says of trust counts only while nothing else is known.
        add(issuers(identity, if stored.is_empty() { &identity.bundle } else { stored }, now));
    }
    named.current(now, MAX_AUTHORITIES)
}
