//! The live objects, read and written as JSON: what is not described is never touched.

use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, Preconditions,
};
use kube::{Api, Client};
use sallyport_leadership::{AccessError, Verb, Watched, call};
use sallyport_registration::{FIELD_MANAGER, Kind, Live};
use serde_json::{Value, json};

fn live(object: &DynamicObject) -> Live {
    Live::new(serde_json::to_value(object).unwrap_or_default())
}

fn api_resource(kind: Kind) -> ApiResource {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
    let gvk = GroupVersionKind::gvk(group, version, kind.kind());
    ApiResource::from_gvk_with_plural(&gvk, kind.resource())
}

/// Access to the objects of a registration.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    namespace: String,
}

impl Objects {
    /// Access with `client`; Services are in `namespace`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let resource = api_resource(kind);
        if kind == Kind::Service {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// What is to be watched of an object.
    pub fn watched(&self, kind: Kind, name: &str) -> Watched {
        Watched::new(api_resource(kind), (kind == Kind::Service).then_some(self.namespace.as_str()), name)
    }

    /// Reads an object.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Option<Live>, AccessError> {
        let object = call(Verb::Get, kind.resource(), name, self.api(kind).get_opt(name)).await?;
        Ok(object.as_ref().map(live))
    }

    /// Applies an object on the server's side. With `over`, only that very object in that very version is
    /// changed; without, it is created.
    pub async fn apply(
        &self,
        kind: Kind,
        name: &str,
        object: &Value,
        over: Option<&Live>,
    ) -> Result<Live, AccessError> {
        let mut object = object.clone();
        if let (Some(live), Some(metadata)) =
            (over, object.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("uid".to_owned(), json!(live.uid));
            if let Some(version) = live.object.pointer("/metadata/resourceVersion") {
                metadata.insert("resourceVersion".to_owned(), version.clone());
            }
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let api = self.api(kind);
        let patch = Patch::Apply(&object);
        let applied = api.patch(name, &params, &patch);
        Ok(live(&call(Verb::Patch, kind.resource(), name, applied).await?))
    }

    /// Deletes that very object; one that is gone already is fine.
    pub async fn delete(&self, kind: Kind, name: &str, live: &Live) -> Result<(), AccessError> {
        let exactly = Preconditions { uid: Some(live.uid.clone()), resource_version: None };
        let params = DeleteParams::background().preconditions(exactly);
        let api = self.api(kind);
        let deleted = call(Verb::Delete, kind.resource(), name, api.delete(name, &params)).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) if error.is_overtaken() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }
}
