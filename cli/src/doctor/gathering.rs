//! Reading a cluster: everything at once, each call bounded, and nothing written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::entry::{Target, entries};
use super::snapshot::{Server, Service, Snapshot};
use crate::cluster::installation::Installation;
use crate::cluster::inventory::Inventory;
use crate::cluster::serving;
use crate::cluster::{Cluster, Greeting, Read, Unread, is_name, selector, without_managed_fields};
use crate::leadership::Leadership;

/// How many Services are asked for at a time.
const CONCURRENCY: usize = 8;
/// The most Services that are asked for.
const MAX_SERVICES: usize = 200;
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Reads everything that the judge looks at.
pub(super) async fn gather(cluster: &Cluster, installation: &Installation, named: &[String]) -> Snapshot {
    let greeting = cluster.greet().await;
    let is_reachable = greeting.is_ok();
    let server = Server {
        url: cluster.url().to_owned(),
        skew: greeting
            .as_ref()
            .ok()
            .and_then(|greeting| greeting.clock)
            .map(|(there, here)| there.duration_since(here).map_err(|behind| behind.duration())),
        version: greeting.map(|Greeting { version, .. }| version),
    };
    let now = SystemTime::now();
    let now = match server.skew {
        Some(Ok(ahead)) => now.checked_add(ahead),
        Some(Err(behind)) => now.checked_sub(behind),
        None => Some(now),
    }
    .unwrap_or(now);
    if !is_reachable {
        return nothing(installation, named, server, now);
    }
    let deployments = async {
        let path = installation.collection("/apis/apps/v1", "deployments");
        cluster.list(&path, &installation.selector(), without_managed_fields).await
    };
    let processes = async {
        let pods = serving::list_pods(cluster, installation).await?;
        Ok(serving::ask_processes(cluster, installation, &pods).await)
    };
    let description = async {
        let name = installation.object("registration");
        cluster.get(&installation.path("/api/v1", "configmaps", &name)).await
    };
    let registered = async {
        let configurations = configurations(cluster).await;
        let targets: BTreeSet<Target> = match &configurations {
            Ok(configurations) => entries(configurations).filter_map(|entry| entry.target()).collect(),
            Err(_) => BTreeSet::new(),
        };
        let services = services(cluster, targets).await;
        (configurations, services)
    };
    let part_of = selector([("app.kubernetes.io/part-of", "sallyport")]);
    let (deployments, inventory, processes, description, leadership, registered, namespaces, critical, roles) = tokio::join!(
        deployments,
        Inventory::read(cluster, installation),
        processes,
        description,
        Leadership::read(cluster, installation),
        registered,
        cluster.list_metadata("/api/v1/namespaces", ""),
        critical(cluster),
        cluster.list_metadata("/apis/rbac.authorization.k8s.io/v1/clusterroles", &part_of),
    );
    let (configurations, services) = registered;
    Snapshot {
        installation: installation.clone(),
        named: named.to_vec(),
        server,
        now,
        deployments,
        inventory,
        processes,
        description,
        leadership,
        configurations,
        services,
        namespaces,
        critical,
        cluster_roles: roles,
    }
}

/// A snapshot of a cluster that does not answer.
fn nothing(installation: &Installation, named: &[String], server: Server, now: SystemTime) -> Snapshot {
    let unread = Unread::Failed("not asked, as the API server does not answer".to_owned());
    let members = sallyport_pki::names::Member::ALL.map(|member| (member, Err(unread.clone())));
    Snapshot {
        installation: installation.clone(),
        named: named.to_vec(),
        server,
        now,
        deployments: Err(unread.clone()),
        inventory: Inventory { authority: Err(unread.clone()), members: members.into() },
        processes: Err(unread.clone()),
        description: Err(unread.clone()),
        leadership: Err(unread.clone()),
        configurations: Err(unread.clone()),
        services: BTreeMap::new(),
        namespaces: Err(unread.clone()),
        critical: Err(unread.clone()),
        cluster_roles: Err(unread),
    }
}

