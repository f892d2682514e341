//! The judge: all checks in their fixed order, each a pure function of the snapshot.

use super::diagnosis::Diagnosis;
use super::snapshot::Snapshot;
use super::{authorities, configurations, dangers, neighbours, release};

/// Checks everything.
pub(super) fn judge(snapshot: &Snapshot) -> Diagnosis {
    let checks = [
        release::api_server,
        release::clock,
        release::deployments,
        authorities::certificates,
        authorities::served,
        configurations::registration,
        configurations::ca_bundles,
        configurations::service,
        dangers::ours,
        dangers::critical_workloads,
        neighbours::releases,
        neighbours::leftovers,
        authorities::rotation,
        release::leader,
        configurations::others,
        dangers::others,
    ];
    Diagnosis { checks: checks.iter().map(|check| check(snapshot)).collect() }
}

#[cfg(test)]
pub(super) mod fixtures {
    use std::time::Duration;

    use sallyport_pki::Authority;
    use sallyport_pki::names::Member;
    use serde_json::{Value, json};

    use super::super::diagnosis::{Check, Verdict};
    use super::super::entry::{Target, entries};
    use super::super::snapshot::{Server, Service, Snapshot};
    use crate::cluster::clock;
    use crate::cluster::inventory::fixtures::{installation, sound, today};
    use crate::cluster::serving::{Process, page_of};
    use crate::leadership::Leadership;

