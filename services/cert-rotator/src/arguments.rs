//! Flags, each also in the environment, and what they amount to.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use sallyport_ca_injection::{Injection, SecretName, Target};
use sallyport_certgen::{Job, KeyAlgorithm, duration};
use sallyport_leadership::Events;
use sallyport_leadership::LeaseConfig;
use sallyport_pki::Renewal;
use sallyport_pki::authority::MAX_LIFE;
use sallyport_pki::names::{DEFAULT_CLUSTER_DOMAIN, Extras, Member, Suite, dns_label, dns_subdomain};
use sallyport_registration::FIELD_MANAGER;
use sallyport_telemetry::TelemetryArgs;

use crate::deployment::Pods;
use crate::issuance::Policy;
use crate::offers::Offers;
use crate::registration::Source;
use crate::rotator::{Config, Registration};
use crate::state::Wanted;
use crate::store::{ClusterStore, DirectoryStore, SecretNames, Store};

/// The namespace of a suite outside any cluster.
const DEFAULT_NAMESPACE: &str = "sallyport";

/// The shortest life: dates of certificates are whole seconds, and renewal needs a few of them.
const MIN_LIFE: Duration = Duration::from_secs(10);

/// The shortest time that a Lease stays with a leader: it is renewed five times as often.
const MIN_LEASE: Duration = Duration::from_secs(3);
/// The longest: nobody waits longer for a leader.
const MAX_LEASE: Duration = Duration::from_secs(5 * 60);
/// The most objects, and the most Secrets, that injection is about: each has a watch of its own.
const MAX_INJECTED: usize = 64;
/// The longest overlap of injected authorities.
const MAX_OVERLAP: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Issues, renews and distributes the suite's certificates, and registers the suite with the API server.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "sallyport-cert-rotator", version)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    /// A job that ends, instead of the controller.
    #[command(subcommand)]
    pub job: Option<Job>,

    /// Namespace of the suite. Default: the rotator's own.
    #[arg(long, env = "SALLYPORT_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// DNS domain of the cluster.
    #[arg(long, env = "SALLYPORT_CLUSTER_DOMAIN", value_name = "DOMAIN", default_value = DEFAULT_CLUSTER_DOMAIN)]
    pub cluster_domain: String,

    /// Service of the webhook. Its name is also the one that the backends accept of a client.
    #[arg(long, env = "SALLYPORT_WEBHOOK_SERVICE", value_name = "NAME", default_value = "sallyport-webhook")]
    pub webhook_service: String,

    /// Service of the mutator.
    #[arg(long, env = "SALLYPORT_MUTATOR_SERVICE", value_name = "NAME", default_value = "sallyport-mutator")]
    pub mutator_service: String,

    /// Service of the validator.
    #[arg(
        long,
        env = "SALLYPORT_VALIDATOR_SERVICE",
        value_name = "NAME",
        default_value = "sallyport-validator"
    )]
    pub validator_service: String,

    /// DNS names that every certificate carries besides its Service's.
    #[arg(long, env = "SALLYPORT_EXTRA_NAMES", value_name = "NAME", value_delimiter = ',')]
    pub extra_names: Vec<String>,

    /// IP addresses that every certificate carries.
    #[arg(long, env = "SALLYPORT_EXTRA_ADDRESSES", value_name = "IP", value_delimiter = ',')]
    pub extra_addresses: Vec<IpAddr>,

    /// Secret of the authority. No pod may mount it.
    #[arg(long, env = "SALLYPORT_CA_SECRET", value_name = "NAME", default_value = "sallyport-ca")]
    pub ca_secret: String,

    /// Secret that the webhook mounts.
    #[arg(
        long,
        env = "SALLYPORT_WEBHOOK_SECRET",
        value_name = "NAME",
        default_value = "sallyport-webhook-tls"
    )]
    pub webhook_secret: String,

    /// Secret that the mutator mounts.
    #[arg(
        long,
        env = "SALLYPORT_MUTATOR_SECRET",
        value_name = "NAME",
        default_value = "sallyport-mutator-tls"
    )]
    pub mutator_secret: String,

    /// Secret that the validator mounts.
    #[arg(
        long,
        env = "SALLYPORT_VALIDATOR_SECRET",
        value_name = "NAME",
        default_value = "sallyport-validator-tls"
    )]
    pub validator_secret: String,

    /// Secret with the webhook's certificate that somebody else issues, such as cert-manager: tls.crt, tls.key and
    /// ca.crt. The rotator then issues nothing; it carries what was issued to the services, in phases.
    #[arg(
        long,
        env = "SALLYPORT_BROUGHT_WEBHOOK_SECRET",
        value_name = "NAME",
        requires_all = ["brought_mutator_secret", "brought_validator_secret"],
        conflicts_with = "store_dir"
    )]
    pub brought_webhook_secret: Option<String>,

    /// Secret with the mutator's certificate that somebody else issues.
    #[arg(
        long,
        env = "SALLYPORT_BROUGHT_MUTATOR_SECRET",
        value_name = "NAME",
        requires = "brought_webhook_secret"
    )]
    pub brought_mutator_secret: Option<String>,

    /// Secret with the validator's certificate that somebody else issues.
    #[arg(
        long,
        env = "SALLYPORT_BROUGHT_VALIDATOR_SECRET",
        value_name = "NAME",
        requires = "brought_webhook_secret"
    )]
    pub brought_validator_secret: Option<String>,

    /// `ConfigMap` with authorities of those certificates, under any key, where the Secrets have no ca.crt.
    #[arg(long, env = "SALLYPORT_BROUGHT_BUNDLE", value_name = "NAME", requires = "brought_webhook_secret")]
    pub brought_bundle: Option<String>,

    /// Keep certificates in directories below this one instead of in Secrets.
    #[arg(long, env = "SALLYPORT_STORE_DIR", value_name = "DIR")]
    pub store_dir: Option<PathBuf>,

    /// Kind of keys of new authorities; leaves have the kind of their authority.
    #[arg(
        long,
        env = "SALLYPORT_KEY_ALGORITHM",
        value_enum,
        value_name = "KIND",
        default_value = "ecdsa-p256"
    )]
    pub key_algorithm: KeyAlgorithm,

    /// How long an authority lives: a number with s, m, h or d.
    #[arg(long, env = "SALLYPORT_CA_LIFE", value_name = "TIME", default_value = "365d", value_parser = duration)]
    pub ca_life: Duration,

    /// How long a leaf lives.
    #[arg(long, env = "SALLYPORT_LEAF_LIFE", value_name = "TIME", default_value = "90d", value_parser = duration)]
    pub leaf_life: Duration,

    /// Renew when less than this is left. Default: before two thirds of the life have passed.
    #[arg(long, env = "SALLYPORT_RENEW_BEFORE", value_name = "TIME", value_parser = duration)]
    pub renew_before: Option<Duration>,

    /// Look at everything at least this often; changes in the cluster are seen at once.
    #[arg(long, env = "SALLYPORT_INTERVAL", value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub interval: Duration,

    /// Label selector of the suite's pods. Before a rotation goes on, each is asked what it has loaded; which service
    /// it is of says its label app.kubernetes.io/component.
    #[arg(
        long,
        env = "SALLYPORT_PODS",
        value_name = "SELECTOR",
        default_value = "app.kubernetes.io/name=sallyport"
    )]
    pub pods: String,

    /// How long it may take until what was stored has reached those who cannot be asked: API servers, and with
    /// --store-dir the services. Default: 10s, and 1m with --store-dir.
    #[arg(long, env = "SALLYPORT_PROPAGATION", value_name = "TIME", value_parser = duration)]
    pub propagation: Option<Duration>,

    /// Lease by which one of several rotators leads, in the suite's namespace; it is made if it is not there. Without
    /// it each rotator works, which is safe but for the work done twice.
    #[arg(long, env = "SALLYPORT_LEASE", value_name = "NAME", conflicts_with = "store_dir")]
    pub lease: Option<String>,

    /// How long another rotator waits for a leader that is not heard of.
    #[arg(long, env = "SALLYPORT_LEASE_DURATION", value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,

    /// `ConfigMap` that describes the registration, in the suite's namespace.
    #[arg(
        long,
        env = "SALLYPORT_REGISTRATION_CONFIGMAP",
        value_name = "NAME",
        conflicts_with = "registration_file"
    )]
    pub registration_configmap: Option<String>,

    /// File that describes the registration.
    #[arg(long, env = "SALLYPORT_REGISTRATION_FILE", value_name = "FILE")]
    pub registration_file: Option<PathBuf>,

    /// `ClusterRole` that owns what is registered, so that it is collected with the release.
    #[arg(long, env = "SALLYPORT_OWNER_CLUSTER_ROLE", value_name = "NAME")]
    pub owner_cluster_role: Option<String>,

    /// `ServiceAccount` that owns the Secrets made here, so that they are collected with the release.
    #[arg(long, env = "SALLYPORT_OWNER_SERVICE_ACCOUNT", value_name = "NAME")]
    pub owner_service_account: Option<String>,

    /// Register entries with failurePolicy Fail as Ignore first, and make them Fail once a dry run was really refused
    /// through the API server.
    #[arg(long, env = "SALLYPORT_PROMOTE")]
    pub promote: bool,
    /// Object of others whose `caBundle` is kept while its annotation sallyport.dev/inject-ca-from names a Secret of
    /// --inject-from. KIND is mutatingwebhookconfiguration, validatingwebhookconfiguration, crd or apiservice.
    #[arg(
        long,
        env = "SALLYPORT_INJECT_INTO",
        value_name = "KIND/NAME",
        value_delimiter = ',',
        requires = "inject_from"
    )]
    pub inject_into: Vec<Target>,

    /// Secret whose ca.crt may be injected while its annotation sallyport.dev/allow-injection is "true".
    #[arg(
        long,
        env = "SALLYPORT_INJECT_FROM",
        value_name = "NAMESPACE/NAME",
        value_delimiter = ',',
        requires = "inject_into"
    )]
    pub inject_from: Vec<SecretName>,

    /// How long injected authorities stay beside those that follow them.
    #[arg(long, env = "SALLYPORT_INJECT_OVERLAP", value_name = "TIME", default_value = "24h", value_parser = duration)]
    pub inject_overlap: Duration,

    /// Write nothing: wait at most a minute until certificates, fronts and registration are as they should be,
    /// and fail with what is not.
    #[arg(long)]
    pub check: bool,

    /// Kubeconfig of the cluster. Default: the pod's `ServiceAccount`, or the usual places.
    #[arg(long, env = "SALLYPORT_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Logs and the admin endpoint.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

