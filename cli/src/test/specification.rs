//! `suite.yaml`: what its author writes.
//!
//! Everything is strict, for a case that is misread may pass: a field that is not known, a value of another
//! type and an expectation that contradicts another are errors, with line and column.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sallyport_policy::AuthorizerTable;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::input::manifest::Operation;

/// Most cases of a suite.
const MAX_CASES: usize = 10_000;

/// Why a suite cannot be run as it is written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecificationError {
    /// It has no cases.
    #[error("the suite has no cases")]
    NoCases,
    /// It has too many cases.
    #[error("the suite has more than {MAX_CASES} cases")]
    TooManyCases,
    /// A case makes no sense.
    #[error("line {line} column {column}: case {name:?}: {problem}")]
    Case {
        /// Where it is.
        line: u64,
        /// Where it is.
        column: u64,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: CaseError,
    },
}

/// What is wrong with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CaseError {
    #[error("the name is empty")]
    Unnamed,
    #[error("another case has this name")]
    SameName,
    #[error("it has neither manifest nor request")]
    NoRequest,
    #[error("it has both manifest and request")]
    TwoRequests,
    #[error("an UPDATE needs old, the object as it was")]
    NoOld,
    #[error("only an UPDATE has old")]
    NeedlessOld,
    #[error("the request says it all: {0} cannot stand beside it")]
    BesideRequest(&'static str),
    #[error("it expects nothing: say at least whether it is allowed")]
    ExpectsNothing,
    #[error("an allowed request has no {0}")]
    OnlyDenied(&'static str),
    #[error("a denied request has no object: {0} cannot be looked at")]
    OnlyAllowed(&'static str),
    #[error("what is deleted has no object afterwards")]
    Deleted,
    #[error("an unchanged object need not be written down again")]
    Unchanged,
}

/// A suite.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Specification {
    /// Files and directories; `None` for the files beside the suite.
    #[serde(default, deserialize_with = "given")]
    pub(crate) policies: Option<Vec<String>>,
    /// Objects that exist.
    #[serde(default, deserialize_with = "given")]
    pub(crate) objects: Option<Vec<Document>>,
    /// What users may do; nobody can be asked unless it is there.
    #[serde(default, deserialize_with = "given")]
    pub(crate) authorizer: Option<AuthorizerTable>,
    pub(crate) cases: Vec<Spanned<Case>>,
}

/// A request and what is to come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The object as its author writes it.
    #[serde(default, deserialize_with = "given")]
    pub(crate) manifest: Option<Document>,
    /// A JSON merge patch over the manifest.
    #[serde(default, deserialize_with = "given")]
    pub(crate) patch: Option<Value>,
    /// The object as it was, for UPDATE.
    #[serde(default, deserialize_with = "given")]
    pub(crate) old: Option<Document>,
    /// In place of all that follows: an AdmissionReview, or what it has under `request`.
    #[serde(default, deserialize_with = "given")]
    pub(crate) request: Option<Document>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) operation: Option<Operation>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) user: Option<User>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) namespace: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) sub_resource: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) dry_run: Option<bool>,
    /// Objects that exist besides those of the suite.
    #[serde(default, deserialize_with = "given")]
    pub(crate) objects: Option<Vec<Document>>,
    /// What users may do, in place of what the suite says of it.
    #[serde(default, deserialize_with = "given")]
    pub(crate) authorizer: Option<AuthorizerTable>,
    pub(crate) expect: Expectation,
}

/// Who asks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct User {
    #[serde(deserialize_with = "given")]
    pub(crate) username: Option<String>,
    #[serde(deserialize_with = "given")]
    pub(crate) uid: Option<String>,
    #[serde(deserialize_with = "given")]
    pub(crate) groups: Option<Vec<String>>,
    #[serde(deserialize_with = "given")]
    pub(crate) extra: Option<BTreeMap<String, Vec<String>>>,
}

