//! The decision in all its states: whatever others do to an object, to its owner and to the webhook, and in whatever
//! order, no guarantee is broken, and the object is as described once they leave it alone.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::SystemTime;

use sallyport_pki::authority::AUTHORITY_LIFE;
use sallyport_pki::{Algorithm, Authority};
use serde_json::{Map, json};

use super::*;
use crate::description::Description;

const OTHERS: &str = "kubectl-edit";
const NAME: &str = "sallyport";

/// What does not change while a world is explored.
struct Fixtures {
    /// A configuration in three forms: two entries, one of them changed and the other gone, none.
    described: Vec<Described>,
    bundles: [Bundle; 2],
    owners: [Owners; 3],
}

impl Fixtures {
    fn new() -> Self {
        let entry = |name: &str, policy: &str, path: &str| {
            json!({
                "name": name, "failurePolicy": policy,
                "clientConfig": {"service": {"namespace": "prod", "name": "webhook", "path": path}},
            })
        };
        let forms = [
            json!([entry("fail", "Fail", "/a"), entry("ignore", "Ignore", "/b")]),
            json!([entry("fail", "Fail", "/c")]),
            json!([]),
        ];
        let described = forms.map(|entries| {
            let document = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": NAME}, "webhooks": entries,
            });
            Description::of([document], "prod").unwrap().configurations.remove(0)
        });
        let bundle = || {
            let authority = Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), AUTHORITY_LIFE);
            let mut bundle = Bundle::empty();
            bundle.add(authority.unwrap().certificate().clone());
            bundle
        };
        let role = |uid: &str| {
            Owners::Present(vec![crate::owner("rbac.authorization.k8s.io/v1", "ClusterRole", "r", uid)])
        };
        Self {
            described: described.into(),
            bundles: [bundle(), Bundle::empty()],
            owners: [role("first"), role("second"), Owners::Absent],
        }
    }
}

/// One state of everything that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// The live object as text, so that states can be told apart.
    live: Option<String>,
    described: usize,
    bundle: usize,
    owner: usize,
}

impl State {
    fn live(&self) -> Option<Value> {
        self.live.as_ref().map(|text| serde_json::from_str(text).unwrap())
    }

    fn with(&self, live: Option<&Value>) -> Self {
        Self { live: live.map(Value::to_string), ..self.clone() }
    }

    /// What others, time and the release can make of it.
    fn disturbed(&self, fixtures: &Fixtures) -> Vec<Self> {
        let mut next = Vec::new();
        next.extend((0..fixtures.described.len()).map(|described| Self { described, ..self.clone() }));
        next.extend((0..fixtures.bundles.len()).map(|bundle| Self { bundle, ..self.clone() }));
        next.extend((0..fixtures.owners.len()).map(|owner| Self { owner, ..self.clone() }));
        let Some(live) = self.live() else {
            next.push(self.with(Some(&foreign())));
            return next;
        };
        next.push(self.with(None));
        let edits: [fn(&mut Value); 5] = [
            |live| live["webhooks"][0]["clientConfig"]["caBundle"] = json!(""),
            |live| live["webhooks"][0]["clientConfig"]["service"]["path"] = json!("/theirs"),
            |live| seize(live, "Fail"),
            |live| seize(live, "Ignore"),
            |live| live["metadata"]["managedFields"] = json!([]),
        ];
        for edit in edits {
            let mut changed = live.clone();
            edit(&mut changed);
            next.push(self.with(Some(&changed)));
        }
        next
    }
}

/// An object of that name that others made.
fn foreign() -> Value {
    json!({
        "metadata": {"name": NAME, "uid": "theirs", "managedFields": [managed(OTHERS, &["fail"])]},
        "webhooks": [{"name": "fail", "failurePolicy": "Fail", "clientConfig": {"url": "https://theirs/"}}],
    })
}

fn managed(manager: &str, entries: &[&str]) -> Value {
    let entry = |name: &&str| (format!("k:{{\"name\":\"{name}\"}}"), json!({"f:failurePolicy": {}}));
    let entries: Map<String, Value> = entries.iter().map(entry).collect();
    let operation = if manager == FIELD_MANAGER { "Apply" } else { "Update" };
    json!({"manager": manager, "operation": operation, "fieldsV1": {"f:webhooks": entries}})
}

/// Others set the failurePolicy of the entry that is described as Fail, and own it from then on.
fn seize(live: &mut Value, policy: &str) {
    let entries = live["webhooks"].as_array_mut().unwrap();
    let names: Vec<String> = entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect();
    entries[0]["failurePolicy"] = json!(policy);
    let (first, rest) = names.split_first().unwrap();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    live["metadata"]["managedFields"] = json!([managed(FIELD_MANAGER, &rest), managed(OTHERS, &[first])]);
}

