//! Whether a policy is about a request: rules, scopes and selectors.

use sallyport_api::{
    LabelSelector, MatchConstraints, MatchPolicy, OperationType, ResourceRule, ResourceScope,
};

use crate::error::{DefinitionError, PolicyError};
use crate::matching::labels::Labels;
use crate::matching::selector::Selector;
use crate::request::{GroupVersionKind, GroupVersionResource, Operation, Request};
use crate::schema::{Schema, Schemas, Served};

/// How a policy's rules match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matching<'m> {
    /// The object is of the version that the rules name.
    Own,
    /// The rules name another version of the same objects.
    As(&'m GroupVersionResource, &'m GroupVersionKind),
    /// The rules name another version of a resource that is not known.
    Unknown,
}

/// The match constraints of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    pub(crate) rules: Rules,
    pub(crate) selectors: Selectors,
}

/// The part of the constraints that looks at no object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) included: Vec<Rule>,
    excluded: Vec<Rule>,
    pub(crate) match_policy: MatchPolicy,
}

/// The part that looks at labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selectors {
    namespace: Selector,
    object: Selector,
}

/// A rule with its operations filled in and its resources split.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) groups: Vec<String>,
    any_group: bool,
    versions: Vec<String>,
    any_version: bool,
    /// Whether it covers an operation, by that.
    operations: [bool; Operation::ALL.len()],
    /// Resource and subresource; the latter empty if none.
    pub(crate) resources: Vec<(String, String)>,
    names: Vec<String>,
    scope: ResourceScope,
}

impl Matcher {
    /// Checks the constraints; rules without operations get `operations`.
    pub(crate) fn compile(
        constraints: &MatchConstraints,
        operations: &[OperationType],
    ) -> Result<Self, DefinitionError> {
        if constraints.resource_rules.is_empty() {
            return Err(DefinitionError::field(
                "matchConstraints.resourceRules",
                "must hold at least one rule, or the policy would match nothing",
            ));
        }
        let rules = |field: &str, rules: &[ResourceRule], operations: &[OperationType]| {
            rules
                .iter()
                .enumerate()
                .map(|(index, rule)| {
                    Rule::compile(&format!("matchConstraints.{field}[{index}]"), rule, operations)
                })
                .collect::<Result<Vec<_>, _>>()
        };
        let selector = |field: &str, selector: &Option<LabelSelector>| {
            Selector::compile(&format!("matchConstraints.{field}"), selector.as_ref())
        };
        Ok(Self {
            rules: Rules {
                included: rules("resourceRules", &constraints.resource_rules, operations)?,
                excluded: rules(
                    "excludeResourceRules",
                    &constraints.exclude_resource_rules,
                    &[OperationType::All],
                )?,
                match_policy: constraints.match_policy,
            },
            selectors: Selectors {
                namespace: selector("namespaceSelector", &constraints.namespace_selector)?,
                object: selector("objectSelector", &constraints.object_selector)?,
            },
        })
    }
}

impl Rules {
    /// Returns as which version they want to see the object, if they match. `Exact` looks at the resource that was
    /// asked for alone; `Equivalent` also at the version in which the API server hands the object over, and at all
    /// others that hold the same objects.
    pub(crate) fn matches<'m>(&self, request: &'m Request, schemas: &'m Schemas) -> Option<Matching<'m>> {
        // The index has looked at the others already: these tell more.
        match self.find_match(&self.excluded, request, schemas) {
            None | Some(Matching::Unknown) => self.find_match(&self.included, request, schemas),
            Some(_) => None,
        }
    }

    fn find_match<'m>(
        &self,
        rules: &[Rule],
        request: &'m Request,
        schemas: &'m Schemas,
    ) -> Option<Matching<'m>> {
        if rules.is_empty() {
            return None;
        }
        let any = |resource: &GroupVersionResource, sub: &str| {
            rules.iter().any(|rule| rule.matches(request, resource, sub))
        };
        let equivalent = self.match_policy == MatchPolicy::Equivalent;
        let handed_over = (&request.resource, request.sub_resource.as_str());
        let asked = match &request.request_resource {
            Some(resource) => (resource, request.request_sub_resource.as_str()),
            None => handed_over,
        };
        if (equivalent || asked == handed_over) && any(handed_over.0, handed_over.1) {
            return Some(Matching::Own);
        }
        if asked != handed_over && any(asked.0, asked.1) {
            return Some(Matching::As(asked.0, request.request_kind.as_ref().unwrap_or(&request.kind)));
        }
        if !equivalent {
            return None;
        }
        let (resource, sub) = handed_over;
        let served = schemas.equivalents(&resource.group, &resource.resource, sub);
        let unknown = || rules.iter().any(|rule| rule.names(request, resource, sub));
        if served.is_empty() {
            return unknown().then_some(Matching::Unknown);
        }
        // The first rule that matches any version says which it is.
        let first = rules.iter().find_map(|rule| {
            served.iter().find(|served| rule.matches(request, &served.resource, &served.sub_resource))
        });
        first.map(|Served { resource, kind, .. }| Matching::As(resource, kind))
    }
}

