//! What the API server asks.

use std::collections::BTreeMap;
use std::fmt;

use sallyport_cel::Authorizer;
use serde_json::{Map, Value, json};

use crate::authorization::Unconnected;

/// A kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind, such as `Pod`.
    pub kind: String,
}

/// A resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionResource {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, such as `pods`.
    pub resource: String,
}

/// What is done to the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// CREATE
    Create,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// Anything else; only rules for `*` match it.
    #[default]
    Unknown,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] =
        [Self::Create, Self::Update, Self::Delete, Self::Connect, Self::Unknown];

    /// The operation as Kubernetes spells it; empty for [`Operation::Unknown`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Unknown => "",
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// Name of the user.
    pub username: String,
    /// Unique id of the user.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// What the authenticator adds.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What the API server asked, without the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Identifies the review.
    pub uid: String,
    /// Kind of the object as it was sent to us.
    pub kind: GroupVersionKind,
    /// Resource as the registration matched it.
    pub resource: GroupVersionResource,
    /// Subresource; empty if none.
    pub sub_resource: String,
    /// Kind of the original request, before a conversion.
    pub request_kind: Option<GroupVersionKind>,
    /// Resource of the original request, before a conversion.
    pub request_resource: Option<GroupVersionResource>,
    /// Subresource of the original request; empty if none.
    pub request_sub_resource: String,
    /// Name of the object; empty where it is yet to be generated.
    pub name: String,
    /// Namespace of the request, which the object itself may lack; empty if cluster-scoped.
    pub namespace: String,
    /// What is done.
    pub operation: Operation,
    /// Who asks.
    pub user_info: UserInfo,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// One review: the request and the raw JSON of its objects. An empty slice stands for an absent or null object.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    /// The request.
    pub request: &'a Request,
    /// The new object; absent on DELETE.
    pub object: &'a [u8],
    /// The object as it was; absent on CREATE and CONNECT.
    pub old_object: &'a [u8],
    /// The options of the operation; absent on CONNECT.
    pub options: &'a [u8],
    /// Who answers what policies ask of `authorizer`.
    pub authorizer: &'a dyn Authorizer,
}

impl<'a> Review<'a> {
    /// A review of no objects, in which nobody answers what policies ask of `authorizer`.
    pub fn of(request: &'a Request) -> Self {
        Self { request, object: b"", old_object: b"", options: b"", authorizer: &Unconnected }
    }
}

impl Request {
    /// Whether the request is for core pods themselves, or one of their subresources.
    pub(crate) fn is_pod(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "pods"
    }

    /// The request as it would be for another version of the same object. What was asked for stays known.
    pub(crate) fn converted(&self, resource: GroupVersionResource, kind: GroupVersionKind) -> Self {
        let asked = self.request_resource.is_some();
        Self {
            request_kind: Some(self.request_kind.as_ref().unwrap_or(&self.kind).clone()),
            request_resource: Some(self.request_resource.as_ref().unwrap_or(&self.resource).clone()),
            request_sub_resource: if asked { &self.request_sub_resource } else { &self.sub_resource }.clone(),
            kind,
            resource,
            ..self.clone()
        }
    }

    /// Whether the request is for a Namespace.
    pub(crate) fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }

    /// `request` as expressions see it: with empty fields, so that comparing them needs no `has()`, or without those
    /// that the API server leaves out.
    pub(crate) fn document(&self, options: Value, with_empty: bool) -> Value {
        let extra: Map<String, Value> =
            self.user_info.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        let mut document = json!({
            "uid": self.uid,
            "kind": self.kind.document(),
            "resource": self.resource.document(),
            "subResource": self.sub_resource,
            "requestKind": self.request_kind.as_ref().unwrap_or(&self.kind).document(),
            "requestResource": self.request_resource.as_ref().unwrap_or(&self.resource).document(),
            "requestSubResource": self.request_sub_resource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation.as_str(),
            "userInfo": {
                "username": self.user_info.username,
                "uid": self.user_info.uid,
                "groups": self.user_info.groups,
                "extra": extra,
            },
            "dryRun": self.dry_run,
        });
        if let Some(fields) = document.as_object_mut() {
            fields.insert("options".to_owned(), options);
            if !with_empty {
                fields.retain(|_, value| !is_empty(value));
                if let Some(Value::Object(user)) = fields.get_mut("userInfo") {
                    user.retain(|_, value| !is_empty(value));
                }
            }
        }
        document
    }
}

impl fmt::Display for GroupVersionKind {
    /// As the API server's messages have it: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl GroupVersionKind {
    /// Group and version in one: `apps/v1`, `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    fn document(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

impl GroupVersionResource {
    fn document(&self) -> Value {
        json!({"group": self.group, "version": self.version, "resource": self.resource})
    }
}

/// Whether the API server leaves a field out because of its value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
