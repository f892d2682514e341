//! Writing the Secret's authorities into the objects by which the API server finds a webhook.
//!
//! A JSON patch that names the version it was made for: entries that others add or remove meanwhile are neither lost nor
//! brought back, and fields of others are never sent.

use std::fmt;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, TestOperation};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use sallyport_leadership::{AccessError, Verb, call};
use serde_json::Value;
use tracing::info;

use crate::arguments::{CommonArgs, FailurePolicy, TargetArgs};
use crate::error::JobError;
use crate::secret::Place;
use crate::session::{FIELD_MANAGER, Outcome, Session};

/// Field with the authorities.
const CA_BUNDLE: &str = "caBundle";
/// Field of an entry: what to do when its webhook does not answer.
const FAILURE_POLICY: &str = "failurePolicy";
/// Field of an `APIService`: do not verify at all.
const SKIP_VERIFY: &str = "insecureSkipTLSVerify";

/// Kinds of objects with a `caBundle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mutating,
    Validating,
    ApiService,
    CustomResourceDefinition,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::Mutating => ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
            Self::Validating => ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
            Self::ApiService => ("apiregistration.k8s.io", "APIService"),
            Self::CustomResourceDefinition => ("apiextensions.k8s.io", "CustomResourceDefinition"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), self.plural())
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
            Self::ApiService => "apiservices",
            Self::CustomResourceDefinition => "customresourcedefinitions",
        }
    }
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    kind: Kind,
    name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.plural(), self.name)
    }
}

fn targets(args: &TargetArgs) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let both = args.webhook.as_ref();
    for (kind, names) in [
        (Kind::Mutating, both.into_iter().chain(&args.mutating).collect::<Vec<_>>()),
        (Kind::Validating, both.into_iter().chain(&args.validating).collect()),
        (Kind::ApiService, args.apiservice.iter().collect()),
        (Kind::CustomResourceDefinition, args.crd.iter().collect()),
    ] {
        for name in names {
            let target = Target { kind, name: name.clone() };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    targets
}

/// Brings the Secret's authorities, and the failurePolicy if one is asked for, into every target.
pub(crate) async fn patch(
    session: &Session,
    common: &CommonArgs,
    args: &TargetArgs,
) -> Result<Outcome, JobError> {
    let place = Place::of(session, common, "", false);
    let bundle = session.persevere(async || place.ca_bundle().await).await?;
    let (mut written, mut right) = (Vec::new(), Vec::new());
    for target in targets(args) {
        let entries = session.persevere(async || write(session, &target, &bundle, args.failure_policy).await);
        match entries.await? {
            0 => right.push(target.to_string()),
            1 => written.push(target.to_string()),
            entries => written.push(format!("{target} ({entries} entries)")),
        }
    }
    Ok(if written.is_empty() {
        Outcome { is_changed: false, text: format!("{} trust {}", right.join(", "), place.text()) }
    } else {
        Outcome {
            is_changed: true,
            text: format!("patched {} with the authorities of {}", written.join(", "), place.text()),
        }
    })
}

/// Brings one object up to date. Returns how many of its entries were changed.
async fn write(
    session: &Session,
    target: &Target,
    bundle: &str,
    policy: Option<FailurePolicy>,
) -> Result<usize, JobError> {
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &target.kind.resource());
    let (resource, name) = (target.kind.plural(), target.name.as_str());
    let read = async || call(Verb::Get, resource, name, api.get_opt(name)).await;
    let object = read().await?.ok_or_else(|| JobError::Absent(target.to_string()))?;
    let version = object.metadata.resource_version.clone();
    let edits = edits(target, &object.data, bundle, policy)?;
    let entries = edits.len();
    if entries == 0 {
        return Ok(0);
    }
    let at = pointer(&["metadata", "resourceVersion"]);
    let test = PatchOperation::Test(TestOperation { path: at, value: version.clone().into() });
    let operations = std::iter::once(test).chain(edits.into_iter().flatten()).collect();
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::<()>::Json(json_patch::Patch(operations));
    match call(Verb::Patch, resource, name, api.patch(name, &params, &patch)).await {
        Ok(_) => {
            info!(%target, entries, "patched");
            Ok(entries)
        }
        // A test that fails is told like a patch that cannot be: it was ours to fail only if the version is another.
        Err(error @ AccessError::Refused { .. }) => {
            let now = read().await?.and_then(|object| object.metadata.resource_version);
            if now == version { Err(error.into()) } else { Err(JobError::Overtaken(target.to_string())) }
        }
        Err(error) => Err(error.into()),
    }
}

