//! Manifests as users write them, and the AdmissionReviews that an API server would make of them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::Arc;

use clap::ValueEnum;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::input::resource::CustomKinds;

/// Largest file, in bytes: twice what a front takes in one review.
const MAX_FILE: u64 = 16 << 20;
/// Most documents of a file, and most items of all lists in it.
const MAX_OBJECTS: usize = 100_000;
/// Deepest nesting of a YAML document, as deep as JSON may be nested.
const MAX_DEPTH: usize = 127;
/// Stack for reading YAML, which takes some 20 KiB a level without optimisation.
const STACK: usize = 16 << 20;
/// Most nodes of a YAML file.
const MAX_NODES: usize = 4_000_000;
/// Most events that the aliases of a file may expand to.
const MAX_ALIAS_EVENTS: usize = 100_000;

/// Why a file cannot be reviewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    /// It cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is too large.
    #[error("{} is larger than {MAX_FILE} bytes", .0.display())]
    TooLarge(PathBuf),
    /// It is neither JSON nor YAML.
    #[error("{} is neither JSON nor YAML: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        problem: ContentError,
    },
    /// A document is no object.
    #[error("{}: {problem}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: ContentError,
    },
    /// There is no earlier form of an object.
    #[error("--old has no {0}: an UPDATE needs the object as it was")]
    NoOld(String),
}

/// What is wrong with the content of a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContentError {
    /// It is not text.
    #[error(transparent)]
    Encoding(#[from] FromUtf8Error),
    /// It is no YAML, or not of the type that it is read as.
    #[error(transparent)]
    Yaml(#[from] Box<serde_saphyr::Error>),
    /// There is no thread to read it.
    #[error("no thread to read it: {0}")]
    Thread(io::Error),
    /// The reader panicked.
    #[error("the YAML reader panicked")]
    Panicked,
    /// A document is no object of Kubernetes.
    #[error("an object needs apiVersion and kind")]
    Untyped,
    /// It has too many objects.
    #[error("there are more than {MAX_OBJECTS} objects")]
    TooMany,
    /// It has not exactly one document.
    #[error("one document is needed, and there are {0}")]
    NotOne(usize),
}

/// An operation that manifests can be reviewed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
#[value(rename_all = "UPPER")]
pub(crate) enum Operation {
    /// The manifest is a new object
    Create,
    /// The manifest is the object as it is to be; --old has it as it is
    Update,
    /// The manifest is the object that is deleted
    Delete,
}

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    const fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Item {
    /// An object.
    Object(Value),
    /// A whole AdmissionReview.
    Review(Value),
}

/// What an API server knows of a request besides the object.
#[derive(Clone, Debug)]
pub(crate) struct Circumstances {
    /// What is being done.
    pub(crate) operation: Operation,
    /// The objects as they were, for UPDATE.
    pub(crate) old: Vec<Value>,
    /// Who asks.
    pub(crate) user: String,
    /// The groups of who asks.
    pub(crate) groups: Vec<String>,
    /// The namespace of objects that name none.
    pub(crate) namespace: String,
    /// The subresource; empty for none.
    pub(crate) subresource: String,
    /// Whether nothing would be stored.
    pub(crate) dry_run: bool,
    /// Custom kinds that exist.
    pub(crate) kinds: Arc<CustomKinds>,
}

/// Reads a file of YAML documents or JSON; lists are taken apart.
pub(crate) fn read_items(path: &Path) -> Result<Vec<Item>, ManifestError> {
    let input = File::open(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
    take_apart(load(path, input)?)
        .map_err(|problem| ManifestError::Document { path: path.to_owned(), problem })
}

/// Reads the one document, of whatever shape, of a file; of standard input if it is called `-`.
pub(crate) fn read_document(path: &Path) -> Result<Value, ManifestError> {
    let documents = if path.as_os_str() == "-" {
        load(Path::new("standard input"), io::stdin().lock())?
    } else {
        let input =
            File::open(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        load(path, input)?
    };
    <[Value; 1]>::try_from(documents).map(|[document]| document).map_err(|documents| {
        let problem = ContentError::NotOne(documents.len());
        ManifestError::Document { path: path.to_owned(), problem }
    })
}

fn load(path: &Path, input: impl io::Read) -> Result<Vec<Value>, ManifestError> {
    let text = read_text(path, input)?;
    parse(&text).map_err(|problem| ManifestError::Malformed { path: path.to_owned(), problem })
}

/// Reads the one document of a file as what it is to be, strictly: the errors say line and column.
pub(crate) fn read_as<T: DeserializeOwned + Send>(path: &Path) -> Result<T, ManifestError> {
    let input = File::open(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
    parse_as(&read_text(path, input)?)
        .map_err(|problem| ManifestError::Document { path: path.to_owned(), problem })
}

/// Reads one YAML document as what it is to be.
pub(crate) fn parse_as<T: DeserializeOwned + Send>(text: &str) -> Result<T, ContentError> {
    run_on_deep_stack(|| serde_saphyr::from_str_with_options(text, options()).map_err(Box::new))
}

fn read_text(path: &Path, input: impl io::Read) -> Result<String, ManifestError> {
    let failed = |source| ManifestError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    input.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ManifestError::TooLarge(path.to_owned()));
    }
    String::from_utf8(bytes)
        .map_err(|error| ManifestError::Malformed { path: path.to_owned(), problem: error.into() })
}

fn parse(text: &str) -> Result<Vec<Value>, ContentError> {
    // JSON first: it is most of what machines write, and read ten times as fast.
    if text.trim_start().starts_with('{')
        && let Ok(document) = serde_json::from_str(text)
    {
        return Ok(vec![document]);
    }
    run_on_deep_stack(|| serde_saphyr::from_multiple_with_options(text, options()).map_err(Box::new))
}

/// On a stack of its own, so that the depth is the only bound.
fn run_on_deep_stack<T: Send>(
    read: impl FnOnce() -> Result<T, Box<serde_saphyr::Error>> + Send,
) -> Result<T, ContentError> {
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, read);
        let reader = reader.map_err(ContentError::Thread)?;
        Ok(reader.join().map_err(|_| ContentError::Panicked)??)
    })
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_documents: MAX_OBJECTS,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