impl Args {
    /// Checks the flags and connects to the API server, if one is needed.
    pub async fn into_config(self) -> anyhow::Result<Config> {
        self.validate()?;
        let is_registering = self.registration_configmap.is_some() || self.registration_file.is_some();
        anyhow::ensure!(is_registering || !self.promote, "--promote: nothing is registered");
        let is_injecting = !self.inject_into.is_empty();
        let client = if is_registering || is_injecting || self.store_dir.is_none() {
            Some(sallyport_leadership::connect(self.kubeconfig.as_deref()).await?)
        } else {
            None
        };
        let own = client.as_ref().map(|client| client.default_namespace().to_owned());
        let namespace = self.namespace.clone().or(own).unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let policy = self.policy(&namespace)?;
        let store = match (&self.store_dir, &client) {
            (Some(directory), _) => Store::Directory(DirectoryStore::new(directory.clone())),
            (None, Some(client)) => {
                let owner = self.owner_service_account.clone();
                let store = ClusterStore::new(client.clone(), &namespace, self.secret_names(), owner);
                Store::Cluster(Box::new(store))
            }
            (None, None) => anyhow::bail!("either --store-dir or an API server is needed"),
        };
        let pods = client.clone().filter(|_| self.store_dir.is_none()).map(|client| Pods {
            client,
            namespace: namespace.clone(),
            selector: self.pods.clone(),
        });
        let unseen = if pods.is_some() { Duration::from_secs(10) } else { Duration::from_secs(60) };
        let propagation = self.propagation.unwrap_or(unseen);
        let lease = self.lease.clone().zip(client.clone()).map(|(name, client)| LeaseConfig {
            client,
            manager: FIELD_MANAGER,
            namespace: namespace.clone(),
            name,
            duration: self.lease_duration,
            owner: self.owner_service_account.clone(),
        });
        let offers = client.as_ref().and_then(|client| {
            let names = [
                (Member::Webhook, self.brought_webhook_secret.clone()?),
                (Member::Mutator, self.brought_mutator_secret.clone()?),
                (Member::Validator, self.brought_validator_secret.clone()?),
            ];
            Some(Offers::new(client, &namespace, names.into(), self.brought_bundle.clone()))
        });
        let events = match &store {
            Store::Cluster(store) => Events::new(store.client(), FIELD_MANAGER, &namespace, &self.ca_secret),
            Store::Directory(_) => Events::none(),
        };
        let injection =
            client.clone().filter(|_| is_injecting).map(|client| self.injection(client, events.clone()));
        let registration = client.and_then(|client| self.registration(client));
        Ok(Config {
            namespace,
            store,
            policy,
            interval: self.interval,
            registration,
            injection,
            pods,
            propagation,
            offers,
            events,
            lease,
        })
    }

