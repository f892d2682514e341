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

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use sallyport_pki::names::Member;
use sallyport_pki::{
    Bundle, Certificate, Defect, Identity, KeyPair, LeafRequest, MAX_AUTHORITIES, Renewal, check,
};

/// What is stored: the authority and the leaf of every member, empty where there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The authority; its bundle is the one that all members are to have.
    pub authority: Identity,
    /// The authority that is to follow, while it is not yet trusted everywhere.
    pub successor: Option<KeyPair>,
    /// Whether somebody asked for another authority, and it was not begun.
    pub is_asked_for: bool,
    /// What each member is given.
    pub members: BTreeMap<Member, Identity>,
    /// What somebody else issued for each member, where that is who issues.
    pub offered: Option<BTreeMap<Member, Identity>>,
    /// Whether somebody holds rotations and renewals. What is broken is mended all the same.
    pub is_frozen: bool,
}

/// What is to be stored.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The leaf of each member.
    pub leaves: BTreeMap<Member, LeafRequest>,
    /// When an authority or leaf is renewed.
    pub renewal: Renewal,
}

/// Why an authority is to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Something is wrong with the one that is stored, or it is due.
    Defect(Defect),
    /// Somebody asked for it.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defect(defect) => defect.fmt(f),
            Self::Asked => f.write_str("somebody asked for another"),
        }
    }
}

/// One step towards what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make an authority and put it in office at once, as nobody is served by another. `kept` are the authorities
    /// that stay trusted besides it.
    ReplaceAuthority {
        /// What is wrong with the one that is stored.
        defect: Defect,
        /// The bundle to store, without the new authority.
        kept: Bundle,
    },
    /// Make a successor of the authority and have it trusted besides `kept`.
    StageSuccessor {
        /// Why.
        reason: Reason,
        /// The bundle to store, without the successor.
        kept: Bundle,
    },
    /// Put the successor in office.
    Promote,
    /// Store another bundle with the authority: one that holds it and its successor, without those whose time is
    /// over.
    PublishBundle {
        /// The bundle to store.
        bundle: Bundle,
    },
    /// Issue a leaf for a member, or take the one that somebody else issued, and give it the bundle.
    IssueLeaf {
        /// Whose.
        member: Member,
        /// What is wrong with the one that is stored.
        defect: Defect,
    },
    /// Give a member, whose leaf is good, the bundle.
    DistributeBundle {
        /// To whom.
        member: Member,
    },
    /// Trust former authorities no more.
    DropFormer {
        /// The bundle to store.
        bundle: Bundle,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReplaceAuthority { defect, .. } => write!(f, "the authority is to be replaced: {defect}"),
            Self::StageSuccessor { reason, .. } => {
                write!(f, "a successor of the authority is to be made: {reason}")
            }
            Self::Promote => f.write_str("the successor of the authority is to take office"),
            Self::PublishBundle { .. } => f.write_str("the trust bundle is to be stored anew"),
            Self::IssueLeaf { member, defect } => {
                write!(f, "the certificate of the {} is to be issued: {defect}", member.word())
            }
            Self::DistributeBundle { member } => {
                write!(f, "the {} is to be given the trust bundle", member.word())
            }
            Self::DropFormer { .. } => f.write_str("former authorities are to leave the trust bundle"),
        }
    }
}

impl Step {
    /// The words for steps in `sallyport_certificate_rotations_total{phase}`.
    pub const PHASES: [&'static str; 6] = ["authority", "staged", "promoted", "bundle", "leaf", "dropped"];

    /// The word for the step.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::ReplaceAuthority { .. } => "authority",
            Self::StageSuccessor { .. } => "staged",
            Self::Promote => "promoted",
            Self::PublishBundle { .. } | Self::DistributeBundle { .. } => "bundle",
            Self::IssueLeaf { .. } => "leaf",
            Self::DropFormer { .. } => "dropped",
        }
    }
}

/// What has to be seen before a rotation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Every webhook configuration and every process trusts the successor.
    Published,
    /// Every process serves its stored leaf.
    Switched,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Self; 2] = [Self::Published, Self::Switched];

    /// The word for it in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Switched => "switched",
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A step that can be taken.
    Step(Step),
    /// A step that can be taken once a phase has been seen to be complete.
    Confirm(Phase, Step),
    /// Nothing: everything is as wanted.
    Done,
}

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

fn certificate(pair: &KeyPair) -> Option<Certificate> {
    Certificate::from_pem(pair.certificate_pem.as_bytes()).ok()
}

/// The stored bundle with all of `named`, without those whose time is over, in the order of the stored one: the
/// same authorities in another order would be given out for nothing.
fn bundle(stored: &Bundle, named: &[Certificate], now: SystemTime) -> Bundle {
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

/// The authorities of `bundle` of which each alone suffices to verify an identity's certificate.
fn issuers(identity: &Identity, bundle: &Bundle, now: SystemTime) -> Vec<Certificate> {
    let chain = Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes()).unwrap_or_default();
    let suffices = |authority: &&Certificate| {
        let mut alone = Bundle::empty();
        authority.is_authority() && alone.add((*authority).clone()) && check::verifies(&chain, &alone, now)
    };
    bundle.certificates().iter().filter(suffices).cloned().collect()
}

#[cfg(test)]
mod tests;
