//! Objects of the release that own what the rotator makes, so that it is collected with the release.

use std::fmt::Debug;

use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::access::{AccessError, Verb, call};

/// The UID of the object that is to own others, or `None` if there is none or it is being deleted.
///
/// It is read live before each write: a remembered UID could be a former release's, and what hangs on that is
/// collected at once.
pub(crate) async fn uid<K>(
    api: &Api<K>,
    resource: &'static str,
    name: &str,
) -> Result<Option<String>, AccessError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let object = call(Verb::Get, resource, name, api.get_metadata_opt(name)).await?;
    let metadata = object.map(|object| object.metadata).filter(|m| m.deletion_timestamp.is_none());
    Ok(metadata.and_then(|metadata| metadata.uid))
}
