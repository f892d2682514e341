//! The two policy sets as the backend sees them: the same thing with other policies.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sallyport_api::FailurePolicy;
use sallyport_policy::{
    MutationSet, Mutations, Namespaces, Objects, Outcome, PolicyStatus, Review, ValidationSet, Validations,
};
use sallyport_sources::{Entry, PolicyKind, Snapshot};

/// A policy of a snapshot, whatever its kind.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    name: Option<&'s str>,
    kind: PolicyKind,
    file: &'s Arc<str>,
    stale: bool,
}

impl<'s> Source<'s> {
    fn new<T>(entry: &'s Entry<T>, metadata: &'s ObjectMeta, kind: PolicyKind) -> Self {
        Self { name: metadata.name.as_deref(), kind, file: &entry.file, stale: entry.stale }
    }
}

/// A compiled set of policies of one kind.
pub trait PolicySet: Send + Sync + Sized + 'static {
    /// The kind.
    const KIND: PolicyKind;
    /// The API server's own kind that means the same.
    const ADMISSION_KIND: PolicyKind;
    /// Short name of the service that evaluates such sets.
    const SERVICE: &'static str;

    /// Compiles the policies of a snapshot. What does not compile stays in the form that `previous` has, or
    /// fails the requests that it matches.
    fn compile(snapshot: &Snapshot, previous: Option<&Self>) -> Self;

    /// The policies of a snapshot that such a set is compiled from.
    fn sources(snapshot: &Snapshot) -> Vec<Source<'_>>;

    /// The policies with their names and states, by the index that results refer to.
    fn policies(&self) -> &[PolicyStatus];

    /// The objects that policies see besides the one under review, if they see any.
    fn objects(&self) -> Option<&Objects>;

    /// Evaluates the policies that have this failure policy.
    fn review(&self, review: &Review<'_>, failure_policy: FailurePolicy) -> Outcome;

    /// How many policies of a snapshot are there in their last good form.
    fn stale(snapshot: &Snapshot) -> usize {
        Self::sources(snapshot).iter().filter(|source| source.stale).count()
    }

    /// The kind and the file of each policy of a snapshot, in the order of [`PolicySet::policies`].
    fn origins(snapshot: &Snapshot) -> Vec<(PolicyKind, Arc<str>)> {
        let mut sources = Self::sources(snapshot);
        sources.sort_by_key(|source| (source.name, source.kind));
        sources.into_iter().map(|source| (source.kind, Arc::clone(source.file))).collect()
    }

    /// What is wrong with the objects of the snapshot that the set is from, with the file of each.
    fn object_problems(&self, snapshot: &Snapshot) -> Vec<String> {
        let file = |index: usize| snapshot.objects.get(index).map_or("", |entry| &*entry.file);
        let problems = self.objects().into_iter().flat_map(Objects::problems);
        problems.map(|problem| format!("{}: {}", file(problem.index), problem.message)).collect()
    }
}

impl PolicySet for MutationSet {
    const KIND: PolicyKind = PolicyKind::MutationPolicy;
    const ADMISSION_KIND: PolicyKind = PolicyKind::MutatingAdmissionPolicy;
    const SERVICE: &'static str = "mutator";

    fn compile(snapshot: &Snapshot, previous: Option<&Self>) -> Self {
        let mutations = Mutations {
            policies: objects(&snapshot.mutations),
            admission_policies: objects(&snapshot.mutating_policies),
            bindings: objects(&snapshot.mutating_bindings),
        };
        Self::build(mutations, surroundings(snapshot), previous)
    }

    fn sources(snapshot: &Snapshot) -> Vec<Source<'_>> {
        let ours = snapshot.mutations.iter();
        let ours = ours.map(|entry| Source::new(entry, &entry.object.metadata, Self::KIND));
        let theirs = snapshot.mutating_policies.iter();
        let theirs = theirs.map(|entry| Source::new(entry, &entry.object.metadata, Self::ADMISSION_KIND));
        ours.chain(theirs).collect()
    }

    fn policies(&self) -> &[PolicyStatus] {
        self.policies()
    }

    fn objects(&self) -> Option<&Objects> {
        Some(self.objects())
    }

    fn review(&self, review: &Review<'_>, failure_policy: FailurePolicy) -> Outcome {
        self.review(review, failure_policy)
    }
}

impl PolicySet for ValidationSet {
    const KIND: PolicyKind = PolicyKind::ValidationPolicy;
    const ADMISSION_KIND: PolicyKind = PolicyKind::ValidatingAdmissionPolicy;
    const SERVICE: &'static str = "validator";

