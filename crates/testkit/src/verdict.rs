//! The API server's own reading of a webhook's answer.
//!
//! [`check`] takes the bytes that went over the wire and says what the API server would do with them: admit
//! (with which object), refuse, or call the webhook broken. Rules: `rest/request.go` for HTTP,
//! `admission/plugin/webhook/request/admissionreview.go` for the envelope, `mutating/dispatcher.go` for patches,
//! `errors/statuserror.go` for refusals (C-20 to C-32, C-40, C-50, C-51 in the comments).
//!
//! It is stricter than Kubernetes where leniency would hide a fault of ours: duplicate members in the envelope
//! and negative array indices in patches are refused.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

mod media_type;

/// Total and single lengths, in characters, at which the API server cuts warnings.
const WARNINGS_LIMIT: usize = 4096;
const WARNING_LIMIT: usize = 256;

/// Which kind of registration the answer came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// A `MutatingWebhookConfiguration`.
    Mutating,
    /// A `ValidatingWebhookConfiguration`.
    Validating,
}

/// What the API server does with an answer that it accepts.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Admit or refuse.
    pub decision: Decision,
    /// The warnings that the client sees: without empty, repeated and unprintable ones, cut where too long.
    pub warnings: Vec<String>,
    /// The audit annotations that are kept, before the webhook's name is put in front of their keys.
    pub audit_annotations: BTreeMap<String, String>,
    /// Where the answer departs from the contract without the API server minding. An answer of ours has none.
    pub remarks: Vec<String>,
}

/// Admit or refuse.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The request goes on.
    Allowed {
        /// The decoded JSON Patch as sent, when there is a non-empty list of operations.
        patch: Option<Vec<u8>>,
        /// The patched object; present exactly when `patch` is.
        object: Option<Value>,
    },
    /// The client gets an error.
    Denied(Refusal),
}

/// The error that the client gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The HTTP status code: at least 400.
    pub code: u16,
    /// The webhook's message, or its reason, or nothing.
    pub message: String,
    /// The webhook's machine-readable reason; empty when it gave none.
    pub reason: String,
    /// `status.details` as sent, with its `causes` (C-42).
    pub details: Option<serde_json::Map<String, Value>>,
}

impl Refusal {
    /// The message as the user sees it, from a webhook of that name (C-41).
    pub fn text(&self, webhook: &str) -> String {
        let denied = format!("admission webhook {webhook:?} denied the request");
        if self.message.is_empty() {
            format!("{denied} without explanation")
        } else {
            format!("{denied}: {}", self.message)
        }
    }
}

/// Why the API server cannot use an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// An error in calling the webhook: the registration's `failurePolicy` decides about the request.
    #[error("the call failed: {0}")]
    Call(String),
    /// The client gets a 500, whatever the `failurePolicy` (C-31).
    #[error("the API server fails with an internal error: {0}")]
    Internal(String),
    /// The request is not one that an API server sends, so that no answer to it can be judged.
    #[error("the request is not an AdmissionReview: {0}")]
    Request(String),
}

fn call(reason: impl Into<String>) -> Broken {
    Broken::Call(reason.into())
}

/// What the API server makes of the answer to `request_body`: an HTTP status, a `Content-Type` and a body.
///
/// # Errors
/// [`Broken`], when it would not use the answer.
pub fn check(
    door: Door,
    request_body: &[u8],
    http_status: u16,
    content_type: Option<&str>,
    response_body: &[u8],
) -> Result<Verdict, Broken> {
    let mut remarks = Vec::new();
    // C-24: looked at before the status is.
    match content_type {
        None | Some("") => remarks.push("C-24: no Content-Type".to_owned()),
        Some(value) => match media_type::parse(value) {
            None => return Err(call(format!("malformed Content-Type {value:?}"))),
            Some(media_type) if media_type != "application/json" => {
                remarks.push(format!("C-24: Content-Type {value:?}"));
            }
            Some(_) => {}
        },
    }
    // C-08, C-20.
    match http_status {
        200 => {}
        201..=206 => remarks.push(format!("C-20: HTTP status {http_status}")),
        _ => return Err(call(format!("HTTP status {http_status}"))),
    }

    let request: Review =
        serde_json::from_slice(request_body).map_err(|error| Broken::Request(error.to_string()))?;
    let version = Version::of(&request.api_version)
        .filter(|_| request.kind == KIND)
        .ok_or_else(|| Broken::Request(format!("{}, Kind={}", request.api_version, request.kind)))?;
    let asked = request.request.ok_or_else(|| Broken::Request("no request in it".to_owned()))?;

    let review: Review = serde_json::from_slice(response_body)
        .map_err(|error| call(format!("undecodable answer: {error}")))?;
    decodable(version, &review)?;
    if review.request.is_some() {
        remarks.push("C-25: the request is sent back".to_owned());
    }
    let answer = verify(&asked.uid, door, version, review, &mut remarks)?;
    decide(door, &asked, answer, remarks)
}

const KIND: &str = "AdmissionReview";
const GROUP: &str = "admission.k8s.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V1beta1,
}

