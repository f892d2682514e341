//! What was read of a cluster at one time: raw objects, or why they could not be read.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::entry::{Labels, Target, labels_at};
use crate::cluster::Read;
use crate::cluster::installation::Installation;
use crate::cluster::inventory::Inventory;
use crate::cluster::serving::Process;
use crate::leadership::Leadership;

/// The label that every namespace has, with its name.
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Everything that the judge looks at.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The release that is looked at.
    pub(super) installation: Installation,
    /// Configurations of others that are to be as good as ours.
    pub(super) named: Vec<String>,
    /// Where the API server is, and what it answered.
    pub(super) server: Server,
    /// The time by the API server's clock, which is the one that counts for certificates.
    pub(super) now: SystemTime,
    /// The release's Deployments.
    pub(super) deployments: Read<Vec<Value>>,
    /// The release's Secrets.
    pub(super) inventory: Inventory,
    /// The release's pods that have certificates loaded.
    pub(super) processes: Read<Vec<Process>>,
    /// The `ConfigMap` that describes what is registered.
    pub(super) description: Read<Option<Value>>,
    /// The cert-rotators' Lease.
    pub(super) leadership: Read<Option<Leadership>>,
    /// All webhook configurations of the cluster, of both kinds, with their kinds.
    pub(super) configurations: Read<Vec<Value>>,
    /// The Services that they call.
    pub(super) services: BTreeMap<Target, Service>,
    /// All namespaces' metadata.
    pub(super) namespaces: Read<Vec<Value>>,
    /// `DaemonSets` and Deployments that the cluster cannot do without, with their kinds.
    pub(super) critical: Read<Vec<Value>>,
    /// `ClusterRoles` of Sallyport releases: metadata.
    pub(super) cluster_roles: Read<Vec<Value>>,
}

/// The API server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) url: String,
    /// Its version.
    pub(super) version: Read<String>,
    /// How far its clock is ahead of this machine's, or behind if `Err`; `None` if it said no time.
    pub(super) skew: Option<Result<Duration, Duration>>,
}

/// A Service that an entry calls.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) service: Read<Option<Value>>,
    pub(super) slices: Read<Vec<Value>>,
}

impl Snapshot {
    /// Labels of a namespace. One that is not known has its name.
    pub(super) fn namespace_labels(&self, name: &str) -> Labels {
        let namespaces = self.namespaces.iter().flatten();
        let known = namespaces
            .into_iter()
            .find(|namespace| namespace.pointer("/metadata/name").and_then(Value::as_str) == Some(name));
        let mut labels = known.map(|known| labels_at(known, "/metadata/labels")).unwrap_or_default();
        labels.insert(NAME_LABEL.to_owned(), json!(name));
        labels
    }

    /// The Deployment of a part of the release.
    pub(super) fn deployment(&self, component: &str) -> Option<&Value> {
        let name = self.installation.object(component);
        let mut deployments = self.deployments.iter().flatten();
        deployments
            .find(|deployment| deployment.pointer("/metadata/name").and_then(Value::as_str) == Some(&name))
    }

    /// Whether a configuration is this release's.
    pub(super) fn is_ours(&self, configuration: &Value) -> bool {
        let name = configuration.pointer("/metadata/name").and_then(Value::as_str);
        name == Some(&self.installation.cluster_name())
    }

    /// Whether faults of a configuration are failures: it is ours, or was named.
    pub(super) fn is_held_to_all(&self, configuration: &Value) -> bool {
        let name = configuration.pointer("/metadata/name").and_then(Value::as_str);
        self.is_ours(configuration) || name.is_some_and(|name| self.named.iter().any(|named| named == name))
    }

    /// What a kubectl command for the release's namespace begins with.
    pub(super) fn kubectl(&self) -> String {
        format!("kubectl -n {}", self.installation.namespace)
    }

    /// The command that shows the cert-rotator's log.
    pub(super) fn rotator_log(&self) -> String {
        format!("{} logs deployment/{}", self.kubectl(), self.installation.object("cert-rotator"))
    }
}

/// Whether a configuration is one of a Sallyport release.
pub(super) fn is_sallyport(configuration: &Value) -> bool {
    let labels = configuration.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get("app.kubernetes.io/part-of")?.as_str()) == Some("sallyport")
}
