//! What a leaf has to be: its names and its uses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::dns::{Extras, MAX_COMMON_NAME, NameError, ServiceName, dns_subdomain};

/// The wanted names and uses of a leaf. Every leaf may serve (`serverAuth`); some are clients as well.
///
/// Two requests are equal when the leaves made from them could stand in for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafRequest {
    dns_names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    client_auth: bool,
    common_name: Option<String>,
    allows_more: bool,
}

impl LeafRequest {
    /// A server leaf for a Service, under all names of the Service.
    ///
    /// The common name is for people's eyes only, and left out where X.509 has no room for it.
    pub fn for_service(service: &ServiceName) -> Self {
        let name = service.server_name();
        Self {
            dns_names: service.dns_names().into_iter().collect(),
            addresses: BTreeSet::new(),
            client_auth: false,
            common_name: (name.len() <= MAX_COMMON_NAME).then_some(name),
            allows_more: false,
        }
    }

    /// A server leaf that somebody else issues for a Service: it has the name by which the Service is verified,
    /// `name.namespace.svc`, and whatever others its issuer likes.
    pub fn at_least(service: &ServiceName) -> Self {
        Self { dns_names: [service.server_name()].into(), allows_more: true, ..Self::for_service(service) }
    }

    /// Adds names and addresses beyond the Service's own.
    pub fn with_extras(mut self, extras: &Extras) -> Result<Self, NameError> {
        for name in &extras.dns_names {
            dns_subdomain("extra name", name)?;
            self.dns_names.insert(name.clone());
        }
        self.addresses.extend(&extras.addresses);
        Ok(self)
    }

    /// Lets the leaf also be a client's (`clientAuth`).
    #[must_use]
    pub fn with_client_auth(mut self) -> Self {
        self.client_auth = true;
        self
    }

    /// The DNS names.
    pub fn dns_names(&self) -> &BTreeSet<String> {
        &self.dns_names
    }

    /// The IP addresses.
    pub fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    /// Whether the leaf is a client's as well.
    pub fn client_auth(&self) -> bool {
        self.client_auth
    }

    /// Whether a leaf may have other names and addresses besides.
    pub fn allows_more(&self) -> bool {
        self.allows_more
    }

    /// The subject's common name, if there is one.
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_service_name_has_no_common_name_sys3() {
        let service = ServiceName::new(&"s".repeat(60), "namespace", "cluster.local").unwrap();
        assert_eq!(LeafRequest::for_service(&service).common_name(), None);
        let service = ServiceName::new("s", "n", "cluster.local").unwrap();
        assert_eq!(LeafRequest::for_service(&service).common_name(), Some("s.n.svc"));
    }

    #[test]
    fn extra_names_are_checked() {
        let service = ServiceName::new("s", "n", "cluster.local").unwrap();
        let extras = Extras { dns_names: vec!["Bad_Name".into()], addresses: vec![] };
        let error = LeafRequest::for_service(&service).with_extras(&extras).unwrap_err();
        assert!(error.to_string().contains("extra name"), "{error}");
    }
}
