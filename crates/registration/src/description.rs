//! The description: what is to be registered, without the parts that only the rotator knows.

use std::collections::BTreeSet;

use sallyport_pki::Bundle;
use serde_json::{Map, Value, json};

use crate::target::Target;

/// The API version of both kinds of configuration.
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// More text than is read.
    #[error("the registration has more than {} bytes", Description::MAX_BYTES)]
    TooLarge,
    /// Not YAML.
    #[error("the registration is not YAML: {0}")]
    Yaml(String),
    /// A document is not what it has to be.
    #[error("the registration's {what}: {problem}")]
    Document {
        /// Which document.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// One of the two kinds of configuration, or the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A Service for the front.
    Service,
    /// A `MutatingWebhookConfiguration`.
    Mutating,
    /// A `ValidatingWebhookConfiguration`.
    Validating,
}

impl Kind {
    /// The kind's name.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// The resource, in plural, as RBAC names it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }

    /// The API version.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Service => "v1",
            Self::Mutating | Self::Validating => ADMISSION,
        }
    }
}

/// One described object.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The object as described.
    object: Value,
    /// Whom its entries name. Empty for a Service and for a configuration without entries.
    pub targets: BTreeSet<Target>,
}

impl Described {
    /// The object's name in metrics: configurations of both kinds often share one.
    pub fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Service => "service",
            Kind::Mutating => "mutating",
            Kind::Validating => "validating",
        };
        format!("{kind}/{}", self.name)
    }

    /// Whether the object is to exist: a configuration without entries is not.
    pub fn is_wanted(&self) -> bool {
        self.kind == Kind::Service || !self.targets.is_empty()
    }

    /// Whether it has an entry of this name.
    pub fn has(&self, entry: &str) -> bool {
        let mut entries = self.object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        entries.any(|there| there.get("name").and_then(Value::as_str) == Some(entry))
    }

    /// The described object, completed with owners and, in every entry, the bundle (R-05).
    pub fn complete(&self, bundle: &Bundle, owners: &[Value]) -> Value {
        let mut object = self.object.clone();
        let encoded = bundle.to_ca_bundle();
        if let Some(entries) = object.get_mut("webhooks").and_then(Value::as_array_mut) {
            for entry in entries {
                if let Some(client) = entry.get_mut("clientConfig").and_then(Value::as_object_mut) {
                    client.insert("caBundle".to_owned(), json!(encoded));
                }
            }
        }
        if !owners.is_empty()
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("ownerReferences".to_owned(), json!(owners));
        }
        object
    }
}

/// Everything that is to be registered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    /// The front's Service, if the registration owns it.
    pub service: Option<Described>,
    /// The configurations.
    pub configurations: Vec<Described>,
}

impl Description {
    /// The most text of a description, in bytes: a `ConfigMap` holds no more than 1 MiB.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Parses YAML documents.
    pub fn parse(text: &str, namespace: &str) -> Result<Self, DescriptionError> {
        if text.len() > Self::MAX_BYTES {
            return Err(DescriptionError::TooLarge);
        }
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| DescriptionError::Yaml(error.to_string()))?;
        Self::of(documents, namespace)
    }

    /// Takes documents that are parsed already. Objects without a namespace that need one are in `namespace`.
    pub fn of(documents: impl IntoIterator<Item = Value>, namespace: &str) -> Result<Self, DescriptionError> {
        let mut description = Self::default();
        let mut seen = BTreeSet::new();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let described = describe(document, namespace)?;
            let what = format!("{} {}", described.kind.kind(), described.name);
            if !seen.insert(what.clone()) {
                return Err(DescriptionError::Document { what, problem: "it is described twice".to_owned() });
            }
            if described.kind != Kind::Service {
                description.configurations.push(described);
            } else if description.service.is_none() {
                description.service = Some(described);
            } else {
                return Err(DescriptionError::Document {
                    what,
                    problem: "there is another Service, and the front has one".to_owned(),
                });
            }
        }
        Ok(description)
    }
}

