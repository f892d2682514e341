//! What the service accounts are granted against what the API server's audit log saw them use.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::environment::{Cluster, items, none};
use crate::life::in_force;
use crate::release::{MAIN, Release, SERVICES};

/// What an orderly run need not use, and why it is granted: verb, resource, reason.
const UNUSED: [(&str, &str, &str); 8] = [
    ("create", "services", APPLY),
    ("create", "mutatingwebhookconfigurations", APPLY),
    ("create", "validatingwebhookconfigurations", APPLY),
    ("delete", "mutatingwebhookconfigurations", "a door loses its last policy, or a former release left one"),
    (
        "delete",
        "validatingwebhookconfigurations",
        "a door loses its last policy, or a former release left one",
    ),
    ("patch", "secrets", "certificates are renewed after months, or mended when somebody breaks them"),
    ("patch", "events", "the same happens twice within minutes"),
    ("patch", "services", "the Service is given its owners, or mended when somebody edits it"),
];
const APPLY: &str = "a server-side apply that makes an object is authorised as create, and logged as patch";

/// One right: a verb on a resource, on one object or (empty) on any.
type Right = (String, String, String);

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// The rules of a Role or `ClusterRole`, each right by itself.
fn granted(role: &Value) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        let names = strings(&rule["resourceNames"]);
        let names = if names.is_empty() { vec![String::new()] } else { names };
        for resource in strings(&rule["resources"]) {
            for verb in strings(&rule["verbs"]) {
                for name in &names {
                    rights.insert((verb.clone(), resource.clone(), name.clone()));
                }
            }
        }
    }
    rights
}

/// Reads the audit log of the whole run.
pub async fn audit(cluster: Arc<Cluster>) -> Result<()> {
    let cluster = &*cluster;
    let log = cluster.node()?.join("log/audit.log");
    MAIN.deploy(cluster, &Release::with_recipes(cluster)).await?;
    in_force(cluster, "hello-added", "OK").await?;

    let role = cluster.get(&["role", "-n", MAIN.namespace, &MAIN.object("cert-rotator")]).await?;
    let cluster_role = cluster.get(&["clusterrole", &MAIN.cluster_name()]).await?;
    let granted: BTreeSet<Right> = granted(&role).union(&granted(&cluster_role)).cloned().collect();
    let wildcards = granted.iter().filter(|(verb, resource, _)| verb == "*" || resource == "*").count();
    ensure!(wildcards == 0, "a right on everything");
    // No other ServiceAccount of the release is bound to anything.
    for kind in ["rolebindings", "clusterrolebindings"] {
        let bindings = cluster.get(&[kind, "-A"]).await?;
        for binding in items(&bindings) {
            for subject in binding["subjects"].as_array().into_iter().flatten() {
                let is_ours = subject["namespace"] == MAIN.namespace && subject["kind"] == "ServiceAccount";
                let name = subject["name"].as_str().unwrap_or_default();
                ensure!(
                    !is_ours || name == MAIN.object("cert-rotator"),
                    "{name} is bound to {}",
                    binding["roleRef"]
                );
            }
        }
    }

    let prefix = format!("system:serviceaccount:{}:", MAIN.namespace);
    let (mut used, mut forbidden, mut lines) = (BTreeSet::<Right>::new(), BTreeSet::<Right>::new(), 0_usize);
    for line in BufReader::new(std::fs::File::open(&log).context("the audit log")?).lines() {
        let line = line?;
        if !line.contains(&prefix) {
            continue;
        }
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        let caller = event["user"]["username"].as_str().unwrap_or_default();
        let Some(account) = caller.strip_prefix(&prefix) else { continue };
        lines += 1;
        let reference = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (verb, resource, name) =
            (text(&event["verb"]), text(&reference["resource"]), text(&reference["name"]));
        let is_known = SERVICES.iter().any(|service| account == MAIN.object(service));
        if !is_known {
            continue;
        }
        ensure!(account == MAIN.object("cert-rotator"), "{account} called the API server: {verb} {resource}");
        let call = (verb, resource, name);
        // While a release is removed its rights go before its pods do, and come after them at an install.
        if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            forbidden.insert(call);
        } else {
            used.insert(call);
        }
    }
    ensure!(lines > 0, "the audit log has no line of the release");
    // What is granted without a name is granted on any.
    let any = |(verb, resource, _): &Right| (verb.clone(), resource.clone(), String::new());
    let is_granted = |call: &&Right| granted.contains(*call) || granted.contains(&any(call));
    let beyond: Vec<String> = used
        .union(&forbidden)
        .filter(|call| !is_granted(call))
        .map(|(verb, resource, name)| format!("{verb} {resource} {name}"))
        .collect();
    none("asked for beyond the release's own roles", &beyond)?;

    let used: BTreeSet<Right> = used.iter().flat_map(|call| [call.clone(), any(call)]).collect();
    let (mut justified, mut unused) = (BTreeSet::new(), Vec::new());
    for (verb, resource, name) in granted.difference(&used) {
        match UNUSED.iter().find(|(v, r, _)| v == verb && r == resource) {
            Some(known) => drop(justified.insert(known)),
            None => unused.push(format!("{verb} {resource} {name}")),
        }
    }
    for (verb, resource, reason) in justified {
        eprintln!("     granted, not used: {verb} {resource}: {reason}");
    }
    eprintln!("     {} rights granted, {lines} calls in the log", granted.len());
    for (verb, resource, name) in &forbidden {
        eprintln!("     forbidden while the release came or went: {verb} {resource} {name}");
    }
    ensure!(unused.is_empty(), "granted and never used: {}", unused.join(", "));
    Ok(())
}
