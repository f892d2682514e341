//! `sallyport dev`: the suite here, for a cluster near by.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sallyport_cert_rotator::{Config, Objects, Registration, Source};
use sallyport_leadership::Events;
use sallyport_net::Shutdown;
use sallyport_pki::names::dns_subdomain;
use sallyport_pki::{Bundle, files};
use sallyport_registration::{Description, Policy, configurations};
use sallyport_sources::{Directory, Snapshot};
use sallyport_telemetry::{Admin, LogFormat, TelemetryArgs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::output::exit_status::ExitStatus;
use crate::output::terminal::{self, GOOD, QUIET, STRONG};
use crate::output::yaml;
use crate::policies::Policies;
use crate::suite::{Suite, SuiteOptions};

/// File in the state directory that says where the suite is.
const STATE_FILE: &str = "dev.json";
/// Largest such file, in bytes.
const MAX_STATE: u64 = 64 << 10;
/// File in the state directory that describes the registration.
const REGISTRATION_FILE: &str = "registration.yaml";
/// The namespace that the suite's names are in.
const NAMESPACE: &str = "sallyport";
/// How often the policy directory is looked at for changes of the registration.
const LOOK: Duration = Duration::from_secs(1);
/// How long services that read directories, and the API server, may take to hear of new certificates.
const PROPAGATION: Duration = Duration::from_secs(10);
/// How often the registration is compared with the cluster, and the certificates with the clock.
const ROUND: Duration = Duration::from_secs(1);
/// How often a registration that is under way is looked for.
const POLL: Duration = Duration::from_millis(200);
/// How long the front goes on once the registration is removed: until API servers have heard of it.
const AFTERGLOW: Duration = Duration::from_secs(2);
/// Time for removing the registration.
const UNREGISTER: Duration = Duration::from_secs(15);
/// What the services log unless told otherwise. What is wrong with policies is said in plain words instead, and
/// what is wrong with the cluster by the rotator.
const LOG_LEVEL: &str = "warn,kube_client=off,sallyport_backend::policies=off";

const EXAMPLES: &str = "\
Edits of policies are in force within two seconds. Standard output is YAML: the webhook configurations that
send reviews here, ready for kubectl apply, each time that they change; with --kubeconfig they are applied,
kept current and removed on exit instead, and that API server answers what policies ask of authorizer, with the
rights of the kubeconfig. Everything else is said on standard error. The API server must reach
this process under --host. kube-system and kube-node-lease are never covered.

With --state-dir the certificates are kept, so that a caBundle stays right when the command is run again with
the same --port. Once all is ready, and as long as it is, the directory holds dev.json:
  {\"webhook\": \"https://127.0.0.1:PORT\", \"caFile\": FILE, \"admin\": {\"webhook\": URL, \"mutator\": URL, ...}}

Examples:
  sallyport dev --policy-dir policies
  sallyport dev --policy-dir policies --kubeconfig ~/.kube/config

  For a cluster in containers on this machine:
    sallyport dev --policy-dir policies --kubeconfig kind.yaml --host 172.18.0.1

  In a script:
    sallyport dev --policy-dir policies --state-dir state &
    until [ -e state/dev.json ]; do sleep 0.1; done
    sallyport review --state-dir state pod.yaml

In an emergency, this removes what a killed process left behind:
  kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration -l app.kubernetes.io/part-of=sallyport";

/// Run the whole suite in this process, on loopback, until it is interrupted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevArgs {
    /// Directory of policies: YAML or JSON files.
    #[arg(long, short, env = "SALLYPORT_POLICY_DIR", value_name = "DIR")]
    policy_dir: PathBuf,

    /// Register with the cluster of this kubeconfig, and unregister on exit.
    #[arg(long, env = "SALLYPORT_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Name of the webhook configurations; two suites on one cluster need two.
    #[arg(long, env = "SALLYPORT_NAME", value_name = "NAME", default_value = "sallyport-dev")]
    name: String,

    /// Keep files here, and write dev.json when ready [default: a temporary directory].
    #[arg(long, env = "SALLYPORT_STATE_DIR", value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Host by which the API server reaches this process. If it is not loopback, the front listens on all
    /// interfaces.
    #[arg(long, env = "SALLYPORT_HOST", value_name = "HOST", default_value = "127.0.0.1")]
    host: String,

    /// Port for reviews [default: any free one].
    #[arg(long, env = "SALLYPORT_PORT", value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Format of the log lines on standard error.
    #[arg(long, env = "SALLYPORT_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// What is logged: a level (error, warn, info, debug, trace) or a list of target=level.
    #[arg(long, env = "SALLYPORT_LOG_LEVEL", default_value = LOG_LEVEL, value_name = "FILTER")]
    log_level: String,
}

/// Where a running suite is, for scripts: the content of `dev.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DevState {
    /// Address of the front.
    pub(crate) webhook: String,
    /// File with the certificates that the front's verifies against.
    pub(crate) ca_file: PathBuf,
    /// Base URLs of the admin endpoints by service.
    pub(crate) admin: BTreeMap<String, String>,
}

