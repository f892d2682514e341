//! Which policies may match a resource, without looking at those that cannot.

use std::collections::HashMap;

use crate::matcher::Matcher;
use crate::request::{GroupVersionResource, Request};

/// Policies by group, resource and subresource, each possibly `*`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    policies: HashMap<String, Vec<usize>>,
}

impl Index {
    /// Takes up the policy with this index.
    pub(crate) fn insert(&mut self, policy: usize, matcher: &Matcher) {
        for rule in &matcher.rules {
            for group in &rule.groups {
                for (resource, sub_resource) in &rule.resources {
                    let policies = self.policies.entry(key(group, resource, sub_resource)).or_default();
                    if policies.last() != Some(&policy) {
                        policies.push(policy);
                    }
                }
            }
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
