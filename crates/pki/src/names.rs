//! The names certificates are made for, in one place: Services, their DNS names, and the members of an installation.

pub use crate::dns::{
    DEFAULT_CLUSTER_DOMAIN, Extras, MAX_COMMON_NAME, NameError, ServiceName, dns_label, dns_subdomain,
};
use crate::leaf::LeafRequest;

/// A member of the suite that has a certificate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// The front. Its one leaf serves the API server and is its client identity towards the backends.
    Webhook,
    /// The mutating backend.
    Mutator,
    /// The validating backend.
    Validator,
}

impl Member {
    /// All members.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Mutator, Self::Validator];

    /// The member's word: its directory, its metric label, the end of its Secret's name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Mutator => "mutator",
            Self::Validator => "validator",
        }
    }

    /// Whether the member is also a client of the others, and so needs `clientAuth`.
    pub const fn is_client(self) -> bool {
        matches!(self, Self::Webhook)
    }
}

/// The word for the authority: its directory, its metric label, the end of its Secret's name.
pub const AUTHORITY: &str = "ca";

/// The names of one installed suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    webhook: ServiceName,
    mutator: ServiceName,
    validator: ServiceName,
}

impl Suite {
    /// A suite from the names of its three Services, all in `namespace`.
    pub fn new(
        webhook: &str,
        mutator: &str,
        validator: &str,
        namespace: &str,
        cluster_domain: &str,
    ) -> Result<Self, NameError> {
        Ok(Self {
            webhook: ServiceName::new(webhook, namespace, cluster_domain)?,
            mutator: ServiceName::new(mutator, namespace, cluster_domain)?,
            validator: ServiceName::new(validator, namespace, cluster_domain)?,
        })
    }

    /// A suite whose Services are named `<prefix>-webhook`, `<prefix>-mutator` and `<prefix>-validator`.
    pub fn with_prefix(prefix: &str, namespace: &str, cluster_domain: &str) -> Result<Self, NameError> {
        let name = |member: Member| format!("{prefix}-{}", member.word());
        Self::new(
            &name(Member::Webhook),
            &name(Member::Mutator),
            &name(Member::Validator),
            namespace,
            cluster_domain,
        )
    }

    /// The Service of `member`.
    pub fn service(&self, member: Member) -> &ServiceName {
        match member {
            Member::Webhook => &self.webhook,
            Member::Mutator => &self.mutator,
            Member::Validator => &self.validator,
        }
    }

    /// The one name that backends accept in a client certificate: `<webhook service>.<namespace>.svc`.
    pub fn client_name(&self) -> String {
        self.webhook.server_name()
    }

    /// What the leaf of `member` has to be.
    pub fn leaf(&self, member: Member, extras: &Extras) -> Result<LeafRequest, NameError> {
        let request = LeafRequest::for_service(self.service(member)).with_extras(extras)?;
        Ok(if member.is_client() { request.with_client_auth() } else { request })
    }

    /// What the leaf of `member` has to be at least, when somebody else issues it.
    pub fn brought_leaf(&self, member: Member) -> LeafRequest {
        let request = LeafRequest::at_least(self.service(member));
        if member.is_client() { request.with_client_auth() } else { request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_accept_the_fronts_service_name() {
        let suite = Suite::with_prefix("sallyport", "sallyport", DEFAULT_CLUSTER_DOMAIN).unwrap();
        assert_eq!(suite.client_name(), "sallyport-webhook.sallyport.svc");
        let front = suite.leaf(Member::Webhook, &Extras::default()).unwrap();
        assert!(front.client_auth() && front.dns_names().contains(&suite.client_name()));
        assert!(!suite.leaf(Member::Mutator, &Extras::default()).unwrap().client_auth());
    }
}