/// Takes lists apart, of lists too.
fn take_apart(documents: Vec<Value>) -> Result<Vec<Item>, ContentError> {
    let mut items = Vec::new();
    // Backwards, so that the last is the next.
    let mut waiting: Vec<Value> =
        documents.into_iter().rev().filter(|document| !document.is_null()).collect();
    while let Some(mut document) = waiting.pop() {
        let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version.is_empty() || kind.is_empty() {
            return Err(ContentError::Untyped);
        }
        let element = kind.strip_suffix("List").map(str::to_owned);
        match (element, document.get_mut("items").map(Value::take)) {
            (Some(element), Some(Value::Array(elements))) => {
                for mut object in elements.into_iter().rev() {
                    // The items of a PodList do not say that they are Pods.
                    if let Some(object) = object.as_object_mut().filter(|_| !element.is_empty()) {
                        object.entry("apiVersion").or_insert_with(|| json!(api_version));
                        object.entry("kind").or_insert_with(|| json!(element));
                    }
                    waiting.push(object);
                }
            }
            (_, taken) => {
                if let (Some(taken), Some(object)) = (taken, document.as_object_mut()) {
                    object.insert("items".to_owned(), taken);
                }
                let is_review = kind == "AdmissionReview" && api_version.starts_with("admission.k8s.io/");
                items.push(if is_review { Item::Review(document) } else { Item::Object(document) });
            }
        }
        if items.len() + waiting.len() > MAX_OBJECTS {
            return Err(ContentError::TooMany);
        }
    }
    Ok(items)
}

/// The AdmissionReview that an API server would send for an object. `number` tells reviews of one run apart;
/// the same run has the same uids each time.
pub(crate) fn make_review(
    object: Value,
    number: usize,
    about: &Circumstances,
) -> Result<Value, ManifestError> {
    let identity = Identity::of(&object);
    let (resource, namespaced) = about.kinds.resource(&identity.group, &identity.kind);
    let namespace = match (namespaced, identity.namespace.as_str()) {
        (true, "") => about.namespace.as_str(),
        (true, namespace) => namespace,
        // A Namespace is judged as if it were in itself.
        (false, _) if identity.group.is_empty() && identity.kind == "Namespace" => identity.name.as_str(),
        (false, _) => "",
    };
    let (name, namespace) = (identity.name.clone(), namespace.to_owned());
    let kind = json!({"group": identity.group, "version": identity.version, "kind": identity.kind});
    let resource = json!({"group": identity.group, "version": identity.version, "resource": resource});
    let (object, old) = match about.operation {
        Operation::Create => (object, Value::Null),
        Operation::Update => {
            let old = identity.find(&about.old, &about.namespace);
            (object, old.ok_or_else(|| ManifestError::NoOld(identity.to_string()))?)
        }
        Operation::Delete => (Value::Null, object),
    };
    let mut request = json!({
        "uid": format!("00000000-0000-4000-8000-{number:012x}"),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": name,
        "operation": about.operation.name(),
        "userInfo": {"username": about.user, "groups": about.groups},
        "object": object,
        "oldObject": old,
        "dryRun": about.dry_run,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": about.operation.options()},
    });
    // Absent rather than empty, as an API server sends them.
    for (fields, value) in
        [(&["namespace"] as &[_], &namespace), (&["subResource", "requestSubResource"], &about.subresource)]
    {
        for field in fields.iter().filter(|_| !value.is_empty()) {
            request[*field] = json!(value);
        }
    }
    Ok(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}))
}

/// What tells objects apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// What the API server makes a name from; set only when there is none.
    pub(crate) generate_name: String,
}

