//! What entries under `failurePolicy: Fail` must not intercept, or the cluster locks itself out when whoever should
//! answer is away (C-100 to C-107).

use super::diagnosis::{Check, Verdict, counted};
use super::entry::{BUSY, Entry, LEASES, Labels, PODS, RECOVERY, Resource, VITAL, entries, labels_at, text};
use super::snapshot::Snapshot;

/// The namespace that the cluster itself runs in.
const KUBE_SYSTEM: &str = "kube-system";
/// The namespace of nodes' leases.
const NODE_LEASES: &str = "kube-node-lease";
/// The annotation of pods that only show what a kubelet runs anyway.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The longest time, in seconds, that everybody should wait for a webhook that hangs.
const MAX_TIMEOUT: u64 = 10;
/// The most workloads that are named.
const MAX_NAMED: usize = 5;

/// Dangers of this release's own entries.
pub(super) fn ours(snapshot: &Snapshot) -> Check {
    dangers("dangers", snapshot, true)
}

/// Dangers of everybody else's.
pub(super) fn others(snapshot: &Snapshot) -> Check {
    dangers("others-dangers", snapshot, false)
}

fn dangers(name: &'static str, snapshot: &Snapshot, ours: bool) -> Check {
    let mut check = Check::new(name);
    let configurations = match &snapshot.configurations {
        Ok(configurations) => configurations,
        Err(unread) => {
            check.unread("webhook configurations", unread);
            return check;
        }
    };
    let looked = entries(configurations).filter(|entry| snapshot.is_ours(entry.configuration) == ours);
    let mut count = 0;
    for entry in looked.filter(Entry::is_fail) {
        count += 1;
        judge(snapshot, &entry, &mut check);
    }
    check.summary = if count == 0 {
        "no entry has failurePolicy Fail".to_owned()
    } else {
        let entries = counted(count, "entry", "entries");
        format!("nothing that must not wait does so for {entries} with failurePolicy Fail")
    };
    check
}

fn judge(snapshot: &Snapshot, entry: &Entry<'_>, check: &mut Check) {
    let held = snapshot.is_held_to_all(entry.configuration);
    let grave = if held { Verdict::Failure } else { Verdict::Warning };
    let object = entry.title();
    if let Some(target) = entry.target() {
        let service = snapshot.services.get(&target).and_then(|known| known.service.as_ref().ok()?.as_ref());
        let pods = service.map(|service| labels_at(service, "/spec/selector")).unwrap_or_default();
        let own = intercepted(snapshot, entry, &RECOVERY, &target.namespace, &pods);
        if !own.is_empty() {
            let problem = format!(
                "it intercepts {own} in its own namespace {}: once all its pods are gone, none comes back \
                 (C-100, C-101)",
                target.namespace
            );
            check.add(grave, &object, problem, exclude(&target.namespace));
        }
    }
    let system = intercepted(snapshot, entry, &RECOVERY, KUBE_SYSTEM, &Labels::new());
    if !system.is_empty() {
        let problem = format!("it intercepts {system} in kube-system (C-100)");
        check.add(grave, &object, problem, exclude(KUBE_SYSTEM));
    }
    for vital in VITAL {
        if entry.covers(vital) && entry.selects_object(&Labels::new()) && !entry.conditions_name(vital.word) {
            let problem =
                format!("it intercepts {}, by which the cluster lives (C-101, C-107)", vital.plural);
            let advice = "narrow its rules, or add a match condition that keeps them out";
            check.add(grave, &object, problem, advice);
        }
    }
    if !intercepted(snapshot, entry, &[LEASES], NODE_LEASES, &Labels::new()).is_empty() {
        let problem = "it intercepts leases in kube-node-lease: while it is away, nodes seem dead (C-100)";
        check.add(grave, &object, problem, exclude(NODE_LEASES));
    }
    let busy = intercepted(snapshot, entry, &BUSY, "default", &Labels::new());
    if !busy.is_empty() {
        let problem = format!("it intercepts {busy}, which are written all the time (C-107)");
        check.add(Verdict::Warning, &object, problem, "narrow its rules");
    }
    if entry.is_unbounded() {
        let problem = "a rule of it matches every resource of Kubernetes itself (C-95)";
        check.add(Verdict::Warning, &object, problem, "name the resources that it is about");
    }
    if entry.timeout() > MAX_TIMEOUT {
        let problem = format!("everybody waits {} s for it when it hangs", entry.timeout());
        let advice = format!("set timeoutSeconds to {MAX_TIMEOUT} or less");
        check.add(Verdict::Warning, &object, problem, advice);
    }
    if held && entry.covers(PODS) && !entry.conditions_name(MIRROR) {
        let verdict = if entry.is_mutating() { Verdict::Failure } else { Verdict::Warning };
        let problem = "it intercepts mirror pods, which nobody can change or refuse (C-100)";
        let advice = format!("add a match condition that keeps out pods with the annotation {MIRROR}");
        check.add(verdict, &object, problem, advice);
    }
}

