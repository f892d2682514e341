//! The cert-rotators' Lease: who leads, and what the leader says of the certificates.

use std::time::{Duration, SystemTime};

use sallyport_leadership::CONDITIONS_ANNOTATION;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::clock;
use crate::cluster::installation::Installation;
use crate::cluster::{Cluster, Read};

/// The most conditions that are looked at.
const MAX_CONDITIONS: usize = 16;

/// A condition in Kubernetes' form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    /// `Ready`, `Rotating` or `Frozen`.
    pub(crate) r#type: String,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// Why, in one word.
    pub(crate) reason: String,
    /// Why, in words.
    pub(crate) message: String,
    /// Since when, in RFC 3339.
    pub(crate) last_transition_time: String,
}

impl Condition {
    /// How long it has been as it is.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        clock::parse(&self.last_transition_time).map(|since| clock::since(since, now))
    }
}

/// What is known of the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leadership {
    /// Who leads; empty if nobody does.
    pub(crate) holder: String,
    /// When the leader last said so.
    pub(crate) renewed: Option<SystemTime>,
    /// How long that counts.
    pub(crate) duration: Duration,
    /// What the leader says; `None` if it says nothing that can be understood.
    pub(crate) conditions: Option<Vec<Condition>>,
}

impl Leadership {
    /// Reads a Lease.
    pub(crate) fn of(lease: &Value) -> Self {
        let text = |field: &str| lease.pointer(&format!("/spec/{field}")).and_then(Value::as_str);
        let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
        let annotations = lease.pointer("/metadata/annotations").and_then(Value::as_object);
        let conditions = annotations.and_then(|annotations| annotations.get(CONDITIONS_ANNOTATION)?.as_str());
        let conditions: Option<Vec<Condition>> = conditions.and_then(|text| serde_json::from_str(text).ok());
        Self {
            holder: text("holderIdentity").unwrap_or_default().to_owned(),
            renewed: text("renewTime").and_then(clock::parse),
            duration: Duration::from_secs(seconds.unwrap_or(15).min(3600)),
            conditions: conditions.map(|mut conditions| {
                conditions.truncate(MAX_CONDITIONS);
                conditions
            }),
        }
    }

    /// The release's Lease.
    pub(crate) async fn read(cluster: &Cluster, installation: &Installation) -> Read<Option<Self>> {
        let name = installation.object("cert-rotator");
        let path = installation.path("/apis/coordination.k8s.io/v1", "leases", &name);
        Ok(cluster.get(&path).await?.as_ref().map(Self::of))
    }

    /// The condition of a type.
    pub(crate) fn condition(&self, r#type: &str) -> Option<&Condition> {
        self.conditions.iter().flatten().find(|condition| condition.r#type == r#type)
    }

    /// The condition of a type, if it is true.
    pub(crate) fn holds(&self, r#type: &str) -> Option<&Condition> {
        self.condition(r#type).filter(|condition| condition.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_tells_leader_and_conditions() {
        let conditions = json!([
            {"type": "Rotating", "status": "True", "reason": "Published", "message": "pod a",
             "lastTransitionTime": "2026-11-21T10:00:00Z"},
            {"type": "Frozen", "status": "False"},
        ]);
        let lease = json!({
            "metadata": {"annotations": {CONDITIONS_ANNOTATION: conditions.to_string()}},
            "spec": {"holderIdentity": "a", "renewTime": "2026-11-21T10:00:05.000000Z",
                     "leaseDurationSeconds": 15},
        });
        let leadership = Leadership::of(&lease);
        assert_eq!((leadership.holder.as_str(), leadership.duration), ("a", Duration::from_secs(15)));
        let renewed = leadership.renewed.unwrap();
        assert_eq!(leadership.holds("Rotating").unwrap().age(renewed), Some(Duration::from_secs(5)));
        assert_eq!(leadership.holds("Frozen"), None);
        assert!(leadership.condition("Frozen").is_some() && leadership.condition("Ready").is_none());
    }

    #[test]
    fn a_lease_of_nobody_says_nothing() {
        for lease in [
            json!({}),
            json!({"spec": {"holderIdentity": 7, "renewTime": "?", "leaseDurationSeconds": -1}}),
            json!({"metadata": {"annotations": {CONDITIONS_ANNOTATION: "[{"}}}),
        ] {
            let leadership = Leadership::of(&lease);
            assert_eq!((leadership.holder.as_str(), leadership.renewed), ("", None));
            assert_eq!(leadership.conditions, None);
        }
    }
}
