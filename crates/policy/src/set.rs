//! A compiled set of policies of either kind: put together from the last good forms, indexed, immutable.

pub(crate) mod admission_policy;
pub(crate) mod binding;
pub(crate) mod objects;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sallyport_api::{FailurePolicy, MatchConstraints, OperationType};

use crate::error::{DefinitionError, PolicyError};
use crate::family::Family;
use crate::matching::index::{Candidates, Index};
use crate::matching::labels::Labels;
use crate::matching::matcher::{Matcher, Matching};
use crate::outcome::{PolicyState, PolicyStatus};
use crate::request::{GroupVersionKind, Request};
use crate::review::documents::Documents;
use crate::schema::Schemas;
use crate::set::objects::Objects;

/// A kind of policy that can be compiled.
pub(crate) trait Definition: Sized {
    /// The spec as written.
    type Spec: PartialEq + std::fmt::Debug;
    /// Operations of rules that name none.
    const OPERATIONS: &'static [OperationType];

    fn family(spec: &Self::Spec) -> Family;
    /// Returns whether nothing puts the policy in force.
    fn is_unbound(spec: &Self::Spec) -> bool;
    fn constraints(spec: &Self::Spec) -> &MatchConstraints;
    fn failure_policy(spec: &Self::Spec) -> FailurePolicy;
    fn compile(spec: &Self::Spec, matcher: &Matcher, schemas: &Schemas) -> Result<Self, DefinitionError>;
    /// Returns whether an expression asks what somebody may do.
    fn asks_authorizer(&self) -> bool;
}

/// A policy that is in force.
#[derive(Debug)]
struct Compiled<D: Definition> {
    spec: D::Spec,
    matcher: Matcher,
    policy: D,
}

/// A policy of the set.
#[derive(Debug)]
enum Entry<D: Definition> {
    Good(Arc<Compiled<D>>),
    /// Never was good; `None` if it is not even known what it matches.
    Broken(Option<Matcher>),
}

/// A set of policies.
#[derive(Debug)]
pub(crate) struct Set<D: Definition> {
    entries: Vec<Entry<D>>,
    families: Vec<Family>,
    statuses: Vec<PolicyStatus>,
    /// Those under the failure policy `Fail`.
    failing: Index,
    /// Those under `Ignore`.
    ignoring: Index,
    objects: Arc<Objects>,
}

/// A policy that matches a request.
pub(crate) struct Match<'s, D> {
    /// Its index in the set.
    pub(crate) index: usize,
    /// Its name.
    pub(crate) name: &'s str,
    pub(crate) family: Family,
    /// The request in the version that the policy is for, where that is not the one in which the object is.
    pub(crate) request: Option<Box<Request>>,
    /// The policy, or why it cannot be evaluated.
    pub(crate) policy: Result<&'s D, PolicyError>,
}

impl<D: Definition> Set<D> {
    /// Compiles policies given by name and spec. A policy whose spec did not change is taken from `previous`,
    /// unless the custom kinds that it may be about are others; one that does not compile stays in force as it
    /// is there, if it was.
    pub(crate) fn compile(
        policies: impl IntoIterator<Item = (Option<String>, D::Spec)>,
        objects: Arc<Objects>,
        previous: Option<&Self>,
    ) -> Self {
        let good: HashMap<(&str, Family), &Arc<Compiled<D>>> =
            previous.into_iter().flat_map(Self::compiled).collect();
        let mut policies: Vec<(Option<String>, D::Spec)> = policies.into_iter().collect();
        // Stable: of several with one name the first given counts.
        policies
            .sort_by(|(a, left), (b, right)| a.cmp(b).then_with(|| D::family(left).cmp(&D::family(right))));
        let mut set = Self {
            entries: Vec::new(),
            families: Vec::new(),
            statuses: Vec::new(),
            failing: Index::default(),
            ignoring: Index::default(),
            objects,
        };
        let same_kinds = previous.is_some_and(|previous| previous.schemas() == set.schemas());
        let mut seen = HashSet::new();
        for (name, spec) in policies {
            let family = D::family(&spec);
            let wrong = match &name {
                None => Some(DefinitionError::Unnamed),
                Some(name) if !seen.insert((name.clone(), family)) => Some(DefinitionError::Duplicate),
                Some(_) => None,
            };
            let name = name.unwrap_or_default();
            let last = good.get(&(name.as_str(), family)).filter(|_| wrong.is_none());
            let last = last.map(|good| Arc::clone(good));
            set.add_policy(name, spec, wrong, last, same_kinds);
        }
        set
    }