    fn validate(&self) -> anyhow::Result<()> {
        for (flag, value) in [
            ("--namespace", self.namespace.as_ref()),
            ("--webhook-service", Some(&self.webhook_service)),
            ("--mutator-service", Some(&self.mutator_service)),
            ("--validator-service", Some(&self.validator_service)),
        ] {
            value.map_or(Ok(()), |value| dns_label(flag, value))?;
        }
        for (flag, value) in [
            ("--cluster-domain", Some(&self.cluster_domain)),
            ("--ca-secret", Some(&self.ca_secret)),
            ("--webhook-secret", Some(&self.webhook_secret)),
            ("--mutator-secret", Some(&self.mutator_secret)),
            ("--validator-secret", Some(&self.validator_secret)),
            ("--registration-configmap", self.registration_configmap.as_ref()),
            ("--lease", self.lease.as_ref()),
            ("--brought-webhook-secret", self.brought_webhook_secret.as_ref()),
            ("--brought-mutator-secret", self.brought_mutator_secret.as_ref()),
            ("--brought-validator-secret", self.brought_validator_secret.as_ref()),
            ("--brought-bundle", self.brought_bundle.as_ref()),
            ("--owner-service-account", self.owner_service_account.as_ref()),
        ] {
            value.map_or(Ok(()), |value| dns_subdomain(flag, value))?;
        }
        for name in &self.extra_names {
            dns_subdomain("--extra-names", name)?;
        }
        let secrets = [&self.ca_secret, &self.webhook_secret, &self.mutator_secret, &self.validator_secret];
        anyhow::ensure!(
            std::collections::BTreeSet::from(secrets).len() == secrets.len(),
            "--ca-secret, --webhook-secret, --mutator-secret and --validator-secret must be four different names"
        );
        for (flag, life) in [("--ca-life", self.ca_life), ("--leaf-life", self.leaf_life)] {
            anyhow::ensure!(life >= MIN_LIFE, "{flag} is shorter than {} seconds", MIN_LIFE.as_secs());
            anyhow::ensure!(life <= MAX_LIFE, "{flag} is longer than {} days", MAX_LIFE.as_secs() / 86_400);
        }
        anyhow::ensure!(self.leaf_life <= self.ca_life, "--leaf-life is longer than --ca-life");
        anyhow::ensure!(self.lease_duration >= MIN_LEASE, "--lease-duration is shorter than 3s");
        anyhow::ensure!(self.lease_duration <= MAX_LEASE, "--lease-duration is longer than 5m");
        let longest = Duration::from_secs(24 * 60 * 60);
        anyhow::ensure!(self.interval <= longest, "--interval is longer than a day");
        for (flag, count) in
            [("--inject-into", self.inject_into.len()), ("--inject-from", self.inject_from.len())]
        {
            anyhow::ensure!(
                count <= MAX_INJECTED,
                "{flag} is given {count} times, at most {MAX_INJECTED} are allowed"
            );
        }
        anyhow::ensure!(self.inject_overlap <= MAX_OVERLAP, "--inject-overlap is longer than a year");
        Ok(())
    }

