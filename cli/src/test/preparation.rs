//! A suite with all that it names: policies, objects, manifests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use sallyport_policy::AuthorizerTable;
use sallyport_sources::{Collection, Snapshot};
use serde_json::{Value, json};

use super::judgement::Objects;
use super::passage::Question;
use super::specification::{Case, Document, Expectation, Specification, User};
use crate::input::manifest::{self, Circumstances, Operation};
use crate::input::resource::CustomKinds;

/// Fields of `request`, as in `admission.k8s.io/v1`.
const REQUEST_FIELDS: [&str; 15] = [
    "uid",
    "kind",
    "resource",
    "subResource",
    "requestKind",
    "requestResource",
    "requestSubResource",
    "name",
    "namespace",
    "operation",
    "userInfo",
    "object",
    "oldObject",
    "dryRun",
    "options",
];

/// A suite that can be run.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) policies: Arc<Snapshot>,
    pub(crate) cases: Vec<Prepared>,
}

/// A case that can be run.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) name: String,
    pub(crate) line: u64,
    /// The policies with the objects of this case, if it has its own.
    pub(crate) policies: Option<Arc<Snapshot>>,
    pub(crate) question: Question,
    pub(crate) expect: Expectation,
    pub(crate) objects: Objects,
}

/// Reads a suite; `None` if it has no case that is selected.
pub(crate) fn prepare(path: &Path, selects: impl Fn(&str) -> bool) -> anyhow::Result<Option<Suite>> {
    let specification: Specification = manifest::read_as(path)?;
    specification.check()?;
    let folder = parent_directory(path);
    let mut collection = Collection::default();
    add_policies(&mut collection, &folder, specification.policies.as_deref())?;
    add_objects(&mut collection, &folder, "objects", specification.objects.as_deref().unwrap_or_default())?;
    let policies = Arc::new(collection.clone().load());
    // What cannot be read is told when the policies are compiled.
    let is_empty = policies.mutations.is_empty()
        && policies.validations.is_empty()
        && policies.mutating_policies.is_empty()
        && policies.validating_policies.is_empty();
    ensure!(!is_empty || !policies.problems.is_empty(), "there is no policy to test");
    let kinds = custom_kinds(&policies);
    let authorizer = specification.authorizer.map(Arc::new);
    let setting = Setting { folder, collection, policies, kinds, authorizer };
    let mut cases = Vec::new();
    for (index, case) in specification.cases.into_iter().enumerate() {
        let (line, case) = (case.referenced.line(), case.value);
        if selects(&case.name) {
            let place = format!("line {line}: case {:?}", case.name);
            cases.push(prepare_case(case, line, index + 1, &setting).context(place)?);
        }
    }
    Ok(Some(Suite { policies: setting.policies, cases }).filter(|suite| !suite.cases.is_empty()))
}

/// What the cases of a suite have in common.
struct Setting {
    folder: PathBuf,
    collection: Collection,
    /// What the collection holds.
    policies: Arc<Snapshot>,
    kinds: Arc<CustomKinds>,
    authorizer: Option<Arc<AuthorizerTable>>,
}

fn custom_kinds(snapshot: &Snapshot) -> Arc<CustomKinds> {
    Arc::new(CustomKinds::of(snapshot.objects.iter().map(|entry| &entry.object)))
}

fn add_policies(collection: &mut Collection, folder: &Path, names: Option<&[String]>) -> anyhow::Result<()> {
    if let Some(names) = names {
        for name in names {
            let path = folder.join(name);
            ensure!(path.exists(), "policies: {} does not exist", path.display());
            collection.add(name, &path)?;
        }
        return Ok(());
    }
    let failed = || format!("failed to read {}", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        files.push(entry.with_context(failed)?.path());
    }
    files.sort();
    for path in files {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_suite = matches!(name, "suite.yaml" | "suite.yml");
        if !is_suite
            && !name.starts_with('.')
            && path.is_file()
            && matches!(extension, Some("yaml" | "yml" | "json"))
        {
            collection.add(name, &path)?;
        }
    }
    Ok(())
}

fn add_objects(
    collection: &mut Collection,
    folder: &Path,
    field: &str,
    objects: &[Document],
) -> anyhow::Result<()> {
    for (index, object) in objects.iter().enumerate() {
        match object {
            Document::File(name) => {
                let path = folder.join(name);
                ensure!(path.exists(), "{field}: {} does not exist", path.display());
                collection.add(name, &path)?;
            }
            Document::Inline(object) => {
                collection.add_text(&format!("{field}[{index}]"), serde_json::to_vec(object)?);
            }
        }
    }
    Ok(())
}

