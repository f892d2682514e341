//! The envelope of a review: names and user are read, objects stay raw text.
//!
//! `serde_json` skips raw values without recursion, so however deep an object
//! is nested, reading its envelope costs one pass and no stack.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::object::{Object, fault, shorten};
use crate::request::{GroupVersionKind, GroupVersionResource, Operation, Request, UserInfo};

/// Versions of `AdmissionReview` that are understood, newest first.
pub const KNOWN_VERSIONS: [ApiVersion; 2] = [ApiVersion::V1, ApiVersion::V1Beta1];

/// A version of `AdmissionReview`. Both have the same shape (C-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1Beta1,
}

impl ApiVersion {
    /// The text of `apiVersion`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// Why a body is not a review that can be answered. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Nothing was sent.
    #[error("the body is empty; send an AdmissionReview as JSON")]
    Empty,
    /// Not JSON, or not the shape of an `AdmissionReview`.
    #[error("the body is not an AdmissionReview in JSON: {}", fault(.0))]
    Malformed(#[from] serde_json::Error),
    /// JSON of another kind.
    #[error("kind is {0:?}; send an AdmissionReview")]
    Kind(String),
    /// A version that is not understood.
    #[error(
        "apiVersion {0:?} is not known; known are admission.k8s.io/v1 and admission.k8s.io/v1beta1 (set admissionReviewVersions accordingly)"
    )]
    Version(String),
    /// `request` is missing or null.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// The uid is missing, null or empty.
    #[error("request.uid is missing or empty; without it no answer can be matched")]
    NoUid,
}

/// A review as sent, borrowed from its body. Objects that are absent or null are `None`.
#[derive(Clone, Debug)]
pub struct Review<'a> {
    /// The version to answer in.
    pub api_version: ApiVersion,
    /// What is asked.
    pub request: Request<Cow<'a, str>>,
    /// The operation as sent, for logs: [`Request::operation`] tells only known ones apart.
    pub operation: Cow<'a, str>,
    /// The new object.
    pub object: Option<&'a RawValue>,
    /// The existing object.
    pub old_object: Option<&'a RawValue>,
    /// Options of the operation.
    pub options: Option<&'a RawValue>,
}

impl<'a> Review<'a> {
    /// Reads the envelope of a review.
    ///
    /// # Errors
    /// When the body is no review that can be answered; see [`EnvelopeError`].
    pub fn parse(body: &'a [u8]) -> Result<Self, EnvelopeError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(EnvelopeError::Empty);
        }
        let Object(wire): Object<WireReview<'a>> = serde_json::from_slice(body)?;
        let kind = text(wire.kind);
        if kind != "AdmissionReview" {
            return Err(EnvelopeError::Kind(shorten(&kind)));
        }
        let version = text(wire.api_version);
        let api_version = KNOWN_VERSIONS
            .into_iter()
            .find(|known| known.as_str() == version)
            .ok_or_else(|| EnvelopeError::Version(shorten(&version)))?;
        let Object(request) = wire.request.ok_or(EnvelopeError::NoRequest)?;
        let uid = request.uid.filter(|uid| !uid.0.is_empty()).ok_or(EnvelopeError::NoUid)?.0;
        let operation = text(request.operation);
        Ok(Self {
            api_version,
            request: Request {
                uid,
                kind: request.kind.map(|Object(wire)| wire.into()).unwrap_or_default(),
                resource: request.resource.map(|Object(wire)| wire.into()).unwrap_or_default(),
                sub_resource: text(request.sub_resource),
                request_kind: request.request_kind.map(|Object(wire)| wire.into()),
                request_resource: request.request_resource.map(|Object(wire)| wire.into()),
                request_sub_resource: text(request.request_sub_resource),
                name: text(request.name),
                namespace: text(request.namespace),
                operation: Operation::from(operation.as_ref()),
                user_info: request.user_info.map(|Object(wire)| wire.into()).unwrap_or_default(),
                dry_run: request.dry_run.unwrap_or_default(),
            },
            operation,
            object: request.object,
            old_object: request.old_object,
            options: request.options,
        })
    }
}

fn text(text: Option<Text<'_>>) -> Cow<'_, str> {
    text.map(|text| text.0).unwrap_or_default()
}

/// A string that borrows from the body when it has no escapes. (serde borrows a
/// `Cow` in a field, but not inside an `Option` or a collection.)
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReview<'a> {
    #[serde(borrow, default)]
    api_version: Option<Text<'a>>,
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    request: Option<Object<WireRequest<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
    #[serde(borrow, default)]
    kind: Option<Object<WireKind<'a>>>,
    #[serde(borrow, default)]
    resource: Option<Object<WireResource<'a>>>,
    #[serde(borrow, default)]
    sub_resource: Option<Text<'a>>,
    #[serde(borrow, default)]
    request_kind: Option<Object<WireKind<'a>>>,
    #[serde(borrow, default)]
    request_resource: Option<Object<WireResource<'a>>>,
    #[serde(borrow, default)]
    request_sub_resource: Option<Text<'a>>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    namespace: Option<Text<'a>>,
    #[serde(borrow, default)]
    operation: Option<Text<'a>>,
    #[serde(borrow, default)]
    user_info: Option<Object<WireUser<'a>>>,
    // serde reads `null` into an Option as None: null and absence are the same here (C-12).
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    options: Option<&'a RawValue>,
    #[serde(default)]
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct WireKind<'a> {
    #[serde(borrow, default)]
    group: Option<Text<'a>>,
    #[serde(borrow, default)]
    version: Option<Text<'a>>,
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
}

impl<'a> From<WireKind<'a>> for GroupVersionKind<Cow<'a, str>> {
    fn from(wire: WireKind<'a>) -> Self {
        Self { group: text(wire.group), version: text(wire.version), kind: text(wire.kind) }
    }
}

#[derive(Deserialize)]
struct WireResource<'a> {
    #[serde(borrow, default)]
    group: Option<Text<'a>>,
    #[serde(borrow, default)]
    version: Option<Text<'a>>,
    #[serde(borrow, default)]
    resource: Option<Text<'a>>,
}

impl<'a> From<WireResource<'a>> for GroupVersionResource<Cow<'a, str>> {
    fn from(wire: WireResource<'a>) -> Self {
        Self { group: text(wire.group), version: text(wire.version), resource: text(wire.resource) }
    }
}

#[derive(Deserialize)]
struct WireUser<'a> {
    #[serde(borrow, default)]
    username: Option<Text<'a>>,
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
    #[serde(borrow, default)]
    groups: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    extra: Option<BTreeMap<Text<'a>, Option<Vec<Text<'a>>>>>,
}

impl<'a> From<WireUser<'a>> for UserInfo<Cow<'a, str>> {
    fn from(wire: WireUser<'a>) -> Self {
        let plain = |values: Vec<Text<'a>>| values.into_iter().map(|value| value.0).collect();
        Self {
            username: text(wire.username),
            uid: text(wire.uid),
            groups: wire.groups.map(plain).unwrap_or_default(),
            extra: wire
                .extra
                .unwrap_or_default()
                .into_iter()
                .map(|(key, values)| (key.0, values.map(plain).unwrap_or_default()))
                .collect(),
        }
    }
}
