//! Documents of one file: splitting, and reading each as what it says it is.

use std::borrow::Cow;

use sallyport_api::{
    ADMISSION_GROUP, GROUP, MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutationPolicy, VERSION,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidationPolicy,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::snapshot::{Named, PolicyId, PolicyKind};

/// Most events that the aliases of one document may expand to: a policy has no use for more, and a bomb needs
/// millions.
const MAX_ALIAS_EVENTS: usize = 10_000;
/// Deepest nesting of a document. Kubernetes' own objects stay below thirty.
const MAX_DEPTH: usize = 64;
/// Most nodes of a document; about ten times what a file of the largest size usefully holds.
const MAX_NODES: usize = 200_000;

/// One document as it stands in its file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    /// Lines of the file before it.
    pub(crate) lines_before: u64,
}

/// An object that this crate gives on.
#[derive(Debug)]
pub(crate) enum Object {
    Mutation(Box<MutationPolicy>),
    Validation(Box<ValidationPolicy>),
    Mutating(Box<MutatingAdmissionPolicy>),
    MutatingBinding(Box<MutatingAdmissionPolicyBinding>),
    Validating(Box<ValidatingAdmissionPolicy>),
    ValidatingBinding(Box<ValidatingAdmissionPolicyBinding>),
    Namespace(Value),
    /// Anything else with a name.
    Other(Value),
}

/// Why a document cannot be used.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The policy that it was to define, where that can be read.
    pub(crate) policy: Option<PolicyId>,
    /// Line and column in the file.
    pub(crate) position: Option<(u64, u64)>,
    pub(crate) message: String,
}

/// Splits a file at its `---` lines. YAML allows `---` at the start of a line nowhere else.
pub(crate) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut start_line) = (0, 0);
    let (mut offset, mut line) = (0, 0);
    for content in text.split_inclusive('\n') {
        if is_separator(content) && offset > start {
            documents.push(Document { text: &text[start..offset], lines_before: start_line });
            (start, start_line) = (offset, line);
        }
        offset += content.len();
        line += 1;
    }
    documents.push(Document { text: &text[start..], lines_before: start_line });
    documents.retain(|document| !is_blank(document.text));
    documents
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r']))
}

fn is_blank(document: &str) -> bool {
    document.lines().all(|line| {
        let content = line.strip_prefix("---").unwrap_or(line).trim();
        content.is_empty() || content.starts_with('#') || content == "..."
    })
}

/// Reads a document. `Ok(None)` for what has no name and is no policy, such as a manifest with `generateName`.
pub(crate) fn read(document: &Document<'_>) -> Result<Option<Object>, Fault> {
    let value: Value = parse(document, None)?;
    let Some(members) = value.as_object() else {
        return Err(Fault::plain("this is not an object with apiVersion and kind"));
    };
    let member = |name: &str| members.get(name).and_then(Value::as_str);
    let (Some(api_version), Some(kind)) = (member("apiVersion"), member("kind")) else {
        return Err(Fault::plain("an object needs apiVersion and kind, both strings"));
    };
    if (api_version, kind) == ("v1", "Namespace") {
        if value.name().is_empty() {
            return Err(Fault::plain("a Namespace needs metadata.name"));
        }
        return Ok(Some(Object::Namespace(value)));
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let Some(kind) = PolicyKind::of(group, kind) else {
        if value.name().is_empty() {
            tracing::debug!(
                api_version,
                kind,
                "document is neither a policy nor an object with a name, ignored"
            );
            return Ok(None);
        }
        return Ok(Some(Object::Other(value)));
    };
    let name = value.name();
    if !is_dns_subdomain(name) {
        return Err(Fault::plain(format!(
            "a {} needs a metadata.name of lower-case letters, digits, '-' and '.', at most 253 characters",
            kind.as_str()
        )));
    }
    let id = PolicyId { kind, name: name.to_owned() };
    let versions = kind.versions();
    if !versions.contains(&version) {
        let known: Vec<String> = versions.iter().map(|version| format!("{group}/{version}")).collect();
        return Err(Fault::of(id, format!("{group}/{version} is not known, use {}", known.join(" or "))));
    }
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    if let Some(unknown) = members.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(Fault::of(id, format!("unknown field {unknown:?} next to spec")));
    }
    Ok(Some(match kind {
        PolicyKind::MutationPolicy => Object::Mutation(parse(document, Some(&id))?),
        PolicyKind::ValidationPolicy => Object::Validation(parse(document, Some(&id))?),
        PolicyKind::MutatingAdmissionPolicy => Object::Mutating(parse(document, Some(&id))?),
        PolicyKind::MutatingAdmissionPolicyBinding => Object::MutatingBinding(parse(document, Some(&id))?),
        PolicyKind::ValidatingAdmissionPolicy => Object::Validating(parse(document, Some(&id))?),
        PolicyKind::ValidatingAdmissionPolicyBinding => {
            Object::ValidatingBinding(parse(document, Some(&id))?)
        }
    }))
}