fn prepare_case(case: Case, line: u64, number: usize, setting: &Setting) -> anyhow::Result<Prepared> {
    let folder = &setting.folder;
    let objects = case.objects.as_deref().unwrap_or_default();
    let policies = if objects.is_empty() {
        None
    } else {
        let mut collection = setting.collection.clone();
        add_objects(&mut collection, folder, "objects of the case", objects)?;
        let snapshot = collection.load();
        // Those of the suite itself are told when its policies are compiled.
        let known = &setting.policies.problems;
        if let Some(problem) = snapshot.problems.iter().find(|problem| !known.contains(problem)) {
            bail!("{problem}");
        }
        Some(Arc::new(snapshot))
    };
    let kinds = policies.as_deref().map_or_else(|| Arc::clone(&setting.kinds), custom_kinds);
    let objects = Objects {
        whole: case.expect.object.as_ref().map(|document| read_object(document, folder)).transpose()?,
        part: case
            .expect
            .object_contains
            .as_ref()
            .map(|document| read_document(document, folder))
            .transpose()?,
    };
    let review = match (&case.manifest, &case.request) {
        (Some(manifest), _) => make_review(&case, read_object(manifest, folder)?, number, folder, kinds)?,
        (None, Some(request)) => complete_review(read_document(request, folder)?)?,
        (None, None) => bail!("it has neither manifest nor request"),
    };
    let authorizer = case.authorizer.map(Arc::new).or_else(|| setting.authorizer.clone());
    let question = Question::read(&review, authorizer)?;
    Ok(Prepared { name: case.name, line, policies, question, expect: case.expect, objects })
}

/// The AdmissionReview for a manifest.
fn make_review(
    case: &Case,
    mut object: Value,
    number: usize,
    folder: &Path,
    kinds: Arc<CustomKinds>,
) -> anyhow::Result<Value> {
    if let Some(patch) = &case.patch {
        ensure!(patch.is_object(), "patch is no object");
        json_patch::merge(&mut object, patch);
    }
    let old = case.old.as_ref().map(|old| read_object(old, folder)).transpose()?;
    let User { username, uid, groups, extra } = case.user.clone().unwrap_or_default();
    let about = Circumstances {
        operation: case.operation.unwrap_or(Operation::Create),
        old: old.into_iter().collect(),
        user: username.unwrap_or_else(|| "kubernetes-admin".to_owned()),
        groups: groups.unwrap_or_else(|| vec!["system:authenticated".to_owned()]),
        namespace: case.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        subresource: case.sub_resource.clone().unwrap_or_default(),
        dry_run: case.dry_run.unwrap_or(false),
        kinds,
    };
    let mut review = match manifest::make_review(object, number, &about) {
        Err(manifest::ManifestError::NoOld(identity)) => {
            bail!("old is not the same object as the manifest, {identity}")
        }
        review => review?,
    };
    if let Some(uid) = uid {
        review["request"]["userInfo"]["uid"] = json!(uid);
    }
    if let Some(extra) = extra {
        review["request"]["userInfo"]["extra"] = json!(extra);
    }
    Ok(review)
}

/// The AdmissionReview for one that is written down, or for what it has under `request`.
fn complete_review(document: Value) -> anyhow::Result<Value> {
    let is_review = document.get("kind").and_then(Value::as_str) == Some("AdmissionReview");
    let mut review = if is_review {
        document
    } else {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": document})
    };
    let request = review.get_mut("request").and_then(Value::as_object_mut);
    let request = request.context("the AdmissionReview has no request")?;
    if let Some(unknown) = request.keys().find(|name| !REQUEST_FIELDS.contains(&name.as_str())) {
        bail!("a request has no field {unknown:?}");
    }
    for field in ["kind", "resource", "operation"] {
        ensure!(request.contains_key(field), "the request has no {field}");
    }
    request.entry("uid").or_insert_with(|| json!("00000000-0000-4000-8000-000000000000"));
    Ok(review)
}

/// A document of any shape.
fn read_document(document: &Document, folder: &Path) -> anyhow::Result<Value> {
    Ok(match document {
        Document::File(name) => manifest::read_document(&folder.join(name))?,
        Document::Inline(value) => value.clone(),
    })
}

/// A Kubernetes object.
fn read_object(document: &Document, folder: &Path) -> anyhow::Result<Value> {
    let object = read_document(document, folder)?;
    let has = |name: &str| object.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let name = match document {
        Document::File(name) => name,
        Document::Inline(_) => "the object",
    };
    ensure!(has("apiVersion") && has("kind"), "{name} needs apiVersion and kind");
    ensure!(
        object.get("kind").and_then(Value::as_str) != Some("AdmissionReview"),
        "{name} is an AdmissionReview, which stands under request"
    );
    Ok(object)
}

/// The directory of a suite.
fn parent_directory(suite: &Path) -> PathBuf {
    match suite.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