    fn policy(&self, namespace: &str) -> anyhow::Result<Policy> {
        let suite = Suite::new(
            &self.webhook_service,
            &self.mutator_service,
            &self.validator_service,
            namespace,
            &self.cluster_domain,
        )?;
        let extras = Extras { dns_names: self.extra_names.clone(), addresses: self.extra_addresses.clone() };
        let is_brought = self.brought_webhook_secret.is_some();
        let leaf = |member| {
            let leaf = if is_brought { Ok(suite.brought_leaf(member)) } else { suite.leaf(member, &extras) };
            leaf.map(|leaf| (member, leaf))
        };
        let leaves = Member::ALL.into_iter().map(leaf).collect::<Result<_, _>>();
        Ok(Policy {
            wanted: Wanted {
                leaves: leaves.context("failed to choose the certificates' names")?,
                renewal: self.renew_before.map_or(Renewal::TwoThirds, Renewal::Before),
            },
            algorithm: self.key_algorithm.into(),
            authority_life: self.ca_life,
            leaf_life: self.leaf_life,
        })
    }

    fn secret_names(&self) -> SecretNames {
        SecretNames {
            authority: self.ca_secret.clone(),
            webhook: self.webhook_secret.clone(),
            mutator: self.mutator_secret.clone(),
            validator: self.validator_secret.clone(),
        }
    }

