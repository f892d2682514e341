//! A directory of policies as people and kubelet leave it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_sources::{Collection, Directory, PolicyKind, Scope, Snapshot, SourceError, watch};
use tempfile::TempDir;

fn mutation(name: &str, label: &str) -> String {
    format!(
        "apiVersion: sallyport.dev/v1alpha1\nkind: MutationPolicy\nmetadata:\n  name: {name}\nspec:\n  \
         matchConstraints:\n    resourceRules:\n    - {{apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}}\n  \
         mutations:\n  - overlay:\n      metadata:\n        labels: {{x: \"{label}\"}}\n"
    )
}

fn validation(name: &str) -> String {
    format!(
        "apiVersion: sallyport.dev/v1alpha1\nkind: ValidationPolicy\nmetadata: {{name: {name}}}\nspec:\n  \
         matchConstraints: {{}}\n  validations: [{{expression: 'true'}}]\n"
    )
}

fn mutations(snapshot: &Snapshot) -> Vec<(String, bool)> {
    let name = |name: &Option<String>| name.clone().unwrap();
    snapshot.mutations.iter().map(|entry| (name(&entry.object.metadata.name), entry.stale)).collect()
}

fn label(snapshot: &Snapshot, index: usize) -> String {
    let overlay = snapshot.mutations[index].object.spec.mutations[0].overlay.clone().unwrap();
    overlay["metadata"]["labels"]["x"].as_str().unwrap().to_owned()
}

fn load(directory: &TempDir, previous: Option<&Snapshot>) -> Snapshot {
    Directory::new(directory.path()).load(previous).unwrap()
}

#[test]
fn files_directories_and_texts_are_read_as_one() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("more/deep")).unwrap();
    fs::write(root.join("a.yaml"), mutation("a", "1")).unwrap();
    fs::write(root.join("unnamed"), mutation("b", "1")).unwrap();
    fs::write(root.join("more/deep/c.yaml"), mutation("c", "1")).unwrap();
    fs::write(root.join("more/broken.yaml"), "a: [").unwrap();
    let mut collection = Collection::default();
    for name in ["a.yaml", "unnamed", "more/", "none.yaml"] {
        collection.add(name, &root.join(name)).unwrap();
    }
    collection.add_text("text", mutation("d", "1").into_bytes());
    collection.add_text("again", mutation("d", "2").into_bytes());
    let snapshot = collection.load();
    let files: Vec<_> = snapshot.mutations.iter().map(|entry| &*entry.file).collect();
    assert_eq!(files, ["a.yaml", "unnamed", "more/deep/c.yaml", "text"]);
    let mut problems: Vec<_> = snapshot.problems.iter().map(|problem| &*problem.file).collect();
    problems.sort_unstable();
    assert_eq!(problems, ["again", "more/broken.yaml", "none.yaml"]);
}

#[test]
fn policies_and_namespaces_are_found_by_kind_wherever_they_are() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("recipe/fixtures")).unwrap();
    fs::create_dir_all(root.join(".git")).unwrap();
    fs::create_dir_all(root.join("..2026_01_01")).unwrap();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n";
    fs::write(
        root.join("all.yaml"),
        format!("{}---\n{namespace}---\n{}", mutation("b", "1"), validation("v")),
    )
    .unwrap();
    fs::write(root.join("recipe/a.yml"), mutation("a", "1")).unwrap();
    fs::write(root.join("recipe/pod.yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n").unwrap();
    fs::write(
        root.join("recipe/json.json"),
        r#"{"apiVersion": "sallyport.dev/v1alpha1", "kind": "ValidationPolicy",
            "metadata": {"name": "j"}, "spec": {"matchConstraints": {}}}"#,
    )
    .unwrap();
    fs::write(root.join("recipe/suite.yaml"), "cases: []\n").unwrap();
    for unread in ["recipe/fixtures/x.yaml", ".git/x.yaml", "..2026_01_01/x.yaml", ".x.yaml", "x.txt"] {
        fs::write(root.join(unread), mutation("unread", "1")).unwrap();
    }

    let snapshot = load(&directory, None);
    assert_eq!(snapshot.problems, []);
    assert_eq!(mutations(&snapshot), [("a".to_owned(), false), ("b".to_owned(), false)]);
    assert_eq!(snapshot.validations.len(), 2);
    assert_eq!(snapshot.namespaces.len(), 1);
    assert_eq!(&*snapshot.mutations[0].file, "recipe/a.yml");
}

