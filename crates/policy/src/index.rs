//! Which policies may match a resource, without looking at those that cannot.

use std::collections::HashMap;

use sallyport_api::MatchPolicy;

use crate::matcher::Matcher;
use crate::request::{GroupVersionResource, Request};
use crate::schema::Schemas;

/// Policies by group, resource and subresource, each possibly `*`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    policies: HashMap<String, Vec<usize>>,
}

impl Index {
    /// Takes up the policy with this index. Versions do not count; a resource that holds the same objects under
    /// another name or group does, unless the policy wants an exact match.
    pub(crate) fn insert(&mut self, policy: usize, matcher: &Matcher, schemas: &Schemas) {
        for rule in &matcher.rules {
            for group in &rule.groups {
                for (resource, sub) in &rule.resources {
                    self.add(policy, group, resource, sub);
                    if matcher.match_policy == MatchPolicy::Equivalent {
                        for other in schemas.equivalents(group, resource, sub) {
                            self.add(policy, &other.resource.group, &other.resource.resource, sub);
                        }
                    }
                }
            }
        }
    }

    fn add(&mut self, policy: usize, group: &str, resource: &str, sub: &str) {
        let policies = self.policies.entry(key(group, resource, sub)).or_default();
        if policies.last() != Some(&policy) {
            policies.push(policy);
        }
    }

    /// The policies that may match, in ascending order.
    pub(crate) fn candidates(&self, request: &Request) -> Vec<usize> {
        let mut found = Vec::new();
        if self.policies.is_empty() {
            return found;
        }
        self.collect(&request.resource, &request.sub_resource, &mut found);
        if let Some(resource) = &request.request_resource
            && (*resource != request.resource || request.request_sub_resource != request.sub_resource)
        {
            self.collect(resource, &request.request_sub_resource, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect(&self, resource: &GroupVersionResource, sub_resource: &str, found: &mut Vec<usize>) {
        for group in [resource.group.as_str(), "*"] {
            for name in [resource.resource.as_str(), "*"] {
                for sub in [sub_resource, "*"] {
                    if let Some(policies) = self.policies.get(&key(group, name, sub)) {
                        found.extend_from_slice(policies);
                    }
                }
            }
        }
    }
}

fn key(group: &str, resource: &str, sub_resource: &str) -> String {
    [group, resource, sub_resource].join("\0")
}

#[cfg(test)]
mod tests {
    use sallyport_api::{MatchConstraints, OperationType, ResourceRule};

    use super::Index;
    use crate::matcher::Matcher;
    use crate::request::{GroupVersionResource, Request};
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
        let request = |resource: &str, sub_resource: &str| Request {
            resource: GroupVersionResource {
                group: "apps".to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
            },
            sub_resource: sub_resource.to_owned(),
            ..Request::default()
        };
        assert_eq!(index.candidates(&request("resource7", "")), [7]);
        assert!(index.candidates(&request("pods", "")).is_empty());
        assert_eq!(index.candidates(&request("pods", "scale")).len(), 1000);
    }
}
