//! What the engine is asked, and `request` as expressions see it.

pub use sallyport_admission::{GroupVersionKind, GroupVersionResource, Operation, Request, UserInfo};
use sallyport_cel::Authorizer;
use serde_json::{Map, Value, json};

use crate::authorization::Unconnected;

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

/// `request` as expressions see it: with empty fields, so that comparing them needs no `has()`, or without those
/// that the API server leaves out.
pub(crate) fn document(request: &Request, options: Value, with_empty: bool) -> Value {
    let user = &request.user_info;
    let extra: Map<String, Value> =
        user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    let mut document = json!({
        "uid": request.uid,
        "kind": kind(&request.kind),
        "resource": resource(&request.resource),
        "subResource": request.sub_resource,
        "requestKind": kind(request.request_kind.as_ref().unwrap_or(&request.kind)),
        "requestResource": resource(request.request_resource.as_ref().unwrap_or(&request.resource)),
        "requestSubResource": request.request_sub_resource,
        "name": request.name,
        "namespace": request.namespace,
        "operation": request.operation.as_str(),
        "userInfo": {
            "username": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": extra,
        },
        "dryRun": request.dry_run,
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

fn kind(kind: &GroupVersionKind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn resource(resource: &GroupVersionResource) -> Value {
    json!({"group": resource.group, "version": resource.version, "resource": resource.resource})
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
