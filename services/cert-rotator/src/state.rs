//! What to do next about certificates: a pure function from what is stored to one step.
//!
//! The rotator reads everything, asks [`next`] for a step, takes it, and reads again, until there is none. No
//! step depends on anything but what is stored, so a rotator killed at any point is continued by the next one,
//! and two at once do the same work twice at worst: every write is conditional on what was read.
//!
//! Whatever the step, the bundle that is given out holds the authority of every leaf that may still be served:
//! an authority that is replaced stays in the bundle until its time is over.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Certificate, Defect, Identity, LeafRequest, Renewal, check};

/// The most authorities that a bundle holds: an authority that keeps breaking must not grow it without bound.
pub const MAX_AUTHORITIES: usize = 8;

/// What is stored: the authority and the leaf of every member, empty where there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The authority; its bundle is the one that all members are to have.
    pub authority: Identity,
    /// What each member is given.
    pub members: BTreeMap<Member, Identity>,
}

/// What is to be stored.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The leaf of each member.
    pub leaves: BTreeMap<Member, LeafRequest>,
    /// When an authority or leaf is renewed.
    pub renewal: Renewal,
}

/// One step towards what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a new authority. `kept` are the authorities that stay trusted besides it.
    ReplaceAuthority {
        /// What is wrong with the one that is stored.
        defect: Defect,
        /// The bundle to store, without the new authority, which goes in front.
        kept: Bundle,
    },
    /// Store another bundle with the authority: one that holds it, without those whose time is over.
    PublishBundle {
        /// The bundle to store.
        bundle: Bundle,
    },
    /// Issue a leaf for a member, and give it the bundle.
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
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReplaceAuthority { defect, .. } => write!(f, "the authority is to be replaced: {defect}"),
            Self::PublishBundle { .. } => f.write_str("the trust bundle is to be stored anew"),
            Self::IssueLeaf { member, defect } => {
                write!(f, "the certificate of the {} is to be issued: {defect}", member.word())
            }
            Self::DistributeBundle { member } => {
                write!(f, "the {} is to be given the trust bundle", member.word())
            }
        }
    }
}

impl Step {
    /// The word for the step in `sallyport_certificate_rotations_total{phase}`.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::ReplaceAuthority { .. } => "authority",
            Self::PublishBundle { .. } | Self::DistributeBundle { .. } => "bundle",
            Self::IssueLeaf { .. } => "leaf",
        }
    }
}