    /// An entry of ours as the chart describes it, without its bundle.
    pub(in super::super) fn entry(door: &str, policy: &str) -> Value {
        json!({
            "name": format!("{}.{door}.sallyport.dev", policy.to_lowercase()),
            "clientConfig": {"service": {"name": "sallyport-webhook", "namespace": "sallyport", "port": 443}},
            "failurePolicy": policy,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                       "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"}],
            "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name",
                "operator": "NotIn", "values": ["kube-node-lease", "kube-system", "sallyport"]}]},
            "matchConditions": [{"name": "not-a-mirror-pod",
                                 "expression": "!('kubernetes.io/config.mirror' in object.metadata.annotations)"}],
            "timeoutSeconds": 5,
        })
    }

    pub(in super::super) fn configuration(kind: &str, name: &str, entries: &[Value]) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "sallyport"},
                "ownerReferences": [{"kind": "ClusterRole", "name": name, "uid": "role"}]},
            "webhooks": entries,
        })
    }

    pub(in super::super) fn with_bundle(mut entry: Value, bundle: &str) -> Value {
        entry["clientConfig"]["caBundle"] = json!(bundle);
        entry
    }

    /// An entry of somebody else's webhook, in its own namespace `guard`.
    pub(in super::super) fn foreign(change: impl FnOnce(&mut Value)) -> Value {
        let mut entry = entry("x", "Fail");
        entry["name"] = json!("guard.example.com");
        entry["clientConfig"]["service"] = json!({"name": "guard", "namespace": "guard"});
        entry["namespaceSelector"] = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name",
            "operator": "NotIn", "values": ["kube-node-lease", "kube-system", "guard"]}]});
        change(&mut entry);
        let mut configuration = configuration("ValidatingWebhookConfiguration", "guard", &[entry]);
        configuration["metadata"] = json!({"name": "guard"});
        configuration
    }

    pub(in super::super) fn service(ready: usize) -> Service {
        let endpoints: Vec<_> =
            (0..ready).map(|n| json!({"addresses": [format!("10.0.0.{n}")], "conditions": {}})).collect();
        Service {
            service: Ok(Some(json!({"spec": {"selector": {"app": "hook"},
                "ports": [{"name": "https", "port": 443}]}}))),
            slices: Ok(vec![json!({"ports": [{"name": "https", "port": 8443}], "endpoints": endpoints})]),
        }
    }

    /// A cluster with a release in which all is well, and the release's authority.
    pub(in super::super) fn healthy() -> (Authority, Snapshot) {
        let now = today();
        let (authority, inventory) = sound(now);
        let deployment = |component: &str| {
            json!({"metadata": {"name": format!("sallyport-{component}")}, "spec": {"replicas": 2,
                "template": {"spec": {"containers": [{"args": ["--mutator=m", "--validator=v"]}]}}},
                "status": {"readyReplicas": 2}})
        };
        let process = |member: Member| {
            let mut page = page_of(inventory.member(member).unwrap());
            page.not_after = i64::MAX;
            Process { pod: format!("{}-a", member.word()), member, page: Ok(page) }
        };
        let bundle = inventory.authority().unwrap().bundle.to_ca_bundle();
        let kind = "ValidatingWebhookConfiguration";
        let name = "sallyport.sallyport";
        let described = [
            configuration("MutatingWebhookConfiguration", name, &[]),
            configuration(kind, name, &[entry("validate", "Fail"), entry("validate", "Ignore")]),
        ]
        .map(|mut described| {
            described["metadata"].as_object_mut().unwrap().remove("ownerReferences");
            described.to_string()
        });
        let live = [entry("validate", "Fail"), entry("validate", "Ignore")].map(|e| with_bundle(e, &bundle));
        let lease = json!({
            "metadata": {"annotations": {"sallyport.dev/conditions": "[]"}},
            "spec": {"holderIdentity": "a", "renewTime": clock::format_instant(now), "leaseDurationSeconds": 15},
        });
        let namespace = |name: &str| json!({"metadata": {"name": name}});
        let snapshot = Snapshot {
            installation: installation(),
            named: Vec::new(),
            server: Server {
                url: "https://api".into(),
                version: Ok("v1.34.1".into()),
                skew: Some(Ok(Duration::ZERO)),
            },
            now,
            deployments: Ok(["webhook", "mutator", "validator", "cert-rotator"].map(deployment).into()),
            processes: Ok(Member::ALL.map(process).into()),
            inventory,
            description: Ok(Some(json!({"data": {"registration.yaml": described.join("\n---\n")}}))),
            leadership: Ok(Some(Leadership::of(&lease))),
            configurations: Ok(vec![configuration(kind, name, &live)]),
            services: std::collections::BTreeMap::new(),
            namespaces: Ok(["sallyport", "kube-system", "default", "guard"].map(namespace).into()),
            critical: Ok(Vec::new()),
            cluster_roles: Ok(vec![json!({"metadata": {"name": name, "uid": "role"}})]),
        };
        (authority, with_services(snapshot))
    }

    /// The snapshot with a good Service for every target that has none.
    pub(in super::super) fn with_services(mut snapshot: Snapshot) -> Snapshot {
        let targets: Vec<Target> =
            entries(snapshot.configurations.as_ref().unwrap()).filter_map(|entry| entry.target()).collect();
        for target in targets {
            snapshot.services.entry(target).or_insert_with(|| service(2));
        }
        snapshot
    }

    /// A healthy snapshot with one more configuration.
    pub(in super::super) fn healthy_and(configuration: Value) -> Snapshot {
        let (_, mut snapshot) = healthy();
        snapshot.configurations.as_mut().unwrap().push(configuration);
        with_services(snapshot)
    }

    /// Asserts that a check has this verdict, and a finding that contains the words.
    pub(in super::super) fn assert_found(check: &Check, verdict: Verdict, words: &str) {
        assert_eq!(check.verdict(), verdict, "{words}: {check:?}");
        let found = check.findings.iter().any(|finding| {
            finding.verdict == verdict
                && format!("{}: {}", finding.object, finding.problem).contains(words)
                && (verdict == Verdict::NotChecked || !finding.advice.is_empty())
        });
        assert!(found || verdict == Verdict::Ok, "{words}: {check:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Verdict;
    use super::fixtures::healthy;
    use super::*;
    use crate::cluster::Unread;

    const ORDER: [&str; 16] = [
        "api-server",
        "clock",
        "deployments",
        "certificates",
        "served",
        "registration",
        "ca-bundles",
        "service",
        "dangers",
        "critical-workloads",
        "releases",
        "leftovers",
        "rotation",
        "leader",
        "others",
        "others-dangers",
    ];

    #[test]
    fn a_healthy_cluster_passes_every_check_in_the_fixed_order() {
        let (_, snapshot) = healthy();
        let diagnosis = judge(&snapshot);
        let names: Vec<_> = diagnosis.checks.iter().map(|check| check.name).collect();
        assert_eq!(names, ORDER);
        for check in &diagnosis.checks {
            assert_eq!((check.verdict(), check.summary.is_empty()), (Verdict::Ok, false), "{check:?}");
        }
        assert!(diagnosis.is_sound(true));
    }

    #[test]
    fn what_cannot_be_read_is_never_taken_for_good() {
        let (_, mut snapshot) = healthy();
        let no = || Unread::Forbidden("no right".into());
        snapshot.server.skew = None;
        snapshot.deployments = Err(no());
        snapshot.inventory.authority = Err(no());
        for read in snapshot.inventory.members.values_mut() {
            *read = Err(no());
        }
        snapshot.processes = Err(no());
        snapshot.description = Err(no());
        snapshot.leadership = Err(no());
        snapshot.configurations = Err(no());
        snapshot.services.clear();
        snapshot.namespaces = Err(no());
        snapshot.critical = Err(no());
        snapshot.cluster_roles = Err(no());
        for check in judge(&snapshot).checks.iter().skip(1) {
            assert_eq!(check.verdict(), Verdict::NotChecked, "{check:?}");
        }
    }
}
