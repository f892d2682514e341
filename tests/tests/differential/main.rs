//! Kubernetes' own policies on a real API server and in the engine, over several hundred small policies and the
//! requests that tell readings apart: the same verdict, code, reason, message, causes, warnings, audit annotations
//! and resulting object.
//!
//! Every request is sent twice, changing nothing. First without policies in force: a webhook keeps the reviews that
//! the API server makes of it, the engine is asked those, and the object that the engine leaves is sent once more,
//! so that defaults and conversions are the API server's own. Then with all policies in force, and what comes of
//! it must be what was foreseen. `differences.txt` lists what differs and why; whatever differs besides, and
//! whatever no longer differs, fails the test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod comparison;
mod engine;
mod subjects;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use futures::{StreamExt, stream};
use sallyport_tests::oracle::{Call, NAMESPACES};
use serde_json::Value;

use crate::cases::Case;
use crate::comparison::{Difference, Foreseen};
use crate::engine::Engine;
use crate::world::World;

/// The beginning of the names of the cases to run, to look at a few.
const ONLY: &str = "SALLYPORT_CASES";
/// How many differences are printed.
const SHOWN: usize = 80;

/// A request of a case, and what has to come of it.
struct Judged<'c> {
    case: &'c Case,
    shown: &'c str,
    call: Call,
    foreseen: Foreseen,
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_decide_as_on_a_real_api_server() {
    let started = Instant::now();
    let only = std::env::var(ONLY).unwrap_or_default();
    let cases = cases::all();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    let cases: Vec<Case> = cases.into_iter().filter(|case| case.name.starts_with(&only)).collect();
    let world = World::start(&cases).await;
    let stage = |what: &str| println!("{what} after {} s", started.elapsed().as_secs());
    stage("objects are made");
    let mut found: BTreeMap<(String, Difference), Vec<String>> = BTreeMap::new();

    let refused = world.create_policies(&cases).await;
    let engine = engine(&world, &cases, |_| true).await;
    let broken: BTreeMap<_, _> = engine.refused().into_iter().collect();
    for name in refused.keys().map(String::as_str).chain(broken.keys().copied()) {
        let (ours, theirs) = (broken.get(name), refused.get(name));
        if ours.is_some() != theirs.is_some() {
            let case = name.rsplit_once('.').unwrap().0.to_owned();
            let text = format!("{name}: {ours:?}, the API server {theirs:?}");
            found.entry((case, Difference::Creation)).or_default().push(text);
        }
    }
    let stored: Vec<&Case> = cases
        .iter()
        .filter(|case| {
            case.policies.iter().all(|policy| {
                let name = policy["metadata"]["name"].as_str().unwrap();
                !refused.contains_key(name) && !broken.contains_key(name)
            })
        })
        .collect();
    let is_stored = |case: &Case| stored.iter().any(|other| other.name == case.name);
    let engine = self::engine(&world, &cases, is_stored).await;

    stage("policies are compiled and stored");
    let requests = stored.iter().flat_map(|case| (0..case.requests.len()).map(move |index| (*case, index)));
    let judged: Vec<Judged<'_>> = stream::iter(requests)
        .map(|(case, index)| judge(&world, &engine, case, index))
        .buffered(world::AT_ONCE)
        .collect()
        .await;
    stage("requests are foreseen");
    world.bind(stored.iter().flat_map(|case| &case.bindings)).await;
    stage("policies are in force");
    let answers = world.send(judged.iter().map(|judged| judged.call.clone()).collect()).await;

    let (mut equal, mut refusals, mut changes, mut told) = (0, 0, 0, 0);
    for Judged { case, shown, call, foreseen } in &judged {
        let (answer, notes) = &answers[call.id.as_ref().unwrap()];
        let differing = comparison::differences(&engine, foreseen, answer, notes);
        equal += usize::from(differing.is_empty());
        refusals += usize::from(foreseen.refused.is_some());
        changes += usize::from(foreseen.is_changed);
        told += usize::from(!foreseen.warnings.is_empty() || !foreseen.notes.is_empty());
        for (kind, text) in differing {
            found.entry((case.name.clone(), kind)).or_default().push(format!("{shown}: {text}"));
        }
    }
    report(&found);
    let policies: usize = stored.iter().map(|case| case.policies.len()).sum();
    println!(
        "{} cases; {policies} policies stored, {} refused; {} requests: {equal} equal, of which {refusals} refused \
         by policies, {changes} changed, {told} with warnings or audit annotations; {} differences",
        cases.len(),
        refused.len(),
        judged.len(),
        found.len(),
    );
    let enough = refusals > 100 && changes > 50 && told > 20;
    assert!(enough || !only.is_empty(), "the cases do not tell anything apart");
    let known: BTreeMap<_, _> =
        comparison::known().into_iter().filter(|((case, _), _)| case.starts_with(&only)).collect();
    let new: Vec<_> = found.keys().filter(|key| !known.contains_key(*key)).map(line).collect();
    let gone: Vec<_> = known.keys().filter(|key| !found.contains_key(*key)).map(line).collect();
    assert!(new.is_empty(), "differences that differences.txt does not list:\n{}", new.join("\n"));
    assert!(gone.is_empty(), "differences.txt lists what no longer differs:\n{}", gone.join("\n"));
    world.oracle.plane.stop().unwrap();
}

/// Foresees what comes of a request.
async fn judge<'c>(world: &World, engine: &Engine, case: &'c Case, index: usize) -> Judged<'c> {
    let sent = &case.requests[index];
    let source = match sent.source(&case.name, index) {
        Some(path) => Some(world.oracle.get(&path).await),
        None => None,
    };
    let mut call = sent.call(&case.name, index, source);
    call.id = Some(format!("{}-{index}", case.name));
    let foreseen = world.foresee(engine, &call).await;
    Judged { case, shown: &sent.shown, call, foreseen }
}

/// The policies of some cases in the engine, with everything that exists at the API server.
async fn engine(world: &World, cases: &[Case], only: impl Fn(&Case) -> bool) -> Engine {
    let policies: Vec<Value> = cases
        .iter()
        .filter(|case| only(case))
        .flat_map(|case| case.policies.iter().chain(&case.bindings).cloned())
        .collect();
    let namespaces = world.oracle.get(NAMESPACES).await["items"].as_array().unwrap().clone();
    Engine::new(&policies, namespaces, world.objects.clone())
}

fn line((case, kind): &(String, Difference)) -> String {
    format!("{case} {}", kind.as_str())
}

fn report(found: &BTreeMap<(String, Difference), Vec<String>>) {
    for (key, texts) in found.iter().take(SHOWN) {
        println!("{} ({})\n    {}", line(key), texts.len(), texts[0]);
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (key, reason) in comparison::known() {
        *reasons.entry(reason).or_default() += found.get(&key).map_or(0, Vec::len);
    }
    for (reason, count) in reasons {
        println!("{count} differ: {reason}");
    }
}