impl Version {
    fn of(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            Some((GROUP, "v1")) => Some(Self::V1),
            Some((GROUP, "v1beta1")) => Some(Self::V1beta1),
            _ => None,
        }
    }
}

/// An `AdmissionReview`, request or response.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default, deserialize_with = "nullable")]
    api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(default)]
    request: Option<Request>,
    #[serde(default)]
    response: Option<Response>,
}

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default)]
    object: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default)]
    allowed: Option<bool>,
    #[serde(default, deserialize_with = "nullable")]
    status: Status,
    #[serde(default)]
    patch: Option<String>,
    #[serde(default)]
    patch_type: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    warnings: Vec<Option<String>>,
    #[serde(default, deserialize_with = "nullable")]
    audit_annotations: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Status {
    #[serde(default, deserialize_with = "nullable")]
    code: i32,
    #[serde(default, deserialize_with = "nullable")]
    message: String,
    #[serde(default, deserialize_with = "nullable")]
    reason: String,
    #[serde(default, deserialize_with = "nullable", rename = "status")]
    outcome: String,
    #[serde(default)]
    details: Option<serde_json::Map<String, Value>>,
}

/// Go leaves a field at its zero value when the JSON has null for it.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// What the client's codec, which comes before the checks of the envelope, refuses by its type alone (C-21): a
/// kind that it does not know, or another one than is decoded into. Absent names take those of the request.
fn decodable(asked: Version, review: &Review) -> Result<(), Broken> {
    let named = format!("{}, Kind={}", review.api_version, review.kind);
    if !review.kind.is_empty() && review.kind != KIND {
        return Err(call(format!("expected webhook response of kind {KIND}, got {named}")));
    }
    if !review.api_version.is_empty() && Version::of(&review.api_version) != Some(asked) {
        return Err(call(format!("expected webhook response of {asked:?}, got {named}")));
    }
    Ok(())
}

/// The parts of an envelope that has been found well formed.
#[derive(Debug, PartialEq)]
struct Answer {
    allowed: bool,
    status: Option<Status>,
    patch: Vec<u8>,
    patch_type: String,
    warnings: Vec<String>,
    audit_annotations: BTreeMap<String, String>,
}

/// The envelope's rules, for an answer already decoded: `VerifyAdmissionResponse`.
fn verify(
    uid: &str,
    door: Door,
    version: Version,
    review: Review,
    remarks: &mut Vec<String>,
) -> Result<Answer, Broken> {
    // C-29.
    let response = review.response.ok_or_else(|| call("webhook response was absent"))?;
    let mut patch = decode_patch(response.patch.as_deref())?;
    let mut patch_type = response.patch_type;
    match version {
        Version::V1 => {
            // C-22, C-21.
            if response.uid != uid {
                return Err(call(format!("expected response.uid={uid:?}, got {:?}", response.uid)));
            }
            if Version::of(&review.api_version) != Some(Version::V1) || review.kind != KIND {
                let named = format!("{}, Kind={}", review.api_version, review.kind);
                return Err(call(format!(
                    "expected webhook response of {GROUP}/v1, Kind={KIND}, got {named}"
                )));
            }
            let problem = match (door, patch.is_empty(), patch_type.as_deref()) {
                // C-27.
                (Door::Validating, false, _) => Some("validating webhook may not return response.patch"),
                (Door::Validating, true, Some(_)) => {
                    Some("validating webhook may not return response.patchType")
                }
                // C-26.
                (Door::Mutating, false, None) => {
                    Some("webhook returned response.patch but not response.patchType")
                }
                (Door::Mutating, true, Some(_)) => {
                    Some("webhook returned response.patchType but not response.patch")
                }
                (Door::Mutating, false, Some("")) => {
                    Some("webhook returned invalid response.patchType of \"\"")
                }
                _ => None,
            };
            if let Some(problem) = problem {
                return Err(call(problem));
            }
        }
        Version::V1beta1 => {
            if response.uid != uid {
                remarks.push(format!("C-22: response.uid is {:?}", response.uid));
            }
            if Version::of(&review.api_version) != Some(Version::V1beta1) || review.kind != KIND {
                remarks.push(format!("C-21: answered as {}, Kind={}", review.api_version, review.kind));
            }
            if door == Door::Validating {
                if !patch.is_empty() || patch_type.is_some() {
                    remarks.push("C-27: patch or patchType from a validating webhook".to_owned());
                }
                patch.clear();
                patch_type = None;
            } else if patch.is_empty() {
                if patch_type.is_some() {
                    remarks.push("C-26: patchType without patch".to_owned());
                }
                patch_type = None;
            } else if patch_type.as_deref() != Some("JSONPatch") {
                // Not looked at in this version: there has only ever been one.
                remarks.push(format!("C-26: patchType {patch_type:?}"));
                patch_type = Some("JSONPatch".to_owned());
            }
        }
    }
    if response.allowed.is_none() {
        remarks.push("C-23: response.allowed is absent".to_owned());
    }
    let status = (response.status != Status::default()).then_some(response.status);
    Ok(Answer {
        allowed: response.allowed.unwrap_or_default(),
        status,
        patch,
        patch_type: patch_type.unwrap_or_default(),
        warnings: response.warnings.into_iter().map(Option::unwrap_or_default).collect(),
        audit_annotations: response
            .audit_annotations
            .into_iter()
            .map(|(key, value)| (key, value.unwrap_or_default()))
            .collect(),
    })
}

