//! The suite in this process: front, mutator and validator on loopback, with TLS and gRPC between them as
//! anywhere else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use sallyport_backend::{AuthorizerKind, Backend, Config};
use sallyport_cert_rotator::{DirectoryStore, Policy, Store, Wanted, issue};
use sallyport_net::Shutdown;
use sallyport_pki::authority::{AUTHORITY_LIFE, LEAF_LIFE};
use sallyport_pki::names::{DEFAULT_CLUSTER_DOMAIN, Extras, Member, Suite as Names};
use sallyport_pki::{Algorithm, Bundle, Renewal, files};
use sallyport_policy::{MutationSet, ValidationSet};
use sallyport_telemetry::{Admin, Readiness};
use sallyport_webhook::Front;
use tempfile::TempDir;
use tokio::task::{JoinError, JoinSet};

/// The namespace and prefix of the suite's names in its certificates.
const NAME: &str = "sallyport";
/// How often policies are looked at; with the time that an edit must hold still, well below two seconds.
const RELOAD: Duration = Duration::from_millis(500);
/// Time for the services to find each other.
const START: Duration = Duration::from_secs(20);
/// Time for reviews under way at the end, for the front and then for the backends.
const END: Duration = Duration::from_secs(5);

/// What a suite is started with.
#[derive(Debug)]
pub(crate) struct SuiteOptions {
    /// Directory of policies.
    pub(crate) policy_dir: PathBuf,
    /// Directory for what the suite keeps; `None` for a temporary one.
    pub(crate) state_dir: Option<PathBuf>,
    /// Host by which the front is called.
    pub(crate) host: String,
    /// Port of the front; 0 for any free one.
    pub(crate) port: u16,
    /// How long the front takes new connections once it is told to stop.
    pub(crate) drain: Duration,
    /// Of the API server that answers what policies ask of `authorizer`; nobody does without.
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl SuiteOptions {
    /// A suite for one command.
    pub(crate) fn ephemeral(policy_dir: PathBuf) -> Self {
        let host = Ipv4Addr::LOCALHOST.to_string();
        Self { policy_dir, state_dir: None, host, port: 0, drain: Duration::ZERO, kubeconfig: None }
    }
}

/// Where a suite keeps its files: removed with it if it is temporary.
#[derive(Debug)]
enum StateDir {
    Kept(PathBuf),
    Temporary(TempDir),
}

/// A running suite.
#[derive(Debug)]
pub(crate) struct Suite {
    url: String,
    state_dir: StateDir,
    certificates: Policy,
    bundle: Bundle,
    admin: BTreeMap<&'static str, String>,
    front: JoinSet<anyhow::Result<()>>,
    backends: JoinSet<anyhow::Result<()>>,
    stop_front: Shutdown,
    stop_backends: Shutdown,
}

impl Suite {
    /// Starts it and waits until it answers.
    pub(crate) async fn start(options: SuiteOptions) -> anyhow::Result<Self> {
        let state_dir = StateDir::create(options.state_dir.as_deref())?;
        let tls = state_dir.path().join("tls");
        let names = Names::with_prefix(NAME, NAME, DEFAULT_CLUSTER_DOMAIN)?;
        let (extras, listen) = resolve_host(&options.host);
        let certificates = plan_certificates(&names, &extras).context("--host cannot be used")?;
        let bundle = issue(&open_store(&tls), &certificates).await?;

        let (stop_front, stop_backends) = (Shutdown::new(), Shutdown::new());
        let mut suite = Self {
            url: String::new(),
            state_dir,
            certificates,
            bundle,
            admin: BTreeMap::new(),
            front: JoinSet::new(),
            backends: JoinSet::new(),
            stop_front,
            stop_backends,
        };
        let mut args =
            vec![OsString::from("sallyport-webhook"), "--tls-dir".into(), tls.join("webhook").into()];
        let mut flag = |name: &str, value: String| args.extend([name.into(), value.into()]);
        flag("--listen", SocketAddr::new(listen, options.port).to_string());
        flag("--drain-least", format!("{}s", options.drain.as_secs()));
        flag("--drain-most", format!("{}s", (options.drain + END).as_secs()));
        flag("--mutator-name", names.service(Member::Mutator).server_name());
        flag("--validator-name", names.service(Member::Validator).server_name());
        let authorizer = match options.kubeconfig {
            Some(_) => AuthorizerKind::ApiServer,
            None => AuthorizerKind::None,
        };
        let config = |member: Member| Config {
            authorizer,
            kubeconfig: options.kubeconfig.clone(),
            listen: loopback(0),
            admin: loopback(0),
            drain: Duration::ZERO,
            reload_interval: RELOAD,
            ..Config::new(options.policy_dir.clone(), tls.join(member.word()), names.client_name())
        };
        let mutator = Backend::<MutationSet>::bind(config(Member::Mutator))
            .await
            .context("failed to start the mutator")?;
        let validator = Backend::<ValidationSet>::bind(config(Member::Validator))
            .await
            .context("failed to start the validator")?;
        flag("--mutator", mutator.grpc_address().to_string());
        flag("--validator", validator.grpc_address().to_string());
        suite.admin.insert("mutator", format!("http://{}", mutator.admin_address()));
        suite.admin.insert("validator", format!("http://{}", validator.admin_address()));
        let (stop_mutator, stop_validator) = (suite.stop_backends.clone(), suite.stop_backends.clone());
        suite.backends.spawn(async move { Ok(mutator.serve(stop_mutator).await?) });
        suite.backends.spawn(async move { Ok(validator.serve(stop_validator).await?) });

        let args = sallyport_webhook::Args::try_parse_from(args)?;
        let readiness = suite.serve_front(&args).await?;
        let port = suite.url.parse::<SocketAddr>().map(|address| address.port())?;
        let host = if options.host.contains(':') { format!("[{}]", options.host) } else { options.host };
        suite.url = format!("https://{host}:{port}");
        suite.wait_until_ready(&readiness).await?;
        Ok(suite)
    }

