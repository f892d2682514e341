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

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Certificate, Defect, Identity, KeyPair, LeafRequest, Renewal, check};

/// The most authorities that a bundle holds: an authority that keeps breaking must not grow it without bound.
pub const MAX_AUTHORITIES: usize = 8;

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
    let verdict = check::authority(&observed.authority.pair, now, wanted.renewal);
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
            Ok(_) if observed.is_asked_for || observed.successor.is_some() => Some(Reason::Asked),
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
                check::leaf(&identity.pair, &issuers, leaf, now, wanted.renewal)
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
    use std::collections::{HashMap, HashSet};
    use std::time::Duration;

    use sallyport_pki::ServiceName;
    use sallyport_pki::authority::{AUTHORITY_LIFE, Algorithm, Authority, LEAF_LIFE};
    use sallyport_pki::names::{Extras, Suite};

    use super::*;
    use crate::issuance::{Policy, content};
    use crate::store::{Content, Slot};

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

    fn policy() -> Policy {
        Policy {
            wanted: wanted(),
            algorithm: Algorithm::EcdsaP256,
            authority_life: AUTHORITY_LIFE,
            leaf_life: LEAF_LIFE,
        }
    }

    /// Stores what a step writes, as the executor does.
    fn store(observed: &mut Observed, step: &Step, slot: Slot, content: Content) {
        match slot {
            Slot::Authority => {
                observed.authority = content.identity;
                observed.successor = content.successor;
            }
            Slot::Member(member) => drop(observed.members.insert(member, content.identity)),
        }
        if matches!(step, Step::StageSuccessor { .. }) {
            observed.is_asked_for = false;
        }
    }

    fn take(observed: &mut Observed, step: &Step, now: SystemTime) {
        let (slot, content) = content(&policy(), observed, step, now).unwrap().unwrap();
        store(observed, step, slot, content);
    }

    /// Steps until nothing is left to do, with every phase confirmed when it is asked for. More steps than two
    /// dozen would be a loop.
    fn settle(observed: &mut Observed, wanted: &Wanted, now: SystemTime) -> Vec<&'static str> {
        let mut phases = Vec::new();
        loop {
            let step = match next(observed, wanted, now) {
                Next::Step(step) | Next::Confirm(_, step) => step,
                Next::Done => return phases,
            };
            phases.push(step.phase());
            assert!(phases.len() <= 24, "it never settles: {phases:?}");
            let policy = Policy { wanted: wanted.clone(), ..policy() };
            let (slot, content) = content(&policy, observed, &step, now).unwrap().unwrap();
            store(observed, &step, slot, content);
        }
    }

    fn empty() -> Observed {
        Observed { authority: nothing(), successor: None, is_asked_for: false, members: BTreeMap::new() }
    }

    fn settled() -> Observed {
        let mut observed = empty();
        settle(&mut observed, &wanted(), start());
        observed
    }

    /// One whole rotation of the authority, from the order in which it is due.
    const ROTATION: [&str; 12] = [
        "staged", "bundle", "bundle", "bundle", "promoted", "leaf", "leaf", "leaf", "dropped", "bundle",
        "bundle", "bundle",
    ];

    #[test]
    fn a_pre_created_empty_secret_is_like_none_r_01() {
        let members = Member::ALL.into_iter().map(|member| (member, nothing())).collect();
        let mut observed = Observed { members, ..empty() };
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
            Next::Step(Step::IssueLeaf { member: Member::Mutator, defect: Defect::KeyUnreadable })
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
    fn an_authority_is_replaced_in_phases_r_04() {
        // By why it is replaced; in every case its leaves are being served.
        type Cause = fn(&mut Observed);
        let causes: [(&str, Cause); 4] = [
            ("somebody asks", |o| o.is_asked_for = true),
            ("the key is broken", |o| o.authority.pair.key_pem = "broken".into()),
            ("the Secret is gone", |o| o.authority = nothing()),
            ("the bundle is lost as well", |o| {
                o.authority.pair.key_pem.clear();
                o.authority.bundle = Bundle::empty();
            }),
        ];
        for (what, cause) in causes {
            let mut observed = settled();
            let before = observed.clone();
            cause(&mut observed);
            assert_eq!(settle(&mut observed, &wanted(), start()), ROTATION, "{what}");
            assert_ne!(observed.authority.pair, before.authority.pair, "{what}: another key");
            assert_eq!(observed.authority.bundle.certificates().len(), 1, "{what}");
            assert_eq!(observed.successor, None, "{what}");
        }
        let due = start() + AUTHORITY_LIFE.mul_f64(0.67);
        let mut observed = settled();
        settle(&mut observed, &Wanted { renewal: Renewal::Never, ..wanted() }, due);
        let phases = settle(&mut observed, &wanted(), due);
        assert_eq!(phases.iter().filter(|phase| **phase == "leaf").count(), 3, "{phases:?}");
        assert_eq!((phases.first(), phases.last()), (Some(&"staged"), Some(&"bundle")), "{phases:?}");
    }

    #[test]
    fn nothing_goes_on_before_it_is_confirmed_r_04() {
        let mut observed = settled();
        observed.is_asked_for = true;
        let mut confirmed = Vec::new();
        for _ in 0..ROTATION.len() {
            let step = match next(&observed, &wanted(), start()) {
                Next::Step(step) => step,
                Next::Confirm(phase, step) => {
                    confirmed.push((phase, step.phase()));
                    step
                }
                Next::Done => panic!("done too early"),
            };
            take(&mut observed, &step, start());
        }
        assert_eq!(confirmed, [(Phase::Published, "promoted"), (Phase::Switched, "dropped")]);
        assert_eq!(next(&observed, &wanted(), start()), Next::Done);
    }

    #[test]
    fn a_service_without_a_good_leaf_does_not_wait_for_the_others() {
        // The authority cannot issue, and its successor is not trusted everywhere yet.
        let mut observed = settled();
        observed.authority.pair.key_pem = "broken".into();
        let Next::Step(staging @ Step::StageSuccessor { .. }) = next(&observed, &wanted(), start()) else {
            panic!("no successor is made")
        };
        take(&mut observed, &staging, start());
        observed.members.get_mut(&Member::Webhook).unwrap().pair.certificate_pem = "broken".into();
        assert_eq!(next(&observed, &wanted(), start()), Next::Step(Step::Promote));
        // And without anybody to protect nothing is staged at all.
        let mut observed = settled();
        observed.authority = nothing();
        observed.members.clear();
        assert!(matches!(next(&observed, &wanted(), start()), Next::Step(Step::ReplaceAuthority { .. })));
    }

    #[test]
    fn half_a_successor_is_replaced_by_a_whole_one() {
        let mut observed = settled();
        observed.successor = Some(KeyPair { certificate_pem: "broken".into(), key_pem: String::new() });
        assert_eq!(settle(&mut observed, &wanted(), start()), ROTATION);
    }

    #[test]
    fn a_rotation_whose_authority_expires_meanwhile_goes_on() {
        let mut observed = settled();
        observed.is_asked_for = true;
        let Next::Step(staging) = next(&observed, &wanted(), start()) else { panic!("no successor is made") };
        take(&mut observed, &staging, start());
        let over = start() + AUTHORITY_LIFE + Duration::from_hours(1);
        let phases = settle(&mut observed, &wanted(), over);
        assert_eq!(observed.authority.bundle.certificates().len(), 1, "{phases:?}");
        assert_eq!(next(&observed, &wanted(), over), Next::Done);
    }

    #[test]
    fn an_authority_that_keeps_breaking_does_not_grow_the_bundle_without_bound() {
        let mut observed = settled();
        for _ in 0..20 {
            observed.successor = Some(KeyPair { certificate_pem: "broken".into(), key_pem: String::new() });
            let Next::Step(staging) = next(&observed, &wanted(), start()) else {
                panic!("no successor is made")
            };
            take(&mut observed, &staging, start());
            let certificates = observed.authority.bundle.certificates();
            assert!(certificates.len() <= MAX_AUTHORITIES, "{}", certificates.len());
            let issuer = Certificate::from_pem(observed.authority.pair.certificate_pem.as_bytes()).unwrap();
            assert!(certificates.contains(&issuer), "the authority in office fell out");
        }
    }

    /// Where every process of a small suite is: what each has loaded, and what the API server trusts.
    #[derive(Clone, PartialEq, Eq)]
    struct World {
        stored: Observed,
        loaded: BTreeMap<Member, Identity>,
        configured: Bundle,
    }

    impl World {
        /// What is stored, as a key.
        fn stored_key(&self) -> String {
            let mut key = format!("{} ", self.stored.is_asked_for);
            for identity in [&self.stored.authority].into_iter().chain(self.stored.members.values()) {
                key.push_str(&identity.pair.certificate_pem);
                key.push_str(&identity.pair.key_pem);
                key.push_str(&identity.bundle.fingerprint());
            }
            key.push_str(self.stored.successor.as_ref().map_or("", |pair| &pair.certificate_pem));
            key
        }

        /// All of it, as a key.
        fn key(&self) -> String {
            let mut key = self.stored_key();
            for identity in self.loaded.values() {
                key.push_str(&identity.pair.certificate_pem);
                key.push_str(&identity.bundle.fingerprint());
            }
            key.push_str(&self.configured.fingerprint());
            key
        }

        /// Everybody is known by everybody who calls.
        fn is_sound(&self, verified: &mut HashMap<(String, String), bool>) -> bool {
            let mut is_known = |served: &Identity, bundle: &Bundle| {
                let key = (served.pair.certificate_pem.clone(), bundle.fingerprint());
                *verified.entry(key).or_insert_with(|| {
                    let chain = Certificate::all_from_pem(served.pair.certificate_pem.as_bytes()).unwrap();
                    check::verifies(&chain, bundle, start())
                })
            };
            let front = &self.loaded[&Member::Webhook];
            is_known(front, &self.configured)
                && [Member::Mutator, Member::Validator].iter().all(|member| {
                    let backend = &self.loaded[member];
                    is_known(backend, &front.bundle) && is_known(front, &backend.bundle)
                })
        }
    }

    /// All orders in which the rotator steps or dies, processes load what is stored, sooner or later, and the API
    /// server hears of the bundle. A rotator that dies leaves nothing behind but what is stored, which is all that
    /// [`next`] sees, so its death at any point is among them. Returns how many states there are, and whether a call
    /// fails in one of them.
    fn explore(
        mut stored: Observed,
        cause: fn(&mut Observed),
        waits: impl Fn(Phase) -> bool,
    ) -> (usize, bool) {
        let (loaded, configured) = (stored.members.clone(), stored.authority.bundle.clone());
        cause(&mut stored);
        let (mut verified, mut made, mut seen) = (HashMap::new(), HashMap::new(), HashSet::new());
        let mut open = vec![World { stored, loaded, configured }];
        let (mut ends, policy, wanted) = (0, policy(), wanted());
        while let Some(world) = open.pop() {
            if !seen.insert(world.key()) {
                continue;
            }
            if !world.is_sound(&mut verified) {
                return (seen.len(), true);
            }
            let given = &world.stored.authority.bundle;
            let step = match next(&world.stored, &wanted, start()) {
                Next::Step(step) => Some(step),
                // What `Deployment::lacks` looks at.
                Next::Confirm(phase, step) => {
                    let is_complete = world.configured == *given
                        && world.loaded.iter().all(|(member, loaded)| {
                            let is_served = loaded.pair == world.stored.members[member].pair;
                            loaded.bundle == *given && (phase == Phase::Published || is_served)
                        });
                    (is_complete || !waits(phase)).then_some(step)
                }
                Next::Done => {
                    ends += 1;
                    None
                }
            };
            if let Some(step) = step {
                // The same step in the same place makes the same keys, or there would be no end of states.
                let (slot, content) = made
                    .entry(world.stored_key())
                    .or_insert_with(|| content(&policy, &world.stored, &step, start()).unwrap().unwrap())
                    .clone();
                let mut next = world.clone();
                store(&mut next.stored, &step, slot, content);
                open.push(next);
            }
            for (member, stored) in &world.stored.members {
                let mut next = world.clone();
                next.loaded.insert(*member, stored.clone());
                open.push(next);
            }
            let mut next = world.clone();
            next.configured = given.clone();
            open.push(next);
        }
        assert!(ends > 0, "no order comes to an end");
        (seen.len(), false)
    }

    #[test]
    fn in_no_order_of_events_does_a_call_fail_r_04() {
        type Cause = fn(&mut Observed);
        let causes: [Cause; 2] = [|o| o.is_asked_for = true, |o| o.authority.pair.key_pem = "broken".into()];
        for cause in causes {
            let (states, fails) = explore(settled(), cause, |_| true);
            assert!(!fails, "a call fails");
            assert!(states > 60, "only {states} states");
            // A rotator that does not wait, at either place, loses calls: the exploration would see it.
            for impatient in Phase::ALL {
                assert!(
                    explore(settled(), cause, |phase| phase != impatient).1,
                    "{impatient:?} need not be waited for"
                );
            }
        }
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
