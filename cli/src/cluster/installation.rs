//! The names of one installed release, by the chart's rules.

use sallyport_pki::names::{AUTHORITY, Member, NameError, dns_label};

/// The chart's name.
const CHART: &str = "sallyport";
/// The most bytes of a release's name in object names.
const MAX_FULLNAME: usize = 50;

/// Which release.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InstallationArgs {
    /// Namespace of the release.
    #[arg(long, short, env = "SALLYPORT_NAMESPACE", value_name = "NAME", default_value = CHART)]
    pub(crate) namespace: String,

    /// Name of the release.
    #[arg(long, env = "SALLYPORT_RELEASE", value_name = "NAME", default_value = CHART)]
    release: String,

    /// What object names begin with, if fullnameOverride or nameOverride is set [default: as the chart does].
    #[arg(long, env = "SALLYPORT_FULLNAME", value_name = "NAME")]
    fullname: Option<String>,
}

/// One installed release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) release: String,
    /// What its objects' names begin with.
    pub(crate) fullname: String,
}

impl InstallationArgs {
    /// The names, if all can be names.
    pub(crate) fn installation(&self) -> Result<Installation, NameError> {
        dns_label("--namespace", &self.namespace)?;
        dns_label("--release", &self.release)?;
        if let Some(fullname) = &self.fullname {
            dns_label("--fullname", fullname)?;
        }
        let fullname = self.fullname.clone().unwrap_or_else(|| {
            if self.release.contains(CHART) {
                self.release.clone()
            } else {
                format!("{}-{CHART}", self.release)
            }
        });
        let fullname: String = fullname.chars().take(MAX_FULLNAME).collect();
        Ok(Installation {
            namespace: self.namespace.clone(),
            release: self.release.clone(),
            fullname: fullname.strip_suffix('-').unwrap_or(&fullname).to_owned(),
        })
    }
}

impl Installation {
    /// Name of the object of a service, or of a part of one.
    pub(crate) fn object(&self, part: &str) -> String {
        format!("{}-{part}", self.fullname)
    }

    /// Name of the cluster-scoped objects, webhook configurations among them.
    pub(crate) fn cluster_name(&self) -> String {
        format!("{}.{}", self.fullname, self.namespace)
    }

    /// Name of the Secret with the authority.
    pub(crate) fn authority_secret(&self) -> String {
        self.object(AUTHORITY)
    }

    /// Name of the Secret with a service's certificate.
    pub(crate) fn secret(&self, member: Member) -> String {
        format!("{}-{}-tls", self.fullname, member.word())
    }

    /// The name that a service's certificate has to be good for.
    pub(crate) fn server_name(&self, member: Member) -> String {
        format!("{}-{}.{}.svc", self.fullname, member.word(), self.namespace)
    }

    /// The labels that the release's pods and Deployments have.
    pub(crate) fn selector(&self) -> String {
        crate::cluster::selector([
            ("app.kubernetes.io/name", CHART),
            ("app.kubernetes.io/instance", &self.release),
        ])
    }

    /// URL path of a collection in the namespace.
    pub(crate) fn collection(&self, api: &str, resource: &str) -> String {
        format!("{api}/namespaces/{}/{resource}", self.namespace)
    }

    /// URL path of an object in the namespace.
    pub(crate) fn path(&self, api: &str, resource: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(api, resource))
    }
}

impl std::fmt::Display for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "release {} in namespace {}", self.release, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(release: &str, fullname: Option<&str>) -> InstallationArgs {
        InstallationArgs {
            namespace: "prod".into(),
            release: release.into(),
            fullname: fullname.map(str::to_owned),
        }
    }

    #[test]
    fn names_are_those_of_the_chart() {
        let long = "a".repeat(49);
        for (release, fullname, wanted) in [
            ("sallyport", None, "sallyport"),
            ("my-sallyport-2", None, "my-sallyport-2"),
            ("gate", None, "gate-sallyport"),
            ("gate", Some("front"), "front"),
            // Cut at fifty characters, and not left with a dash at the end.
            (long.as_str(), None, long.as_str()),
        ] {
            let installation = args(release, fullname).installation().unwrap();
            assert_eq!(installation.fullname, wanted);
            assert_eq!(installation.cluster_name(), format!("{wanted}.prod"));
            assert_eq!(installation.secret(Member::Webhook), format!("{wanted}-webhook-tls"));
            assert_eq!(installation.authority_secret(), format!("{wanted}-ca"));
        }
        for (release, fullname) in [("", None), ("A", None), ("a/b", None), ("a", Some("../x"))] {
            assert!(args(release, fullname).installation().is_err(), "{release} {fullname:?}");
        }
    }
}
