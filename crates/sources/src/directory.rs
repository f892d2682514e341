//! One reading of a directory.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use serde_json::Value;

use crate::document::{self, Object};
use crate::snapshot::{Entry, Named, PolicyId, PolicyKind, Problem, Scope, Snapshot};

/// Largest file, in bytes: what a `ConfigMap` can hold.
pub(crate) const MAX_FILE: u64 = 1 << 20;
/// Most files.
pub(crate) const MAX_FILES: usize = 4096;
/// Most bytes of all files together.
pub(crate) const MAX_TOTAL: usize = 64 << 20;
/// Most documents of one file.
const MAX_DOCUMENTS: usize = 1024;
/// Deepest sub-directory that is read; the directory itself is level 0.
const MAX_LEVEL: usize = 4;
/// Most objects that are no policies.
const MAX_OBJECTS: usize = 10_000;
/// Most bytes of their documents together.
const MAX_OBJECT_BYTES: usize = 16 << 20;
/// Sub-directories of this name hold the inputs of tests, not policies.
const FIXTURES: &str = "fixtures";
/// Files of these names say what policies are expected to do, and hold none.
const SUITES: [&str; 2] = ["suite.yaml", "suite.yml"];

/// Why a directory cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is missing, or no directory, or may not be read.
    #[error("failed to read the policy directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The reading task did not finish.
    #[error("the reader of the policy directory stopped")]
    Reader,
}

/// A directory of policies.
///
/// Files ending in `.yaml`, `.yml` or `.json` are read, in sub-directories
/// too; hidden names, `suite.yaml` and sub-directories called `fixtures` are not.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
}

/// The bytes of the files, before anybody looks into them.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    pub(crate) files: Vec<(Arc<str>, Vec<u8>)>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) digest: [u8; 32],
}

impl Directory {
    /// The directory at `root`; nothing is read yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Reads it. What cannot be used is a problem of the snapshot, and policies
    /// of the `previous` snapshot that are affected by it stay.
    ///
    /// # Errors
    /// When the directory itself cannot be read.
    pub fn load(&self, previous: Option<&Snapshot>) -> Result<Snapshot, SourceError> {
        Ok(interpret(self.read()?, previous))
    }

    /// Reads the files in the order of their names.
    pub(crate) fn read(&self) -> Result<Contents, SourceError> {
        let mut listing = Listing::default();
        listing
            .directory(&self.root, "", 0)
            .map_err(|source| SourceError::Directory { path: self.root.clone(), source })?;
        let Listing { mut paths, mut problems, .. } = listing;
        paths.sort();
        let mut files = Vec::new();
        let mut total = 0;
        let mut digest = Context::new(&SHA256);
        for (name, path) in paths {
            match read_file(&path, MAX_FILE) {
                Ok(bytes) if total + bytes.len() > MAX_TOTAL => {
                    problems.push(whole(
                        name,
                        Scope::File,
                        format!("not read: all files exceed {MAX_TOTAL} bytes"),
                    ));
                }
                Ok(bytes) => {
                    total += bytes.len();
                    files.push((name, bytes));
                }
                Err(message) => problems.push(whole(name, Scope::File, message)),
            }
        }
        for (name, bytes) in &files {
            for part in [name.as_bytes(), bytes.as_slice()] {
                digest.update(&(part.len() as u64).to_be_bytes());
                digest.update(part);
            }
        }
        for problem in &problems {
            digest.update(problem.to_string().as_bytes());
        }
        let mut value = [0; 32];
        value.copy_from_slice(digest.finish().as_ref());
        Ok(Contents { files, problems, digest: value })
    }
}

