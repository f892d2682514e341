//! A request for a certificate that somebody else signs (PKCS #10), with the key that stays here.

use std::fmt;

use rcgen::{CertificateParams, DistinguishedName, DnType, SanType};

use crate::authority::{Algorithm, IssueError};
use crate::leaf::LeafRequest;

/// What a signer may insist on in the subject. Verifiers look at alternative names only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The common name; without one that of the [`LeafRequest`], if it has one.
    pub common_name: Option<String>,
    /// The organization.
    pub organization: Option<String>,
}

/// A request to be signed, and its private key.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningRequest {
    /// The request, PEM.
    pub request_pem: String,
    /// The private key, PKCS #8 in PEM. Never log it.
    pub key_pem: String,
}

impl fmt::Debug for SigningRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningRequest")
            .field("request_pem", &self.request_pem)
            .field("key_pem", &"[hidden]")
            .finish()
    }
}

impl SigningRequest {
    /// Makes a new key and a request for the names that are wanted. Uses are the signer's to give.
    pub fn generate(
        algorithm: Algorithm,
        wanted: &LeafRequest,
        subject: &Subject,
    ) -> Result<Self, IssueError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = &subject.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
        }
        if let Some(name) = subject.common_name.as_deref().or(wanted.common_name()) {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        for name in wanted.dns_names() {
            let name = name.as_str().try_into().map_err(IssueError::Sign)?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.subject_alt_names.extend(wanted.addresses().iter().copied().map(SanType::IpAddress));
        let key = algorithm.generate()?;
        let request = params.serialize_request(&key).map_err(IssueError::Sign)?;
        let request_pem = request.pem().map_err(IssueError::Sign)?.replace("\r\n", "\n");
        Ok(Self { request_pem, key_pem: key.serialize_pem() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rcgen::{CertificateSigningRequestParams, ExtendedKeyUsagePurpose, Issuer};

    use super::*;
    use crate::{Authority, Bundle, KeyPair, Renewal, ServiceName, check};

    #[test]
    fn what_a_signer_makes_of_it_is_a_good_leaf_sys3() {
        let service = ServiceName::new("hook", "prod", "cluster.local").unwrap();
        let wanted = LeafRequest::for_service(&service);
        let subject = Subject {
            common_name: Some("system:node:hook".to_owned()),
            organization: Some("system:nodes".to_owned()),
        };
        let now = SystemTime::now();
        for algorithm in [Algorithm::EcdsaP256, Algorithm::Rsa2048] {
            let request = SigningRequest::generate(algorithm, &wanted, &subject).unwrap();
            assert!(!format!("{request:?}").contains("PRIVATE"), "R-09");

            let authority =
                Authority::generate(Algorithm::EcdsaP256, now, Duration::from_hours(1)).unwrap().key_pair();
            let key = rcgen::KeyPair::from_pem(&authority.key_pem).unwrap();
            let issuer = Issuer::from_ca_cert_pem(&authority.certificate_pem, key).unwrap();
            let mut signed = CertificateSigningRequestParams::from_pem(&request.request_pem).unwrap();
            signed.params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            let certificate_pem = signed.signed_by(&issuer).unwrap().pem();

            let pair = KeyPair { certificate_pem, key_pem: request.key_pem };
            let bundle = Bundle::from_pem(authority.certificate_pem.as_bytes()).unwrap();
            check::leaf(&pair, &bundle, &wanted, now, Renewal::Never).unwrap();
            let leaf = crate::Certificate::from_pem(pair.certificate_pem.as_bytes()).unwrap();
            assert_eq!(leaf.subject(), "O=system:nodes, CN=system:node:hook");
        }
    }
}