impl DevState {
    /// Reads it from a state directory.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        use std::io::Read as _;
        let path = directory.join(STATE_FILE);
        let mut text = String::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(MAX_STATE).read_to_string(&mut text))
            .with_context(|| format!("failed to read {}; is sallyport dev running there?", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not what sallyport dev writes", path.display()))
    }
}

pub(crate) async fn run(args: DevArgs) -> anyhow::Result<ExitStatus> {
    dns_subdomain("--name", &args.name)?;
    ensure!(!args.host.is_empty(), "--host must not be empty");
    let telemetry = TelemetryArgs {
        log_format: args.log_format,
        log_level: args.log_level.clone(),
        ..TelemetryArgs::default()
    };
    let tracing = sallyport_telemetry::install("dev", &telemetry)?;
    let shutdown = Shutdown::on_signals().context("failed to install signal handlers")?;
    let outcome = tokio::select! {
        // What has begun is ended in order, so only the start may be cut off.
        biased;
        suite = start(&args) => serve(&args, suite?, shutdown).await,
        () = shutdown.started() => Ok(()),
    };
    tracing.shutdown().await;
    outcome.map(|()| ExitStatus::Success)
}

async fn start(args: &DevArgs) -> anyhow::Result<Suite> {
    let drain = if args.kubeconfig.is_some() { AFTERGLOW } else { Duration::ZERO };
    Suite::start(SuiteOptions {
        policy_dir: args.policy_dir.clone(),
        state_dir: args.state_dir.clone(),
        host: args.host.clone(),
        port: args.port,
        drain,
        kubeconfig: args.kubeconfig.clone(),
    })
    .await
}

/// Serves until the shutdown, then ends everything in order.
async fn serve(args: &DevArgs, mut suite: Suite, shutdown: Shutdown) -> anyhow::Result<()> {
    let stop_rotator = Shutdown::new();
    let mut rotator: Option<JoinHandle<anyhow::Result<()>>> = None;
    let outcome = async {
        let policies = Policies::load(&args.policy_dir)?;
        let objects = match &args.kubeconfig {
            Some(kubeconfig) => {
                let client = sallyport_leadership::connect(Some(kubeconfig)).await?;
                Some(Objects::new(client, NAMESPACE))
            }
            None => None,
        };
        let admin = Admin::new("cert-rotator");
        suite.serve_admin("cert-rotator", &admin).await?;
        let place = Place::of(args, &suite, objects);
        place.describe(policies.snapshot())?;
        let rotator = rotator.insert(rotate(&place, &suite, admin, stop_rotator.clone()));
        tokio::select! {
            outcome = place.watch_policies(policies) => outcome,
            error = suite.wait_for_end() => Err(error),
            ended = rotator => Err(match ended {
                Ok(Err(error)) => error,
                Ok(Ok(())) => anyhow::anyhow!("the cert-rotator has ended"),
                Err(error) => anyhow::Error::new(error).context("the cert-rotator has ended"),
            }),
            () = shutdown.started() => Ok(()),
        }
    }
    .await;
    terminal::print_note(&format!("{QUIET}stopping{QUIET:#}"));
    let removed = remove_state(&suite);
    stop_rotator.trigger();
    if let Some(rotator) = rotator.filter(|rotator| !rotator.is_finished())
        && tokio::time::timeout(UNREGISTER, rotator).await.is_err()
    {
        terminal::print_note(
            "the registration could not be removed in time; sallyport dev --help tells how to remove it",
        );
    }
    suite.stop().await;
    outcome.and(removed)
}