/// Webhook configurations of both kinds.
async fn configurations(cluster: &Cluster) -> Read<Vec<Value>> {
    let list = async |resource: &str, kind: &str| {
        let list = cluster.list(&format!("{ADMISSION}/{resource}"), "", without_managed_fields).await?;
        Ok::<_, Unread>(
            list.into_iter()
                .map(|object| of_kind(object, "admissionregistration.k8s.io/v1", kind))
                .collect::<Vec<_>>(),
        )
    };
    let (mutating, validating) = tokio::join!(
        list("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        list("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    );
    let mut all = mutating?;
    all.extend(validating?);
    Ok(all)
}

/// Items of a list do not say what they are.
fn of_kind(mut object: Value, api_version: &str, kind: &str) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.insert("apiVersion".to_owned(), json!(api_version));
        object.insert("kind".to_owned(), json!(kind));
    }
    object
}

async fn services(cluster: &Cluster, targets: BTreeSet<Target>) -> BTreeMap<Target, Service> {
    let asked = targets.into_iter().take(MAX_SERVICES).map(|target| async move {
        let Target { namespace, name, .. } = &target;
        if !is_name(namespace, name) {
            let unread = Unread::Failed("that is no name of a Service".to_owned());
            return (target, Service { service: Ok(None), slices: Err(unread) });
        }
        let service = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let of_service = selector([("kubernetes.io/service-name", name.as_str())]);
        let (service, slices) =
            tokio::join!(cluster.get(&service), cluster.list(&slices, &of_service, without_managed_fields));
        (target, Service { service, slices })
    });
    futures::stream::iter(asked).buffer_unordered(CONCURRENCY).collect().await
}

/// What the cluster cannot do without: its own namespace's, those of the highest classes, and the pod network's.
async fn critical(cluster: &Cluster) -> Read<Vec<Value>> {
    let list = async |resource: &str, kind: &str| {
        let list = cluster.list(&format!("/apis/apps/v1/{resource}"), "", workload).await?;
        let list = list.into_iter().filter(is_critical).map(|object| of_kind(object, "apps/v1", kind));
        Ok::<_, Unread>(list.collect::<Vec<_>>())
    };
    let (sets, deployments) =
        tokio::join!(list("daemonsets", "DaemonSet"), list("deployments", "Deployment"));
    let mut all = sets?;
    all.extend(deployments?);
    Ok(all)
}

/// The little of a workload that is looked at: there may be thousands.
fn workload(mut object: Value) -> Value {
    let volumes = object.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
    let mut paths =
        volumes.into_iter().flatten().filter_map(|volume| volume.pointer("/hostPath/path")?.as_str());
    let is_network = paths.any(|path| path.starts_with("/etc/cni") || path.contains("/cni/bin"));
    let mut take = |pointer: &str| object.pointer_mut(pointer).map(Value::take).unwrap_or_default();
    json!({
        "metadata": {"name": take("/metadata/name"), "namespace": take("/metadata/namespace")},
        "labels": take("/spec/template/metadata/labels"),
        "priorityClassName": take("/spec/template/spec/priorityClassName"),
        "isNetwork": is_network,
    })
}

fn is_critical(workload: &Value) -> bool {
    let is = |field: &str, wanted: &[&str]| {
        workload.pointer(field).and_then(Value::as_str).is_some_and(|text| wanted.contains(&text))
    };
    is("/metadata/namespace", &["kube-system"])
        || is("/priorityClassName", &["system-cluster-critical", "system-node-critical"])
        || workload.get("isNetwork") == Some(&json!(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_is_what_the_cluster_cannot_do_without_c101() {
        let object = |namespace: &str, class: &str, path: &str| {
            json!({"metadata": {"name": "w", "namespace": namespace, "managedFields": []}, "spec": {"template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"priorityClassName": class, "volumes": [{"hostPath": {"path": path}}]},
            }}})
        };
        for (object, wanted) in [
            (object("kube-system", "", ""), true),
            (object("calico-system", "system-node-critical", ""), true),
            (object("dns", "system-cluster-critical", ""), true),
            (object("network", "", "/etc/cni/net.d"), true),
            (object("network", "", "/opt/cni/bin"), true),
            (object("shop", "high", "/var/log"), false),
            (json!({}), false),
        ] {
            let workload = workload(object);
            assert_eq!(is_critical(&workload), wanted, "{workload}");
        }
        assert_eq!(workload(object("x", "", ""))["labels"]["a"], "b");
    }
}