    fn compile(snapshot: &Snapshot, previous: Option<&Self>) -> Self {
        let validations = Validations {
            policies: objects(&snapshot.validations),
            admission_policies: objects(&snapshot.validating_policies),
            bindings: objects(&snapshot.validating_bindings),
        };
        Self::build(validations, surroundings(snapshot), previous)
    }

    fn sources(snapshot: &Snapshot) -> Vec<Source<'_>> {
        let ours = snapshot.validations.iter();
        let ours = ours.map(|entry| Source::new(entry, &entry.object.metadata, Self::KIND));
        let theirs = snapshot.validating_policies.iter();
        let theirs = theirs.map(|entry| Source::new(entry, &entry.object.metadata, Self::ADMISSION_KIND));
        ours.chain(theirs).collect()
    }

    fn policies(&self) -> &[PolicyStatus] {
        self.policies()
    }

    fn objects(&self) -> Option<&Objects> {
        Some(self.objects())
    }

    fn review(&self, review: &Review<'_>, failure_policy: FailurePolicy) -> Outcome {
        self.review(review, failure_policy)
    }
}

fn objects<T: Clone>(entries: &[Entry<T>]) -> Vec<T> {
    entries.iter().map(|entry| entry.object.clone()).collect()
}

/// The objects that policies may see besides the one under review.
fn surroundings(snapshot: &Snapshot) -> Arc<Objects> {
    let namespaces: Namespaces = objects(&snapshot.namespaces).into_iter().collect();
    Arc::new(Objects::new(Arc::new(namespaces), objects(&snapshot.objects)))
}

#[cfg(test)]
mod tests {
    use sallyport_policy::{
        FailurePolicy, MutationSet, Operation, PolicyState, Request, Review, ValidationSet,
    };
    use sallyport_sources::{Directory, PolicyKind};

    use super::PolicySet;

    const OURS: &str = r#"
apiVersion: sallyport.dev/v1alpha1
kind: ValidationPolicy
metadata: {name: limit}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]}
  validations: [{expression: "true"}]
"#;
    const THEIRS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limit}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "false", messageExpression: "string(params.data.message)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec:
  policyName: limit
  validationActions: [Deny]
  paramRef: {name: settings, namespace: default, parameterNotFoundAction: Deny}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {message: as set}
"#;

    /// Policies of both families, bindings, settings: from files to a decision.
    #[test]
    fn a_directory_gives_policies_with_their_bindings_and_settings() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("theirs.yaml"), THEIRS).unwrap();
        std::fs::write(directory.path().join("ours.yaml"), OURS).unwrap();
        let snapshot = Directory::new(directory.path()).load(None).unwrap();
        assert_eq!(snapshot.problems, []);
        let set = <ValidationSet as PolicySet>::compile(&snapshot, None);
        assert!(set.policies().iter().all(|policy| policy.state == PolicyState::Active));
        let origins = ValidationSet::origins(&snapshot);
        let origins: Vec<_> = origins.iter().map(|(kind, file)| (*kind, &**file)).collect();
        let expected = [
            (PolicyKind::ValidationPolicy, "ours.yaml"),
            (PolicyKind::ValidatingAdmissionPolicy, "theirs.yaml"),
        ];
        assert_eq!(origins, expected);
        assert_eq!(ValidationSet::stale(&snapshot), 0);

        let mut request = Request { operation: Operation::Create, ..Request::default() };
        request.resource.version = "v1".to_owned();
        request.resource.resource = "pods".to_owned();
        let review = Review { object: b"{}", ..Review::of(&request) };
        let status = PolicySet::review(&set, &review, FailurePolicy::Fail).answer.status.unwrap();
        let expected = "ValidatingAdmissionPolicy 'limit' with binding 'everywhere' denied request: as set";
        assert_eq!(status.message, expected);
        assert_eq!(set.object_problems(&snapshot), [] as [String; 0]);
    }

    #[test]
    fn problems_of_objects_are_told_with_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                          metadata: {name: things.example.dev}\nspec: {group: example.dev}\n";
        std::fs::write(directory.path().join("a.yaml"), OURS).unwrap();
        std::fs::write(directory.path().join("b.yaml"), format!("{THEIRS}---\n{definition}")).unwrap();
        let snapshot = Directory::new(directory.path()).load(None).unwrap();
        assert_eq!(snapshot.problems, []);
        let expected =
            ["b.yaml: CustomResourceDefinition things.example.dev: /spec/names/kind is missing".to_owned()];
        let validations = <ValidationSet as PolicySet>::compile(&snapshot, None);
        assert_eq!(validations.object_problems(&snapshot), expected);
        let mutations = <MutationSet as PolicySet>::compile(&snapshot, None);
        assert_eq!(mutations.object_problems(&snapshot), expected);
    }
}