fn exclude(namespace: &str) -> String {
    format!("exclude it by a namespaceSelector: kubernetes.io/metadata.name NotIn [{namespace}]")
}

/// Which of these resources an entry intercepts in a namespace; empty if none. A match condition that names the
/// namespace or the resource is taken to keep it out.
fn intercepted(
    snapshot: &Snapshot,
    entry: &Entry<'_>,
    resources: &[Resource],
    namespace: &str,
    labels: &Labels,
) -> String {
    if !entry.selects_namespace(&snapshot.namespace_labels(namespace))
        || !entry.selects_object(labels)
        || entry.conditions_name(namespace)
    {
        return String::new();
    }
    let covered = resources.iter().filter(|resource| entry.covers(**resource));
    // A condition about mirror pods speaks of pods too, and keeps out no others.
    let covered = covered.filter(|resource| **resource == PODS || !entry.conditions_name(resource.word));
    let mut names: Vec<&str> = covered.map(|resource| resource.plural).collect();
    names.dedup();
    names.join(", ")
}

/// Whether entries under `Fail` intercept pods that the cluster cannot do without.
pub(super) fn critical_workloads(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("critical-workloads");
    let (configurations, critical) = match (&snapshot.configurations, &snapshot.critical) {
        (Err(unread), _) => {
            check.unread("webhook configurations", unread);
            return check;
        }
        (_, Err(unread)) => {
            check.unread("DaemonSets and Deployments", unread);
            return check;
        }
        (Ok(configurations), Ok(critical)) => (configurations, critical),
    };
    for entry in entries(configurations).filter(|entry| entry.is_fail() && entry.covers(PODS)) {
        let hit: Vec<_> = critical
            .iter()
            .filter(|workload| {
                let namespace = text(workload, "/metadata/namespace");
                entry.selects_namespace(&snapshot.namespace_labels(namespace))
                    && entry.selects_object(&labels_at(workload, "/labels"))
                    && !entry.conditions_name(namespace)
            })
            .collect();
        if hit.is_empty() {
            continue;
        }
        let name = |workload: &&serde_json::Value| {
            let at = |pointer| text(workload, pointer);
            format!("{} {}/{}", at("/kind"), at("/metadata/namespace"), at("/metadata/name"))
        };
        let mut names: Vec<String> = hit.iter().take(MAX_NAMED).map(name).collect();
        if hit.len() > MAX_NAMED {
            names.push(format!("and {} more", hit.len() - MAX_NAMED));
        }
        let network = hit.iter().any(|workload| workload["isNetwork"] == serde_json::json!(true));
        let (verdict, means) = if network && snapshot.is_held_to_all(entry.configuration) {
            (Verdict::Failure, "without the pod network none of its own pods comes back (C-101)")
        } else {
            (Verdict::Warning, "while it is away they cannot come back (C-101)")
        };
        let problem = format!("it intercepts pods of {}: {means}", names.join(", "));
        let advice = if snapshot.is_ours(entry.configuration) {
            "name their namespaces in registration.excludeNamespaces"
        } else {
            "exclude their namespaces by a namespaceSelector"
        };
        check.add(verdict, entry.title(), problem, advice);
    }
    let workloads = counted(critical.len(), "workload", "workloads");
    check.summary = format!("nobody intercepts the {workloads} under failurePolicy Fail");
    check
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::judge::fixtures::{
        assert_found, configuration, entry, foreign, healthy, healthy_and, with_services,
    };
    use super::*;

    /// A change of an entry.
    type Change = Box<dyn Fn(&mut Value)>;

    /// The healthy release, with one entry that is changed.
    fn own(change: impl FnOnce(&mut Value)) -> Snapshot {
        let (_, mut snapshot) = healthy();
        let mut entry = entry("mutate", "Fail");
        change(&mut entry);
        let kind = "MutatingWebhookConfiguration";
        snapshot.configurations = Ok(vec![configuration(kind, "sallyport.sallyport", &[entry])]);
        with_services(snapshot)
    }

    fn rules(groups: &[&str], resources: &[&str], scope: &str) -> Value {
        json!([{"apiGroups": groups, "apiVersions": ["*"], "resources": resources,
                "operations": ["CREATE", "UPDATE"], "scope": scope}])
    }

    fn excluding(namespaces: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn",
                                     "values": namespaces}]})
    }

    #[test]
    fn dangers_are_failures_for_ours_and_warnings_for_others_c100() {
        let rows: [(Change, &str); 8] = [
            (Box::new(|e| e["namespaceSelector"] = excluding(&["kube-system"])), "its own namespace"),
            (
                Box::new(|e| e["namespaceSelector"] = excluding(&["sallyport", "guard"])),
                "it intercepts pods in kube-system",
            ),
            (Box::new(|e| e["namespaceSelector"] = Value::Null), "its own namespace"),
            (Box::new(|e| e["rules"] = rules(&[""], &["nodes"], "*")), "it intercepts nodes"),
            (
                Box::new(|e| {
                    e["rules"] = rules(&["certificates.k8s.io"], &["certificatesigningrequests"], "Cluster");
                }),
                "certificatesigningrequests",
            ),
            (Box::new(|e| e["rules"] = rules(&["*"], &["*"], "*")), "it intercepts tokenreviews"),
            (
                Box::new(|e| {
                    e["rules"] = rules(&["coordination.k8s.io"], &["leases"], "*");
                    e["namespaceSelector"] = excluding(&["sallyport", "guard", "kube-system"]);
                }),
                "leases in kube-node-lease",
            ),
            (
                // A pod of the webhook has the labels that its Service selects.
                Box::new(|e| {
                    e["namespaceSelector"] = json!({});
                    e["objectSelector"] = json!({"matchLabels": {"app": "hook"}});
                }),
                "its own namespace",
            ),
        ];
        for (change, words) in rows {
            assert_found(&ours(&own(&change)), Verdict::Failure, words);
            let theirs = foreign(&change);
            let mut snapshot = healthy_and(theirs);
            assert_found(&others(&snapshot), Verdict::Warning, words);
            assert_found(&ours(&snapshot), Verdict::Ok, "");
            snapshot.named = vec!["guard".into()];
            assert_found(&others(&snapshot), Verdict::Failure, words);
        }
    }

    #[test]
    fn what_costs_but_does_not_lock_is_a_warning_c107() {
        for (snapshot, words) in [
            (own(|e| e["timeoutSeconds"] = json!(30)), "everybody waits 30 s"),
            (own(|e| e["rules"] = rules(&[""], &["events"], "*")), "it intercepts events"),
            (own(|e| e["rules"] = rules(&["apps"], &["*"], "*")), "every resource of Kubernetes itself"),
        ] {
            assert_found(&ours(&snapshot), Verdict::Warning, words);
        }
    }

    #[test]
    fn mirror_pods_are_kept_out_by_ours_c100() {
        let snapshot = own(|e| e["matchConditions"] = json!([]));
        assert_found(&ours(&snapshot), Verdict::Failure, "it intercepts mirror pods");
        let theirs = healthy_and(foreign(|e| e["matchConditions"] = json!([])));
        assert_found(&others(&theirs), Verdict::Ok, "");
    }

    #[test]
    fn who_keeps_away_is_let_be() {
        let condition = |expression: &str| json!([{"name": "n", "expression": expression}]);
        let rows: [Change; 5] = [
            Box::new(|_| {}),
            Box::new(|e| {
                e["failurePolicy"] = json!("Ignore");
                e["rules"] = rules(&["*"], &["*"], "*");
            }),
            // Who is opted in by a label does not lock anybody out who does not ask for it.
            Box::new(|e| {
                e["namespaceSelector"] = json!({});
                e["objectSelector"] = json!({"matchLabels": {"reviewed": "yes"}});
            }),
            Box::new(move |e| {
                e["rules"] = rules(&[""], &["nodes"], "*");
                e["matchConditions"] = condition("request.resource.resource != 'nodes'");
            }),
            Box::new(|e| e["rules"] = rules(&["example.com"], &["*"], "*")),
        ];
        for (index, change) in rows.iter().enumerate() {
            assert_found(&others(&healthy_and(foreign(change))), Verdict::Ok, &index.to_string());
        }
    }

    #[test]
    fn critical_workloads_that_are_intercepted_are_named_c101() {
        let workload = |namespace: &str, network: bool| {
            json!({"kind": "DaemonSet", "metadata": {"name": "d", "namespace": namespace},
                   "labels": {"app": "d"}, "isNetwork": network})
        };
        let with = |mut snapshot: Snapshot, workloads: Vec<Value>| {
            snapshot.critical = Ok(workloads);
            snapshot
        };
        let pods = || own(|_| {});
        for (snapshot, verdict, words) in [
            (with(pods(), vec![workload("kube-system", true)]), Verdict::Ok, ""),
            (with(pods(), vec![workload("net", true)]), Verdict::Failure, "DaemonSet net/d"),
            (with(pods(), vec![workload("dns", false)]), Verdict::Warning, "DaemonSet dns/d"),
            (with(pods(), vec![workload("dns", false); 7]), Verdict::Warning, "and 2 more"),
            (
                with(
                    own(|e| e["objectSelector"] = json!({"matchLabels": {"a": "b"}})),
                    vec![workload("x", true)],
                ),
                Verdict::Ok,
                "",
            ),
            (with(own(|e| e["failurePolicy"] = json!("Ignore")), vec![workload("x", true)]), Verdict::Ok, ""),
        ] {
            assert_found(&critical_workloads(&snapshot), verdict, words);
        }
        let (_, mut snapshot) = healthy();
        snapshot.configurations = Ok(vec![foreign(|_| {})]);
        snapshot.critical = Ok(vec![workload("net", true)]);
        assert_found(&critical_workloads(&snapshot), Verdict::Warning, "guard.example.com: it intercepts");
    }
}