/// What is to come of a request. What is not said is not looked at, but for `errors` and `changesAgain`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub(crate) struct Expectation {
    #[serde(deserialize_with = "given")]
    pub(crate) allowed: Option<bool>,
    #[serde(deserialize_with = "given")]
    pub(crate) code: Option<u16>,
    #[serde(deserialize_with = "given")]
    pub(crate) reason: Option<String>,
    #[serde(deserialize_with = "given")]
    pub(crate) message: Option<Text>,
    /// All of them, in order.
    #[serde(deserialize_with = "given")]
    pub(crate) causes: Option<Vec<Cause>>,
    /// All of them, in order.
    #[serde(deserialize_with = "given")]
    pub(crate) warnings: Option<Vec<Text>>,
    /// All of them.
    #[serde(deserialize_with = "given")]
    pub(crate) audit_annotations: Option<BTreeMap<String, Text>>,
    /// The object as it leaves the policies, whole.
    #[serde(deserialize_with = "given")]
    pub(crate) object: Option<Document>,
    /// A part of it.
    #[serde(deserialize_with = "given")]
    pub(crate) object_contains: Option<Document>,
    /// Whether no policy changes the object.
    #[serde(deserialize_with = "given")]
    pub(crate) unchanged: Option<bool>,
    /// A second run over the result changes it again.
    #[serde(deserialize_with = "given")]
    pub(crate) changes_again: Option<bool>,
    /// The policies that cannot be evaluated: all of them, and none if this is absent.
    #[serde(deserialize_with = "given")]
    pub(crate) errors: Option<BTreeSet<String>>,
}

/// An offender that a denial names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cause {
    #[serde(default, deserialize_with = "given")]
    pub(crate) field: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) message: Option<Text>,
    #[serde(default, deserialize_with = "given")]
    pub(crate) reason: Option<String>,
}

/// A text that is to be found: the whole, or a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    Exact(String),
    Contains(String),
}

impl Text {
    pub(crate) fn fits(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Contains(part) => text.contains(part),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => formatter.write_str(text),
            Self::Contains(part) => write!(formatter, "… {part} …"),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Part {
            contains: String,
        }
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string, or {contains: string}")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text::Exact(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                let Part { contains } = Part::deserialize(MapAccessDeserializer::new(map))?;
                if contains.is_empty() {
                    return Err(A::Error::custom("every text contains the empty one"));
                }
                Ok(Text::Contains(contains))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A document: the name of its file, relative to the suite, or itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    File(String),
    Inline(Value),
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DocumentVisitor;
        impl<'de> Visitor<'de> for DocumentVisitor {
            type Value = Document;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the name of a file, or an object")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Document, E> {
                if name.is_empty() {
                    return Err(E::custom("the name of the file is empty"));
                }
                Ok(Document::File(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Document, A::Error> {
                Value::deserialize(MapAccessDeserializer::new(map)).map(Document::Inline)
            }
        }
        deserializer.deserialize_any(DocumentVisitor)
    }
}

/// What is written is there: a null is a value of the wrong type, not an absence.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    // Asked for as an option, since a null is also taken for an empty list or map.
    let value = Option::<T>::deserialize(deserializer)?;
    if value.is_none() {
        return Err(D::Error::custom("null stands for nothing here: leave the field out"));
    }
    Ok(value)
}

impl Specification {
    /// What is wrong with it, beyond the types of fields.
    pub(crate) fn check(&self) -> Result<(), SpecificationError> {
        if self.cases.is_empty() {
            return Err(SpecificationError::NoCases);
        }
        if self.cases.len() > MAX_CASES {
            return Err(SpecificationError::TooManyCases);
        }
        let mut names = BTreeSet::new();
        for case in &self.cases {
            let problem = if case.value.name.trim().is_empty() {
                Err(CaseError::Unnamed)
            } else if !names.insert(case.value.name.as_str()) {
                Err(CaseError::SameName)
            } else {
                case.value.check()
            };
            problem.map_err(|problem| SpecificationError::Case {
                line: case.referenced.line(),
                column: case.referenced.column(),
                name: case.value.name.clone(),
                problem,
            })?;
        }
        Ok(())
    }
}

impl Case {
    fn check(&self) -> Result<(), CaseError> {
        let is_update = self.operation == Some(Operation::Update);
        match (&self.manifest, &self.request) {
            (None, None) => return Err(CaseError::NoRequest),
            (Some(_), Some(_)) => return Err(CaseError::TwoRequests),
            (Some(_), None) if is_update && self.old.is_none() => {
                return Err(CaseError::NoOld);
            }
            (Some(_), None) if !is_update && self.old.is_some() => {
                return Err(CaseError::NeedlessOld);
            }
            (Some(_), None) => {}
            (None, Some(_)) => {
                let others = [
                    ("patch", self.patch.is_some()),
                    ("old", self.old.is_some()),
                    ("operation", self.operation.is_some()),
                    ("user", self.user.is_some()),
                    ("namespace", self.namespace.is_some()),
                    ("subResource", self.sub_resource.is_some()),
                    ("dryRun", self.dry_run.is_some()),
                ];
                if let Some((name, _)) = others.into_iter().find(|(_, given)| *given) {
                    return Err(CaseError::BesideRequest(name));
                }
            }
        }
        self.expect.check(self.operation)
    }
}

impl Expectation {
    /// Whether the request is to be allowed: as it is said, or as what else is said implies.
    pub(crate) fn is_allowed(&self) -> bool {
        self.allowed.unwrap_or_else(|| self.of_denial().is_none())
    }

