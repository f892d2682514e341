//! The state machine in all its orders.

use std::collections::BTreeMap;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sallyport_pki::authority::{AUTHORITY_LIFE, Algorithm, Authority, LEAF_LIFE};
use sallyport_pki::names::Member;
use sallyport_pki::names::{Extras, Suite};
use sallyport_pki::{Identity, KeyPair, LeafRequest, ServiceName};

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

/// A suite whose certificates somebody else issues.
fn brought(authority: &Authority, life: Duration) -> BTreeMap<Member, Identity> {
    let mut bundle = Bundle::empty();
    bundle.add(authority.certificate().clone());
    let leaf = |(member, request): (&Member, &LeafRequest)| {
        let pair = authority.issue(request, start(), life).unwrap();
        (*member, Identity { pair, bundle: bundle.clone() })
    };
    wanted().leaves.iter().map(leaf).collect()
}

fn authority() -> Authority {
    Authority::generate(Algorithm::EcdsaP256, start(), AUTHORITY_LIFE).unwrap()
}

fn empty() -> Observed {
    Observed {
        authority: nothing(),
        successor: None,
        is_asked_for: false,
        members: BTreeMap::new(),
        offered: None,
        is_frozen: false,
    }
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
fn a_pre_created_empty_secret_is_like_none_r01() {
    let members = Member::ALL.into_iter().map(|member| (member, nothing())).collect();
    let mut observed = Observed { members, ..empty() };
    assert_eq!(settle(&mut observed, &wanted(), start()), ["authority", "leaf", "leaf", "leaf"]);
}

#[test]
fn a_due_leaf_is_renewed_by_the_same_authority_r03() {
    let mut observed = settled();
    let authority = observed.authority.clone();
    let later = start() + LEAF_LIFE.mul_f64(0.67);
    assert_eq!(settle(&mut observed, &wanted(), later), ["leaf", "leaf", "leaf"]);
    assert_eq!(observed.authority, authority);
}

#[test]
fn only_what_is_broken_is_replaced_r03() {
    let mut observed = settled();
    observed.members.get_mut(&Member::Mutator).unwrap().pair.key_pem = "broken".into();
    assert!(matches!(
        next(&observed, &wanted(), start()),
        Next::Step(Step::IssueLeaf { member: Member::Mutator, defect: Defect::KeyUnreadable })
    ));
    assert_eq!(settle(&mut observed, &wanted(), start()), ["leaf"]);
}

#[test]
fn a_renamed_service_gets_a_new_leaf_r03() {
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
fn an_authority_is_replaced_in_phases_r04() {
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
fn nothing_goes_on_before_it_is_confirmed_r04() {
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
        let Next::Step(staging) = next(&observed, &wanted(), start()) else { panic!("no successor is made") };
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
fn explore(mut stored: Observed, cause: fn(&mut Observed), waits: impl Fn(Phase) -> bool) -> (usize, bool) {
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
fn in_no_order_of_events_does_a_call_fail_r04() {
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
fn a_freeze_holds_what_can_wait_and_nothing_else() {
    let due = start() + AUTHORITY_LIFE.mul_f64(0.67);
    let mut observed = settled();
    observed.is_frozen = true;
    observed.is_asked_for = true;
    assert_eq!(next(&observed, &wanted(), start()), Next::Done, "somebody asks");
    let leaves = start() + LEAF_LIFE.mul_f64(0.9);
    assert_eq!(next(&observed, &wanted(), leaves), Next::Done, "leaves are due");
    let phases = settle(&mut observed, &wanted(), due);
    assert_eq!(phases, ["leaf"; 3], "only what has expired");
    observed.members.get_mut(&Member::Mutator).unwrap().pair.key_pem = "broken".into();
    assert_eq!(settle(&mut observed, &wanted(), due), ["leaf"]);
    observed.is_frozen = false;
    observed.is_asked_for = true;
    let Next::Step(staging) = next(&observed, &wanted(), start()) else { panic!("no successor is made") };
    assert!(matches!(staging, Step::StageSuccessor { .. }), "the request still stands");
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

#[test]
fn what_is_brought_is_given_out_r12() {
    let mut observed = Observed { offered: Some(BTreeMap::new()), ..empty() };
    assert_eq!(next(&observed, &wanted(), start()), Next::Done, "nothing to give out");
    assert_eq!(missing(&observed, &wanted(), start()).len(), 3);

    let issuer = authority();
    let mut offered = brought(&issuer, LEAF_LIFE);
    let late = offered.remove(&Member::Validator).unwrap();
    observed.offered = Some(offered);
    assert_eq!(settle(&mut observed, &wanted(), start()), ["bundle", "leaf", "leaf"]);
    assert_eq!(missing(&observed, &wanted(), start()).len(), 1);
    observed.offered.as_mut().unwrap().insert(Member::Validator, late);
    assert_eq!(settle(&mut observed, &wanted(), start()), ["leaf"]);
    assert_eq!(missing(&observed, &wanted(), start()), [""; 0]);

    // Renewed by the same authority: everybody knows it already, so nobody is waited for.
    observed.offered = Some(brought(&issuer, LEAF_LIFE));
    for _ in 0..3 {
        let Next::Step(step @ Step::IssueLeaf { .. }) = next(&observed, &wanted(), start()) else {
            panic!("a renewal waits")
        };
        take(&mut observed, &step, start());
    }
    // While frozen, only what is broken.
    observed.offered = Some(brought(&issuer, LEAF_LIFE));
    observed.is_frozen = true;
    assert_eq!(next(&observed, &wanted(), start()), Next::Done);
    observed.members.get_mut(&Member::Mutator).unwrap().pair.key_pem.clear();
    assert_eq!(settle(&mut observed, &wanted(), start()), ["leaf"]);
}

#[test]
fn what_cannot_serve_is_not_given_out_r12() {
    type Fault = fn(&mut Identity);
    let issuer = authority();
    let mut observed = Observed { offered: Some(brought(&issuer, LEAF_LIFE)), ..empty() };
    settle(&mut observed, &wanted(), start());
    let faults: [(&str, Fault); 4] = [
        ("no key", |offer| offer.pair.key_pem.clear()),
        ("another authority's bundle", |offer| {
            offer.bundle = Bundle::empty();
            offer.bundle.add(authority().certificate().clone());
        }),
        ("no bundle", |offer| offer.bundle = Bundle::empty()),
        ("another name", |offer| {
            let service = ServiceName::new("other", "sallyport", "cluster.local").unwrap();
            let issuer = authority();
            offer.pair = issuer.issue(&LeafRequest::for_service(&service), start(), LEAF_LIFE).unwrap();
            offer.bundle = Bundle::empty();
            offer.bundle.add(issuer.certificate().clone());
        }),
    ];
    for (what, fault) in faults {
        let mut changed = observed.clone();
        fault(changed.offered.as_mut().unwrap().get_mut(&Member::Mutator).unwrap());
        assert_eq!(next(&changed, &wanted(), start()), Next::Done, "{what}: what is there stays");
        assert_eq!(missing(&changed, &wanted(), start()).len(), 1, "{what}");
    }
}

#[test]
fn in_no_order_of_events_does_a_call_fail_when_others_issue_r04_r12() {
    let issuer = authority();
    let mut ours = settled();
    ours.offered = Some(brought(&issuer, LEAF_LIFE));
    let mut theirs = Observed { offered: ours.offered.clone(), ..empty() };
    settle(&mut theirs, &wanted(), start());
    let successor = authority();
    let anew = brought(&successor, LEAF_LIFE);
    let mut one = theirs.clone();
    one.offered.as_mut().unwrap().insert(Member::Mutator, anew[&Member::Mutator].clone());
    let mut all = theirs.clone();
    all.offered = Some(anew);
    let mut back = theirs.clone();
    back.offered = None;
    // For one alone the former authority stays in use, so nothing is dropped.
    let both = &Phase::ALL[..];
    for (what, caused, phases) in [
        ("others begin to issue", ours, both),
        ("one by another", one, &[Phase::Published]),
        ("all by another", all, both),
        ("we again", back, both),
    ] {
        let (states, fails) = explore(caused.clone(), |_| {}, |_| true);
        assert!(!fails, "{what}: a call fails");
        assert!(states > 30, "{what}: only {states} states");
        for impatient in phases {
            let (_, fails) = explore(caused.clone(), |_| {}, |phase| phase != *impatient);
            assert!(fails, "{what}: {impatient:?} need not be waited for");
        }
    }
}