#[test]
fn a_missing_directory_and_a_file_in_its_place_are_errors_that_name_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [directory.path().join("absent"), file] {
        let error = Directory::new(&path).load(None).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[test]
fn one_name_twice_is_a_problem_and_the_first_file_wins() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("b.yaml"), mutation("same", "second")).unwrap();
    fs::write(directory.path().join("a.yaml"), mutation("same", "first")).unwrap();
    fs::write(directory.path().join("c.yaml"), validation("same")).unwrap(); // another kind, another name space
    let snapshot = load(&directory, None);
    assert_eq!(label(&snapshot, 0), "first");
    assert_eq!(snapshot.mutations.len() + snapshot.validations.len(), 2);
    let [problem] = snapshot.problems.as_slice() else { panic!("{:?}", snapshot.problems) };
    assert_eq!(&*problem.file, "b.yaml");
    assert!(matches!(&problem.scope, Scope::Policy(id) if id.name == "same"));
    assert!(snapshot.unusable(PolicyKind::MutationPolicy).is_empty());
}

/// Does something to a file.
type Damage = fn(&Path);
/// Names of policies, and whether they are stale.
type Expected = &'static [(&'static str, bool)];

#[test]
fn a_policy_that_was_good_stays_in_its_last_good_form() {
    let rows: &[(&str, Damage, Expected)] = &[
        (
            "its document fails the schema",
            |f| fs::write(f, mutation("a", "2").replace("spec:", "spce:")).unwrap(),
            &[("a", true)],
        ),
        ("its file is no YAML", |f| fs::write(f, "a: [").unwrap(), &[("a", true)]),
        ("its file is no UTF-8", |f| fs::write(f, b"\xff\xfe").unwrap(), &[("a", true)]),
        ("its file is too large", |f| fs::write(f, "#".repeat(1 << 21)).unwrap(), &[("a", true)]),
        (
            "its file has too many documents",
            |f| fs::write(f, "a: 1\n---\n".repeat(2000)).unwrap(),
            &[("a", true)],
        ),
        (
            "its file became a directory beyond reach",
            |f| {
                fs::remove_file(f).unwrap();
                std::os::unix::fs::symlink("nowhere", f).unwrap();
            },
            &[("a", true)],
        ),
        ("its file is emptied", |f| fs::write(f, "").unwrap(), &[]),
        ("its file is removed", |f| fs::remove_file(f).unwrap(), &[]),
        ("it was renamed", |f| fs::write(f, mutation("c", "2")).unwrap(), &[("c", false)]),
    ];
    for (what, damage, expected) in rows {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("a.yaml");
        fs::write(&file, mutation("a", "1")).unwrap();
        fs::write(directory.path().join("z.yaml"), mutation("z", "1")).unwrap();
        let before = load(&directory, None);
        damage(&file);
        let after = load(&directory, Some(&before));
        let mut expected: Vec<_> =
            expected.iter().map(|(name, stale)| ((*name).to_owned(), *stale)).collect();
        expected.push(("z".to_owned(), false));
        assert_eq!(mutations(&after), expected, "{what}: {:?}", after.problems);
        let kept = after.mutations.iter().any(|entry| entry.stale);
        assert_eq!(after.problems.iter().any(|problem| &*problem.file == "a.yaml"), kept, "{what}");
        // Once more: what is kept, is kept through any number of readings.
        assert_eq!(mutations(&load(&directory, Some(&after))), expected, "{what}, read again");
        // Repaired, it is current again.
        let _ = fs::remove_file(&file);
        fs::write(&file, mutation("a", "3")).unwrap();
        let repaired = load(&directory, Some(&after));
        assert_eq!(
            (mutations(&repaired)[0].clone(), label(&repaired, 0)),
            (("a".to_owned(), false), "3".to_owned())
        );
    }
}

#[test]
fn a_policy_that_never_was_good_is_named_with_line_and_column() {
    let directory = TempDir::new().unwrap();
    let text =
        format!("{}---\n{}", mutation("good", "1"), mutation("bad", "1").replace("mutations:", "mutation:"));
    fs::write(directory.path().join("p.yaml"), &text).unwrap();
    let snapshot = load(&directory, None);
    assert_eq!(mutations(&snapshot), [("good".to_owned(), false)]);
    assert_eq!(snapshot.unusable(PolicyKind::MutationPolicy).into_iter().collect::<Vec<_>>(), ["bad"]);
    let [problem] = snapshot.problems.as_slice() else { panic!("{:?}", snapshot.problems) };
    let line = 1 + text.lines().position(|line| line.ends_with("mutation:")).unwrap() as u64;
    assert_eq!((problem.position.unwrap().0, problem.document), (line, 2));
    assert!(problem.to_string().starts_with(&format!("p.yaml:{line}:")), "{problem}");
    assert!(problem.to_string().contains("MutationPolicy bad"), "{problem}");
}