/// The next step, or `None` when everything is as wanted.
pub fn next(observed: &Observed, wanted: &Wanted, now: SystemTime) -> Option<Step> {
    if let Err(defect) = check::authority(&observed.authority.pair, now, wanted.renewal) {
        return Some(Step::ReplaceAuthority { defect, kept: kept(observed, now) });
    }
    // Just checked, so it can be read.
    let authority = Certificate::from_pem(observed.authority.pair.certificate_pem.as_bytes()).ok()?;
    let mut issuer = Bundle::empty();
    issuer.add(authority.clone());
    let mut bundle = issuer.clone();
    for certificate in observed.authority.bundle.certificates() {
        bundle.add(certificate.clone());
    }
    let bundle = bundle.current(now, MAX_AUTHORITIES);
    if bundle != observed.authority.bundle {
        return Some(Step::PublishBundle { bundle });
    }
    for (member, leaf) in &wanted.leaves {
        let Some(identity) = observed.members.get(member) else {
            return Some(Step::IssueLeaf { member: *member, defect: Defect::Absent });
        };
        // Against its issuer alone: a leaf of a former authority is replaced, although it still verifies.
        if let Err(defect) = check::leaf(&identity.pair, &issuer, leaf, now, wanted.renewal) {
            return Some(Step::IssueLeaf { member: *member, defect });
        }
        if identity.bundle != bundle {
            return Some(Step::DistributeBundle { member: *member });
        }
    }
    None
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
        let Ok(chain) = Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes()) else { continue };
        for authority in identity.bundle.certificates().iter().filter(|c| c.is_authority()) {
            let mut alone = Bundle::empty();
            alone.add(authority.clone());
            if check::verifies(&chain, &alone, now) {
                kept.add(authority.clone());
            }
        }
    }
    kept.current(now, MAX_AUTHORITIES - 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_pki::authority::{AUTHORITY_LIFE, Algorithm, Authority, LEAF_LIFE};
    use sallyport_pki::names::{Extras, Suite};
    use sallyport_pki::{KeyPair, ServiceName};

    use super::*;

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(490_000)
    }

    fn nothing() -> Identity {
        Identity {
            pair: KeyPair { certificate_pem: String::new(), key_pem: String::new() },
            bundle: Bundle::empty(),
        }
    }

    fn wanted() -> Wanted {
        let suite = Suite::with_prefix("sallyport", "sallyport", "cluster.local").unwrap();
        let leaf = |member| (member, suite.leaf(member, &Extras::default()).unwrap());
        Wanted { leaves: Member::ALL.into_iter().map(leaf).collect(), renewal: Renewal::TwoThirds }
    }

    /// Takes one step as the executor does.
    fn take(observed: &mut Observed, wanted: &Wanted, step: Step, now: SystemTime) {
        match step {
            Step::ReplaceAuthority { kept, .. } => {
                let authority = Authority::generate(Algorithm::EcdsaP256, now, AUTHORITY_LIFE).unwrap();
                let mut bundle = Bundle::empty();
                bundle.add(authority.certificate().clone());
                for certificate in kept.certificates() {
                    bundle.add(certificate.clone());
                }
                observed.authority = Identity { pair: authority.key_pair(), bundle };
            }
            Step::PublishBundle { bundle } => observed.authority.bundle = bundle,
            Step::IssueLeaf { member, .. } => {
                let authority = Authority::from_pem(&observed.authority.pair).unwrap();
                let pair = authority.issue(&wanted.leaves[&member], now, LEAF_LIFE).unwrap();
                let bundle = observed.authority.bundle.clone();
                observed.members.insert(member, Identity { pair, bundle });
            }
            Step::DistributeBundle { member } => {
                observed.members.get_mut(&member).unwrap().bundle = observed.authority.bundle.clone();
            }
        }
    }

    /// Steps until nothing is left to do; more than a dozen would be a loop.
    fn settle(observed: &mut Observed, wanted: &Wanted, now: SystemTime) -> Vec<&'static str> {
        let mut phases = Vec::new();
        while let Some(step) = next(observed, wanted, now) {
            phases.push(step.phase());
            assert!(phases.len() <= 12, "it never settles: {phases:?}");
            take(observed, wanted, step, now);
        }
        phases
    }

    fn settled() -> Observed {
        let mut observed = Observed { authority: nothing(), members: BTreeMap::new() };
        settle(&mut observed, &wanted(), start());
        observed
    }

    #[test]
    fn from_nothing_to_everything_r_01() {
        let mut observed = Observed { authority: nothing(), members: BTreeMap::new() };
        assert_eq!(settle(&mut observed, &wanted(), start()), ["authority", "leaf", "leaf", "leaf"]);
        assert_eq!(next(&observed, &wanted(), start()), None);
    }

    #[test]
    fn a_pre_created_empty_secret_is_like_none_r_01() {
        let members = Member::ALL.into_iter().map(|member| (member, nothing())).collect();
        let mut observed = Observed { authority: nothing(), members };
        assert_eq!(settle(&mut observed, &wanted(), start()), ["authority", "leaf", "leaf", "leaf"]);
    }

    #[test]
    fn a_due_leaf_is_renewed_by_the_same_authority_r_03() {
        let mut observed = settled();
        let authority = observed.authority.clone();
        let later = start() + LEAF_LIFE.mul_f64(0.67);
        assert_eq!(settle(&mut observed, &wanted(), later), ["leaf", "leaf", "leaf"]);
        assert_eq!(observed.authority, authority);
    }

    #[test]
    fn only_what_is_broken_is_replaced_r_03() {
        let mut observed = settled();
        observed.members.get_mut(&Member::Mutator).unwrap().pair.key_pem = "broken".into();
        assert!(matches!(
            next(&observed, &wanted(), start()),
            Some(Step::IssueLeaf { member: Member::Mutator, defect: Defect::KeyUnreadable })
        ));
        assert_eq!(settle(&mut observed, &wanted(), start()), ["leaf"]);
    }

    #[test]
    fn a_renamed_service_gets_a_new_leaf_r_03() {
        let mut observed = settled();
        let mut wanted = wanted();
        let renamed = ServiceName::new("front", "sallyport", "cluster.local").unwrap();
        wanted.leaves.insert(Member::Webhook, LeafRequest::for_service(&renamed).with_client_auth());
        assert_eq!(settle(&mut observed, &wanted, start()), ["leaf"]);
    }

    #[test]
    fn a_lost_bundle_is_given_out_again() {
        let mut observed = settled();
        observed.members.get_mut(&Member::Webhook).unwrap().bundle = Bundle::empty();
        assert_eq!(settle(&mut observed, &wanted(), start()), ["bundle"]);
        observed.authority.bundle = Bundle::empty();
        assert_eq!(settle(&mut observed, &wanted(), start()), ["bundle"]);
    }

    #[test]
    fn a_replaced_authority_stays_trusted_until_its_end() {
        // By what the authority is lost; in every case its leaves are still being served.
        type Loss = fn(&mut Observed);
        let losses: [(&str, Loss); 3] = [
            ("the key is broken", |o| o.authority.pair.key_pem = "broken".into()),
            ("the Secret is gone", |o| o.authority = nothing()),
            ("the bundle is lost as well", |o| {
                o.authority.pair.key_pem.clear();
                o.authority.bundle = Bundle::empty();
            }),
        ];
        for (what, lose) in losses {
            let mut observed = settled();
            let before = observed.clone();
            lose(&mut observed);
            assert_eq!(
                settle(&mut observed, &wanted(), start()),
                ["authority", "leaf", "leaf", "leaf"],
                "{what}"
            );
            assert_ne!(observed.authority.pair, before.authority.pair, "{what}");
            for (member, leaf) in &wanted().leaves {
                let served = &before.members[member].pair;
                let now = &observed.members[member];
                check::leaf(served, &now.bundle, leaf, start(), Renewal::Never).expect(what);
                check::leaf(&now.pair, &now.bundle, leaf, start(), Renewal::Never).expect(what);
            }
            let late = start() + AUTHORITY_LIFE.mul_f64(0.6) - Duration::from_hours(1);
            settle(&mut observed, &wanted(), late);
            assert_eq!(observed.authority.bundle.certificates().len(), 2, "{what}: still within its time");
        }
    }

    #[test]
    fn an_authority_whose_time_is_over_leaves_the_bundle() {
        let mut observed = settled();
        let due = start() + AUTHORITY_LIFE.mul_f64(0.67);
        settle(&mut observed, &wanted(), due);
        assert_eq!(observed.authority.bundle.certificates().len(), 2);
        let over = start() + AUTHORITY_LIFE + Duration::from_hours(1);
        settle(&mut observed, &wanted(), over);
        assert_eq!(observed.authority.bundle.certificates().len(), 1);
        assert!(observed.members.values().all(|m| m.bundle == observed.authority.bundle));
    }

    #[test]
    fn a_member_cannot_smuggle_an_authority_into_the_bundle() {
        let mut observed = settled();
        let foreign = Authority::generate(Algorithm::EcdsaP256, start(), AUTHORITY_LIFE).unwrap();
        observed.members.get_mut(&Member::Mutator).unwrap().bundle.add(foreign.certificate().clone());
        observed.authority = nothing();
        settle(&mut observed, &wanted(), start());
        assert!(!observed.authority.bundle.contains(foreign.certificate()));
    }

    #[test]
    fn clock_jumps_of_minutes_change_nothing() {
        let mut observed = settled();
        for now in [start() - Duration::from_mins(9), start() + Duration::from_mins(10)] {
            assert_eq!(settle(&mut observed, &wanted(), now), [""; 0]);
        }
    }
}
