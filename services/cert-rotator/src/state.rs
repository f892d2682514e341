//! What to do next about certificates: a pure function from what is stored to one step.
//!
//! The rotator reads everything, asks [`next`] for a step, takes it, and reads again, until there is none. No
//! step depends on anything but what is stored, so a rotator killed at any point is continued by the next one,
//! and two at once do the same work twice at worst: every write is conditional on what was read.
//!
//! An authority is replaced in three phases, and two of them end only when somebody has looked:
//!
//! 1. A successor is made and stored beside the authority, and the bundle with both is given out. Once everybody
//!    is seen to trust both ([`Phase::Published`]), the successor takes office.
//! 2. All leaves are issued anew. Once everybody is seen to serve the new ones ([`Phase::Switched`]),
//! 3. former authorities leave the bundle.
//!
//! So at every instant every leaf in use verifies against every bundle in use. Nobody waits where nothing is
//! served that could be lost: the first authority takes office at once, and so does a successor when a service
//! has no good leaf and the authority can issue none.
//!
//! Where somebody else issues the certificates, the same phases carry them to the services ([`brought`]).

mod brought;
mod step;
mod trust;

use std::time::SystemTime;

use sallyport_pki::{Bundle, Certificate, Defect, MAX_AUTHORITIES, Renewal, check};

pub use self::step::{Next, Observed, Phase, Reason, Step, Wanted};
use self::trust::{bundle, certificate, issuers};

/// What to do next.
pub fn next(observed: &Observed, wanted: &Wanted, now: SystemTime) -> Next {
    if let Some(offered) = &observed.offered {
        return brought::next(observed, offered, wanted, now);
    }
    let renewal = if observed.is_frozen { Renewal::Never } else { wanted.renewal };
    let verdict = check::authority(&observed.authority.pair, now, renewal);
    let can_issue = verdict.as_ref().map_or_else(Defect::is_usable, |_| true);
    let successor =
        observed.successor.as_ref().filter(|pair| check::authority(pair, now, Renewal::Never).is_ok());
    if successor.is_none() {
        let reason = match verdict {
            Err(defect) if !can_issue && !is_serving(observed, now) => {
                return Next::Step(Step::ReplaceAuthority { defect, kept: kept(observed, now) });
            }
            Err(defect) => Some(Reason::Defect(defect)),
            // A trace of a successor that cannot be used is replaced, or the rotation would never end.
            Ok(_) if observed.successor.is_some() => Some(Reason::Asked),
            Ok(_) if observed.is_asked_for && !observed.is_frozen => Some(Reason::Asked),
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            return Next::Step(Step::StageSuccessor { reason, kept: kept(observed, now) });
        }
    }
    let issuer = certificate(&observed.authority.pair).filter(|_| can_issue);
    let named: Vec<Certificate> = issuer.iter().cloned().chain(successor.and_then(certificate)).collect();
    let bundle = bundle(&observed.authority.bundle, &named, now);
    if bundle != observed.authority.bundle {
        return Next::Step(Step::PublishBundle { bundle });
    }
    let mut issuers = Bundle::empty();
    if let Some(issuer) = &issuer {
        issuers.add(issuer.clone());
    }
    for (member, leaf) in &wanted.leaves {
        let identity = observed.members.get(member);
        let judged = identity.map_or(Err(Defect::Absent), |identity| {
            if can_issue {
                // Against its issuer alone: a leaf of a former authority is replaced, although it still verifies.
                check::leaf(&identity.pair, &issuers, leaf, now, renewal)
            } else {
                check::leaf(&identity.pair, &bundle, leaf, now, Renewal::Never)
            }
        });
        match judged {
            Err(defect) if can_issue => return Next::Step(Step::IssueLeaf { member: *member, defect }),
            Err(_) => return Next::Step(Step::Promote),
            Ok(_) => {}
        }
        if identity.is_none_or(|identity| identity.bundle != bundle) {
            return Next::Step(Step::DistributeBundle { member: *member });
        }
    }
    if successor.is_some() {
        return Next::Confirm(Phase::Published, Step::Promote);
    }
    if bundle != issuers {
        return Next::Confirm(Phase::Switched, Step::DropFormer { bundle: issuers });
    }
    Next::Done
}

/// What somebody else has to issue and has not, a line each.
pub fn missing(observed: &Observed, wanted: &Wanted, now: SystemTime) -> Vec<String> {
    observed.offered.as_ref().map(|offered| brought::missing(offered, wanted, now)).unwrap_or_default()
}

/// Whether any member has a leaf that verifies against what it is given.
fn is_serving(observed: &Observed, now: SystemTime) -> bool {
    observed.members.values().any(|identity| {
        Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes())
            .is_ok_and(|chain| check::verifies(&chain, &identity.bundle, now))
    })
}

/// The authorities that stay trusted when the stored one is replaced: those of the stored bundle, the replaced
/// one itself, and those of members whose leaf still hangs on one that is stored nowhere else.
fn kept(observed: &Observed, now: SystemTime) -> Bundle {
    let mut kept = Bundle::empty();
    let former = Certificate::from_pem(observed.authority.pair.certificate_pem.as_bytes());
    if let Some(former) = former.ok().filter(Certificate::is_authority) {
        kept.add(former);
    }
    for certificate in observed.authority.bundle.certificates() {
        kept.add(certificate.clone());
    }
    for identity in observed.members.values() {
        for authority in issuers(identity, &identity.bundle, now) {
            kept.add(authority);
        }
    }
    kept.current(now, MAX_AUTHORITIES - 1)
}

#[cfg(test)]
mod tests;
