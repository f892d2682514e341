//! The `caBundle` fields of a live object: where they are, who owns them, and the partial object that sets them.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::DynamicObject;
use sallyport_pki::Bundle;
use serde_json::{Map, Value, json};

use crate::source::MAX_BYTES;
use crate::target::{Kind, Target};

/// The name under which injection writes. It is not the registration's: an applied object takes away what its
/// manager applied before and does not say again.
pub const MANAGER: &str = "sallyport-ca-injection";

/// One `caBundle` field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// The entry of a webhook configuration that it is in.
    entry: Option<String>,
    /// What is in it, if it was injected by [`MANAGER`] and nobody changed it since.
    pub injected: Option<Bundle>,
}

/// A live object, as far as injection cares.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    kind: Kind,
    /// Its `caBundle` fields, those too that are absent; none if it has no use for one.
    pub all: Vec<Field>,
    /// When [`MANAGER`] last changed something.
    pub since: Option<SystemTime>,
    managed: Vec<ManagedFieldsEntry>,
}

impl Fields {
    /// Looks at a live object.
    pub fn of(kind: Kind, object: &DynamicObject) -> Self {
        let managed = object.metadata.managed_fields.clone().unwrap_or_default();
        let ours = managed.iter().find(|entry| is_ours(entry));
        let since = ours.and_then(|entry| entry.time.as_ref()).map(|time| SystemTime::from(time.0));
        let owned = ours.and_then(|entry| entry.fields_v1.as_ref()).map(|fields| &fields.0);
        let field = |entry: Option<&str>, value: Option<&Value>| {
            // The API server takes a field from its owner as soon as anybody else changes it. So what is owned is
            // what was injected, whoever else applied the same value.
            let is_owned = owned.is_some_and(|owned| owned.pointer(&owned_path(kind, entry)).is_some());
            let injected = value.and_then(Value::as_str).filter(|_| is_owned).and_then(decoded);
            Field { entry: entry.map(str::to_owned), injected }
        };
        let all = match kind {
            Kind::Mutating | Kind::Validating => {
                let entries = object.data.get("webhooks").and_then(Value::as_array);
                let entries = entries.into_iter().flatten();
                let named = entries.filter_map(|entry| Some((entry.get("name")?.as_str()?, entry)));
                named
                    .map(|(name, entry)| field(Some(name), entry.pointer("/clientConfig/caBundle")))
                    .collect()
            }
            Kind::Definition => {
                let conversion = object.data.pointer("/spec/conversion");
                let is_webhook = |conversion: &&Value| {
                    conversion.get("strategy").and_then(Value::as_str) == Some("Webhook")
                };
                let client = conversion.filter(is_webhook).and_then(|c| c.pointer("/webhook/clientConfig"));
                client.map(|client| field(None, client.get("caBundle"))).into_iter().collect()
            }
            Kind::ApiService => {
                let is_remote = |spec: &&Value| spec.get("service").is_some_and(Value::is_object);
                let spec = object.data.get("spec").filter(is_remote);
                spec.map(|spec| field(None, spec.get("caBundle"))).into_iter().collect()
            }
        };
        Self { kind, all, since, managed }
    }

    /// The object that sets every field to `bundle`, to be applied on the server's side over `object` and over no
    /// other: nothing but what tells entries apart is in it, because an applied object owns what is in it.
    pub fn partial(&self, target: &Target, object: &DynamicObject, bundle: &Bundle) -> Value {
        let encoded = bundle.to_ca_bundle();
        let mut partial = json!({
            "apiVersion": target.kind.api_version(),
            "kind": target.kind.kind(),
            "metadata": {
                "name": target.name,
                "uid": object.metadata.uid,
                "resourceVersion": object.metadata.resource_version,
            },
        });
        match self.kind {
            Kind::Mutating | Kind::Validating => {
                let named = self.all.iter().filter_map(|field| field.entry.as_ref());
                let entries = named.map(|name| json!({"name": name, "clientConfig": {"caBundle": encoded}}));
                partial["webhooks"] = entries.collect();
            }
            Kind::Definition => {
                partial["spec"] = json!({"conversion": {"webhook": {"clientConfig": {"caBundle": encoded}}}});
            }
            Kind::ApiService => partial["spec"] = json!({"caBundle": encoded}),
        }
        partial
    }