impl Identity {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let name = text("/metadata/name");
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            generate_name: if name.is_empty() { text("/metadata/generateName") } else { String::new() },
            name,
        }
    }

    /// The object that is this one, whatever its version.
    fn find(&self, objects: &[Value], namespace: &str) -> Option<Value> {
        let fill = |identity: Self| Self {
            version: String::new(),
            namespace: if identity.namespace.is_empty() { namespace.to_owned() } else { identity.namespace },
            ..identity
        };
        let wanted = fill(self.clone());
        objects.iter().find(|object| fill(Self::of(object)) == wanted).cloned()
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, namespace, name, generate_name, .. } = self;
        write!(formatter, "{} ", if kind.is_empty() { "object" } else { kind })?;
        if !namespace.is_empty() {
            write!(formatter, "{namespace}/")?;
        }
        match (name.as_str(), generate_name.as_str()) {
            ("", "") => formatter.write_str("(no name)"),
            ("", prefix) => write!(formatter, "{prefix}*"),
            (name, _) => formatter.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{Circumstances, Identity, Item, Operation, make_review, parse, take_apart};

    fn about(operation: Operation) -> Circumstances {
        Circumstances {
            operation,
            old: Vec::new(),
            user: "alice".into(),
            groups: vec!["dev".into()],
            namespace: "default".into(),
            subresource: String::new(),
            dry_run: false,
            kinds: Arc::default(),
        }
    }

    fn pod(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}})
    }

    #[test]
    fn documents_and_lists_are_taken_apart_in_order() {
        let text = r"
apiVersion: v1
kind: Pod
metadata: {name: a}
---
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Pod, metadata: {name: b}}
  - apiVersion: v1
    kind: PodList
    items: [{metadata: {name: c}}]
---
apiVersion: admission.k8s.io/v1
kind: AdmissionReview
request: {uid: d}
---
{apiVersion: example.com/v1, kind: ShoppingList, metadata: {name: e}, spec: {items: [1]}}
";
        let items = take_apart(parse(text).unwrap()).unwrap();
        let names: Vec<_> = items
            .iter()
            .map(|item| match item {
                Item::Object(object) => Identity::of(object).to_string(),
                Item::Review(review) => format!("review {}", review["request"]["uid"].as_str().unwrap()),
            })
            .collect();
        assert_eq!(names, ["Pod a", "Pod b", "Pod c", "review d", "ShoppingList e"]);
        let Item::Object(pod) = &items[2] else { panic!() };
        assert_eq!((pod["kind"].as_str(), pod["apiVersion"].as_str()), (Some("Pod"), Some("v1")));
    }

    #[test]
    fn what_is_no_object_is_refused_and_bombs_cost_little() {
        for text in ["just text", "[1]", "kind: Pod", "apiVersion: v1", "- a\n- b"] {
            assert!(take_apart(parse(text).unwrap()).is_err(), "{text}");
        }
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(",");
            bomb = format!("{bomb}a{level}: &a{level} [{aliases}]\n");
        }
        for text in [bomb, "[".repeat(100_000), "{\"a\":".repeat(100_000), "a: 1\na: 2".into(), "a: [".into()]
        {
            let start = text[..4].to_owned();
            assert!(parse(&text).is_err(), "{start}…");
        }
    }

    #[test]
    fn a_review_has_what_an_api_server_sends_c12() {
        let request = make_review(pod("a"), 1, &about(Operation::Create)).unwrap()["request"].take();
        let expected = json!({
            "uid": "00000000-0000-4000-8000-000000000001",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "a", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["dev"]},
            "object": pod("a"), "oldObject": null, "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        });
        assert_eq!(request, expected);
    }

    #[test]
    fn operations_put_the_object_where_it_belongs() {
        let deleted = make_review(pod("a"), 1, &about(Operation::Delete)).unwrap();
        assert_eq!(
            (&deleted["request"]["object"], &deleted["request"]["oldObject"]),
            (&Value::Null, &pod("a"))
        );

        let mut circumstances = about(Operation::Update);
        let error = make_review(pod("a"), 1, &circumstances).unwrap_err().to_string();
        assert!(error.contains("Pod a") && error.contains("--old"), "{error}");
        let mut old = pod("a");
        old["metadata"]["namespace"] = json!("default");
        circumstances.old = vec![pod("b"), old.clone()];
        circumstances.subresource = "ephemeralcontainers".into();
        let updated = make_review(pod("a"), 1, &circumstances).unwrap();
        assert_eq!((&updated["request"]["object"], &updated["request"]["oldObject"]), (&pod("a"), &old));
        assert_eq!(updated["request"]["subResource"], "ephemeralcontainers");
    }

    #[test]
    fn namespaces_are_those_of_the_request() {
        let rows = [
            (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "prod"}}), Some("prod")),
            (json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}), None),
            (json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}), Some("team")),
            (json!({"apiVersion": "example.com/v1", "kind": "Thing"}), Some("default")),
        ];
        for (object, namespace) in rows {
            let review = make_review(object.clone(), 1, &about(Operation::Create)).unwrap();
            assert_eq!(review["request"]["namespace"].as_str(), namespace, "{object}");
        }
    }
}