#[test]
fn symlink_circles_and_deep_trees_end() {
    let directory = TempDir::new().unwrap();
    std::os::unix::fs::symlink(".", directory.path().join("loop")).unwrap();
    fs::create_dir_all(directory.path().join("1/2/3/4/5")).unwrap();
    fs::write(directory.path().join("1/2/3/4/here.yaml"), mutation("here", "1")).unwrap();
    fs::write(directory.path().join("1/2/3/4/5/beyond.yaml"), mutation("beyond", "1")).unwrap();
    let snapshot = load(&directory, None);
    assert_eq!(mutations(&snapshot), [("here".to_owned(), false)]);
    assert!(
        snapshot.problems.iter().any(|problem| problem.message.contains("deeper")),
        "{:?}",
        snapshot.problems
    );
}

/// What `watch` reported, newest last.
type Seen = Arc<Mutex<Vec<Result<Arc<Snapshot>, SourceError>>>>;

fn follow(root: &Path) -> (Seen, tokio::task::JoinHandle<()>) {
    let directory = Directory::new(root);
    let first = Arc::new(directory.load(None).unwrap());
    let seen = Seen::default();
    let sink = seen.clone();
    let interval = Duration::from_millis(50);
    let record = move |next| {
        sink.lock().push(next);
        std::future::ready(())
    };
    let task = tokio::spawn(watch(directory, first, interval, record));
    (seen, task)
}

/// Waits until what was seen satisfies `condition`; fails after ten seconds.
async fn until(seen: &Seen, condition: impl Fn(&[Result<Arc<Snapshot>, SourceError>]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition(&seen.lock()) {
        assert!(Instant::now() < deadline, "{:?}", seen.lock());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_swap_of_a_config_map_mount_is_seen_as_one_change() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    for (version, value) in [("..1", "old"), ("..2", "new")] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("p.yaml"), mutation("p", value)).unwrap();
    }
    std::os::unix::fs::symlink("..1", root.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/p.yaml", root.join("p.yaml")).unwrap();
    let (seen, task) = follow(root);
    std::os::unix::fs::symlink("..2", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    until(&seen, |seen| !seen.is_empty()).await;
    task.abort();
    let seen = seen.lock();
    assert_eq!(seen.len(), 1);
    assert_eq!(label(seen[0].as_ref().unwrap(), 0), "new");
}

#[tokio::test]
async fn edits_are_seen_and_a_lost_directory_is_told_once() {
    let parent = TempDir::new().unwrap();
    let root = parent.path().join("policies");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("p.yaml"), mutation("p", "1")).unwrap();
    let (seen, task) = follow(&root);
    let last_label = |seen: &[Result<Arc<Snapshot>, SourceError>]| match seen.last() {
        Some(Ok(snapshot)) => Some(label(snapshot, 0)),
        _ => None,
    };

    fs::write(root.join("p.yaml"), mutation("p", "2")).unwrap();
    until(&seen, |seen| last_label(seen).as_deref() == Some("2")).await;

    fs::rename(&root, parent.path().join("away")).unwrap();
    until(&seen, |seen| matches!(seen.last(), Some(Err(SourceError::Directory { .. })))).await;
    let told = seen.lock().len();

    fs::rename(parent.path().join("away"), &root).unwrap();
    fs::write(root.join("p.yaml"), mutation("p", "3")).unwrap();
    until(&seen, |seen| last_label(seen).as_deref() == Some("3")).await;
    task.abort();
    let errors = seen.lock().iter().filter(|next| next.is_err()).count();
    assert_eq!(errors, 1, "told {told} things");
}

const VALIDATING: &str = r#"
apiVersion: admissionregistration.k8s.io/VERSION
kind: ValidatingAdmissionPolicy
metadata: {name: v}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
    namespaceSelector: {}
  validations: [{expression: "true", reason: Forbidden}]
status: {typeChecking: {}}
"#;
const VALIDATING_BINDING: &str = r"
apiVersion: admissionregistration.k8s.io/VERSION
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec:
  policyName: v
  validationActions: [Deny]
  paramRef: {name: c, namespace: n, parameterNotFoundAction: Allow}
  matchResources: {objectSelector: {matchLabels: {a: b}}}
";
const MUTATING: &str = r#"
apiVersion: admissionregistration.k8s.io/VERSION
kind: MutatingAdmissionPolicy
metadata: {name: m}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}]
  reinvocationPolicy: Never