    /// Something that only a denial has.
    fn of_denial(&self) -> Option<&'static str> {
        let fields = [
            ("code", self.code.is_some()),
            ("reason", self.reason.is_some()),
            ("message", self.message.is_some()),
            ("causes", self.causes.is_some()),
        ];
        fields.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Something that only an allowed request has.
    fn of_object(&self) -> Option<&'static str> {
        let fields = [
            ("object", self.object.is_some()),
            ("objectContains", self.object_contains.is_some()),
            ("unchanged", self.unchanged.is_some()),
        ];
        fields.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    fn check(&self, operation: Option<Operation>) -> Result<(), CaseError> {
        let said = self.allowed.is_some()
            || self.of_denial().is_some()
            || self.of_object().is_some()
            || self.warnings.is_some()
            || self.audit_annotations.is_some()
            || self.errors.is_some()
            || self.changes_again.is_some();
        if !said {
            return Err(CaseError::ExpectsNothing);
        }
        if let (true, Some(field)) = (self.is_allowed(), self.of_denial()) {
            return Err(CaseError::OnlyDenied(field));
        }
        if let (false, Some(field)) = (self.is_allowed(), self.of_object()) {
            return Err(CaseError::OnlyAllowed(field));
        }
        let changed = self.object.is_some() || self.object_contains.is_some();
        if operation == Some(Operation::Delete) && changed {
            return Err(CaseError::Deleted);
        }
        if self.unchanged == Some(true) && changed {
            return Err(CaseError::Unchanged);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Specification, Text};
    use crate::input::manifest;

    const HEAD: &str = "cases:\n- name: a\n  manifest: pod.yaml\n";

    fn problem(text: &str) -> String {
        match manifest::parse_as::<Specification>(text) {
            Err(error) => error.to_string(),
            Ok(specification) => specification.check().expect_err(text).to_string(),
        }
    }

    #[test]
    fn a_typo_is_an_error_with_its_place() {
        for (text, messages) in [
            ("cases: []", &["no cases"] as &[&str]),
            ("{}", &["cases"]),
            ("", &[]),
            ("case: []", &["case", "line 1"]),
            ("cases:\n- name: a\n  manifst: x\n", &["manifst", "line 3"]),
            ("cases:\n- manifest: x\n  expect: {allowed: true}\n", &["name"]),
            ("cases:\n- name: a\n  expect: {allowed: true}\n", &["neither manifest nor request", "line 2"]),
            (HEAD, &["expect"]),
            (&format!("{HEAD}  expect: {{}}\n"), &["expects nothing", "line 2"]),
            (&format!("{HEAD}  expect: {{alowed: true}}\n"), &["alowed", "line 4"]),
            (&format!("{HEAD}  expect: {{allowed: yes}}\n"), &["line 4"]),
            (&format!("{HEAD}  expect: {{allowed: }}\n"), &["line 4"]),
            (&format!("{HEAD}  expect: {{message: }}\n"), &["line 4"]),
            (&format!("{HEAD}  expect: {{object: }}\n"), &["line 4"]),
            (&format!("{HEAD}  expect: {{message: {{contain: x}}}}\n"), &["contain", "line 4"]),
            (&format!("{HEAD}  expect: {{message: {{contains: ''}}}}\n"), &["empty"]),
            (&format!("{HEAD}  expect: {{allowed: true, code: 403}}\n"), &["has no code"]),
            (&format!("{HEAD}  expect: {{code: 403, unchanged: true}}\n"), &["has no object"]),
            (&format!("{HEAD}  expect: {{unchanged: true, object: x.yaml}}\n"), &["written down again"]),
            (&format!("{HEAD}  operation: DELETE\n  expect: {{object: x.yaml}}\n"), &["deleted"]),
            (&format!("{HEAD}  operation: create\n  expect: {{allowed: true}}\n"), &["create", "line 4"]),
            (&format!("{HEAD}  operation: UPDATE\n  expect: {{allowed: true}}\n"), &["needs old"]),
            (&format!("{HEAD}  old: x.yaml\n  expect: {{allowed: true}}\n"), &["only an UPDATE"]),
            (&format!("{HEAD}  request: x.yaml\n  expect: {{allowed: true}}\n"), &["both"]),
            (
                "cases:\n- name: a\n  request: x.yaml\n  namespace: b\n  expect: {allowed: true}\n",
                &["namespace cannot"],
            ),
            (
                &format!(
                    "{HEAD}  expect: {{allowed: true}}\n- {{name: a, manifest: b, expect: {{allowed: true}}}}\n"
                ),
                &["another case", "line 5"],
            ),
            (&format!("{HEAD}  name: b\n  expect: {{allowed: true}}\n"), &["line 4"]),
            (&format!("authorizer: {{alow: []}}\n{HEAD}  expect: {{allowed: true}}\n"), &["alow", "line 1"]),
            (&format!("authorizer:\n{HEAD}  expect: {{allowed: true}}\n"), &["line 1"]),
            (&format!("{HEAD}  authorizer: []\n  expect: {{allowed: true}}\n"), &["line 4"]),
            // A rule without members, or with one that fits anything, allows everything.
            (
                &format!("{HEAD}  authorizer: {{allow: [{{user: }}]}}\n  expect: {{allowed: true}}\n"),
                &["line 4"],
            ),
            (&format!("{HEAD}  authorizer:\n    allow:\n    -\n  expect: {{allowed: true}}\n"), &["line 6"]),
            (
                &format!("{HEAD}  authorizer: {{allow: [{{users: a}}]}}\n  expect: {{allowed: true}}\n"),
                &["users", "line 4"],
            ),
        ] {
            let problem = problem(text);
            for message in messages {
                assert!(problem.contains(message), "{text}\n{message}: {problem}");
            }
        }
    }

    #[test]
    fn texts_are_whole_or_parts() {
        for (expected, text, fits) in [
            ("a b", "a b", true),
            ("a", "a b", false),
            ("{contains: a}", "a b", true),
            ("{contains: c}", "a b", false),
        ] {
            let expected: Text = manifest::parse_as(expected).unwrap();
            assert_eq!(expected.fits(text), fits, "{expected:?}");
        }
    }
}
