//! One Secret a service, in the rotator's own namespace.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use sallyport_leadership::{AccessError, Verb, call};
use sallyport_leadership::{labels, service_account};
use sallyport_pki::Stored;
use sallyport_pki::names::Member;
use sallyport_pki::stored::{SUCCESSOR_CERTIFICATE, SUCCESSOR_PRIVATE_KEY};
use sallyport_registration::FIELD_MANAGER;
use serde_json::{Value, json};

use super::entry::{Content, Entry, Saved, Slot, StoreError};

/// Annotation of the authority's Secret by which another authority is asked for: any value that is not that of
/// [`ROTATED`].
const ROTATE: &str = "sallyport.dev/rotate";
/// Annotation with the value of [`ROTATE`] that was answered last.
const ROTATED: &str = "sallyport.dev/rotated";

/// Annotation of the authority's Secret by which somebody holds rotations and renewals; its value says why.
const FREEZE: &str = "sallyport.dev/freeze";

/// The type of every Secret that is made here.
const TYPE: &str = "kubernetes.io/tls";

/// The names of the Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretNames {
    /// The authority's, which no pod mounts.
    pub authority: String,
    /// The front's.
    pub webhook: String,
    /// The mutator's.
    pub mutator: String,
    /// The validator's.
    pub validator: String,
}

impl SecretNames {
    /// The name of the Secret for a place.
    pub fn of(&self, slot: Slot) -> &str {
        match slot {
            Slot::Authority => &self.authority,
            Slot::Member(Member::Webhook) => &self.webhook,
            Slot::Member(Member::Mutator) => &self.mutator,
            Slot::Member(Member::Validator) => &self.validator,
        }
    }
}

/// Secrets in one namespace.
#[derive(Clone)]
pub struct ClusterStore {
    secrets: Api<Secret>,
    names: SecretNames,
    owner: Option<(Api<ServiceAccount>, String)>,
}

impl std::fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterStore").field("names", &self.names).finish_non_exhaustive()
    }
}

impl ClusterStore {
    /// A store in `namespace`. Secrets that are made there belong to the `ServiceAccount` named `owner`, if one
    /// is given; those that somebody else made are theirs, and stay.
    pub fn new(client: Client, namespace: &str, names: SecretNames, owner: Option<String>) -> Self {
        let owner = owner.map(|name| (Api::namespaced(client.clone(), namespace), name));
        Self { secrets: Api::namespaced(client, namespace), names, owner }
    }

    /// The names of the Secrets.
    pub(crate) fn names(&self) -> &SecretNames {
        &self.names
    }

    /// The client.
    pub(crate) fn client(&self) -> Client {
        self.secrets.clone().into_client()
    }

    pub(super) async fn load(&self, slot: Slot) -> Result<Entry, AccessError> {
        let name = self.names.of(slot);
        let secret = call(Verb::Get, "secrets", name, self.secrets.get_opt(name)).await?;
        let Some(secret) = secret else {
            return Ok(Entry::default());
        };
        let data = secret.data.unwrap_or_default();
        let annotations = secret.metadata.annotations.unwrap_or_default();
        let annotation = |key: &str| annotations.get(key).filter(|_| slot == Slot::Authority);
        let request = annotation(ROTATE).filter(|request| annotations.get(ROTATED) != Some(request));
        Ok(Entry {
            stored: Stored(data.into_iter().map(|(key, ByteString(bytes))| (key, bytes)).collect()),
            version: secret.metadata.resource_version,
            request: request.cloned(),
            freeze: annotation(FREEZE).cloned(),
        })
    }

    pub(super) async fn save(
        &self,
        slot: Slot,
        entry: &Entry,
        content: &Content,
    ) -> Result<Saved, StoreError> {
        let name = self.names.of(slot);
        let mut ours = Stored::default();
        content.store(&mut ours);
        let data: BTreeMap<String, ByteString> =
            ours.0.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect();
        let written = match &entry.version {
            None => {
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(name.to_owned()),
                        labels: Some(labels(FIELD_MANAGER)),
                        owner_references: self.owner_references().await?,
                        ..ObjectMeta::default()
                    },
                    type_: Some(TYPE.to_owned()),
                    data: Some(data),
                    ..Secret::default()
                };
                let params =
                    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
                call(Verb::Create, "secrets", name, self.secrets.create(&params, &secret)).await
            }
            Some(version) => {
                // A merge patch: the type, which cannot change, and keys of others stay as they are.
                let mut data = json!(data);
                for key in [SUCCESSOR_CERTIFICATE, SUCCESSOR_PRIVATE_KEY] {
                    if content.successor.is_none() && entry.stored.0.contains_key(key) {
                        data[key] = Value::Null;
                    }
                }
                let mut metadata = json!({"resourceVersion": version});
                let is_new = content.successor.is_some() && content.successor != entry.stored.successor();
                if let Some(request) = entry.request.as_ref().filter(|_| is_new) {
                    metadata["annotations"] = json!({ROTATED: request});
                }
                let patch = Patch::Merge(json!({"metadata": metadata, "data": data}));
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                let write = self.secrets.patch(name, &params, &patch);
                call(Verb::Patch, "secrets", name, write).await
            }
        };
        match written {
            Ok(_) => Ok(Saved::Done),
            Err(error) if error.is_overtaken() => Ok(Saved::Overtaken),
            Err(error) => Err(error.into()),
        }
    }

    async fn owner_references(&self) -> Result<Option<Vec<OwnerReference>>, StoreError> {
        let Some((accounts, name)) = &self.owner else { return Ok(None) };
        let owner = service_account(accounts, name).await?;
        Ok(Some(vec![owner.ok_or_else(|| StoreError::OwnerAbsent(name.clone()))?]))
    }
}