/// What has to be changed in an object, entry by entry.
fn edits(
    target: &Target,
    object: &Value,
    bundle: &str,
    policy: Option<FailurePolicy>,
) -> Result<Vec<Vec<PatchOperation>>, JobError> {
    let no_place = |reason| JobError::NoPlace { object: target.to_string(), reason };
    // "add" also replaces.
    let set = |parent: &Value, path: &[&str], field: &str, wanted: &str| {
        (parent.get(field).and_then(Value::as_str) != Some(wanted)).then(|| {
            let path = pointer(&[path, &[field]].concat());
            PatchOperation::Add(AddOperation { path, value: Value::from(wanted) })
        })
    };
    let edits: Vec<Vec<PatchOperation>> = match target.kind {
        Kind::Mutating | Kind::Validating => {
            let entries = object.get("webhooks").and_then(Value::as_array);
            let entries = entries.filter(|entries| !entries.is_empty());
            let entries = entries.ok_or_else(|| no_place("it has no entries"))?;
            let edit = |(index, entry): (usize, &Value)| {
                let index = index.to_string();
                let client = entry.get("clientConfig").unwrap_or(&Value::Null);
                let trust = set(client, &["webhooks", &index, "clientConfig"], CA_BUNDLE, bundle);
                let policy = policy
                    .and_then(|policy| set(entry, &["webhooks", &index], FAILURE_POLICY, policy.word()));
                trust.into_iter().chain(policy).collect()
            };
            entries.iter().enumerate().map(edit).collect()
        }
        Kind::ApiService => {
            let spec = object.get("spec").unwrap_or(&Value::Null);
            if !spec.get("service").is_some_and(Value::is_object) {
                return Err(no_place("the API server serves it itself"));
            }
            // The API server accepts only one of the two.
            let skip = (spec.get(SKIP_VERIFY) == Some(&Value::Bool(true)))
                .then(|| PatchOperation::Remove(RemoveOperation { path: pointer(&["spec", SKIP_VERIFY]) }));
            vec![set(spec, &["spec"], CA_BUNDLE, bundle).into_iter().chain(skip).collect()]
        }
        Kind::CustomResourceDefinition => {
            let client = object.pointer("/spec/conversion/webhook/clientConfig");
            let client = client.ok_or_else(|| no_place("it is not converted by a webhook"))?;
            let path = ["spec", "conversion", "webhook", "clientConfig"];
            vec![set(client, &path, CA_BUNDLE, bundle).into_iter().collect()]
        }
    };
    Ok(edits.into_iter().filter(|operations| !operations.is_empty()).collect())
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(kind: Kind, object: &Value, policy: Option<FailurePolicy>) -> Result<Vec<String>, String> {
        let target = Target { kind, name: "x".to_owned() };
        let edits = edits(&target, object, "new", policy).map_err(|error| error.to_string())?;
        Ok(edits.iter().flatten().map(|operation| operation.path().to_string()).collect())
    }

    #[test]
    fn only_what_differs_is_patched_in_all_entries_r05_sys9() {
        type Row<'a> = (Kind, &'a Value, Option<FailurePolicy>, Result<Vec<&'a str>, &'a str>);
        let webhooks = json!({"webhooks": [
            {"name": "a", "clientConfig": {}, "failurePolicy": "Ignore"},
            {"name": "b", "clientConfig": {"caBundle": "old"}, "failurePolicy": "Fail"},
            {"name": "c", "clientConfig": {"caBundle": "new"}, "failurePolicy": "Fail"},
        ]});
        let (first, second) = ("/webhooks/0/clientConfig/caBundle", "/webhooks/1/clientConfig/caBundle");
        let service = json!({"spec": {"service": {"name": "s"}, "insecureSkipTLSVerify": true}});
        let conversion =
            json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}}}}});
        let rows: [Row<'_>; 8] = [
            (Kind::Mutating, &webhooks, None, Ok(vec![first, second])),
            (
                Kind::Validating,
                &webhooks,
                Some(FailurePolicy::Fail),
                Ok(vec![first, "/webhooks/0/failurePolicy", second]),
            ),
            (Kind::Mutating, &json!({"webhooks": []}), None, Err("it has no entries")),
            (Kind::ApiService, &service, None, Ok(vec!["/spec/caBundle", "/spec/insecureSkipTLSVerify"])),
            (
                Kind::ApiService,
                &json!({"spec": {"service": {"name": "s"}, "caBundle": "new"}}),
                None,
                Ok(vec![]),
            ),
            (Kind::ApiService, &json!({"spec": {}}), None, Err("the API server serves it itself")),
            (
                Kind::CustomResourceDefinition,
                &conversion,
                None,
                Ok(vec!["/spec/conversion/webhook/clientConfig/caBundle"]),
            ),
            (
                Kind::CustomResourceDefinition,
                &json!({"spec": {"conversion": {"strategy": "None"}}}),
                None,
                Err("it is not converted by a webhook"),
            ),
        ];
        for (kind, object, policy, wanted) in rows {
            match (paths(kind, object, policy), wanted) {
                (Ok(there), Ok(wanted)) => assert_eq!(there, wanted, "{kind:?}"),
                (Err(there), Err(wanted)) => assert!(there.contains(wanted), "{there}"),
                (there, wanted) => panic!("{kind:?}: {there:?}, not {wanted:?}"),
            }
        }
    }
}
