//! Other releases of Sallyport, and what releases that are gone left behind.

use std::collections::BTreeMap;

use serde_json::Value;

use super::diagnosis::{Check, Verdict, counted};
use super::entry::{Entry, PODS, entries, text, title};
use super::snapshot::{Snapshot, is_sallyport};

/// What frees a cluster of every Sallyport review.
const EMERGENCY: &str = "kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations \
                         -l app.kubernetes.io/part-of=sallyport";

/// Whether releases intercept each other's pods.
pub(super) fn releases(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("releases");
    let configurations = match &snapshot.configurations {
        Ok(configurations) => configurations,
        Err(unread) => {
            check.unread("webhook configurations", unread);
            return check;
        }
    };
    let sallyport: Vec<Entry<'_>> = entries(configurations)
        .filter(|entry| is_sallyport(entry.configuration) || snapshot.is_ours(entry.configuration))
        .collect();
    let own = snapshot.installation.namespace.as_str();
    let mut namespaces: BTreeMap<String, Vec<&Entry<'_>>> = BTreeMap::new();
    for entry in &sallyport {
        if let Some(target) = entry.target().filter(|target| target.namespace != own) {
            namespaces.entry(target.namespace).or_default().push(entry);
        }
    }
    let waits = |entries: &[&Entry<'_>], namespace: &str| {
        let labels = snapshot.namespace_labels(namespace);
        entries.iter().any(|entry| {
            entry.is_fail()
                && entry.covers(PODS)
                && entry.selects_namespace(&labels)
                && !entry.conditions_name(namespace)
        })
    };
    let ours: Vec<_> = sallyport.iter().filter(|entry| snapshot.is_ours(entry.configuration)).collect();
    for (namespace, theirs) in &namespaces {
        let object = format!("release in namespace {namespace}");
        let advice = |excluded: &str| format!("set registration.excludeNamespaces: [{excluded}]");
        match (waits(&ours, namespace), waits(theirs, own)) {
            (true, true) => {
                let problem = "each intercepts the other's pods: two that are down wait for each other";
                let advice = format!("{} here, and {} there", advice(namespace), advice(own));
                check.add(Verdict::Failure, object, problem, advice);
            }
            (true, false) => {
                check.add(Verdict::Warning, object, "this release intercepts its pods", advice(namespace));
            }
            (false, true) => {
                let advice = format!("{} there", advice(own));
                check.add(Verdict::Warning, object, "it intercepts this release's pods", advice);
            }
            (false, false) => {}
        }
    }
    check.summary = match namespaces.len() {
        0 => "there is no other".to_owned(),
        count => format!("{} and this one do not wait for each other", counted(count, "other", "others")),
    };
    check
}

/// Whether configurations of releases that are gone are still in force.
pub(super) fn leftovers(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("leftovers");
    let configurations = match &snapshot.configurations {
        Ok(configurations) => configurations,
        Err(unread) => {
            check.unread("webhook configurations", unread);
            return check;
        }
    };
    if let Err(unread) = &snapshot.cluster_roles {
        check.unread("ClusterRoles", unread);
    }
    let mut count = 0;
    for configuration in configurations.iter().filter(|configuration| is_sallyport(configuration)) {
        count += 1;
        let Some(problem) = fault(snapshot, configuration) else { continue };
        let kind = text(configuration, "/kind").to_lowercase();
        let name = text(configuration, "/metadata/name");
        let advice = format!("kubectl delete {kind} {name}; for all at once, {EMERGENCY}");
        let verdict = if snapshot.is_ours(configuration) || locks(snapshot, configuration) {
            Verdict::Failure
        } else {
            Verdict::Warning
        };
        check.add(verdict, title(configuration), problem, advice);
    }
    check.summary = match count {
        0 => "there are none".to_owned(),
        _ => format!("none: {} with their release", counted(count, "configuration", "configurations")),
    };
    check
}

/// Why a configuration would stay when its release goes, or has stayed.
fn fault(snapshot: &Snapshot, configuration: &Value) -> Option<String> {
    let mut missing = entries(std::slice::from_ref(configuration)).filter_map(|entry| entry.target());
    if let (Ok(namespaces), Some(target)) = (&snapshot.namespaces, missing.next())
        && !namespaces.iter().any(|namespace| text(namespace, "/metadata/name") == target.namespace)
    {
        let namespace = target.namespace;
        return Some(format!("its namespace {namespace} is gone, deleted before helm uninstall"));
    }
    let owners = configuration.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owner = owners.into_iter().flatten().find(|owner| text(owner, "/kind") == "ClusterRole");
    let Some(owner) = owner else {
        let calls_a_service = entries(std::slice::from_ref(configuration)).any(|e| e.target().is_some());
        return Some(if calls_a_service {
            "it has no owner: nobody removes it with its release".to_owned()
        } else {
            "it has no owner: if no sallyport dev runs that made it, it was left behind".to_owned()
        });
    };
    let roles = snapshot.cluster_roles.as_ref().ok()?;
    let uid = text(owner, "/uid");
    let is_there = roles.iter().any(|role| text(role, "/metadata/uid") == uid);
    let name = text(owner, "/name");
    (!is_there).then(|| format!("its owner, the ClusterRole {name}, does not exist: its release is gone"))
}