impl Selectors {
    /// Returns whether both match. One that does not match beats the other that cannot be told, as in Kubernetes.
    pub(crate) fn match_labels(&self, labels: &Labels<'_, '_>) -> Result<bool, PolicyError> {
        let namespace =
            if self.namespace.is_empty() { Ok(true) } else { labels.match_namespace(&self.namespace) };
        if matches!(namespace, Ok(false)) {
            return Ok(false);
        }
        let object = if self.object.is_empty() { Ok(true) } else { labels.match_object(&self.object) };
        if matches!(object, Ok(false)) {
            return Ok(false);
        }
        namespace.and(object)
    }
}

impl Rule {
    fn compile(
        field: &str,
        rule: &ResourceRule,
        operations: &[OperationType],
    ) -> Result<Self, DefinitionError> {
        for (name, list) in [
            ("apiGroups", &rule.api_groups),
            ("apiVersions", &rule.api_versions),
            ("resources", &rule.resources),
        ] {
            if list.is_empty() {
                return Err(DefinitionError::field(
                    format!("{field}.{name}"),
                    "must not be empty; write \"*\" for all",
                ));
            }
        }
        let stated = if rule.operations.is_empty() { operations } else { &rule.operations };
        let resources = rule
            .resources
            .iter()
            .map(|resource| {
                let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                (resource.to_owned(), sub.to_owned())
            })
            .collect();
        Ok(Self {
            groups: rule.api_groups.clone(),
            any_group: rule.api_groups.iter().any(|group| group == "*"),
            versions: rule.api_versions.clone(),
            any_version: rule.api_versions.iter().any(|version| version == "*"),
            operations: Operation::ALL
                .map(|operation| stated.iter().any(|stated| covers(*stated, operation))),
            resources,
            names: rule.resource_names.clone(),
            scope: rule.scope,
        })
    }

    fn matches(&self, request: &Request, resource: &GroupVersionResource, sub_resource: &str) -> bool {
        self.matches_request(request)
            && (self.any_group || self.groups.contains(&resource.group))
            && (self.any_version || self.versions.contains(&resource.version))
            && self.resources.iter().any(|(name, sub)| {
                (*name == resource.resource || name == "*") && (sub == sub_resource || sub == "*")
            })
    }

    /// The operations that it covers.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> + '_ {
        Operation::ALL.into_iter().filter(|operation| self.covers(*operation))
    }

    fn covers(&self, operation: Operation) -> bool {
        self.operations.get(operation as usize) == Some(&true)
    }

    /// The schemas of the kinds that the rule names.
    pub(crate) fn schemas<'s>(&self, schemas: &'s Schemas) -> Vec<Schema<'s>> {
        let named = self.groups.iter().flat_map(|group| self.resources.iter().map(move |it| (group, it)));
        named.flat_map(|(group, (name, sub))| schemas.of_resource(group, &self.versions, name, sub)).collect()
    }

    /// Returns whether the resource is named in so many words, in whatever version.
    fn names(&self, request: &Request, resource: &GroupVersionResource, sub_resource: &str) -> bool {
        self.groups.contains(&resource.group)
            && self.resources.iter().any(|(name, sub)| *name == resource.resource && sub == sub_resource)
            && self.matches_request(request)
    }

    fn matches_request(&self, request: &Request) -> bool {
        self.covers(request.operation)
            && (self.names.is_empty() || self.names.contains(&request.name))
            && self.in_scope(request)
    }

    /// Namespaces are cluster-scoped although their requests carry a namespace.
    fn in_scope(&self, request: &Request) -> bool {
        let namespaced = !request.namespace.is_empty() && !request.is_namespace();
        match self.scope {
            ResourceScope::All => true,
            ResourceScope::Namespaced => namespaced,
            ResourceScope::Cluster => !namespaced,
        }
    }
}

fn covers(rule: OperationType, operation: Operation) -> bool {
    match rule {
        OperationType::All => true,
        OperationType::Create => operation == Operation::Create,
        OperationType::Update => operation == Operation::Update,
        OperationType::Delete => operation == Operation::Delete,
        OperationType::Connect => operation == Operation::Connect,
    }
}