/// The API server applies an object with force: the manager owns all that it says.
fn apply(live: Option<&Value>, wanted: &Value) -> Value {
    let mut object = wanted.clone();
    let entries = object["webhooks"].as_array_mut().unwrap();
    for entry in entries.iter_mut() {
        entry["matchPolicy"] = json!("Equivalent");
    }
    let names: Vec<String> = entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    object["metadata"]["uid"] = live.map_or(json!("uid"), |live| live["metadata"]["uid"].clone());
    object["metadata"]["managedFields"] = json!([managed(FIELD_MANAGER, &names)]);
    object
}

/// What a rotator meets when it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weather {
    proof: Proof,
    contest: Duration,
    probe_proves: bool,
}

const FAIR: Weather = Weather { proof: Proof::Proven(ROUTABLE), contest: Duration::ZERO, probe_proves: true };

fn all_weather(promotion: Promotion) -> Vec<Weather> {
    let probes: &[bool] = if promotion == Promotion::Off { &[true] } else { &[true, false] };
    let mut all = Vec::new();
    for proof in [Proof::Lacking, Proof::Proven(Duration::from_secs(1)), Proof::Proven(ROUTABLE)] {
        for contest in [Duration::ZERO, Duration::from_secs(7)] {
            all.extend(probes.iter().map(|probe_proves| Weather {
                proof,
                contest,
                probe_proves: *probe_proves,
            }));
        }
    }
    all
}

/// What one turn of a rotator came to.
struct Turn {
    /// Everything that was decided, the last being what was done.
    actions: Vec<Action>,
    after: State,
}

impl Turn {
    fn last(&self) -> &Action {
        self.actions.last().unwrap()
    }
}

/// Decides and looks until something is done, as the executor does.
fn turn(fixtures: &Fixtures, state: &State, weather: Weather, promotion: Promotion) -> Turn {
    let live = state.live().map(Live::new);
    let observe = |promotion| {
        let (described, owners) = (&fixtures.described[state.described], &fixtures.owners[state.owner]);
        let mut observed =
            Observed::new(described, live.as_ref(), &fixtures.bundles[state.bundle], owners, promotion);
        observed.contest = weather.contest;
        observed
    };
    let mut observed = observe(promotion);
    let mut actions = Vec::new();
    loop {
        let action = decide(&observed);
        actions.push(action.clone());
        assert!(actions.len() <= 3, "it never stops looking: {actions:?}");
        let after = match action {
            Action::Prove => {
                observed.proof = weather.proof;
                continue;
            }
            Action::Probe if weather.probe_proves => {
                observed = observe(Promotion::Proven);
                observed.proof = Proof::Proven(Duration::ZERO);
                continue;
            }
            Action::Write(wanted) => state.with(Some(&apply(state.live().as_ref(), &wanted))),
            Action::Remove(_) => state.with(None),
            Action::Keep | Action::Leave | Action::Wait(..) | Action::Probe => state.clone(),
        };
        return Turn { actions, after };
    }
}

/// What is guaranteed of every turn, whatever the state and the weather.
fn check(fixtures: &Fixtures, state: &State, weather: Weather, promotion: Promotion, turn: &Turn) {
    let what = || format!("{state:?} {weather:?} {promotion:?}: {:?}", turn.actions);
    let live = state.live().map(Live::new);
    let described = &fixtures.described[state.described];
    match turn.last() {
        Action::Write(wanted) => {
            assert_ne!(fixtures.owners[state.owner], Owners::Absent, "without its owner: {}", what());
            assert!(weather.contest.is_zero(), "impatient: {}", what());
            assert!(described.is_wanted(), "nothing is described: {}", what());
            match &live {
                None => assert_eq!(weather.proof, Proof::Proven(ROUTABLE), "created unproven: {}", what()),
                Some(live) => {
                    let found = difference(wanted, &live.object, FIELD_MANAGER);
                    assert_ne!(found, Difference::None, "for nothing: {}", what());
                    let is_probed = turn.actions.contains(&Action::Probe);
                    assert!(
                        found == Difference::Bundle || weather.proof != Proof::Lacking || is_probed,
                        "changed unproven: {}",
                        what()
                    );
                }
            }
            if promotion == Promotion::Unproven && !turn.actions.contains(&Action::Probe) {
                assert_eq!(*wanted, held(wanted, live.as_ref()), "Fail without a proof: {}", what());
            }
        }
        Action::Remove(cause) => {
            let live = live.expect("there is nothing to remove");
            assert!(live.is_ours(), "it is of others: {}", what());
            assert_eq!(*cause == Cause::NoEntries, !described.is_wanted(), "{}", what());
        }
        Action::Keep => {
            let full = described.complete(&fixtures.bundles[state.bundle], &[]);
            let is_good = live.as_ref().is_some_and(|live| covers(&full, live));
            let is_ours = live.as_ref().is_some_and(Live::is_ours);
            assert!(if described.is_wanted() { is_good } else { !is_ours }, "{}", what());
        }
        Action::Leave | Action::Wait(..) | Action::Prove | Action::Probe => {}
    }
}

