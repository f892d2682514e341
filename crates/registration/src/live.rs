//! A live object, as far as the registration is concerned.

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use crate::description::Kind;

/// The name under which registered objects are applied, and by which they are known.
pub const FIELD_MANAGER: &str = "sallyport-cert-rotator";

/// A live object.
#[derive(Debug, Clone)]
pub struct Live {
    /// The object as JSON.
    pub object: Value,
    /// Its UID.
    pub uid: String,
}

impl Live {
    /// Takes an object as the API server gives it back.
    pub fn new(object: Value) -> Self {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { object, uid }
    }

    /// Whether it was applied as a registered object, so that it may be removed.
    pub fn is_ours(&self) -> bool {
        let managed = self.object.pointer("/metadata/managedFields").and_then(Value::as_array);
        managed
            .into_iter()
            .flatten()
            .any(|entry| entry.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER))
    }

    /// UIDs of owners of `kind`.
    pub fn owners_of_kind(&self, kind: &str) -> Vec<&str> {
        let owners = self.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        owners
            .into_iter()
            .flatten()
            .filter(|owner| owner.get("kind").and_then(Value::as_str) == Some(kind))
            .filter_map(|owner| owner.get("uid")?.as_str())
            .collect()
    }

    /// A reference to this object, for Events.
    pub fn as_reference(&self, kind: Kind, name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(kind.api_version().to_owned()),
            kind: Some(kind.kind().to_owned()),
            name: Some(name.to_owned()),
            namespace: self.object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// A reference by which this object owns another. It does not block deletion: that would need a right on
    /// finalizers.
    pub fn as_owner(&self, kind: Kind, name: &str) -> Value {
        owner(kind.api_version(), kind.kind(), name, &self.uid)
    }
}

/// An owner reference.
pub fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}
