//! A policy that does not compile, loops, or allocates without end harms nobody but its own requests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use kube::Client;
use sallyport_testkit::{ControlPlane, Process};
use sallyport_tests::oracle::{Answer, Call, NAMESPACES, Oracle};
use sallyport_tests::{Entry, Load, Options, Suite, load, release};
use serde_json::{Value, json};

/// Where pods are created.
const NAMESPACE: &str = "load";
const MUTATION: &str = "MutationPolicy";
const VALIDATION: &str = "ValidationPolicy";
/// Who creates pods that the good policies are for, one after the other.
const WORKERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(10);
/// How many creates must have come back well under each round of hostile ones.
const GOOD: usize = 50;
/// How often each bad policy is asked, before memory is looked at and after.
const ROUNDS: usize = 8;
/// A webhook has ten seconds; a policy may take far less, even unoptimised and with the machine busy.
const BOUND: Duration = Duration::from_secs(5);
/// What a process may grow by, in bytes, when its bad policies are asked as often again: allocators keep some of
/// what is given back, and nothing of what a policy makes may stay.
const GROWTH: u64 = 48 << 20;
/// How long an edit of a policy may take to be in force.
const IN_FORCE: Duration = Duration::from_secs(30);

/// Name, `variables`, and an expression that gives bool.
fn hostile() -> Vec<(&'static str, Vec<Value>, String)> {
    let twenty = (0..20).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let loops = ('a'..='h').rev().fold("true".to_owned(), |inner, variable| {
        format!("[{twenty}].all({variable}, {inner} && {variable} >= 0)")
    });
    let mut doubling = vec![json!({"name": "v0", "expression": "'0123456789abcdef'"})];
    doubling.extend((0..40).map(|number| {
        let expression = format!("variables.v{number} + variables.v{number}");
        json!({"name": format!("v{}", number + 1), "expression": expression})
    }));
    let lists = ('a'..='f')
        .rev()
        .fold("'x'".to_owned(), |inner, variable| format!("[{twenty}].map({variable}, {inner})"));
    vec![
        ("broken", Vec::new(), "object.spec.".to_owned()),
        ("mistyped", Vec::new(), "'a' + 1".to_owned()),
        ("erring", Vec::new(), "object.spec.nothing == 1".to_owned()),
        ("looping", Vec::new(), loops),
        ("doubling", doubling, "variables.v40.size() > 0".to_owned()),
        ("lists", Vec::new(), format!("{lists}.size() > 0")),
        (
            "pattern",
            Vec::new(),
            "object.metadata.name.matches('((((a{0,99}){0,99}){0,99}){0,99}){0,99}')".to_owned(),
        ),
    ]
}

/// The name of a policy, and the label of the pods that it is for.
fn label(name: &str, kind: &str, failure: &str) -> String {
    format!("{name}-{kind}-{failure}").to_lowercase()
}