/// Keeps the certificates good and, with a cluster, the registration as described.
fn rotate(place: &Place<'_>, suite: &Suite, admin: Admin, stop: Shutdown) -> JoinHandle<anyhow::Result<()>> {
    let (store, policy) = suite.certificates();
    let registration = place.objects.as_ref().map(|objects| Registration {
        client: objects.client().clone(),
        source: Source::File(place.registration_file()),
        owner_cluster_role: None,
        unregister_on_exit: true,
        promote: false,
    });
    let config = Config {
        namespace: NAMESPACE.to_owned(),
        store,
        policy,
        interval: ROUND,
        registration,
        injection: None,
        pods: None,
        propagation: PROPAGATION,
        offers: None,
        events: Events::none(),
        lease: None,
    };
    tokio::spawn(async move {
        let stopped = async move { stop.started().await };
        sallyport_cert_rotator::run_with(config, admin.registry(), admin.readiness(), stopped).await
    })
}

/// A suite as those who use it see it.
struct Place<'a> {
    args: &'a DevArgs,
    state_dir: PathBuf,
    state: DevState,
    bundle: Bundle,
    /// The cluster to register with.
    objects: Option<Objects>,
}

impl<'a> Place<'a> {
    fn of(args: &'a DevArgs, suite: &Suite, objects: Option<Objects>) -> Self {
        let admin = suite.admin().iter().map(|(name, url)| ((*name).to_owned(), url.clone())).collect();
        Self {
            args,
            state_dir: suite.state_dir().to_owned(),
            state: DevState { webhook: suite.url(), ca_file: suite.ca_file(), admin },
            bundle: suite.bundle().clone(),
            objects,
        }
    }

    fn registration_file(&self) -> PathBuf {
        self.state_dir.join(REGISTRATION_FILE)
    }

    /// Writes the description of the registration, for the rotator.
    fn describe(&self, snapshot: &Snapshot) -> anyhow::Result<[Value; 2]> {
        let described = configurations(&self.args.name, &self.state.webhook, &policies(snapshot));
        let text = to_yaml_stream(&described)?;
        files::write_file(&self.registration_file(), text.as_bytes())?;
        Ok(described)
    }

    /// Says when everything is ready, and follows the policies from then on.
    async fn watch_policies(&self, policies: Policies) -> anyhow::Result<()> {
        policies.print();
        let mut described = self.describe(policies.snapshot())?;
        if let Some(objects) = &self.objects {
            self.wait_until_registered(objects, &described).await?;
        } else {
            self.print(&described)?;
        }
        self.announce()?;

        let first = Arc::clone(policies.snapshot());
        let mut current = policies;
        sallyport_sources::watch(Directory::new(&self.args.policy_dir), first, LOOK, |next| {
            let changed = next.map_err(anyhow::Error::from).and_then(|snapshot| {
                current = Policies::compile(snapshot, Some(&current));
                current.print();
                let next = self.describe(current.snapshot())?;
                if next != described {
                    described = next;
                    self.announce_change(&described)?;
                }
                Ok(())
            });
            if let Err(error) = changed {
                terminal::print_error(&error.context("the last policies stay in force"));
            }
            std::future::ready(())
        })
        .await;
        Ok(())
    }