    /// The policies in the order of their names.
    pub(crate) fn statuses(&self) -> &[PolicyStatus] {
        &self.statuses
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(crate) fn schemas(&self) -> &Schemas {
        self.objects.schemas()
    }

    /// The policies at `door` whose rules match.
    pub(crate) fn candidates<'m>(&'m self, request: &'m Request, door: FailurePolicy) -> Vec<Candidates<'m>> {
        let index = match door {
            FailurePolicy::Fail => &self.failing,
            FailurePolicy::Ignore => &self.ignoring,
        };
        index.candidates(request, self.schemas())
    }

    /// The candidates whose selectors match too, or for which that cannot be told, in the order of their names.
    pub(crate) fn select(
        &self,
        candidates: &[Candidates<'_>],
        documents: &Documents<'_>,
    ) -> Vec<Match<'_, D>> {
        let labels = Labels::new(documents);
        let mut matches = Vec::new();
        for Candidates { matching, selected } in candidates {
            for (selectors, policies) in *selected {
                let selects = selectors.match_labels(&labels);
                if matches!(selects, Ok(false)) {
                    continue;
                }
                let error = selects.err();
                let of = |policy: &usize| self.match_policy(*policy, error.as_ref(), *matching, documents);
                matches.extend(policies.iter().filter_map(of));
            }
        }
        matches.sort_unstable_by_key(|matched| matched.index);
        matches
    }

    fn match_policy(
        &self,
        index: usize,
        error: Option<&PolicyError>,
        matching: Matching<'_>,
        documents: &Documents<'_>,
    ) -> Option<Match<'_, D>> {
        let (entry, status) = (self.entries.get(index)?, self.statuses.get(index)?);
        let policy = match (error, entry) {
            (Some(error), _) => Err(error.clone()),
            (None, Entry::Good(good)) => Ok(&good.policy),
            (None, Entry::Broken(_)) => Err(PolicyError::Broken(status.message.clone())),
        };
        let (request, policy) = match self.convert_request(matching, documents) {
            Ok(request) => (request, policy),
            Err(error) => (None, policy.and(Err(error))),
        };
        Some(Match { index, name: &status.name, family: *self.families.get(index)?, request, policy })
    }

    /// The request in the version that a policy's rules name, if the object is not in that one.
    fn convert_request(
        &self,
        matching: Matching<'_>,
        documents: &Documents<'_>,
    ) -> Result<Option<Box<Request>>, PolicyError> {
        let request = documents.review.request;
        let wanted: Option<&GroupVersionKind> = match matching {
            Matching::Own => return Ok(None),
            Matching::As(_, kind) => Some(kind),
            Matching::Unknown => None,
        };
        let nothing = documents.review.object.is_empty() && documents.review.old_object.is_empty();
        let same = |kind: &GroupVersionKind| {
            *kind == request.kind || nothing || self.schemas().differ_in_version_only(&request.kind, kind)
        };
        match matching {
            Matching::As(resource, kind) if same(kind) => {
                Ok(Some(Box::new(request.converted(resource.clone(), kind.clone()))))
            }
            _ => Err(PolicyError::Version {
                present: request.kind.to_string(),
                wanted: wanted.map_or_else(|| "another version".to_owned(), GroupVersionKind::to_string),
            }),
        }
    }

    fn add_policy(
        &mut self,
        name: String,
        spec: D::Spec,
        wrong: Option<DefinitionError>,
        last: Option<Arc<Compiled<D>>>,
        same_kinds: bool,
    ) {
        let written = D::failure_policy(&spec);
        let (family, unbound) = (D::family(&spec), D::is_unbound(&spec));
        let matcher = Matcher::compile(D::constraints(&spec), D::OPERATIONS);
        let compiled = match (wrong, last) {
            (None, Some(last)) if same_kinds && last.spec == spec => Ok(last),
            (None, last) => build(spec, &matcher, self.schemas()).map_err(|error| (error, last)),
            (Some(error), last) => Err((error, last)),
        };
        let (entry, state, failure_policy, message) = match compiled {
            Ok(good) => (Entry::Good(good), PolicyState::Active, written, String::new()),
            Err((error, Some(last))) => {
                let in_force = D::failure_policy(&last.spec);
                (Entry::Good(last), PolicyState::Stale, in_force, error.explain())
            }
            Err((error, None)) => {
                let mut message = error.explain();
                if matcher.is_err() {
                    message.push_str("; the policy matches nothing until this is mended");
                }
                (Entry::Broken(matcher.ok()), PolicyState::Broken, written, message)
            }
        };
        let index = self.entries.len();
        let asks_authorizer = matches!(&entry, Entry::Good(good) if good.policy.asks_authorizer());
        self.entries.push(entry);
        self.families.push(family);
        self.statuses.push(PolicyStatus { name, failure_policy, state, message, asks_authorizer });
        let Self { entries, failing, ignoring, .. } = self;
        let by_resource = if failure_policy == FailurePolicy::Fail { failing } else { ignoring };
        if let Some(matcher) = entries.last().and_then(Entry::matcher).filter(|_| !unbound) {
            by_resource.insert(index, matcher);
        }
    }

    fn compiled(&self) -> impl Iterator<Item = ((&str, Family), &Arc<Compiled<D>>)> {
        let names = self.statuses.iter().map(|status| status.name.as_str());
        let identities = names.zip(self.families.iter().copied());
        identities.zip(&self.entries).filter_map(|(identity, entry)| match entry {
            Entry::Good(good) => Some((identity, good)),
            Entry::Broken(_) => None,
        })
    }
}

impl<D: Definition> Entry<D> {
    fn matcher(&self) -> Option<&Matcher> {
        match self {
            Self::Good(good) => Some(&good.matcher),
            Self::Broken(matcher) => matcher.as_ref(),
        }
    }
}

fn build<D: Definition>(
    spec: D::Spec,
    matcher: &Result<Matcher, DefinitionError>,
    schemas: &Schemas,
) -> Result<Arc<Compiled<D>>, DefinitionError> {
    let matcher = matcher.clone()?;
    // A panic in what compiles constants of others costs this policy alone, not the set or the process.
    let policy =
        catch_unwind(AssertUnwindSafe(|| D::compile(&spec, &matcher, schemas))).unwrap_or_else(|_| {
            Err(DefinitionError::field("spec", "the compiler failed on it; please report this"))
        })?;
    Ok(Arc::new(Compiled { spec, matcher, policy }))
}
