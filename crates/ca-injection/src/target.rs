//! What may be injected into: objects that a flag names.

use std::fmt;
use std::str::FromStr;

use kube::api::{ApiResource, GroupVersionKind};
use sallyport_pki::names::dns_subdomain;

/// A kind of object that has a `caBundle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
    /// `CustomResourceDefinition`, whose conversion may be a webhook.
    Definition,
    /// `APIService`, which may be served by a Service.
    ApiService,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Mutating, Self::Validating, Self::Definition, Self::ApiService];

    /// The kind's name in objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Definition => "CustomResourceDefinition",
            Self::ApiService => "APIService",
        }
    }

    /// The kind's group and version in objects.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Mutating | Self::Validating => "admissionregistration.k8s.io/v1",
            Self::Definition => "apiextensions.k8s.io/v1",
            Self::ApiService => "apiregistration.k8s.io/v1",
        }
    }

    /// The resource, in plural.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
            Self::Definition => "customresourcedefinitions",
            Self::ApiService => "apiservices",
        }
    }

    /// The word for it in flags and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfiguration",
            Self::Validating => "validatingwebhookconfiguration",
            Self::Definition => "crd",
            Self::ApiService => "apiservice",
        }
    }

    /// Finds a kind by what a person may call it.
    fn named(word: &str) -> Option<Self> {
        let singular = word.strip_suffix('s').unwrap_or(word);
        Self::ALL.into_iter().find(|kind| {
            singular.eq_ignore_ascii_case(kind.word()) || singular.eq_ignore_ascii_case(kind.kind())
        })
    }

    pub(crate) fn api_resource(self) -> ApiResource {
        let (group, version) = self.api_version().split_once('/').unwrap_or(("", self.api_version()));
        let gvk = GroupVersionKind::gvk(group, version, self.kind());
        ApiResource::from_gvk_with_plural(&gvk, self.resource())
    }
}

/// An object that may be injected into. Shown as the flag spells it and as metrics label it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.name)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, name) = text.split_once('/').ok_or("use KIND/NAME, such as crd/widgets.example.com")?;
        let kind = Kind::named(word).ok_or_else(|| {
            let words = Kind::ALL.map(Kind::word).join(", ");
            format!("{word:?} has no caBundle; there are {words}")
        })?;
        dns_subdomain("the object's name", name).map_err(|error| error.to_string())?;
        Ok(Self { kind, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_kind_and_a_name_r13() {
        for (text, wanted) in [
            ("crd/a.b.c", Some("crd/a.b.c")),
            ("crds/a.b.c", Some("crd/a.b.c")),
            ("customresourcedefinition/a.b.c", Some("crd/a.b.c")),
            ("CustomResourceDefinition/a.b.c", Some("crd/a.b.c")),
            ("apiservice/v1.a.b", Some("apiservice/v1.a.b")),
            ("apiservices/v1.a.b", Some("apiservice/v1.a.b")),
            ("mutatingwebhookconfigurations/m", Some("mutatingwebhookconfiguration/m")),
            ("validatingwebhookconfiguration/v", Some("validatingwebhookconfiguration/v")),
            ("secret/s", None),
            ("crd/", None),
            ("crd", None),
            ("", None),
            ("/a", None),
            ("crd/a/b", None),
            ("crd/Upper", None),
            ("crdss/a", None),
        ] {
            let target = text.parse::<Target>();
            assert_eq!(target.ok().map(|target| target.to_string()).as_deref(), wanted, "{text:?}");
        }
    }
}