    fn injection(&self, client: Client, events: Events) -> Injection {
        Injection {
            events,
            client,
            targets: self.inject_into.iter().cloned().collect(),
            secrets: self.inject_from.iter().cloned().collect(),
            overlap: self.inject_overlap,
        }
    }

    fn registration(&self, client: Client) -> Option<Registration> {
        let source = match (&self.registration_configmap, &self.registration_file) {
            (Some(name), _) => Source::ConfigMap(name.clone()),
            (None, Some(path)) => Source::File(path.clone()),
            (None, None) => return None,
        };
        Some(Registration {
            client,
            source,
            owner_cluster_role: self.owner_cluster_role.clone(),
            unregister_on_exit: false,
            promote: self.promote,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn args(flags: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["sallyport-cert-rotator"].iter().chain(flags))
    }

    #[tokio::test]
    async fn wrong_flags_are_named_r13() {
        let many = ["crd/a.b"; MAX_INJECTED + 1].join(",");
        let rows: [(&[&str], &str); 13] = [
            (&["--leaf-life", "9s"], "--leaf-life"),
            (&["--webhook-service", "Bad_Name"], "--webhook-service"),
            (&["--namespace", ""], "--namespace"),
            (&["--cluster-domain", "a..b"], "--cluster-domain"),
            (&["--extra-names", "ok,not_ok"], "--extra-names"),
            (&["--leaf-life", "2d", "--ca-life", "1d"], "--leaf-life"),
            (&["--ca-life", "40000d"], "--ca-life"),
            (&["--ca-secret", "sallyport-mutator-tls"], "--ca-secret"),
            (&["--lease-duration", "2s"], "--lease-duration"),
            (&["--lease-duration", "6m"], "--lease-duration"),
            (&["--promote"], "--promote"),
            (&["--inject-from", "a/b", "--inject-into", &many], "--inject-into"),
            (
                &["--inject-from", "a/b", "--inject-into", "crd/a.b", "--inject-overlap", "366d"],
                "--inject-overlap",
            ),
        ];
        for (flags, wanted) in rows {
            let flags: Vec<&str> = flags.iter().copied().chain(["--store-dir", "unused"]).collect();
            let error = args(&flags).unwrap().into_config().await.unwrap_err();
            assert!(error.to_string().contains(wanted), "{flags:?}: {error}");
        }
        assert!(args(&["--leaf-life", "soon"]).unwrap_err().to_string().contains("--leaf-life"));
        assert!(args(&["--registration-file", "f", "--registration-configmap", "c"]).is_err());
        let rows: [(&[&str], &str); 4] = [
            (&["--inject-into", "secret/a", "--inject-from", "a/b"], "--inject-into"),
            (&["--inject-into", "crd/a.b", "--inject-from", "b"], "--inject-from"),
            (&["--inject-into", "crd/a.b"], "--inject-from"),
            (&["--inject-from", "a/b"], "--inject-into"),
        ];
        for (flags, wanted) in rows {
            assert!(args(flags).unwrap_err().to_string().contains(wanted), "{flags:?}");
        }
    }

    #[tokio::test]
    async fn a_directory_needs_no_cluster() {
        let config = args(&["--store-dir", "unused"]).unwrap().into_config().await.unwrap();
        assert!(config.registration.is_none());
        assert_eq!(config.namespace, "sallyport");
        let front = &config.policy.wanted.leaves[&Member::Webhook];
        assert!(front.client_auth() && front.dns_names().contains("sallyport-webhook.sallyport.svc"));
    }

    #[test]
    fn without_a_job_the_controller_runs() {
        assert!(args(&[]).unwrap().job.is_none());
        assert!(
            args(&["create", "--service", "hook", "--namespace", "prod", "--secret", "tls"])
                .unwrap()
                .job
                .is_some()
        );
        let both = args(&[
            "--ca-life",
            "1d",
            "create",
            "--service",
            "hook",
            "--namespace",
            "prod",
            "--secret",
            "tls",
        ]);
        assert!(both.unwrap_err().to_string().contains("create"));
    }
}
