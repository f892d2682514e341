//! What is sent: requests about the objects of `subjects.yaml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::Method;
use sallyport_tests::oracle::Call;
use serde::Deserialize;
use serde_json::{Value, json};

static SUBJECTS: LazyLock<BTreeMap<String, Subject>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("subjects.yaml")).unwrap());

/// A kind with an object of it, as a user writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    /// `api/v1` or `apis/GROUP/VERSION`.
    path: String,
    resource: String,
    kind: String,
    /// Whether objects have no namespace.
    #[serde(default)]
    cluster: bool,
    #[serde(default)]
    object: Value,
}

/// What is done.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Create,
    Update,
    Delete,
    Status,
    Scale,
    Ephemeral,
    Evict,
    Exec,
    Forward,
}

/// A request of a case, written as `SUBJECT [VERB]`, or as a mapping with that under `send`.
#[derive(Debug)]
pub struct Sent {
    /// As it is written, for people.
    pub shown: String,
    subject: &'static Subject,
    verb: Verb,
    /// A merge patch over the object that is sent.
    patch: Value,
    /// A merge patch over the object as it was before.
    old: Value,
    user: Option<String>,
}

impl Sent {
    pub fn read(written: &Value) -> Self {
        let nothing = Value::Null;
        let (text, fields) = match written {
            Value::String(text) => (text.as_str(), &nothing),
            fields => (fields["send"].as_str().unwrap_or_else(|| panic!("no request: {fields}")), fields),
        };
        let known = ["send", "patch", "old", "user"];
        let unknown =
            fields.as_object().into_iter().flatten().find(|(name, _)| !known.contains(&name.as_str()));
        assert!(unknown.is_none(), "unknown member: {unknown:?}");
        let (subject, verb) = text.split_once(' ').unwrap_or((text, "create"));
        Self {
            shown: written.as_str().map_or_else(|| written.to_string(), str::to_owned),
            subject: SUBJECTS.get(subject).unwrap_or_else(|| panic!("no subject: {subject}")),
            verb: serde_json::from_value(json!(verb)).unwrap_or_else(|error| panic!("{verb}: {error}")),
            patch: fields["patch"].clone(),
            old: fields["old"].clone(),
            user: fields["user"].as_str().map(str::to_owned),
        }
    }

    /// The object that has to exist before, with the path to create it at.
    pub fn kept(&self, case: &str, index: usize) -> Option<(String, Value)> {
        if self.verb == Verb::Create {
            return None;
        }
        let mut object = self.object(case, &self.kept_name(case, index));
        merge(&mut object, &self.old);
        Some((self.collection(case), object))
    }

    /// Where the object is read that the request starts from.
    pub fn source(&self, case: &str, index: usize) -> Option<String> {
        let item = self.item(case, index);
        match self.verb {
            Verb::Update | Verb::Status | Verb::Ephemeral => Some(item),
            Verb::Scale => Some(format!("{item}/scale")),
            Verb::Create | Verb::Delete | Verb::Evict | Verb::Exec | Verb::Forward => None,
        }
    }

    /// The request, which changes nothing. `source` is the object that it starts from.
    pub fn call(&self, case: &str, index: usize, source: Option<Value>) -> Call {
        let item = self.item(case, index);
        let name = self.kept_name(case, index);
        let (method, path, body) = match self.verb {
            Verb::Create => {
                (Method::POST, self.collection(case), Some(self.object(case, &self.name("subject", case))))
            }
            Verb::Update => (Method::PUT, item, source),
            Verb::Delete => (Method::DELETE, item, None),
            Verb::Status => (Method::PUT, format!("{item}/status"), source),
            Verb::Scale => (Method::PUT, format!("{item}/scale"), source),
            Verb::Ephemeral => (Method::PUT, format!("{item}/ephemeralcontainers"), source),
            Verb::Evict => {
                let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": case}});
                (Method::POST, format!("{item}/eviction"), Some(eviction))
            }
            Verb::Exec => (Method::POST, format!("{item}/exec?command=ls&stdout=true"), None),
            Verb::Forward => (Method::POST, format!("{item}/portforward?ports=80"), None),
        };
        let body = body.map(|mut body| {
            merge(&mut body, &self.usual());
            merge(&mut body, &self.patch);
            body
        });
        let path = if path.contains('?') { path } else { format!("{path}?dryRun=All") };
        Call { user: self.user.clone(), ..Call::new(method, path, body) }
    }

    /// What requests of this verb change unless told otherwise.
    fn usual(&self) -> Value {
        match self.verb {
            Verb::Scale => json!({"spec": {"replicas": 3}}),
            Verb::Status => json!({"status": {"message": "told"}}),
            Verb::Ephemeral => {
                json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "debug"}]}})
            }
            _ => json!({}),
        }
    }

    fn object(&self, case: &str, name: &str) -> Value {
        let group = self.subject.path.trim_start_matches("apis/").trim_start_matches("api/");
        let mut object = json!({"apiVersion": group, "kind": self.subject.kind,
            "metadata": {"name": name, "labels": {"case": case}}});
        merge(&mut object, &self.subject.object);
        object
    }

    fn collection(&self, case: &str) -> String {
        let Subject { path, resource, cluster, .. } = self.subject;
        if *cluster { format!("/{path}/{resource}") } else { format!("/{path}/namespaces/{case}/{resource}") }
    }

    fn item(&self, case: &str, index: usize) -> String {
        format!("{}/{}", self.collection(case), self.kept_name(case, index))
    }

    fn kept_name(&self, case: &str, index: usize) -> String {
        if self.old.is_null() { self.name("kept", case) } else { self.name(&format!("kept-{index}"), case) }
    }

    /// Objects without a namespace are named after their case.
    fn name(&self, name: &str, case: &str) -> String {
        if self.subject.cluster { format!("{name}-{case}") } else { name.to_owned() }
    }
}

/// RFC 7396; a null instead of a patch changes nothing.
fn merge(value: &mut Value, patch: &Value) {
    if !patch.is_null() {
        json_patch::merge(value, patch);
    }
}