impl PolicyKind {
    /// The kind of policy that manifests call so; `None` for other kinds, and for ours in other groups.
    fn of(group: &str, kind: &str) -> Option<Self> {
        let ours = [Self::MutationPolicy, Self::ValidationPolicy];
        let theirs = [
            Self::MutatingAdmissionPolicy,
            Self::MutatingAdmissionPolicyBinding,
            Self::ValidatingAdmissionPolicy,
            Self::ValidatingAdmissionPolicyBinding,
        ];
        let kinds: &[Self] = match group {
            GROUP => &ours,
            ADMISSION_GROUP => &theirs,
            _ => return None,
        };
        kinds.iter().copied().find(|known| known.as_str() == kind)
    }

    /// The versions that can be read, the newest first.
    fn versions(self) -> &'static [&'static str] {
        match self {
            Self::MutationPolicy | Self::ValidationPolicy => &[VERSION],
            Self::MutatingAdmissionPolicy | Self::MutatingAdmissionPolicyBinding => {
                &["v1", "v1beta1", "v1alpha1"]
            }
            Self::ValidatingAdmissionPolicy | Self::ValidatingAdmissionPolicyBinding => &["v1", "v1beta1"],
        }
    }
}

impl Fault {
    fn plain(message: impl Into<String>) -> Self {
        Self { policy: None, position: None, message: message.into() }
    }

    fn of(policy: PolicyId, message: String) -> Self {
        Self { policy: Some(policy), position: None, message }
    }
}

fn parse<T: DeserializeOwned>(document: &Document<'_>, policy: Option<&PolicyId>) -> Result<T, Fault> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        // As in YAML 1.2: a label `y` or `on` is text, as its author meant it.
        strict_booleans: true,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(document.text, options).map_err(|error| {
        let position = error
            .location()
            .filter(|location| location.line() > 0)
            .map(|location| (location.line() + document.lines_before, location.column()));
        Fault { policy: policy.cloned(), position, message: describe(&error) }
    })
}

/// The error without its place, which would be relative to the document.
fn describe(error: &serde_saphyr::Error) -> String {
    let mut options = serde_saphyr::RenderOptions::new(&Placeless);
    options.snippets = serde_saphyr::SnippetMode::Off;
    error.render_with_options(options)
}

/// Messages that leave the place to [`Fault::position`].
struct Placeless;

impl serde_saphyr::MessageFormatter for Placeless {
    fn localizer(&self) -> &dyn serde_saphyr::Localizer {
        self
    }

    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        serde_saphyr::DefaultMessageFormatter.format_message(error)
    }
}

impl serde_saphyr::Localizer for Placeless {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: serde_saphyr::Location) -> Cow<'a, str> {
        base
    }

    fn alias_defined_at(&self, _: serde_saphyr::Location) -> String {
        String::new()
    }

    fn alias_used_at(&self, _: serde_saphyr::Location) -> String {
        String::new()
    }
}

/// RFC 1123 subdomain: what Kubernetes demands of the names of such objects.
fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            label.bytes().all(|byte| inner(byte) || byte == b'-')
                && label.bytes().next().is_some_and(inner)
                && label.bytes().next_back().is_some_and(inner)
        })
}

#[cfg(test)]
mod tests {
    use super::{Document, is_dns_subdomain, read, split};

