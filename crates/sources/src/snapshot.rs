//! What a source held at one moment, and what was wrong with it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use sallyport_api::{
    AdmissionObject, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutationPolicy,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidationPolicy,
};
use serde_json::Value;

/// The kinds of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// Changes objects.
    MutationPolicy,
    /// Accepts or refuses objects.
    ValidationPolicy,
    /// The API server's own that changes objects.
    MutatingAdmissionPolicy,
    /// Puts such a policy in force.
    MutatingAdmissionPolicyBinding,
    /// The API server's own that accepts or refuses objects.
    ValidatingAdmissionPolicy,
    /// Puts such a policy in force.
    ValidatingAdmissionPolicyBinding,
}

impl PolicyKind {
    /// The kind as manifests spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MutationPolicy => "MutationPolicy",
            Self::ValidationPolicy => "ValidationPolicy",
            Self::MutatingAdmissionPolicy => "MutatingAdmissionPolicy",
            Self::MutatingAdmissionPolicyBinding => "MutatingAdmissionPolicyBinding",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::ValidatingAdmissionPolicyBinding => "ValidatingAdmissionPolicyBinding",
        }
    }
}

/// A policy's identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId {
    /// Its kind.
    pub kind: PolicyKind,
    /// Its `metadata.name`.
    pub name: String,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.as_str(), self.name)
    }
}

/// How much of the source a problem makes unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One policy, whose name could be read.
    Policy(PolicyId),
    /// Something in one file; which policies, nobody can tell.
    File,
    /// An unknown number of files.
    Directory,
}

/// Something in the source that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, relative to the directory; the directory itself for [`Scope::Directory`].
    pub file: Arc<str>,
    /// Which document of the file, from 1; 0 when it is about the whole file.
    pub document: usize,
    /// Line and column in the file, both from 1, when known.
    pub position: Option<(u64, u64)>,
    /// What is affected.
    pub scope: Scope,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.file)?;
        if let Some((line, column)) = self.position {
            write!(formatter, ":{line}:{column}")?;
        } else if self.document > 0 {
            write!(formatter, ": document {}", self.document)?;
        }
        if let Scope::Policy(policy) = &self.scope {
            write!(formatter, ": {policy}")?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// An object and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    /// The file, relative to the directory.
    pub file: Arc<str>,
    /// True when this is the last good form, because the present one cannot be used.
    pub stale: bool,
    /// The object.
    pub object: T,
}

/// What a source held at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Mutation policies by name.
    pub mutations: Vec<Entry<MutationPolicy>>,
    /// Validation policies by name.
    pub validations: Vec<Entry<ValidationPolicy>>,
    /// The API server's own mutating policies by name.
    pub mutating_policies: Vec<Entry<MutatingAdmissionPolicy>>,
    /// What puts them in force, by name.
    pub mutating_bindings: Vec<Entry<MutatingAdmissionPolicyBinding>>,
    /// The API server's own validating policies by name.
    pub validating_policies: Vec<Entry<ValidatingAdmissionPolicy>>,
    /// What puts them in force, by name.
    pub validating_bindings: Vec<Entry<ValidatingAdmissionPolicyBinding>>,
    /// Namespace objects by name, for selectors on namespaces without a cluster.
    pub namespaces: Vec<Entry<Value>>,
    /// All other objects, each once by apiVersion, kind, namespace and name: what policies take their settings
    /// from, and `CustomResourceDefinition` objects.
    pub objects: Vec<Entry<Value>>,
    /// What cannot be used, in the order of files.
    pub problems: Vec<Problem>,
    /// SHA-256 over names and contents of the files; equal digests mean equal sources.
    pub digest: [u8; 32],
}

impl Snapshot {
    /// The digest in lower-case hexadecimal, for people to compare.
    pub fn digest_hex(&self) -> String {
        self.digest.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Policies of a kind whose present form cannot be used and that have no earlier good form either.
    pub fn unusable(&self, kind: PolicyKind) -> BTreeSet<&str> {
        self.problems
            .iter()
            .filter_map(|problem| match &problem.scope {
                Scope::Policy(policy) if policy.kind == kind => Some(policy.name.as_str()),
                _ => None,
            })
            .filter(|name| !self.holds(kind, name))
            .collect()
    }

    fn holds(&self, kind: PolicyKind, name: &str) -> bool {
        fn named<T: Named>(entries: &[Entry<T>], name: &str) -> bool {
            entries.iter().any(|entry| entry.object.name() == name)
        }
        match kind {
            PolicyKind::MutationPolicy => named(&self.mutations, name),
            PolicyKind::ValidationPolicy => named(&self.validations, name),
            PolicyKind::MutatingAdmissionPolicy => named(&self.mutating_policies, name),
            PolicyKind::MutatingAdmissionPolicyBinding => named(&self.mutating_bindings, name),
            PolicyKind::ValidatingAdmissionPolicy => named(&self.validating_policies, name),
            PolicyKind::ValidatingAdmissionPolicyBinding => named(&self.validating_bindings, name),
        }
    }
}

/// An object with a name, as all sources' objects have.
pub(crate) trait Named {
    /// `metadata.name`, or the empty string.
    fn name(&self) -> &str;

    /// What tells it from others of its list.
    fn identity(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.name())
    }
}

impl Named for MutationPolicy {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl Named for ValidationPolicy {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl<S> Named for AdmissionObject<S> {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl Named for Value {
    fn name(&self) -> &str {
        self.pointer("/metadata/name").and_then(Self::as_str).unwrap_or_default()
    }

    fn identity(&self) -> Cow<'_, str> {
        let text = |pointer| self.pointer(pointer).and_then(Self::as_str).unwrap_or_default();
        let parts = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(text);
        // None of the parts of a valid object has a blank in it.
        Cow::Owned(parts.join(" "))
    }
}