fn policy(kind: &str, failure: &str, (name, variables, expression): &(&str, Vec<Value>, String)) -> String {
    let name = label(name, kind, failure);
    let mut spec = json!({
        "failurePolicy": failure,
        "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
            "objectSelector": {"matchLabels": {"hostile": name}},
        },
        "variables": variables,
    });
    if kind == VALIDATION {
        spec["validationActions"] = json!(["Deny"]);
        spec["validations"] = json!([{"expression": expression}]);
    } else {
        spec["mutations"] = json!([{"forEach": {"list": format!("[{expression}].filter(ok, ok)"), "as": "it"},
            "overlay": {"metadata": {"labels": {"made": "yes"}}}}]);
    }
    json!({"apiVersion": "sallyport.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        .to_string()
}

fn install(directory: &Path) {
    for kind in [MUTATION, VALIDATION] {
        for failure in ["Fail", "Ignore"] {
            let policies: Vec<String> = hostile().iter().map(|row| policy(kind, failure, row)).collect();
            let file = format!("hostile-{kind}-{failure}.yaml");
            std::fs::write(directory.join(file), policies.join("\n---\n")).unwrap();
        }
    }
}

async fn create(oracle: &Oracle, label: &str) -> (Answer, Duration) {
    let pod = json!({"metadata": {"name": "hostile", "labels": {"hostile": label}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
    let begun = Instant::now();
    (oracle.send(&Call::new(Method::POST, path, Some(pod))).await, begun.elapsed())
}

/// Asks every bad policy once: those with `Fail` refuse, naming themselves, those with `Ignore` let pass; soon.
async fn round(oracle: &Oracle) {
    for (name, ..) in hostile() {
        for kind in [MUTATION, VALIDATION] {
            let policy = label(name, kind, "Fail");
            let (answer, took) = create(oracle, &policy).await;
            let message = answer.body["message"].as_str().unwrap_or_default();
            assert!(answer.is_refusal() && message.contains(&policy), "{policy}: {answer:?}");
            assert!(took < BOUND, "{policy}: {took:?}");
            let policy = label(name, kind, "Ignore");
            let (answer, took) = create(oracle, &policy).await;
            assert!(!answer.is_refusal(), "{policy}: {answer:?}");
            assert!(took < BOUND, "{policy}: {took:?}");
        }
    }
}

/// Bytes in memory.
fn memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

async fn good(load: &Load, more: usize) {
    let (least, deadline) = (load.good() + more, Instant::now() + IN_FORCE);
    while load.good() < least {
        assert!(Instant::now() < deadline, "only {} of {least} creates", load.good());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn register(plane: &ControlPlane, suite: &mut Suite) {
    let entries: Vec<Entry> = ["mutate", "validate"]
        .into_iter()
        .flat_map(|side| ["Fail", "Ignore"].map(|failure| Entry::pods(side, failure, ("door", "open"))))
        .collect();
    let url = format!("https://{}", suite.fronts[0].address);
    suite.register(plane, "sallyport", &url, &entries).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_break_loop_or_allocate_harm_nobody_but_their_own_requests() {
    let oracle = Oracle::start().await;
    let options = Options { recipes: vec!["hello-file", "deny-env"], ..Options::default() };
    let mut suite = Suite::start(&options).await.unwrap();
    let namespace = json!({"metadata": {"name": NAMESPACE, "labels": {"door": "open"}}});
    oracle.create(NAMESPACES, &namespace).await;
    register(&oracle.plane, &mut suite).await;
    install(&suite.policies());

    // In force once they refuse, at both services.
    let deadline = Instant::now() + IN_FORCE;
    let client: Client = release::client(oracle.plane.kubeconfig()).await.unwrap();
    let pods = kube::Api::namespaced(client.clone(), NAMESPACE);
    loop {
        let mutated = create(&oracle, &label("erring", MUTATION, "Fail")).await.0;
        let validated = create(&oracle, &label("erring", VALIDATION, "Fail")).await.0;
        let allowed = load::create(&pods, "marker", false).await;
        let forbidden = load::create(&pods, "marker", true).await;
        if mutated.is_refusal() && validated.is_refusal() && allowed.is_ok() && forbidden.is_ok() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "not in force: {mutated:?}, {validated:?}, {allowed:?}, {forbidden:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let load = Load::start(&client, NAMESPACE, WORKERS, PAUSE);
    let backends = |suite: &Suite| [memory(&suite.mutators[0].process), memory(&suite.validator.process)];
    for _ in 0..ROUNDS {
        round(&oracle).await;
    }
    good(&load, GOOD).await;
    let before = backends(&suite);
    for _ in 0..ROUNDS {
        round(&oracle).await;
    }
    good(&load, GOOD).await;
    let after = backends(&suite);
    let outcome = load.finish().await;
    println!(
        "{} creates beside {} hostile ones, {} failed, the slowest took {:?}; memory of mutator and validator {:?} \
         MiB, then {:?} MiB",
        outcome.good,
        2 * ROUNDS * 4 * hostile().len(),
        outcome.failed,
        outcome.slowest,
        before.map(|bytes| bytes >> 20),
        after.map(|bytes| bytes >> 20),
    );
    assert_eq!(outcome.failed, 0, "{:?}", outcome.failures);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + GROWTH, "grew from {before} to {after} bytes");
    }
    for service in suite.mutators.iter_mut().chain([&mut suite.validator]) {
        assert!(service.process.try_exit().unwrap().is_none(), "a backend has ended");
    }
}