/// Whether a configuration refuses what it matches, as nobody is there to answer.
fn locks(snapshot: &Snapshot, configuration: &Value) -> bool {
    entries(std::slice::from_ref(configuration)).filter(Entry::is_fail).any(|entry| {
        let service = entry.target().and_then(|target| snapshot.services.get(&target));
        service.is_some_and(|service| service.service == Ok(None))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::judge::fixtures::{assert_found, configuration, entry, healthy, healthy_and};
    use super::*;

    /// A configuration of another release, which lies in the namespace `guard`.
    fn other(excluded: &[&str]) -> Value {
        let mut entry = entry("validate", "Fail");
        entry["clientConfig"]["service"] =
            json!({"name": "other-webhook", "namespace": "guard", "port": 443});
        entry["namespaceSelector"]["matchExpressions"][0]["values"] = json!(excluded);
        configuration("ValidatingWebhookConfiguration", "other.guard", &[entry])
    }

    #[test]
    fn releases_that_intercept_each_other_are_found() {
        let we_exclude = |mut snapshot: Snapshot| {
            let configurations = snapshot.configurations.as_mut().unwrap();
            for entry in configurations[0]["webhooks"].as_array_mut().unwrap() {
                let values = &mut entry["namespaceSelector"]["matchExpressions"][0]["values"];
                values.as_array_mut().unwrap().push(json!("guard"));
            }
            snapshot
        };
        let both = healthy_and(other(&["guard"]));
        let they = we_exclude(both.clone());
        let we = healthy_and(other(&["guard", "sallyport"]));
        let none = we_exclude(we.clone());
        for (snapshot, verdict, words) in [
            (healthy().1, Verdict::Ok, ""),
            (both, Verdict::Failure, "namespace guard: each intercepts the other's"),
            (they, Verdict::Warning, "it intercepts this release's pods"),
            (we, Verdict::Warning, "this release intercepts its pods"),
            (none, Verdict::Ok, ""),
        ] {
            assert_found(&releases(&snapshot), verdict, words);
        }
    }

    #[test]
    fn what_a_release_left_behind_is_found_with_the_command_that_frees_the_cluster_c104() {
        let with = |change: fn(&mut Value)| {
            let mut left = other(&["guard", "sallyport"]);
            change(&mut left);
            healthy_and(left)
        };
        let orphan = |v: &mut Value| {
            v["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        };
        let mut dead = with(orphan);
        for (target, service) in &mut dead.services {
            if target.namespace == "guard" {
                service.service = Ok(None);
            }
        }
        let mut unknown = with(|_| {});
        unknown.cluster_roles = Err(crate::cluster::Unread::Forbidden("no".into()));
        for (snapshot, verdict, words) in [
            (with(|_| {}), Verdict::Ok, ""),
            (with(orphan), Verdict::Warning, "other.guard: it has no owner: nobody removes it"),
            (dead, Verdict::Failure, "it has no owner"),
            (
                with(|v| v["metadata"]["ownerReferences"][0]["uid"] = json!("gone")),
                Verdict::Warning,
                "its release is gone",
            ),
            (
                with(|v| v["webhooks"][0]["clientConfig"]["service"]["namespace"] = json!("gone")),
                Verdict::Warning,
                "its namespace gone is gone",
            ),
            (
                with(|v| {
                    v["webhooks"][0]["clientConfig"] = json!({"url": "https://127.0.0.1:1"});
                    v["metadata"].as_object_mut().unwrap().remove("ownerReferences");
                }),
                Verdict::Warning,
                "sallyport dev",
            ),
            (unknown, Verdict::NotChecked, "ClusterRoles: not allowed"),
        ] {
            let check = leftovers(&snapshot);
            assert_found(&check, verdict, words);
            if verdict > Verdict::NotChecked {
                assert!(check.findings[0].advice.contains("-l app.kubernetes.io/part-of=sallyport"));
            }
        }
        let (_, mut snapshot) = healthy();
        let ours = &mut snapshot.configurations.as_mut().unwrap()[0];
        ours["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        assert_found(&leftovers(&snapshot), Verdict::Failure, "it has no owner");
    }
}