/// Turns files into objects, keeping what the previous snapshot knew better.
pub(crate) fn interpret(contents: Contents, previous: Option<&Snapshot>) -> Snapshot {
    let mut snapshot =
        Snapshot { problems: contents.problems, digest: contents.digest, ..Snapshot::default() };
    let mut others = Others::default();
    for (file, bytes) in contents.files {
        let Ok(text) = std::str::from_utf8(&bytes) else {
            snapshot.problems.push(whole(file, Scope::File, "the file is not UTF-8".to_owned()));
            continue;
        };
        let documents = document::split(text);
        if documents.len() > MAX_DOCUMENTS {
            let message = format!("the file has more than {MAX_DOCUMENTS} documents");
            snapshot.problems.push(whole(file, Scope::File, message));
            continue;
        }
        for (index, document) in documents.iter().enumerate() {
            match document::read(document) {
                Ok(Some(Object::Other(object))) => {
                    if let Err(message) = others.add(&file, document.text.len(), object) {
                        snapshot.problems.push(Problem {
                            file: file.clone(),
                            document: index + 1,
                            position: Some((document.lines_before + 1, 1)),
                            scope: Scope::File,
                            message,
                        });
                    }
                }
                Ok(Some(object)) => snapshot.insert(&file, index + 1, document.lines_before + 1, object),
                Ok(None) => {}
                Err(fault) => snapshot.problems.push(Problem {
                    file: file.clone(),
                    document: index + 1,
                    position: fault.position,
                    scope: fault.policy.map_or(Scope::File, Scope::Policy),
                    message: fault.message,
                }),
            }
        }
    }
    snapshot.objects = others.entries;
    let problems = std::mem::take(&mut snapshot.problems);
    let Snapshot {
        mutations,
        validations,
        mutating_policies,
        mutating_bindings,
        validating_policies,
        validating_bindings,
        namespaces,
        objects,
        ..
    } = &mut snapshot;
    macro_rules! complete {
        ($($entries:ident: $kind:expr,)*) => {$(
            if let Some(previous) = previous {
                keep($entries, &previous.$entries, &problems, $kind);
            }
            $entries.sort_by(|left, right| left.object.identity().cmp(&right.object.identity()));
        )*};
    }
    complete! {
        mutations: Some(PolicyKind::MutationPolicy),
        validations: Some(PolicyKind::ValidationPolicy),
        mutating_policies: Some(PolicyKind::MutatingAdmissionPolicy),
        mutating_bindings: Some(PolicyKind::MutatingAdmissionPolicyBinding),
        validating_policies: Some(PolicyKind::ValidatingAdmissionPolicy),
        validating_bindings: Some(PolicyKind::ValidatingAdmissionPolicyBinding),
        namespaces: None,
        objects: None,
    }
    snapshot.problems = problems;
    snapshot
}

impl Snapshot {
    fn insert(&mut self, file: &Arc<str>, document: usize, line: u64, object: Object) {
        let of = |kind| move |name| Scope::Policy(PolicyId { kind, name });
        let clash = match object {
            Object::Mutation(policy) => {
                add(&mut self.mutations, file, *policy).map(of(PolicyKind::MutationPolicy))
            }
            Object::Validation(policy) => {
                add(&mut self.validations, file, *policy).map(of(PolicyKind::ValidationPolicy))
            }
            Object::Mutating(policy) => {
                add(&mut self.mutating_policies, file, *policy).map(of(PolicyKind::MutatingAdmissionPolicy))
            }
            Object::MutatingBinding(binding) => add(&mut self.mutating_bindings, file, *binding)
                .map(of(PolicyKind::MutatingAdmissionPolicyBinding)),
            Object::Validating(policy) => add(&mut self.validating_policies, file, *policy)
                .map(of(PolicyKind::ValidatingAdmissionPolicy)),
            Object::ValidatingBinding(binding) => add(&mut self.validating_bindings, file, *binding)
                .map(of(PolicyKind::ValidatingAdmissionPolicyBinding)),
            // Any of the equally named Namespaces serves; the first is used.
            Object::Namespace(namespace) => add(&mut self.namespaces, file, namespace).map(|_| Scope::File),
            Object::Other(_) => None,
        };
        if let Some(scope) = clash {
            self.problems.push(Problem {
                file: file.clone(),
                document,
                position: Some((line, 1)),
                scope,
                message: "the name is taken by an earlier document, which stays in force".to_owned(),
            });
        }
    }
}

/// The objects that are no policies, as they come in.
#[derive(Default)]
struct Others {
    entries: Vec<Entry<Value>>,
    identities: BTreeSet<String>,
    bytes: usize,
    full: bool,
}