    /// All `managedFields` with those of [`MANAGER`] reduced to `caBundle`, if they are more.
    ///
    /// An entry of a list cannot be applied without its name, and who applied the name of an entry co-owns the entry.
    /// Without this, an owner that applies its configuration with an entry less would be refused: the entry would
    /// stay for our sake, without what it needs.
    pub fn reduced(&self) -> Option<Vec<ManagedFieldsEntry>> {
        let mut managed = self.managed.clone();
        let ours = managed.iter_mut().find(|entry| is_ours(entry))?;
        let owned = &mut ours.fields_v1.as_mut()?.0;
        let entries = owned.get_mut("f:webhooks")?.as_object_mut()?;
        let mut is_reduced = false;
        for entry in entries.values_mut().filter_map(Value::as_object_mut) {
            let before = entry.len();
            entry.retain(|key, _| key == "f:clientConfig");
            is_reduced |= entry.len() < before;
        }
        entries.retain(|_, entry| entry.as_object().is_none_or(|entry| !entry.is_empty()));
        is_reduced.then_some(managed)
    }
}

/// Whether `manager` owns anything of an object.
pub(crate) fn is_managed_by(object: &DynamicObject, manager: &str) -> bool {
    let mut entries = object.metadata.managed_fields.iter().flatten();
    entries.any(|entry| entry.manager.as_deref() == Some(manager))
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Where in `fieldsV1` the field stands, as a JSON pointer.
fn owned_path(kind: Kind, entry: Option<&str>) -> String {
    match kind {
        Kind::Mutating | Kind::Validating => {
            let key = Value::Object(Map::from_iter([("name".to_owned(), json!(entry))])).to_string();
            format!("/f:webhooks/k:{}/f:clientConfig/f:caBundle", key.replace('~', "~0").replace('/', "~1"))
        }
        Kind::Definition => "/f:spec/f:conversion/f:webhook/f:clientConfig/f:caBundle".to_owned(),
        Kind::ApiService => "/f:spec/f:caBundle".to_owned(),
    }
}

/// The bundle in a `caBundle` field.
fn decoded(text: &str) -> Option<Bundle> {
    let pem = (text.len() <= MAX_BYTES * 2).then(|| STANDARD.decode(text).ok())??;
    Bundle::from_pem(&pem).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_pki::{Algorithm, Authority};

    use super::*;

    fn authority() -> Bundle {
        let authority = Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), Duration::from_hours(1));
        let mut bundle = Bundle::empty();
        bundle.add(authority.unwrap().certificate().clone());
        bundle
    }

    fn object(kind: Kind, managed: &Value, data: Value) -> DynamicObject {
        let mut object = data;
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.kind());
        object["metadata"] =
            json!({"name": "n", "uid": "u", "resourceVersion": "7", "managedFields": managed});
        serde_json::from_value(object).unwrap()
    }

    fn managed(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "time": "2026-01-02T03:04:05Z", "fieldsV1": fields})
    }

    fn target(kind: Kind) -> Target {
        Target { kind, name: "n".to_owned() }
    }

    #[test]
    fn every_entry_is_set_and_nothing_else_is_said() {
        let bundle = authority();
        let encoded = bundle.to_ca_bundle();
        let metadata = json!({"name": "n", "uid": "u", "resourceVersion": "7"});
        let service = json!({"service": {"namespace": "a", "name": "b"}});
        let client = json!({"caBundle": encoded});
        let rows = [
            (
                Kind::Mutating,
                json!({"webhooks": [
                    {"name": "x", "clientConfig": service, "sideEffects": "None"},
                    {"name": "y", "clientConfig": {"url": "https://h/", "caBundle": "bm8="}},
                ]}),
                json!({"webhooks": [{"name": "x", "clientConfig": client}, {"name": "y", "clientConfig": client}]}),
            ),
            (
                Kind::Definition,
                json!({"spec": {"group": "g", "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": service}}}}),
                json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}}),
            ),
            (
                Kind::ApiService,
                json!({"spec": {"group": "g", "service": {"name": "b"}, "caBundle": "bm8="}}),
                json!({"spec": client}),
            ),
        ];
        for (kind, data, mut wanted) in rows {
            let object = object(kind, &json!([]), data);
            wanted["apiVersion"] = json!(kind.api_version());
            wanted["kind"] = json!(kind.kind());
            wanted["metadata"] = metadata.clone();
            assert_eq!(Fields::of(kind, &object).partial(&target(kind), &object, &bundle), wanted);
        }
    }

    #[test]
    fn who_has_no_use_for_a_bundle_has_no_field() {
        let rows = [
            (Kind::Mutating, json!({})),
            (Kind::Validating, json!({"webhooks": []})),
            (Kind::Validating, json!({"webhooks": "x"})),
            (Kind::Validating, json!({"webhooks": [{"clientConfig": {}}, 1]})),
            (Kind::Definition, json!({"spec": {"conversion": {"strategy": "None"}}})),
            (Kind::Definition, json!({"spec": {"conversion": {"strategy": "Webhook"}}})),
            (
                Kind::Definition,
                json!({"spec": {"conversion": {"strategy": "None", "webhook": {"clientConfig": {}}}}}),
            ),
            (Kind::Definition, json!({})),
            (Kind::ApiService, json!({"spec": {"group": "g"}})),
            (Kind::ApiService, json!({"spec": {"service": null}})),
        ];
        for (kind, data) in rows {
            assert_eq!(Fields::of(kind, &object(kind, &json!([]), data.clone())).all, [], "{data}");
        }
    }

    #[test]
    fn only_what_was_injected_counts_as_injected() {
        let bundle = authority();
        let encoded = bundle.to_ca_bundle();
        let owns = |names: &[&str]| {
            let entry = |name: &&str| {
                (format!("k:{{\"name\":\"{name}\"}}"), json!({"f:clientConfig": {"f:caBundle": {}}}))
            };
            json!({"f:webhooks": names.iter().map(entry).collect::<Map<_, _>>()})
        };
        let long = STANDARD.encode(vec![b' '; 2 * MAX_BYTES]);
        let rows = [
            (
                "both",
                json!([managed(MANAGER, "Apply", &owns(&["x", "y~/"]))]),
                encoded.as_str(),
                [true, true],
            ),
            ("one", json!([managed(MANAGER, "Apply", &owns(&["y~/"]))]), &encoded, [false, true]),
            ("nobody", json!([]), &encoded, [false, false]),
            ("another manager", json!([managed("other", "Apply", &owns(&["x"]))]), &encoded, [false, false]),
            (
                "another operation",
                json!([managed(MANAGER, "Update", &owns(&["x"]))]),
                &encoded,
                [false, false],
            ),
            (
                "the entry alone",
                json!([managed(MANAGER, "Apply", &json!({"f:webhooks": {"k:{\"name\":\"x\"}": {".": {}}}}))]),
                &encoded,
                [false, false],
            ),
            ("no base64", json!([managed(MANAGER, "Apply", &owns(&["x"]))]), "!", [false, false]),
            ("no bundle", json!([managed(MANAGER, "Apply", &owns(&["x"]))]), "bm8=", [false, false]),
            ("too long", json!([managed(MANAGER, "Apply", &owns(&["x"]))]), &long, [false, false]),
        ];
        for (what, managed, value, wanted) in rows {
            let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": value}});
            let object = object(Kind::Mutating, &managed, json!({"webhooks": [entry("x"), entry("y~/")]}));
            let fields = Fields::of(Kind::Mutating, &object);
            let injected: Vec<_> = fields.all.iter().map(|field| field.injected.clone()).collect();
            assert_eq!(injected, wanted.map(|wanted| wanted.then(|| bundle.clone())), "{what}");
        }
        let spec = json!({"spec": {"service": {"name": "b"}, "caBundle": encoded}});
        let ours = json!([
            managed("o", "Update", &json!({})),
            managed(MANAGER, "Apply", &json!({"f:spec": {"f:caBundle": {}}}))
        ]);
        let fields = Fields::of(Kind::ApiService, &object(Kind::ApiService, &ours, spec));
        assert_eq!(fields.all, [Field { entry: None, injected: Some(bundle) }]);
        assert_eq!(fields.since, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)));
    }

    #[test]
    fn names_of_entries_are_given_up() {
        let key = |name: &str| format!("k:{{\"name\":\"{name}\"}}");
        let client = json!({"f:caBundle": {}});
        let others = managed("owner", "Apply", &json!({"f:webhooks": {key("x"): {".": {}, "f:name": {}}}}));
        let reduced = |fields: &Value| {
            let all = json!([others, managed(MANAGER, "Apply", fields)]);
            let fields = Fields::of(Kind::Mutating, &object(Kind::Mutating, &all, json!({})));
            fields.reduced().map(|managed| json!(managed))
        };
        let applied = json!({"f:webhooks": {
            key("x"): {".": {}, "f:name": {}, "f:clientConfig": client},
            key("y"): {".": {}, "f:name": {}},
        }});
        let wanted = json!({"f:webhooks": {key("x"): {"f:clientConfig": client}}});
        assert_eq!(reduced(&applied), Some(json!([others, managed(MANAGER, "Apply", &wanted)])));
        assert_eq!(reduced(&wanted), None, "once");
        assert_eq!(reduced(&json!({"f:spec": {"f:caBundle": {}}})), None, "no list");
    }
}
