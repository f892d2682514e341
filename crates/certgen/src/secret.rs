//! The Secret of a webhook: read as a whole, written only over what was read, and only where it is ours to write.
//!
//! A private key that was not made here is never lost: what this job has filled carries an annotation, and any other
//! Secret that holds a private key is left alone unless `--replace` says otherwise.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use sallyport_leadership::{Verb, call};
use sallyport_pki::stored::{CERTIFICATE, PRIVATE_KEY, TRUST};
use sallyport_pki::{CertificateError, Defect, Identity, Stored};
use serde_json::json;

use crate::arguments::CommonArgs;
use crate::error::JobError;
use crate::session::{FIELD_MANAGER, Session};

/// Annotation of a Secret that was filled here, with the name that its certificate is for.
const ISSUED_FOR: &str = "sallyport.dev/issued-for";
/// The type of Secrets that hold anything.
const OPAQUE: &str = "Opaque";
/// The type of Secrets that hold a certificate under the usual keys.
const TLS: &str = "kubernetes.io/tls";

/// Where a Secret is, and under which keys it holds what.
pub(crate) struct Place {
    api: Api<Secret>,
    name: String,
    /// `secret <namespace>/<name>`.
    text: String,
    /// Pairs of the usual key and the one that is used.
    keys: [(&'static str, String); 3],
    issued_for: String,
    may_replace: bool,
}

impl Place {
    /// The Secret that the flags name.
    pub fn of(session: &Session, common: &CommonArgs, issued_for: &str, may_replace: bool) -> Self {
        let keys = [
            (TRUST, common.ca_key.clone()),
            (CERTIFICATE, common.cert_key.clone()),
            (PRIVATE_KEY, common.key_key.clone()),
        ];
        Self::new(session, &common.namespace, &common.secret, keys, issued_for, may_replace)
    }

    /// The Secret of an authority in the same namespace.
    pub fn of_authority(session: &Session, common: &CommonArgs, name: &str, may_replace: bool) -> Self {
        let keys = [TRUST, CERTIFICATE, PRIVATE_KEY].map(|key| (key, key.to_owned()));
        Self::new(session, &common.namespace, name, keys, "", may_replace)
    }

    fn new(
        session: &Session,
        namespace: &str,
        name: &str,
        keys: [(&'static str, String); 3],
        issued_for: &str,
        may_replace: bool,
    ) -> Self {
        Self {
            api: Api::namespaced(session.client.clone(), namespace),
            name: name.to_owned(),
            text: format!("secret {namespace}/{name}"),
            keys,
            issued_for: issued_for.to_owned(),
            may_replace,
        }
    }

    /// What people call it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key that is used for a usual one.
    fn key<'a>(&'a self, usual: &'a str) -> &'a str {
        self.keys.iter().find(|(key, _)| *key == usual).map_or(usual, |(_, used)| used.as_str())
    }

    /// Reads it. A Secret that is not there reads as an empty one.
    pub async fn load(&self) -> Result<Found, JobError> {
        let secret = call(Verb::Get, "secrets", &self.name, self.api.get_opt(&self.name)).await?;
        Ok(secret.map_or_else(Found::default, |secret| self.found(secret)))
    }

    fn found(&self, secret: Secret) -> Found {
        let mut data = secret.data.unwrap_or_default();
        let used = self.keys.iter().filter_map(|(usual, used)| {
            let ByteString(bytes) = data.remove(used)?;
            Some(((*usual).to_owned(), bytes))
        });
        let stored = Stored(used.collect());
        let annotations = secret.metadata.annotations.unwrap_or_default();
        Found {
            version: secret.metadata.resource_version,
            is_ours: annotations.contains_key(ISSUED_FOR),
            is_immutable: secret.immutable.unwrap_or_default(),
            kind: secret.type_.unwrap_or_else(|| OPAQUE.to_owned()),
            stored,
        }
    }

    /// Whether certificate and key that were found may be replaced because of a `defect`.
    pub fn permit_replacement(&self, found: &Found, defect: &Defect) -> Result<(), JobError> {
        self.permit_write(found, &defect.to_string())?;
        if !found.is_ours && found.has_private_key() && !self.may_replace {
            return Err(JobError::Foreign {
                secret: self.text.clone(),
                key: self.key(PRIVATE_KEY).to_owned(),
                defect: defect.clone(),
            });
        }
        Ok(())
    }

    /// Whether anything may be written to what was found, for a `reason`.
    pub fn permit_write(&self, found: &Found, reason: &str) -> Result<(), JobError> {
        let secret = || self.text.clone();
        if found.version.is_some() && !found.is_ours && ![OPAQUE, TLS].contains(&found.kind.as_str()) {
            return Err(JobError::Type { secret: secret(), kind: found.kind.clone() });
        }
        if found.is_immutable {
            return Err(JobError::Immutable { secret: secret(), reason: reason.to_owned() });
        }
        Ok(())
    }

    /// Writes certificate, key and authorities over what was `found`, and keeps every other key.
    pub async fn save(&self, found: &Found, identity: &Identity) -> Result<(), JobError> {
        let mut stored = Stored::default();
        identity.store(&mut stored);
        let data: BTreeMap<String, ByteString> = stored
            .0
            .into_iter()
            .map(|(usual, bytes)| (self.key(&usual).to_owned(), ByteString(bytes)))
            .collect();
        // A key that others made stays theirs when it only gets more authorities beside it.
        let is_ours = found.is_ours || identity.pair != found.identity().pair;
        let issued_for = is_ours.then(|| BTreeMap::from([(ISSUED_FOR.to_owned(), self.issued_for.clone())]));
        let written = if let Some(version) = &found.version {
            // A merge patch: the type, which cannot change, and keys of others stay as they are.
            let annotations = issued_for.unwrap_or_default();
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": version, "annotations": annotations},
                "data": data,
            }));
            let params =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            call(Verb::Patch, "secrets", &self.name, self.api.patch(&self.name, &params, &patch)).await
        } else {
            let is_usual = [CERTIFICATE, PRIVATE_KEY].iter().all(|usual| self.key(usual) == *usual);
            let labels =
                [("app.kubernetes.io/part-of", "sallyport"), ("app.kubernetes.io/managed-by", FIELD_MANAGER)];
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                    annotations: issued_for,
                    ..ObjectMeta::default()
                },
                type_: Some(if is_usual { TLS } else { OPAQUE }.to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            let params =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            call(Verb::Create, "secrets", &self.name, self.api.create(&params, &secret)).await
        };
        written?;
        Ok(())
    }

    /// The Secret's authorities in the form of a `caBundle`.
    pub async fn ca_bundle(&self) -> Result<String, JobError> {
        let found = self.load().await?;
        if found.version.is_none() {
            return Err(JobError::Absent(self.text.clone()));
        }
        let pem = found.stored.0.get(TRUST).map_or(&[][..], Vec::as_slice);
        match sallyport_pki::Bundle::from_pem(pem) {
            Ok(bundle) => Ok(bundle.to_ca_bundle()),
            Err(source) => Err(self.no_authority(source)),
        }
    }

    fn no_authority(&self, source: CertificateError) -> JobError {
        JobError::NoAuthority { secret: self.text.clone(), key: self.key(TRUST).to_owned(), source }
    }
}

/// What a Secret held.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Certificate, key and authorities, under the usual keys.
    stored: Stored,
    version: Option<String>,
    /// Whether it was filled here.
    pub is_ours: bool,
    is_immutable: bool,
    kind: String,
}

impl Found {
    /// Certificate, key and authorities.
    pub fn identity(&self) -> Identity {
        Identity::from_stored(&self.stored)
    }

    /// Whether anything is where the private key belongs, readable or not.
    fn has_private_key(&self) -> bool {
        self.stored.0.get(PRIVATE_KEY).is_some_and(|bytes| !bytes.iter().all(u8::is_ascii_whitespace))
    }
}
