//! What the API server asks, without the objects.
//!
//! Strings are owned unless said otherwise: the webhook, which copies nothing of a body that it has received, reads
//! a `Request<Cow<'_, str>>`, and [`Request::into_owned`] makes the owned form of it.

use std::collections::BTreeMap;
use std::fmt;

/// A group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind<S = String> {
    /// API group; empty for core.
    pub group: S,
    /// API version.
    pub version: S,
    /// Kind, such as `Pod`.
    pub kind: S,
}

/// A group, version and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource<S = String> {
    /// API group; empty for core.
    pub group: S,
    /// API version.
    pub version: S,
    /// Plural name, such as `pods`.
    pub resource: S,
}

/// What is done to the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// CREATE
    Create,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// An operation of a later Kubernetes (C-11).
    #[default]
    Unknown,
}

/// The user who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo<S = String> {
    /// Name, such as `system:serviceaccount:shop:checkout`.
    pub username: S,
    /// Unique id.
    pub uid: S,
    /// Groups.
    pub groups: Vec<S>,
    /// Further facts from the authenticator.
    pub extra: BTreeMap<S, Vec<S>>,
}

/// A request to the API server, without the objects (C-12 lists the fields).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request<S = String> {
    /// Identifies the review.
    pub uid: S,
    /// Kind of the object as sent, after a conversion.
    pub kind: GroupVersionKind<S>,
    /// Resource as the registration matched it.
    pub resource: GroupVersionResource<S>,
    /// Subresource as the registration matched it; empty for none.
    pub sub_resource: S,
    /// Kind of the original request, before a conversion.
    pub request_kind: Option<GroupVersionKind<S>>,
    /// Resource of the original request, before a conversion.
    pub request_resource: Option<GroupVersionResource<S>>,
    /// Subresource of the original request; empty for none.
    pub request_sub_resource: S,
    /// Name of the object; empty where it is yet to be generated.
    pub name: S,
    /// Namespace of the request, which the object itself may lack; empty for cluster-scoped resources.
    pub namespace: S,
    /// What is done.
    pub operation: Operation,
    /// The user who asks.
    pub user_info: UserInfo<S>,
    /// True when nothing will be stored.
    pub dry_run: bool,
}

impl Operation {
    /// Every operation, [`Operation::Unknown`] last, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Create, Self::Update, Self::Delete, Self::Connect, Self::Unknown];

    /// The operation as Kubernetes spells it; empty for [`Operation::Unknown`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Unknown => "",
        }
    }
}

impl From<&str> for Operation {
    fn from(text: &str) -> Self {
        Self::ALL.into_iter().find(|known| known.as_str() == text).unwrap_or_default()
    }
}

impl GroupVersionKind {
    /// Group and version in one: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl<S: fmt::Display> fmt::Display for GroupVersionKind<S> {
    /// As the API server's messages have it: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl UserInfo {
    /// The user that a service account is.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            username: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
            ..Self::default()
        }
    }
}

impl Request {
    /// Returns whether the request is for core pods themselves, or for one of their subresources.
    pub fn is_pod(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "pods"
    }

    /// Returns whether the request is for a Namespace.
    pub fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }

    /// The request as it would be for another version of the same object. What was asked for stays known.
    #[must_use]
    pub fn converted(&self, resource: GroupVersionResource, kind: GroupVersionKind) -> Self {
        let asked = self.request_resource.is_some();
        Self {
            request_kind: Some(self.request_kind.as_ref().unwrap_or(&self.kind).clone()),
            request_resource: Some(self.request_resource.as_ref().unwrap_or(&self.resource).clone()),
            request_sub_resource: if asked { &self.request_sub_resource } else { &self.sub_resource }.clone(),
            kind,
            resource,
            ..self.clone()
        }
    }
}

impl<S: Into<String>> GroupVersionKind<S> {
    /// The same with strings of its own.
    pub fn into_owned(self) -> GroupVersionKind {
        GroupVersionKind { group: self.group.into(), version: self.version.into(), kind: self.kind.into() }
    }
}

impl<S: Into<String>> GroupVersionResource<S> {
    /// The same with strings of its own.
    pub fn into_owned(self) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.into(),
            version: self.version.into(),
            resource: self.resource.into(),
        }
    }
}

impl<S: Into<String>> UserInfo<S> {
    /// The same with strings of its own.
    pub fn into_owned(self) -> UserInfo {
        let owned = |strings: Vec<S>| strings.into_iter().map(Into::into).collect();
        UserInfo {
            username: self.username.into(),
            uid: self.uid.into(),
            groups: owned(self.groups),
            extra: self.extra.into_iter().map(|(key, values)| (key.into(), owned(values))).collect(),
        }
    }
}

impl<S: Into<String>> Request<S> {
    /// The same with strings of its own.
    pub fn into_owned(self) -> Request {
        Request {
            uid: self.uid.into(),
            kind: self.kind.into_owned(),
            resource: self.resource.into_owned(),
            sub_resource: self.sub_resource.into(),
            request_kind: self.request_kind.map(GroupVersionKind::into_owned),
            request_resource: self.request_resource.map(GroupVersionResource::into_owned),
            request_sub_resource: self.request_sub_resource.into(),
            name: self.name.into(),
            namespace: self.namespace.into(),
            operation: self.operation,
            user_info: self.user_info.into_owned(),
            dry_run: self.dry_run,
        }
    }
}