    async fn serve_front(&mut self, args: &sallyport_webhook::Args) -> anyhow::Result<Readiness> {
        let admin = Admin::new("webhook");
        let readiness = admin.readiness().clone();
        let front = Front::bind(args, admin.registry(), &readiness, self.stop_front.clone())
            .await
            .context("failed to start the webhook")?;
        self.url = front.address().to_string();
        self.serve_admin("webhook", &admin).await?;
        self.front.spawn(async move {
            front.serve().await;
            Ok(())
        });
        Ok(readiness)
    }

    /// Serves the admin endpoint of a service in this process for as long as the suite lives.
    pub(crate) async fn serve_admin(&mut self, name: &'static str, admin: &Admin) -> anyhow::Result<()> {
        let server = admin.bind(loopback(0)).await.context("failed to serve an admin endpoint")?;
        self.admin.insert(name, format!("http://{}", server.local_addr()?));
        let stop = self.stop_backends.clone();
        self.backends.spawn(async move {
            server.serve(async move { stop.started().await }).await;
            Ok(())
        });
        Ok(())
    }

    async fn wait_until_ready(&mut self, readiness: &Readiness) -> anyhow::Result<()> {
        let ready = async {
            while !readiness.ready() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = ready => Ok(()),
            error = self.wait_for_end() => Err(error),
            () = tokio::time::sleep(START) => {
                bail!("the webhook does not get ready: {}", readiness.missing().join(", "))
            }
        }
    }

    /// Waits until a service ends by itself, which none should.
    pub(crate) async fn wait_for_end(&mut self) -> anyhow::Error {
        let explain = |ended: Result<anyhow::Result<()>, JoinError>| match ended {
            Ok(Ok(())) => anyhow::anyhow!("a service has ended"),
            Ok(Err(error)) => error,
            Err(error) => anyhow::Error::new(error).context("a service has ended"),
        };
        tokio::select! {
            Some(ended) = self.front.join_next() => explain(ended),
            Some(ended) = self.backends.join_next() => explain(ended),
            else => anyhow::anyhow!("all services have ended"),
        }
    }

