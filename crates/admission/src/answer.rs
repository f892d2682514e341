//! The answer to a review, exactly as the API server wants it (C-20…C-29).

use std::collections::BTreeMap;

use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

use crate::envelope::ApiVersion;
use crate::{annotations, warnings};

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// Why it may not; ignored when allowed.
    pub status: Option<Status>,
    /// Shown to the client, on allow and deny.
    pub warnings: Vec<String>,
    /// Added to the audit event.
    pub audit_annotations: BTreeMap<String, String>,
    /// JSON text of an RFC 6902 array; empty for no change. Left out when denied.
    pub patch: Vec<u8>,
}

/// Why a request was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// HTTP status. What is not an error status becomes 403 (C-40).
    pub code: u16,
    /// `metav1.StatusReason`.
    pub reason: String,
    /// What the user reads.
    pub message: String,
    /// Single faults (C-42).
    pub causes: Vec<Cause>,
}

/// One fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `metav1.CauseType`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Answer {
    /// Lets the request go on, unchanged.
    #[must_use]
    pub fn allow() -> Self {
        Self { allowed: true, ..Self::default() }
    }

    /// Refuses the request.
    #[must_use]
    pub fn deny(status: Status) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// Makes the answer one that the API server passes on whole: cleans the
    /// warnings, sets a denial's status right, and drops audit annotations with
    /// unusable keys, which it returns for the caller to report.
    pub fn clean(&mut self) -> Vec<String> {
        self.warnings = warnings::clean(&self.warnings);
        let (kept, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.audit_annotations)
            .into_iter()
            .partition(|(key, _)| annotations::is_valid_key(key));
        self.audit_annotations =
            kept.into_iter().map(|(key, value)| (key, annotations::shorten_value(value))).collect();
        if self.allowed {
            self.status = None;
        } else {
            let status = self.status.get_or_insert_default();
            if !(400..=599).contains(&status.code) {
                status.code = 403;
            }
            if status.reason == "Success" {
                status.reason.clear();
            }
            if status.message.is_empty() && status.reason.is_empty() {
                "the policy gave no reason".clone_into(&mut status.message);
            }
            self.patch.clear();
        }
        dropped.into_keys().collect()
    }

    /// The body to send, in the version of the review.
    pub fn render(&self, api_version: ApiVersion, uid: &str) -> Vec<u8> {
        let patched = self.allowed && !self.patch.is_empty();
        let wire = WireReview {
            api_version: api_version.as_str(),
            kind: "AdmissionReview",
            response: WireResponse {
                uid,
                allowed: self.allowed,
                status: self.status.as_ref().filter(|_| !self.allowed).map(WireStatus::from),
                patch: patched.then_some(Base64(&self.patch)),
                patch_type: patched.then_some("JSONPatch"),
                warnings: &self.warnings,
                audit_annotations: &self.audit_annotations,
            },
        };
        let mut body = Vec::with_capacity(256 + self.patch.len() / 3 * 4);
        // Strings, numbers and string-keyed maps into memory: this cannot fail.
        let written = serde_json::to_writer(&mut body, &wire);
        debug_assert!(written.is_ok());
        body
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireReview<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<Base64<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    status: &'a str,
    code: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<WireDetails<'a>>,
}

#[derive(Serialize)]
struct WireDetails<'a> {
    causes: &'a [Cause],
}

impl<'a> From<&'a Status> for WireStatus<'a> {
    fn from(status: &'a Status) -> Self {
        let details = (!status.causes.is_empty()).then_some(WireDetails { causes: &status.causes });
        Self {
            status: "Failure",
            code: status.code,
            reason: &status.reason,
            message: &status.message,
            details,
        }
    }
}

