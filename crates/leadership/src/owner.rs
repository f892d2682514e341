//! Objects of the release that own what a controller makes, so that it is collected with the release.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::access::{AccessError, Verb, call};

/// The UID of the object that is to own others, or `None` if there is none or it is being deleted.
///
/// It is read live before each write: a remembered UID could be a former release's, and what hangs on that is
/// collected at once.
pub async fn uid<K>(api: &Api<K>, resource: &'static str, name: &str) -> Result<Option<String>, AccessError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let object = call(Verb::Get, resource, name, api.get_metadata_opt(name)).await?;
    let metadata = object.map(|object| object.metadata).filter(|m| m.deletion_timestamp.is_none());
    Ok(metadata.and_then(|metadata| metadata.uid))
}

/// A reference to the `ServiceAccount` that is to own others, or `None` if there is none.
pub async fn service_account(
    accounts: &Api<ServiceAccount>,
    name: &str,
) -> Result<Option<OwnerReference>, AccessError> {
    let uid = uid(accounts, "serviceaccounts", name).await?;
    Ok(uid.map(|uid| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        uid,
        ..OwnerReference::default()
    }))
}

/// The labels of every namespaced object that the controller `manager` makes, but for those that are described.
pub fn labels(manager: &str) -> BTreeMap<String, String> {
    [("app.kubernetes.io/part-of", "sallyport"), ("app.kubernetes.io/managed-by", manager)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}
