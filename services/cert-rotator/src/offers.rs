//! What somebody else issues: Secrets that cert-manager, a signer's job or a person fills.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use sallyport_leadership::{AccessError, Verb, call};
use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Identity, Stored};

/// Where certificates are that somebody else issues.
#[derive(Clone)]
pub struct Offers {
    secrets: Api<Secret>,
    names: BTreeMap<Member, String>,
    bundle: Option<(Api<ConfigMap>, String)>,
}

impl std::fmt::Debug for Offers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offers").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Offers {
    /// The Secret of each member in `namespace`, with the keys of `kubernetes.io/tls` and `ca.crt`. Authorities that
    /// are not in there may be in a `ConfigMap`, under any of its keys.
    pub fn new(
        client: &Client,
        namespace: &str,
        names: BTreeMap<Member, String>,
        bundle: Option<String>,
    ) -> Self {
        let bundle = bundle.map(|name| (Api::namespaced(client.clone(), namespace), name));
        Self { secrets: Api::namespaced(client.clone(), namespace), names, bundle }
    }

    /// The names of the Secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &String> {
        self.names.values()
    }

    /// The name of the `ConfigMap`.
    pub(crate) fn config_map(&self) -> Option<&String> {
        self.bundle.as_ref().map(|(_, name)| name)
    }

    /// Reads what is there. What is absent or no certificate reads as empty.
    pub(crate) async fn load(&self) -> Result<BTreeMap<Member, Identity>, AccessError> {
        let shared = self.authorities().await?;
        let mut offered = BTreeMap::new();
        for (member, name) in &self.names {
            let secret = call(Verb::Get, "secrets", name, self.secrets.get_opt(name)).await?;
            let data = secret.and_then(|secret| secret.data).unwrap_or_default();
            let stored = Stored(data.into_iter().map(|(key, ByteString(bytes))| (key, bytes)).collect());
            let mut identity = Identity::from_stored(&stored);
            for authority in shared.certificates() {
                identity.bundle.add(authority.clone());
            }
            offered.insert(*member, identity);
        }
        Ok(offered)
    }

    async fn authorities(&self) -> Result<Bundle, AccessError> {
        let mut authorities = Bundle::empty();
        let Some((api, name)) = &self.bundle else { return Ok(authorities) };
        let map = call(Verb::Get, "configmaps", name, api.get_opt(name)).await?;
        for text in map.and_then(|map| map.data).unwrap_or_default().values() {
            for authority in Bundle::from_pem(text.as_bytes()).unwrap_or_default().certificates() {
                authorities.add(authority.clone());
            }
        }
        Ok(authorities)
    }
}