fn describe(mut object: Value, namespace: &str) -> Result<Described, DescriptionError> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text(object.get("apiVersion")), text(object.get("kind")));
    let name = text(object.pointer("/metadata/name"));
    let what = format!("{kind} {name}");
    let wrong = |problem: String| DescriptionError::Document { what: what.clone(), problem };
    let kind = [Kind::Service, Kind::Mutating, Kind::Validating]
        .into_iter()
        .find(|known| known.kind() == kind && known.api_version() == api_version)
        .ok_or_else(|| {
            wrong(format!("kind {kind:?} of {api_version:?} is not one that can be registered"))
        })?;
    if name.is_empty() {
        return Err(wrong("metadata.name is missing".to_owned()));
    }
    let mut targets = BTreeSet::new();
    if kind == Kind::Service {
        let there = text(object.pointer("/metadata/namespace"));
        if !there.is_empty() && there != namespace {
            return Err(wrong(format!("it is in namespace {there:?}, not in {namespace:?}")));
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
    } else {
        let none = Vec::new();
        let entries = match object.get("webhooks") {
            None | Some(Value::Null) => &none,
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(wrong("webhooks is not a list".to_owned())),
        };
        for (index, entry) in entries.iter().enumerate() {
            let target = target(entry).map_err(|problem| wrong(format!("webhooks[{index}]{problem}")))?;
            targets.insert(target);
        }
    }
    for field in ["resourceVersion", "uid", "managedFields", "ownerReferences"] {
        if object.get("metadata").and_then(|metadata| metadata.get(field)).is_some() {
            return Err(wrong(format!("metadata.{field} must not be described")));
        }
    }
    Ok(Described { kind, name, object, targets })
}

fn target(entry: &Value) -> Result<Target, String> {
    if entry.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(".name is missing".to_owned());
    }
    let client: &Map<String, Value> =
        entry.get("clientConfig").and_then(Value::as_object).ok_or(".clientConfig is missing")?;
    if client.get("caBundle").is_some_and(|bundle| !bundle.is_null()) {
        return Err(".clientConfig.caBundle must not be described: it is the rotator's".to_owned());
    }
    Target::of(client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::ServicePort;

    const GOOD: &str = r"
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: front}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: sallyport}
webhooks:
- name: a.sallyport.dev
  clientConfig: {service: {namespace: prod, name: front, path: /mutate/fail}}
- name: b.sallyport.dev
  clientConfig: {service: {namespace: prod, name: front, path: /mutate/ignore, port: 443}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: sallyport}
webhooks: []
";

    #[test]
    fn a_description_has_a_service_and_configurations() {
        let description = Description::parse(GOOD, "prod").unwrap();
        let service = description.service.unwrap();
        assert_eq!(service.complete(&Bundle::empty(), &[])["metadata"]["namespace"], "prod");
        let [mutating, validating] = description.configurations.as_slice() else { panic!("two") };
        assert_eq!(
            mutating.targets,
            BTreeSet::from([Target::Service(ServicePort {
                namespace: "prod".into(),
                name: "front".into(),
                port: 443
            })])
        );
        assert!(mutating.is_wanted() && !validating.is_wanted(), "a door without policies has no entry");
    }

    #[test]
    fn every_entry_gets_the_bundle_r05() {
        let description = Description::parse(GOOD, "prod").unwrap();
        let object = description.configurations[0].complete(&Bundle::empty(), &[json!({"uid": "u"})]);
        for entry in object["webhooks"].as_array().unwrap() {
            assert!(entry["clientConfig"]["caBundle"].is_string());
        }
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    #[test]
    fn mistakes_are_named_r13() {
        let entry = |client: &str| {
            format!(
                "{{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, \
                 metadata: {{name: s}}, webhooks: [{{name: a, clientConfig: {client}}}]}}"
            )
        };
        let rows = [
            ("[".to_owned(), "not YAML"),
            (
                "{apiVersion: v1, kind: Secret, metadata: {name: s}}".to_owned(),
                "not one that can be registered",
            ),
            ("{apiVersion: v1, kind: Service, metadata: {}}".to_owned(), "metadata.name is missing"),
            ("{apiVersion: v1, kind: Service, metadata: {name: s, namespace: b}}".to_owned(), "in namespace"),
            (
                "{apiVersion: v1, kind: Service, metadata: {name: s, uid: b}}".to_owned(),
                "metadata.uid must not",
            ),
            (entry("{}"), "webhooks[0].clientConfig has to have"),
            (entry("{url: 'http://x/'}"), "is not https"),
            (entry("{service: {name: s}}"), "service.namespace is missing"),
            (entry("{service: {name: s, namespace: n, port: 99999}}"), "port is not a port"),
            (entry("{url: 'https://x/', caBundle: eA==}"), "caBundle must not be described"),
            (format!("{0}\n---\n{0}", entry("{url: 'https://x/'}")), "described twice"),
        ];
        for (text, wanted) in rows {
            let error = Description::parse(&text, "prod").unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        assert!(matches!(
            Description::parse(&"#".repeat(Description::MAX_BYTES + 1), "prod"),
            Err(DescriptionError::TooLarge)
        ));
    }
}