"#;
const MUTATING_BINDING: &str = r"
apiVersion: admissionregistration.k8s.io/VERSION
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: m}
";

#[test]
fn the_api_servers_own_policies_are_read_strictly_in_all_their_versions() {
    let rows: [(&str, PolicyKind, &[&str], &str, &str); 4] = [
        (VALIDATING, PolicyKind::ValidatingAdmissionPolicy, &["v1", "v1beta1"], "reason:", "reson:"),
        (
            VALIDATING_BINDING,
            PolicyKind::ValidatingAdmissionPolicyBinding,
            &["v1", "v1beta1"],
            "objectSelector:",
            "objectSelectors:",
        ),
        (
            MUTATING,
            PolicyKind::MutatingAdmissionPolicy,
            &["v1", "v1beta1", "v1alpha1"],
            "jsonPatch:",
            "overlay:",
        ),
        (
            MUTATING_BINDING,
            PolicyKind::MutatingAdmissionPolicyBinding,
            &["v1", "v1beta1", "v1alpha1"],
            "policyName: m",
            "policyName: m, validationActions: [Deny]",
        ),
    ];
    for (text, kind, versions, right, wrong) in rows {
        let directory = TempDir::new().unwrap();
        let read = |text: &str| {
            fs::write(directory.path().join("p.yaml"), text).unwrap();
            load(&directory, None)
        };
        for version in versions {
            let snapshot = read(&text.replace("VERSION", version));
            assert_eq!(snapshot.problems, [], "{kind:?} {version}");
            let found = [
                snapshot.validating_policies.len(),
                snapshot.validating_bindings.len(),
                snapshot.mutating_policies.len(),
                snapshot.mutating_bindings.len(),
            ];
            assert_eq!(found.iter().sum::<usize>(), 1, "{kind:?} {version}");
            assert!(snapshot.unusable(kind).is_empty());
        }
        for broken in [text.replace("VERSION", "v9"), text.replace("VERSION", "v1").replace(right, wrong)] {
            assert!(broken.contains("v9") || broken.contains(wrong));
            let snapshot = read(&broken);
            let [problem] = snapshot.problems.as_slice() else { panic!("{:?}", snapshot.problems) };
            assert!(matches!(&problem.scope, Scope::Policy(id) if id.kind == kind), "{problem}");
            let named = if broken.contains("v9") { "v9" } else { wrong.split(':').next().unwrap() };
            assert!(
                problem.message.contains(named) || problem.message.contains("validationActions"),
                "{problem}"
            );
            assert_eq!(snapshot.unusable(kind).len(), 1);
        }
    }
}

#[test]
fn other_objects_are_kept_once_and_stay_while_their_file_is_unreadable() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("objects.yaml");
    let map = |namespace: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: {namespace}}}\ndata: {{a: b}}\n"
        )
    };
    let nameless = "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n";
    fs::write(&path, [map("a"), map("b"), map("a"), nameless.to_owned()].join("---\n")).unwrap();
    let first = load(&directory, None);
    assert_eq!(first.objects.len(), 2);
    let [problem] = first.problems.as_slice() else { panic!("{:?}", first.problems) };
    assert!(problem.message.contains("twice") && problem.document == 3, "{problem}");

    fs::write(&path, "a: [").unwrap();
    let second = load(&directory, Some(&first));
    assert_eq!(second.objects.iter().filter(|entry| entry.stale).count(), 2);
    fs::write(&path, map("b")).unwrap();
    assert_eq!(load(&directory, Some(&second)).objects.len(), 1);
}

#[test]
fn objects_are_bounded_in_number() {
    let directory = TempDir::new().unwrap();
    for file in 0..11 {
        let object = |index: usize| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c-{file}-{index}, namespace: a}}\n")
        };
        let text: Vec<String> = (0..1000).map(object).collect();
        fs::write(directory.path().join(format!("{file}.yaml")), text.join("---\n")).unwrap();
    }
    let snapshot = load(&directory, None);
    assert_eq!(snapshot.objects.len(), 10_000);
    assert_eq!(snapshot.problems.len(), 1);
}
