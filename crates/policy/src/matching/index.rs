//! Which policies may match a resource, without looking at those that cannot.
//!
//! A tree: group, resource, subresource and operation lead to rules, rules to selectors, selectors to policies.
//! Rules and selectors that several policies share are looked at once a request.

use std::collections::HashMap;

use indexmap::IndexMap;

use crate::matching::matcher::{Matcher, Matching, Rules, Selectors};
use crate::request::{GroupVersionResource, Operation, Request};
use crate::schema::{Schemas, Served};

/// Policies by what they match.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Indices of `rules`.
    groups: Names<Names<Names<Operations>>>,
    rules: IndexMap<Rules, Selected>,
}

/// Policies by their selectors.
type Selected = IndexMap<Selectors, Vec<usize>>;

/// What stands under a name, or under `*`.
#[derive(Clone, Debug)]
struct Names<T> {
    named: HashMap<String, T>,
    any: Option<Box<T>>,
}

/// What there is for each operation.
#[derive(Clone, Debug, Default)]
struct Operations {
    rules: [Vec<usize>; Operation::ALL.len()],
}

/// Policies whose rules match a request.
pub(crate) struct Candidates<'m> {
    pub(crate) matching: Matching<'m>,
    pub(crate) selected: &'m Selected,
}

impl Index {
    /// Takes up the policy with this index. Versions do not count.
    pub(crate) fn insert(&mut self, policy: usize, matcher: &Matcher) {
        if let Some(selected) = self.rules.get_mut(&matcher.rules) {
            selected.entry(matcher.selectors.clone()).or_default().push(policy);
            return;
        }
        let index = self.rules.len();
        for rule in &matcher.rules.included {
            let operations: Vec<Operation> = rule.operations().collect();
            for group in &rule.groups {
                for (resource, sub) in &rule.resources {
                    self.add_resource(index, &operations, group, resource, sub);
                }
            }
        }
        self.rules.insert(matcher.rules.clone(), IndexMap::from([(matcher.selectors.clone(), vec![policy])]));
    }

    fn add_resource(
        &mut self,
        index: usize,
        operations: &[Operation],
        group: &str,
        resource: &str,
        sub: &str,
    ) {
        let place = self.groups.entry(group).entry(resource).entry(sub);
        for operation in operations {
            if let Some(rules) = place.rules.get_mut(*operation as usize)
                && rules.last() != Some(&index)
            {
                rules.push(index);
            }
        }
    }

    /// The policies whose rules match the resource, or one that holds the same objects under another name or in
    /// another group.
    pub(crate) fn candidates<'m>(
        &'m self,
        request: &'m Request,
        schemas: &'m Schemas,
    ) -> Vec<Candidates<'m>> {
        let mut found = Vec::new();
        self.collect_rules(request, &request.resource, &request.sub_resource, &mut found);
        if let Some(resource) = &request.request_resource
            && (*resource != request.resource || request.request_sub_resource != request.sub_resource)
        {
            self.collect_rules(request, resource, &request.request_sub_resource, &mut found);
        }
        let own = &request.resource;
        for Served { resource, sub_resource, .. } in
            schemas.equivalents(&own.group, &own.resource, &request.sub_resource)
        {
            if resource.group != own.group || resource.resource != own.resource {
                self.collect_rules(request, resource, sub_resource, &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        let matching = |index| {
            let (rules, selected) = self.rules.get_index(index)?;
            Some(Candidates { matching: rules.matches(request, schemas)?, selected })
        };
        found.into_iter().filter_map(matching).collect()
    }

    fn collect_rules(
        &self,
        request: &Request,
        resource: &GroupVersionResource,
        sub_resource: &str,
        found: &mut Vec<usize>,
    ) {
        for group in self.groups.under(&resource.group) {
            for name in group.under(&resource.resource) {
                for operations in name.under(sub_resource) {
                    if let Some(rules) = operations.rules.get(request.operation as usize) {
                        found.extend_from_slice(rules);
                    }
                }
            }
        }
    }
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { named: HashMap::new(), any: None }
    }
}

impl<T: Default> Names<T> {
    fn entry(&mut self, name: &str) -> &mut T {
        if name == "*" {
            self.any.get_or_insert_default()
        } else {
            self.named.entry(name.to_owned()).or_default()
        }
    }

    fn under(&self, name: &str) -> impl Iterator<Item = &T> {
        let named = if self.named.is_empty() { None } else { self.named.get(name) };
        named.into_iter().chain(self.any.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use sallyport_api::{MatchConstraints, OperationType, ResourceRule};

    use super::Index;
    use crate::matching::matcher::Matcher;
    use crate::request::{GroupVersionResource, Operation, Request};
    use crate::schema::Schemas;

    #[test]
    fn policies_for_other_resources_are_not_even_looked_at() {
        let mut index = Index::default();
        for policy in 0..1000 {
            let rule = ResourceRule {
                api_groups: vec!["apps".to_owned()],
                api_versions: vec!["v1".to_owned()],
                resources: vec![format!("resource{policy}"), "*/scale".to_owned()],
                ..ResourceRule::default()
            };
            let constraints = MatchConstraints { resource_rules: vec![rule], ..MatchConstraints::default() };
            let matcher = Matcher::compile(&constraints, &[OperationType::Create]).unwrap();
            index.insert(policy, &matcher);
        }
        let request = |operation, resource: &str, sub_resource: &str| Request {
            operation,
            resource: GroupVersionResource {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
            },
            sub_resource: sub_resource.to_owned(),
            ..Request::default()
        };
        let schemas = Schemas::default();
        let candidates = |operation, resource, sub_resource| {
            let request = request(operation, resource, sub_resource);
            let found = index.candidates(&request, &schemas);
            found.iter().flat_map(|found| found.selected.values().flatten().copied()).collect::<Vec<_>>()
        };
        let create = Operation::Create;
        assert_eq!(candidates(create, "resource7", ""), [7]);
        assert!(candidates(create, "pods", "").is_empty());
        assert_eq!(candidates(create, "pods", "scale").len(), 1000);
        for operation in Operation::ALL.into_iter().filter(|operation| *operation != create) {
            assert!(candidates(operation, "resource7", "").is_empty(), "{operation:?}");
        }
    }
}