impl Others {
    /// Adds an object whose document has so many bytes; says why not, of those that are too many once.
    fn add(&mut self, file: &Arc<str>, bytes: usize, object: Value) -> Result<(), String> {
        if self.entries.len() >= MAX_OBJECTS || self.bytes + bytes > MAX_OBJECT_BYTES {
            if std::mem::replace(&mut self.full, true) {
                return Ok(());
            }
            return Err(format!(
                "this and what follows is not read: more than {MAX_OBJECTS} objects besides policies, or more \
                 than {MAX_OBJECT_BYTES} bytes of them"
            ));
        }
        if !self.identities.insert(object.identity().into_owned()) {
            return Err("the object is there twice; the earlier document is used".to_owned());
        }
        self.bytes += bytes;
        self.entries.push(Entry { file: file.clone(), stale: false, object });
        Ok(())
    }
}

/// Adds an object; gives its name back when that is taken.
fn add<T: Named>(entries: &mut Vec<Entry<T>>, file: &Arc<str>, object: T) -> Option<String> {
    if entries.iter().any(|entry| entry.object.name() == object.name()) {
        return Some(object.name().to_owned());
    }
    entries.push(Entry { file: file.clone(), stale: false, object });
    None
}

/// Keeps those of the previous objects that a problem hides and that nothing replaces.
fn keep<T: Named + Clone>(
    entries: &mut Vec<Entry<T>>,
    previous: &[Entry<T>],
    problems: &[Problem],
    kind: Option<PolicyKind>,
) {
    if problems.is_empty() {
        return;
    }
    let present: BTreeSet<String> =
        entries.iter().map(|entry| entry.object.identity().into_owned()).collect();
    for entry in previous.iter().filter(|entry| !present.contains(&*entry.object.identity())) {
        let hidden = problems.iter().any(|problem| match &problem.scope {
            Scope::Policy(id) => Some(id.kind) == kind && id.name == entry.object.name(),
            Scope::File => problem.file == entry.file,
            Scope::Directory => true,
        });
        if hidden {
            entries.push(Entry { stale: true, ..entry.clone() });
        }
    }
}

pub(crate) fn whole(file: Arc<str>, scope: Scope, message: String) -> Problem {
    Problem { file, document: 0, position: None, scope, message }
}

/// The files below a directory.
#[derive(Default)]
struct Listing {
    paths: Vec<(Arc<str>, PathBuf)>,
    problems: Vec<Problem>,
    /// Real paths of the directories seen, so that symlinks do not lead in circles.
    seen: BTreeSet<PathBuf>,
}

impl Listing {
    fn directory(&mut self, path: &Path, prefix: &str, level: usize) -> std::io::Result<()> {
        if !self.seen.insert(path.canonicalize()?) {
            return Ok(());
        }
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            if entries.len() > MAX_FILES {
                break;
            }
            entries.push(entry?.path());
        }
        entries.sort();
        for path in entries {
            // A name that is not UTF-8 cannot be told apart in messages; nobody names a policy file so.
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.starts_with('.') || SUITES.contains(&name) {
                continue;
            }
            let relative = format!("{prefix}{name}");
            if self.paths.len() >= MAX_FILES {
                if !self.problems.iter().any(|problem| problem.scope == Scope::Directory) {
                    let message = format!("more than {MAX_FILES} files, the rest is not read");
                    self.problems.push(whole(relative.into(), Scope::Directory, message));
                }
                return Ok(());
            }
            if path.is_dir() {
                if name == FIXTURES {
                    continue;
                }
                if level == MAX_LEVEL {
                    let message = format!("directories deeper than {MAX_LEVEL} levels are not read");
                    self.problems.push(whole(relative.into(), Scope::File, message));
                } else if let Err(error) = self.directory(&path, &format!("{relative}/"), level + 1) {
                    let message = format!("failed to read the directory: {error}");
                    self.problems.push(whole(relative.into(), Scope::Directory, message));
                }
            } else if matches!(
                path.extension().and_then(|extension| extension.to_str()),
                Some("yaml" | "yml" | "json")
            ) {
                self.paths.push((relative.into(), path));
            }
        }
        Ok(())
    }
}

pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("failed to read the file: {error}");
    let file = std::fs::File::open(path).map_err(failed)?;
    // A pipe or a device would block or never end.
    if !file.metadata().map_err(failed)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(format!("the file is larger than {limit} bytes"));
    }
    Ok(bytes)
}