/// Base64 written straight into the output (C-30).
struct Base64<'a>(&'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(self.0, &STANDARD))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use serde_json::{Value, json};

    use super::*;

    fn rendered(answer: &Answer, version: ApiVersion) -> Value {
        serde_json::from_slice(&answer.render(version, "u-1")).unwrap()
    }

    fn refusal(code: u16, reason: &str, message: &str) -> Answer {
        Answer::deny(Status { code, reason: reason.into(), message: message.into(), causes: vec![] })
    }

    #[test]
    fn allow_without_patch_has_neither_patch_nor_patch_type_c28() {
        assert_eq!(
            rendered(&Answer::allow(), ApiVersion::V1),
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "u-1", "allowed": true}})
        );
    }

    #[test]
    fn the_version_of_the_request_is_answered_c21() {
        for version in crate::envelope::KNOWN_VERSIONS {
            assert_eq!(rendered(&Answer::allow(), version)["apiVersion"], version.as_str());
        }
    }

    #[test]
    fn a_patch_comes_as_base64_with_its_type_c26_c30() {
        let patch = br#"[{"op":"add","path":"/a","value":1}]"#;
        let response =
            &rendered(&Answer { patch: patch.to_vec(), ..Answer::allow() }, ApiVersion::V1)["response"];
        assert_eq!(response["patchType"], "JSONPatch");
        assert_eq!(STANDARD.decode(response["patch"].as_str().unwrap()).unwrap(), patch);
    }

    #[test]
    fn a_denial_has_its_status_and_never_a_patch_c32_c40_c42() {
        let mut answer = refusal(422, "Invalid", "spec.x is wrong");
        answer.patch = b"[]".to_vec();
        answer.warnings = vec!["w".into()];
        answer.audit_annotations.insert("policy".into(), "p".into());
        answer.status.as_mut().unwrap().causes =
            vec![Cause { reason: "FieldValueInvalid".into(), message: "m".into(), field: "spec.x".into() }];
        assert!(answer.clean().is_empty());
        assert_eq!(
            rendered(&answer, ApiVersion::V1)["response"],
            json!({
                "uid": "u-1", "allowed": false, "warnings": ["w"], "auditAnnotations": {"policy": "p"},
                "status": {"status": "Failure", "code": 422, "reason": "Invalid", "message": "spec.x is wrong",
                    "details": {"causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}]}},
            })
        );
    }

    #[test]
    fn a_denials_code_and_message_are_made_usable_c40() {
        for (code, reason, message, expected) in [
            (0, "", "", json!({"status": "Failure", "code": 403, "message": "the policy gave no reason"})),
            (200, "Success", "m", json!({"status": "Failure", "code": 403, "message": "m"})),
            (399, "Forbidden", "", json!({"status": "Failure", "code": 403, "reason": "Forbidden"})),
            (402, "", "m", json!({"status": "Failure", "code": 402, "message": "m"})),
            (600, "", "m", json!({"status": "Failure", "code": 403, "message": "m"})),
        ] {
            let mut answer = refusal(code, reason, message);
            answer.clean();
            assert_eq!(rendered(&answer, ApiVersion::V1)["response"]["status"], expected);
        }
    }

    #[test]
    fn a_status_is_left_out_when_allowed_c32() {
        let mut answer = Answer { allowed: true, ..refusal(500, "x", "y") };
        answer.clean();
        assert!(rendered(&answer, ApiVersion::V1)["response"].get("status").is_none());
    }

    #[test]
    fn audit_annotations_with_invalid_keys_are_dropped_and_named_c51() {
        let mut answer = Answer::allow();
        for key in ["good", "a*b", ""] {
            answer.audit_annotations.insert(key.into(), "v".into());
        }
        assert_eq!(answer.clean(), ["", "a*b"]);
        assert_eq!(answer.audit_annotations.keys().collect::<Vec<_>>(), ["good"]);
    }

    #[test]
    fn an_odd_uid_is_echoed_c22() {
        for uid in ["quote\" back\\ nul\u{0}", "日本", "a b", "\u{2028}"] {
            let body: Value = serde_json::from_slice(&Answer::allow().render(ApiVersion::V1, uid)).unwrap();
            assert_eq!(body["response"]["uid"], uid);
        }
    }
}