/// Base64 as Go's decoder of bytes takes it: with padding, line breaks ignored (C-30).
fn decode_patch(text: Option<&str>) -> Result<Vec<u8>, Broken> {
    let text = text.unwrap_or_default();
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD.decode(text).map_err(|error| call(format!("undecodable answer: response.patch: {error}")))
}

/// What is done about an answer whose envelope is in order.
fn decide(
    door: Door,
    request: &Request,
    answer: Answer,
    mut remarks: Vec<String>,
) -> Result<Verdict, Broken> {
    let mut audit_annotations = answer.audit_annotations;
    audit_annotations.retain(|key, _| {
        let kept = is_name_part(key);
        if !kept {
            remarks.push(format!("C-51: audit annotation {key:?} is dropped"));
        }
        kept
    });
    let warnings = shown(&answer.warnings);
    if warnings != answer.warnings {
        remarks.push("C-50: warnings are dropped or cut".to_owned());
    }

    let decision = if answer.allowed {
        if answer.status.is_some() {
            remarks.push("C-32: status with an allowed request".to_owned());
        }
        let patched = match door {
            Door::Mutating => patched(request, &answer.patch, &answer.patch_type)?,
            Door::Validating => None,
        };
        match patched {
            Some(object) => Decision::Allowed { patch: Some(answer.patch), object: Some(object) },
            None => Decision::Allowed { patch: None, object: None },
        }
    } else {
        if !answer.patch.is_empty() {
            remarks.push("C-32: patch with a denied request".to_owned());
        }
        Decision::Denied(refusal(answer.status.unwrap_or_default()))
    };
    Ok(Verdict { decision, warnings, audit_annotations, remarks })
}

/// C-40.
fn refusal(status: Status) -> Refusal {
    // A code beyond HTTP's own is the webhook's business no more than one below 400 is.
    let code = u16::try_from(status.code).unwrap_or(0).max(400);
    let message = if status.message.is_empty() { status.reason.clone() } else { status.message };
    Refusal { code, message, reason: status.reason, details: status.details }
}

/// The object with the patch applied, or nothing when there is nothing to apply.
fn patched(request: &Request, patch: &[u8], patch_type: &str) -> Result<Option<Value>, Broken> {
    if patch.is_empty() {
        return Ok(None);
    }
    // C-31: what is not a list of objects is undecodable; everything below is found out in applying.
    let operations: Option<Vec<serde_json::Map<String, Value>>> = serde_json::from_slice(patch)
        .map_err(|error| call(format!("received undecodable patch in webhook response: {error}")))?;
    let operations = operations.unwrap_or_default();
    if operations.is_empty() {
        return Ok(None);
    }
    let internal = |reason: String| Broken::Internal(reason);
    let object = request.object.as_deref().map(RawValue::get).filter(|text| *text != "null");
    let object = object.ok_or_else(|| {
        internal("attempted to modify the object, which is not supported for this operation".to_owned())
    })?;
    if patch_type != "JSONPatch" {
        return Err(call(format!("unsupported patch type {patch_type:?}")));
    }
    let before: Value = serde_json::from_str(object).map_err(|error| Broken::Request(error.to_string()))?;
    let operations: json_patch::Patch =
        serde_json::from_slice(patch).map_err(|error| internal(format!("malformed operation: {error}")))?;
    let mut after = before.clone();
    json_patch::patch(&mut after, &operations)
        .map_err(|error| internal(format!("the patch does not apply: {error}")))?;
    // The result is decoded into the type of the object that was sent.
    if !after.is_object() || ["apiVersion", "kind"].iter().any(|name| after.get(name) != before.get(name)) {
        return Err(internal("the patched object is of another type".to_owned()));
    }
    Ok(Some(after))
}

/// Whether an audit annotation's key is usable after `<webhook name>/`.
fn is_name_part(key: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = key.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || b"-_.".contains(byte))
}

/// The warnings that reach the client as headers, in their order.
fn shown(warnings: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    let usable: Vec<&String> = warnings
        .iter()
        .filter(|text| !text.is_empty() && seen.insert(text.as_str()))
        .filter(|text| !text.chars().any(char::is_control))
        .collect();
    let total: usize = usable.iter().map(|text| text.chars().count()).sum();
    if total <= WARNINGS_LIMIT {
        return usable.into_iter().cloned().collect();
    }
    // Past the limit all are cut, and the first that ends past it again is the last.
    let mut written = 0;
    let mut cut = Vec::new();
    for text in usable {
        if written >= WARNINGS_LIMIT {
            break;
        }
        let text: String = text.chars().take(WARNING_LIMIT).collect();
        written += text.chars().count();
        cut.push(text);
    }
    cut
}

#[cfg(test)]
#[allow(clippy::too_many_lines)] // a table is read from top to bottom
mod tests;