    #[test]
    fn files_split_at_separators_only_and_keep_their_line_numbers() {
        let rows: &[(&str, &[(&str, u64)])] = &[
            ("", &[]),
            ("# only a comment\n---\n---\n", &[]),
            ("a: 1", &[("a: 1", 0)]),
            ("\u{feff}a: 1\n", &[("a: 1\n", 0)]),
            ("a: 1\n---\nb: 2\n", &[("a: 1\n", 0), ("---\nb: 2\n", 1)]),
            ("---\na: 1\n--- # two\nb: 2\n", &[("---\na: 1\n", 0), ("--- # two\nb: 2\n", 2)]),
            ("a: 1\r\n---\r\nb: 2\r\n", &[("a: 1\r\n", 0), ("---\r\nb: 2\r\n", 1)]),
            ("a: |\n  ---\n  x\n", &[("a: |\n  ---\n  x\n", 0)]),
            ("a: 1\n----\n", &[("a: 1\n----\n", 0)]),
        ];
        for (text, expected) in rows {
            let expected: Vec<_> =
                expected.iter().map(|&(text, lines_before)| Document { text, lines_before }).collect();
            assert_eq!(split(text), expected, "{text:?}");
        }
    }

    #[test]
    fn faults_tell_line_column_and_policy() {
        let head = "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata: {name: a}\n";
        let rows = [
            ("a: [1", None, true, ""),
            ("- 1", None, false, "not an object"),
            ("just text", None, false, "not an object"),
            ("kind: MutationPolicy", None, false, "apiVersion and kind"),
            ("apiVersion: 1\nkind: Pod", None, false, "apiVersion and kind"),
            ("apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy", None, false, "metadata.name"),
            (
                "apiVersion: sallyport.dev/v9\nkind: MutationPolicy\nmetadata: {name: a}",
                Some("a"),
                false,
                "v9",
            ),
            ("apiVersion: v1\nkind: Namespace", None, false, "metadata.name"),
            (&format!("{head}spce: {{}}\n"), Some("a"), false, "spce"),
            (&format!("{head}spec: {{matchConstraint: {{}}}}\n"), Some("a"), true, "matchConstraint"),
            (&format!("{head}spec: {{}}\nspec: {{}}\n"), None, true, "duplicate"),
        ];
        for (text, policy, positioned, message) in rows {
            let fault = read(&Document { text, lines_before: 10 }).unwrap_err();
            assert_eq!(fault.policy.as_ref().map(|id| id.name.as_str()), policy, "{text}: {fault:?}");
            assert_eq!(fault.position.is_some(), positioned, "{text}: {fault:?}");
            assert!(fault.position.is_none_or(|(line, _)| line > 10), "{text}: {fault:?}");
            assert!(fault.message.contains(message), "{text}: {fault:?}");
            assert!(!fault.message.contains("line "), "the place is told once: {fault:?}");
        }
    }

    #[test]
    fn bombs_and_towers_are_refused_quickly() {
        let layer = |level: usize| {
            let aliases = vec![format!("*a{}", level - 1); 10].join(",");
            format!("a{level}: &a{level} [{aliases}]\n")
        };
        let bomb = format!("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n{}", (1..12).map(layer).collect::<String>());
        let rows =
            [bomb, "[".repeat(100_000), "- ".repeat(50_000), "{a: ".repeat(10_000), "? ".repeat(50_000)];
        for text in rows {
            let started = std::time::Instant::now();
            assert!(read(&Document { text: &text, lines_before: 0 }).is_err());
            assert!(started.elapsed() < std::time::Duration::from_secs(5), "{}…", &text[..20]);
        }
    }

    #[test]
    fn names_are_dns_subdomains() {
        for (name, valid) in [
            ("a", true),
            ("a-b.c1", true),
            ("1", true),
            ("", false),
            ("A", false),
            ("-a", false),
            ("a-", false),
            ("a..b", false),
            ("a.", false),
            ("a_b", false),
            ("ä", false),
        ] {
            assert_eq!(is_dns_subdomain(name), valid, "{name:?}");
        }
        assert!(!is_dns_subdomain(&"a".repeat(254)));
    }
}
