//! What the processes of a release have loaded, as their admin pages say through the API server's pod proxy.

use futures::StreamExt as _;
use sallyport_pki::names::Member;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::installation::Installation;
use crate::cluster::inventory::Inventory;
use crate::cluster::{Cluster, Read, Unread, without_managed_fields};

/// How many processes are asked at a time.
const CONCURRENCY: usize = 8;
/// The most processes that are asked.
const MAX_PROCESSES: usize = 200;

/// What a process shows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// Serial number of its certificate.
    pub(crate) serial: String,
    /// End of its certificate's life, in seconds since the epoch.
    pub(crate) not_after: i64,
    /// SHA-256 of its trust bundle.
    pub(crate) bundle_sha256: String,
}

/// A process of a service.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// Its pod.
    pub(crate) pod: String,
    /// Its service.
    pub(crate) member: Member,
    /// What it shows.
    pub(crate) page: Read<Page>,
}

/// How what a process has loaded compares with what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// As stored.
    Current,
    /// Another certificate than the stored one.
    OtherCertificate,
    /// The stored certificate, and another trust bundle.
    OtherBundle,
    /// It could not be asked.
    Unknown,
    /// Nothing is known to compare with.
    Incomparable,
}

impl Process {
    /// What it has loaded, compared with the inventory.
    pub(crate) fn loaded(&self, inventory: &Inventory) -> Loaded {
        let Ok(page) = &self.page else { return Loaded::Unknown };
        let Some(holding) = inventory.member(self.member) else { return Loaded::Incomparable };
        if holding
            .certificate()
            .is_none_or(|certificate| certificate.serial() != page.serial.trim_start_matches('0'))
        {
            Loaded::OtherCertificate
        } else if holding.bundle.fingerprint() != page.bundle_sha256 {
            Loaded::OtherBundle
        } else {
            Loaded::Current
        }
    }

    /// The same for people.
    pub(crate) fn describe(&self, inventory: &Inventory) -> Option<String> {
        match (self.loaded(inventory), &self.page) {
            (Loaded::Unknown, Err(unread)) => Some(format!("could not be asked: {unread}")),
            (Loaded::OtherCertificate, Ok(page)) => {
                let serial: String = page.serial.chars().take(40).collect();
                Some(format!("serves another certificate, serial {serial}"))
            }
            (Loaded::OtherBundle, _) => Some("trusts another bundle".to_owned()),
            _ => None,
        }
    }
}

/// The pods of a release.
pub(crate) async fn list_pods(cluster: &Cluster, installation: &Installation) -> Read<Vec<Value>> {
    let pods = installation.collection("/api/v1", "pods");
    cluster.list(&pods, &installation.selector(), without_managed_fields).await
}

/// Asks the processes of these pods.
pub(crate) async fn ask_processes(
    cluster: &Cluster,
    installation: &Installation,
    pods: &[Value],
) -> Vec<Process> {
    let places = pods.iter().filter_map(Place::of).take(MAX_PROCESSES);
    let asked = places.map(|Place { pod, member, port }| async move {
        let page = match port {
            None => Err(Unread::Failed("it has no address yet".to_owned())),
            Some(port) => {
                let page = sallyport_telemetry::certificate::PAGE;
                let shown = cluster.read_page(&installation.namespace, &pod, port, page).await;
                shown.and_then(|shown| {
                    let wrong = |_| Unread::Failed("its page says something else".to_owned());
                    serde_json::from_slice(&shown).map_err(wrong)
                })
            }
        };
        Process { pod, member, page }
    });
    futures::stream::iter(asked).buffered(CONCURRENCY).collect().await
}

/// Where a process that has something loaded is asked.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    pod: String,
    member: Member,
    /// Of the admin endpoint; absent until the pod has an address.
    port: Option<u16>,
}

impl Place {
    fn of(pod: &Value) -> Option<Self> {
        let component = pod.pointer("/metadata/labels/app.kubernetes.io~1component")?.as_str()?;
        let member = Member::ALL.into_iter().find(|member| member.word() == component)?;
        let pod_name = pod.pointer("/metadata/name")?.as_str()?.to_owned();
        let phase = pod.pointer("/status/phase").and_then(Value::as_str);
        pod.pointer("/spec/nodeName")?;
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let ports =
            containers.into_iter().flatten().filter_map(|container| container.get("ports")?.as_array());
        let admin = ports.flatten().find(|port| port.get("name").and_then(Value::as_str) == Some("admin"));
        let port = admin.and_then(|port| u16::try_from(port.get("containerPort")?.as_u64()?).ok());
        let address = pod.pointer("/status/podIP").and_then(Value::as_str);
        let port = port.filter(|_| address.is_some_and(|address| !address.is_empty()));
        Some(Self { pod: pod_name, member, port })
    }
}

/// What a process shows that has loaded what a Secret holds.
#[cfg(test)]
pub(crate) fn page_of(holding: &crate::cluster::inventory::Holding) -> Page {
    Page {
        serial: holding.certificate().unwrap().serial(),
        not_after: 0,
        bundle_sha256: holding.bundle.fingerprint(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::inventory::fixtures::{sound, today};

    #[test]
    fn a_process_is_compared_with_what_is_stored() {
        let (_, inventory) = sound(today());
        let good = page_of(inventory.member(Member::Mutator).unwrap());
        let process = |page: Read<Page>| Process { pod: "p".into(), member: Member::Mutator, page };
        let other = |change: fn(&mut Page)| {
            let mut page = good.clone();
            change(&mut page);
            process(Ok(page))
        };
        for (process, loaded, said) in [
            (process(Ok(good.clone())), Loaded::Current, None),
            (other(|p| p.serial = "beef".into()), Loaded::OtherCertificate, Some("serial beef")),
            (other(|p| p.bundle_sha256 = "0".into()), Loaded::OtherBundle, Some("another bundle")),
            (process(Err(Unread::TooMuch)), Loaded::Unknown, Some("could not be asked")),
        ] {
            assert_eq!(process.loaded(&inventory), loaded);
            let says = process.describe(&inventory);
            assert_eq!(says.is_some(), said.is_some());
            assert!(says.unwrap_or_default().contains(said.unwrap_or_default()));
        }
    }

    #[test]
    fn pods_that_can_have_something_loaded_are_asked() {
        let pod = |component: &str, node: Option<&str>, phase: &str, address: &str| {
            let mut pod = json!({
                "metadata": {"name": "p", "labels": {"app.kubernetes.io/component": component}},
                "spec": {"containers": [{"ports": [{"name": "admin", "containerPort": 9090}]}]},
                "status": {"phase": phase, "podIP": address},
            });
            if let Some(node) = node {
                pod["spec"]["nodeName"] = json!(node);
            }
            pod
        };
        for (pod, wanted) in [
            (pod("mutator", Some("n"), "Running", "10.0.0.1"), Some(Some(9090))),
            (pod("mutator", Some("n"), "Pending", ""), Some(None)),
            (pod("mutator", None, "Pending", ""), None),
            (pod("mutator", Some("n"), "Succeeded", "10.0.0.1"), None),
            (pod("cert-rotator", Some("n"), "Running", "10.0.0.1"), None),
            (json!({}), None),
        ] {
            assert_eq!(Place::of(&pod).map(|place| place.port), wanted, "{pod}");
        }
    }
}