fn covers(full: &Value, live: &Live) -> bool {
    difference(full, &live.object, FIELD_MANAGER) == Difference::None
}

fn start() -> State {
    State { live: None, described: 0, bundle: 0, owner: 0 }
}

/// What a turn in fair weather makes of a state, and by which actions.
type FairTurns = HashMap<State, (State, Vec<Action>)>;

/// Visits every state that can be reached from nothing by turns in any weather, and by whatever others do, and checks
/// every turn. Returns what a turn in fair weather makes of each, and everything that was decided.
fn explore(fixtures: &Fixtures, promotion: Promotion) -> (FairTurns, BTreeSet<String>) {
    let mut fair = HashMap::new();
    let mut seen = BTreeSet::new();
    let mut known = HashSet::from([start()]);
    let mut open = VecDeque::from([start()]);
    while let Some(state) = open.pop_front() {
        let mut next = state.disturbed(fixtures);
        for weather in all_weather(promotion) {
            let turn = turn(fixtures, &state, weather, promotion);
            check(fixtures, &state, weather, promotion, &turn);
            seen.extend(turn.actions.iter().map(|action| match action {
                Action::Write(_) => "Write".to_owned(),
                Action::Wait(hold, _) => format!("{hold:?}"),
                action => format!("{action:?}"),
            }));
            next.push(turn.after.clone());
            if weather == FAIR {
                fair.insert(state.clone(), (turn.after, turn.actions));
            }
        }
        for state in next {
            if known.insert(state.clone()) {
                open.push_back(state);
            }
        }
    }
    (fair, seen)
}

fn no_guarantee_is_broken(promotion: Promotion, more: &[&str]) {
    let fixtures = Fixtures::new();
    let (fair, seen) = explore(&fixtures, promotion);
    assert!(fair.len() > 500, "{} states are not all of them", fair.len());
    let mut wanted =
        BTreeSet::from(["Keep", "Leave", "Prove", "Write", "Remove(NoEntries)", "Remove(FormerRelease)"]);
    wanted.extend(["NoOwner", "Unproven", "Settling", "Contested"]);
    wanted.extend(more);
    assert_eq!(seen.iter().map(String::as_str).collect::<BTreeSet<_>>(), wanted);

    // Once others leave it alone, every state ends as described, or waits for its owner.
    for first in fair.keys() {
        let (mut state, mut turns) = (first, 0);
        let last = loop {
            let (after, actions) = &fair[state];
            if after == state {
                break actions.last().unwrap();
            }
            turns += 1;
            assert!(turns <= 3, "it never settles: {first:?}");
            state = after;
        };
        let is_waiting = fixtures.owners[state.owner] == Owners::Absent
            && fixtures.described[state.described].is_wanted()
            && [Action::Leave, Action::Wait(Hold::NoOwner, SOON)].contains(last);
        assert!(is_waiting || *last == Action::Keep, "{first:?}: {last:?}");
    }
}

#[test]
fn no_guarantee_is_broken_in_any_state_r05() {
    no_guarantee_is_broken(Promotion::Off, &[]);
}

#[test]
fn no_guarantee_is_broken_in_any_state_of_promotion_r07() {
    no_guarantee_is_broken(Promotion::Unproven, &["Probe"]);
}

#[test]
fn what_no_probe_has_proven_stays_at_ignore_and_is_written_once_r07() {
    let fixtures = Fixtures::new();
    let weather = Weather { probe_proves: false, ..FAIR };
    let created = turn(&fixtures, &start(), weather, Promotion::Unproven).after;
    let live = created.live().unwrap();
    let policies: Vec<&Value> =
        live["webhooks"].as_array().unwrap().iter().map(|entry| &entry["failurePolicy"]).collect();
    assert_eq!(policies, ["Ignore", "Ignore"]);
    let again = turn(&fixtures, &created, weather, Promotion::Unproven);
    assert_eq!(again.actions, [Action::Probe]);
    assert_eq!(again.after, created);
}

#[test]
fn the_service_needs_no_proof_but_an_owner() {
    let document = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook"}, "spec": {"selector": {"a": "b"}},
    });
    let service = Description::of([document], "prod").unwrap().service.unwrap();
    let decide_with = |owners: &Owners, live: Option<&Live>| {
        decide(&Observed::new(&service, live, &Bundle::empty(), owners, Promotion::Off))
    };
    assert!(matches!(decide_with(&Owners::Unowned, None), Action::Write(_)));
    assert_eq!(decide_with(&Owners::Absent, None), Action::Leave);
    let Action::Write(written) = decide_with(&Owners::Unowned, None) else { panic!("it is not made") };
    assert_eq!(decide_with(&Owners::Unowned, Some(&Live::new(written))), Action::Keep);
}