    /// The front's address.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The certificates that the front's verifies against.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.state_dir().join("tls").join(Member::Webhook.word()).join("ca.crt")
    }

    /// The CAs by which it is verified.
    pub(crate) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Base URLs of the admin endpoints by service.
    pub(crate) fn admin(&self) -> &BTreeMap<&'static str, String> {
        &self.admin
    }

    /// Where the suite keeps its files.
    pub(crate) fn state_dir(&self) -> &Path {
        self.state_dir.path()
    }

    /// What a rotator needs to keep the suite's certificates good: where they are, and what they are to be.
    pub(crate) fn certificates(&self) -> (Store, Policy) {
        (open_store(&self.state_dir().join("tls")), self.certificates.clone())
    }

    /// Ends the services, front first, giving reviews under way some seconds.
    pub(crate) async fn stop(mut self) {
        self.stop_front.trigger();
        while let Some(ended) = self.front.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the webhook did not end as it should");
            }
        }
        self.stop_backends.trigger();
        let ended = async { while self.backends.join_next().await.is_some() {} };
        if tokio::time::timeout(END, ended).await.is_err() {
            tracing::debug!("backends were still busy and are cut off");
        }
    }
}

impl StateDir {
    fn create(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            let directory =
                TempDir::with_prefix("sallyport-").context("failed to make a temporary directory")?;
            return Ok(Self::Temporary(directory));
        };
        // The authority's key is in it.
        files::create(path, 0o700)?;
        let path = path.canonicalize().with_context(|| format!("failed to find {}", path.display()))?;
        Ok(Self::Kept(path))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn open_store(tls: &Path) -> Store {
    Store::Directory(DirectoryStore::new(tls.to_owned()))
}

/// What the certificates carry and where the front listens, to be reached under `host`: on loopback only, unless
/// the host is elsewhere.
fn resolve_host(host: &str) -> (Extras, IpAddr) {
    let mut extras = Extras::loopback();
    match host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => (extras, address),
        Ok(address) => {
            extras.addresses.push(address);
            (extras, Ipv4Addr::UNSPECIFIED.into())
        }
        Err(_) if host == "localhost" => (extras, Ipv4Addr::LOCALHOST.into()),
        Err(_) => {
            extras.dns_names.push(host.to_owned());
            (extras, Ipv4Addr::UNSPECIFIED.into())
        }
    }
}

fn plan_certificates(names: &Names, extras: &Extras) -> anyhow::Result<Policy> {
    let leaf = |member| names.leaf(member, extras).map(|leaf| (member, leaf));
    Ok(Policy {
        wanted: Wanted {
            leaves: Member::ALL.into_iter().map(leaf).collect::<Result<_, _>>()?,
            renewal: Renewal::TwoThirds,
        },
        algorithm: Algorithm::default(),
        authority_life: AUTHORITY_LIFE,
        leaf_life: LEAF_LIFE,
    })
}

#[cfg(test)]
mod tests {
    use super::resolve_host;

    #[test]
    fn only_a_host_elsewhere_opens_the_front_to_the_network() {
        for (host, listen, name, address) in [
            ("127.0.0.1", "127.0.0.1", None, None),
            ("::1", "::1", None, None),
            ("localhost", "127.0.0.1", None, None),
            ("192.0.2.1", "0.0.0.0", None, Some("192.0.2.1")),
            ("host.example", "0.0.0.0", Some("host.example"), None),
        ] {
            let (extras, listens) = resolve_host(host);
            assert_eq!(listens.to_string(), listen, "{host}");
            assert_eq!(extras.dns_names.get(1).map(String::as_str), name, "{host}");
            assert_eq!(extras.addresses.get(2).map(ToString::to_string).as_deref(), address, "{host}");
        }
    }
}
