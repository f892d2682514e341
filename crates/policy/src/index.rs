//! Which policies may match a resource, without looking at those that cannot.

use std::collections::HashMap;

use sallyport_api::MatchPolicy;

use crate::matcher::Matcher;
use crate::request::{GroupVersionResource, Operation, Request};
use crate::schema::Schemas;

/// Policies by group, resource, subresource and operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    groups: Names<Names<Names<Operations>>>,
}

/// What stands under a name, or under `*`.
#[derive(Clone, Debug)]
struct Names<T> {
    named: HashMap<String, T>,
    any: Option<Box<T>>,
}

/// The policies for each operation.
#[derive(Clone, Debug, Default)]
struct Operations {
    policies: [Vec<usize>; Operation::ALL.len()],
}

impl Index {
    /// Takes up the policy with this index. Versions do not count; a resource that holds the same objects under
    /// another name or group does, unless the policy wants an exact match.
    pub(crate) fn insert(&mut self, policy: usize, matcher: &Matcher, schemas: &Schemas) {
        for rule in &matcher.rules {
            let operations: Vec<Operation> = rule.operations().collect();
            for group in &rule.groups {
                for (resource, sub) in &rule.resources {
                    self.add(policy, &operations, group, resource, sub);
                    if matcher.match_policy == MatchPolicy::Equivalent {
                        for other in schemas.equivalents(group, resource, sub) {
                            let GroupVersionResource { group, resource, .. } = &other.resource;
                            self.add(policy, &operations, group, resource, sub);
                        }
                    }
                }
            }
        }
    }

    fn add(&mut self, policy: usize, operations: &[Operation], group: &str, resource: &str, sub: &str) {
        let place = self.groups.entry(group).entry(resource).entry(sub);
        for operation in operations {
            if let Some(policies) = place.policies.get_mut(*operation as usize)
                && policies.last() != Some(&policy)
            {
                policies.push(policy);
            }
        }
    }

    /// The policies that may match, in ascending order.
    pub(crate) fn candidates(&self, request: &Request) -> Vec<usize> {
        let mut found = Vec::new();
        self.collect(request, &request.resource, &request.sub_resource, &mut found);
        if let Some(resource) = &request.request_resource
            && (*resource != request.resource || request.request_sub_resource != request.sub_resource)
        {
            self.collect(request, resource, &request.request_sub_resource, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect(
        &self,
        request: &Request,
        resource: &GroupVersionResource,
        sub_resource: &str,
        found: &mut Vec<usize>,
    ) {
        for group in self.groups.under(&resource.group) {
            for name in group.under(&resource.resource) {
                for operations in name.under(sub_resource) {
                    if let Some(policies) = operations.policies.get(request.operation as usize) {
                        found.extend_from_slice(policies);
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
    use crate::matcher::Matcher;
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
            index.insert(policy, &matcher, &Schemas::default());
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
        let create = Operation::Create;
        assert_eq!(index.candidates(&request(create, "resource7", "")), [7]);
        assert!(index.candidates(&request(create, "pods", "")).is_empty());
        assert_eq!(index.candidates(&request(create, "pods", "scale")).len(), 1000);
        for operation in Operation::ALL.into_iter().filter(|operation| *operation != create) {
            assert!(index.candidates(&request(operation, "resource7", "")).is_empty(), "{operation:?}");
        }
    }
}
