//! DNS names: of Services, and those that are given besides.

use std::net::IpAddr;

/// Longest DNS-1123 label, in bytes.
const MAX_LABEL: usize = 63;
/// Longest DNS-1123 subdomain, in bytes.
const MAX_SUBDOMAIN: usize = 253;
/// Longest common name that X.509 allows, in characters.
pub const MAX_COMMON_NAME: usize = 64;
/// The DNS domain of a cluster that nobody renamed.
pub const DEFAULT_CLUSTER_DOMAIN: &str = "cluster.local";

/// Why a name cannot be put into a certificate. `field` says where the name came from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is the empty string.
    #[error("{field} must not be empty")]
    Empty {
        /// What the name is for.
        field: String,
    },
    /// The name is longer than DNS allows.
    #[error("{field} {value:?} has {length} bytes, at most {limit} are allowed")]
    TooLong {
        /// What the name is for.
        field: String,
        /// The name, cut to the limit.
        value: String,
        /// Its length in bytes.
        length: usize,
        /// The longest that is allowed.
        limit: usize,
    },
    /// The name is no DNS-1123 label.
    #[error(
        "{field} {value:?} is not a DNS-1123 label: use lower case letters, digits and '-', and begin and end \
         with a letter or digit"
    )]
    Label {
        /// What the name is for.
        field: String,
        /// The name.
        value: String,
    },
    /// The name is no DNS-1123 subdomain.
    #[error(
        "{field} {value:?} is not a DNS-1123 subdomain: use labels of lower case letters, digits and '-', joined \
         with '.'"
    )]
    Subdomain {
        /// What the name is for.
        field: String,
        /// The name.
        value: String,
    },
}

fn is_label(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !value.is_empty()
        && value.len() <= MAX_LABEL
        && value.bytes().all(inner)
        && !value.starts_with('-')
        && !value.ends_with('-')
}

fn bounded(field: &str, value: &str, limit: usize) -> Result<(), NameError> {
    if value.is_empty() {
        return Err(NameError::Empty { field: field.to_owned() });
    }
    if value.len() > limit {
        let cut = value.chars().take(limit).collect();
        return Err(NameError::TooLong { field: field.to_owned(), value: cut, length: value.len(), limit });
    }
    Ok(())
}

/// Checks that `value` is a DNS-1123 label, as Kubernetes wants of Service and Namespace names.
pub fn dns_label(field: &str, value: &str) -> Result<(), NameError> {
    bounded(field, value, MAX_LABEL)?;
    if is_label(value) {
        Ok(())
    } else {
        Err(NameError::Label { field: field.to_owned(), value: value.to_owned() })
    }
}

/// Checks that `value` is a DNS-1123 subdomain: labels joined with dots, 253 characters at most.
pub fn dns_subdomain(field: &str, value: &str) -> Result<(), NameError> {
    bounded(field, value, MAX_SUBDOMAIN)?;
    if value.split('.').all(is_label) {
        Ok(())
    } else {
        Err(NameError::Subdomain { field: field.to_owned(), value: value.to_owned() })
    }
}

/// A Service's name, in all forms under which it can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName {
    service: String,
    namespace: String,
    cluster_domain: String,
}

impl ServiceName {
    /// Checks the parts: Service and namespace are DNS-1123 labels, the cluster domain is a subdomain.
    pub fn new(service: &str, namespace: &str, cluster_domain: &str) -> Result<Self, NameError> {
        dns_label("service name", service)?;
        dns_label("namespace", namespace)?;
        dns_subdomain("cluster domain", cluster_domain)?;
        let name = Self {
            service: service.to_owned(),
            namespace: namespace.to_owned(),
            cluster_domain: cluster_domain.to_owned(),
        };
        dns_subdomain("the service's full name", &name.full())?;
        Ok(name)
    }

    /// The Service's own name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The namespace that the Service is in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `<service>.<namespace>.svc`: the name that the API server verifies, and the one peers go by.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    fn full(&self) -> String {
        format!("{}.{}.svc.{}", self.service, self.namespace, self.cluster_domain)
    }

    /// Every DNS name of the Service, shortest first.
    pub fn dns_names(&self) -> Vec<String> {
        vec![
            self.service.clone(),
            format!("{}.{}", self.service, self.namespace),
            self.server_name(),
            self.full(),
        ]
    }
}

/// What extra names and addresses a leaf carries besides its Service's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// DNS-1123 subdomains.
    pub dns_names: Vec<String>,
    /// IP addresses, for callers that dial one.
    pub addresses: Vec<IpAddr>,
}

impl Extras {
    /// `localhost` and the loopback addresses: a suite on one machine.
    pub fn loopback() -> Self {
        Self {
            dns_names: vec!["localhost".to_owned()],
            addresses: vec![
                IpAddr::from(std::net::Ipv4Addr::LOCALHOST),
                IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_dns_1123_sys7() {
        let long = "a".repeat(64);
        let rows: [(&str, bool); 12] = [
            ("a", true),
            ("webhook", true),
            ("a-b-1", true),
            ("1a", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a_b", false),
            ("a.b", false),
            ("ü", false),
            (&long, false),
        ];
        for (value, good) in rows {
            assert_eq!(dns_label("service name", value).is_ok(), good, "{value:?}");
        }
        assert!(dns_label("service name", &"a".repeat(63)).is_ok());
    }

    #[test]
    fn errors_name_the_field_and_the_rule() {
        assert_eq!(dns_label("namespace", "").unwrap_err().to_string(), "namespace must not be empty");
        let text = dns_label("service name", "My_Svc").unwrap_err().to_string();
        assert!(
            text.contains("service name") && text.contains("My_Svc") && text.contains("DNS-1123"),
            "{text}"
        );
        let text = dns_label("service name", &"x".repeat(70)).unwrap_err().to_string();
        assert!(text.contains("at most 63"), "{text}");
    }

    #[test]
    fn subdomains_are_labels_joined_with_dots() {
        for (value, good) in [
            ("cluster.local", true),
            ("a", true),
            ("a..b", false),
            (".a", false),
            ("a.", false),
            ("a.B", false),
        ] {
            assert_eq!(dns_subdomain("cluster domain", value).is_ok(), good, "{value:?}");
        }
    }

    #[test]
    fn a_service_has_four_names_r02() {
        let name = ServiceName::new("front", "prod", "k8s.example").unwrap();
        assert_eq!(
            name.dns_names(),
            ["front", "front.prod", "front.prod.svc", "front.prod.svc.k8s.example"].map(String::from)
        );
    }
}