    /// Waits until the cluster has what is described.
    async fn wait_until_registered(&self, objects: &Objects, described: &[Value; 2]) -> anyhow::Result<()> {
        let description = Description::of(described.clone(), NAMESPACE)?;
        for wanted in description.configurations.iter().filter(|configuration| configuration.is_wanted()) {
            // A failure is the rotator's to report; it asks the same server.
            while !matches!(objects.get(wanted.kind, &wanted.name).await, Ok(Some(live)) if live.is_ours()) {
                tokio::time::sleep(POLL).await;
            }
            terminal::print_note(&format!("{GOOD}registered{GOOD:#} {} {}", wanted.kind.kind(), wanted.name));
        }
        Ok(())
    }

    /// Says what has become of a changed registration.
    fn announce_change(&self, described: &[Value; 2]) -> anyhow::Result<()> {
        if self.objects.is_some() {
            terminal::print_note("the registration follows the policies");
            return Ok(());
        }
        terminal::print_note(&format!(
            "{STRONG}the rules have changed{STRONG:#}: apply the configurations again"
        ));
        self.print(described)
    }

    /// Prints the configurations for who applies them by hand.
    fn print(&self, described: &[Value; 2]) -> anyhow::Result<()> {
        let description = Description::of(described.clone(), NAMESPACE)?;
        let wanted = description.configurations.iter().filter(|configuration| configuration.is_wanted());
        let configurations: Vec<Value> =
            wanted.map(|configuration| configuration.complete(&self.bundle, &[])).collect();
        let text = if configurations.is_empty() {
            "# No policy has rules, so there is nothing to register.\n".to_owned()
        } else {
            to_yaml_stream(&configurations)?
        };
        let mut output = std::io::stdout().lock();
        // Whoever does not read it does not want it.
        let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
        Ok(())
    }

    /// Says where everything is, to people and scripts.
    fn announce(&self) -> anyhow::Result<()> {
        let DevState { webhook, ca_file, admin } = &self.state;
        terminal::print_note(&format!(
            "{STRONG}webhook{STRONG:#}  {webhook}  (certificates: {})",
            ca_file.display()
        ));
        for (name, url) in admin {
            terminal::print_note(&format!("{STRONG}metrics{STRONG:#}  {url}/metrics  ({name})"));
        }
        let text = serde_json::to_string_pretty(&self.state)? + "\n";
        files::write_file(&self.state_dir.join(STATE_FILE), text.as_bytes())?;
        terminal::print_note(&format!("{GOOD}ready{GOOD:#}; Ctrl-C ends it"));
        Ok(())
    }
}

/// The policies that decide what is registered.
fn policies(snapshot: &Snapshot) -> Vec<Policy<'_>> {
    let mutations = snapshot.mutations.iter().map(|entry| Policy::mutation(&entry.object.spec));
    let mutating = snapshot.mutating_policies.iter();
    let mutating = mutating.map(|entry| Policy::mutating_admission(&entry.object.spec));
    let validations = snapshot.validations.iter().map(|entry| Policy::validation(&entry.object.spec));
    let validating = snapshot.validating_policies.iter();
    let validating = validating.map(|entry| Policy::validating_admission(&entry.object.spec));
    mutations.chain(mutating).chain(validations).chain(validating).collect()
}

/// Removes `dev.json`, unless another process has put its own in the place.
fn remove_state(suite: &Suite) -> anyhow::Result<()> {
    if !DevState::read(suite.state_dir()).is_ok_and(|state| state.webhook == suite.url()) {
        return Ok(());
    }
    let path = suite.state_dir().join(STATE_FILE);
    std::fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))
}

/// Documents one after the other.
fn to_yaml_stream(documents: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for document in documents {
        text += "---\n";
        text += &yaml::document(document)?;
    }
    Ok(text)
}
