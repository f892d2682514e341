//! An installed release: pods of all services whose certificates come out of Secrets, kept by rotators.
//!
//! Every process has a Pod object of its own on the API server, with its real admin port, so that the rotators find
//! and ask it. The API server reaches the fronts through one balancer, as through a Service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use parking_lot::Mutex;
use sallyport_pki::names::{Member, Suite};
use sallyport_pki::{Bundle, Certificate};
use sallyport_testkit::ports::free_ports;
use sallyport_testkit::process::binary;
use sallyport_testkit::{Balancer, Process, Program};
use serde_json::json;
use tempfile::TempDir;

use crate::kubelet::{Kubelet, Mount};
use crate::load;
use crate::registration::{self, Entry};
use crate::root;
use crate::suite::Service;
use crate::verifier::{Server, Verifier};

const START: Duration = Duration::from_secs(60);
/// How often the cluster is looked at by those who wait for something.
const POLL: Duration = Duration::from_millis(100);
/// The pods, and what each is of.
const PODS: [(&str, Member); 6] = [
    ("front-0", Member::Webhook),
    ("front-1", Member::Webhook),
    ("mutator-0", Member::Mutator),
    ("mutator-1", Member::Mutator),
    ("validator-0", Member::Validator),
    ("validator-1", Member::Validator),
];

/// How a release is installed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace; made if it is not there.
    pub namespace: String,
    /// The release.
    pub release: String,
    /// How late the Secret is mounted in each pod: two fronts, two mutators, two validators.
    pub delays: [Duration; 6],
    /// After how long a front retires a connection of the API server.
    pub connection_life: &'static str,
    /// Flags of each rotator; one is started for each.
    pub rotators: Vec<Vec<String>>,
}

impl Settings {
    /// One rotator, in a namespace of the release's own name.
    pub fn new(release: &str) -> Self {
        let delays = [0, 300, 100, 250, 200, 50].map(Duration::from_millis);
        Self {
            namespace: release.to_owned(),
            release: release.to_owned(),
            delays,
            connection_life: "2s",
            rotators: vec![Vec::new()],
        }
    }
}

/// A process of a pod.
#[derive(Debug)]
pub struct Replica {
    /// Name of its pod.
    pub pod: String,
    /// Where it is.
    pub server: Server,
    /// It itself.
    pub service: Service,
}

/// A rotator that can be killed and started again.
#[derive(Debug)]
pub struct Rotator {
    /// Its process.
    pub process: Process,
    /// Base URL of its admin endpoint.
    pub admin: String,
    program: Program,
    /// What the ones before it have logged.
    former: String,
}

impl Rotator {
    /// Kills it.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        Ok(())
    }

    /// Starts it again. Does not wait until it is ready.
    pub fn restart(&mut self) -> Result<()> {
        self.former.push_str(&self.process.log()?);
        self.process = self.program.start()?;
        Ok(())
    }

    /// All that it has logged, over all its lives.
    pub fn log(&self) -> Result<String> {
        Ok(format!("{}{}", self.former, self.process.log()?))
    }
}

/// A running release.
pub struct Release {
    /// How it was installed.
    pub settings: Settings,
    /// The API server.
    pub client: Client,
    /// The processes.
    pub replicas: Vec<Replica>,
    /// Those who keep the certificates.
    pub rotators: Vec<Arc<Mutex<Rotator>>>,
    /// Who mounts them.
    pub kubelet: Arc<Kubelet>,
    /// What stands for the fronts' Service.
    pub balancer: Balancer,
    /// What stands between the fronts and each backend, in the order of `replicas`.
    pub wires: Vec<(SocketAddr, Balancer)>,
    directory: TempDir,
}

/// A client of an API server that does not try again by itself.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

impl Release {
    /// Installs one, and waits until both doors are in force for pods of the namespace `<release>-load`. The
    /// rotators reach the API server by `rotators_kubeconfig`, all others by `kubeconfig`.
    pub async fn install(kubeconfig: &Path, rotators_kubeconfig: &Path, settings: Settings) -> Result<Self> {
        let mut release = Self::begin(kubeconfig, rotators_kubeconfig, settings).await?;
        release.complete().await?;
        Ok(release)
    }

    /// The first half of [`Release::install`]: the rotators run, and nothing else.
    pub async fn begin(kubeconfig: &Path, rotators_kubeconfig: &Path, settings: Settings) -> Result<Self> {
        let client = client(kubeconfig).await?;
        let directory = TempDir::with_prefix("sallyport-release-")?;
        let (namespace, release) = (settings.namespace.clone(), settings.release.clone());
        let balancer = Balancer::start([]).await?;
        make_namespace(&client, &namespace, &[]).await?;
        make_namespace(&client, &format!("{release}-load"), &[("door", &release)]).await?;
        let entries = ["mutate", "validate"].map(|side| Entry::pods(side, "Fail", ("door", &release)));
        let configuration = format!("{release}.{namespace}");
        let url = format!("https://{}", balancer.address());
        let described = registration::describe(&configuration, &url, &entries);
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": format!("{release}-registration")},
            "data": {"registration.yaml": described},
        }))?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        maps.create(&PostParams::default(), &map).await?;

        let mut rotators = Vec::new();
        for flags in &settings.rotators {
            rotators.push(Arc::new(Mutex::new(rotator(rotators_kubeconfig, &settings, flags)?)));
        }
        let mounts = PODS.iter().zip(settings.delays).map(|((pod, member), delay)| Mount {
            pod: (*pod).to_owned(),
            secret: format!("{release}-{}-tls", member.word()),
            directory: directory.path().join(pod),
            delay,
        });
        let kubelet = Kubelet::start(client.clone(), &namespace, mounts.collect());
        Ok(Self {
            settings,
            client,
            replicas: Vec::new(),
            rotators,
            kubelet: Arc::new(kubelet),
            balancer,
            wires: Vec::new(),
            directory,
        })
    }

    /// The other half: pods are started as soon as they have their certificates, and both doors come into force.
    pub async fn complete(&mut self) -> Result<()> {
        self.kubelet.mounted().await?;
        self.start_pods().await?;
        self.in_force().await
    }

    async fn start_pods(&mut self) -> Result<()> {
        let directory = self.directory.path();
        let Settings { namespace, release, .. } = &self.settings;
        let policies = directory.join("policies");
        std::fs::create_dir(&policies)?;
        for recipe in ["hello-file", "deny-env"] {
            let from = root().join("policies").join(recipe).join("policy.yaml");
            std::fs::copy(from, policies.join(format!("{recipe}.yaml")))?;
        }
        let names = Suite::with_prefix(release, namespace, "cluster.local")?;
        let ports: Vec<[u16; 2]> = PODS.iter().map(|_| free_ports::<2>()).collect::<Result<_>>()?;
        let mut hosts: BTreeMap<Member, Vec<String>> = BTreeMap::new();
        for ((_, member), [port, _]) in PODS.iter().zip(&ports).filter(|((_, m), _)| *m != Member::Webhook) {
            let backend = SocketAddr::from(([127, 0, 0, 1], *port));
            let wire = Balancer::start([backend]).await?;
            hosts.entry(*member).or_default().push(wire.address().to_string());
            self.wires.push((backend, wire));
        }
        for ((pod, member), [port, admin]) in PODS.iter().zip(&ports) {
            let mounted = directory.join(pod);
            let program = Program::new(binary(&format!("sallyport-{}", member.word()))?)
                .env("SALLYPORT_TLS_DIR", &mounted);
            let program = if *member == Member::Webhook {
                program
                    .env("SALLYPORT_TLS_RELOAD", "200ms")
                    .env("SALLYPORT_CONNECTION_LIFE", self.settings.connection_life)
                    .env("SALLYPORT_MUTATOR", hosts[&Member::Mutator].join(","))
                    .env("SALLYPORT_MUTATOR_NAME", names.service(Member::Mutator).server_name())
                    .env("SALLYPORT_VALIDATOR", hosts[&Member::Validator].join(","))
                    .env("SALLYPORT_VALIDATOR_NAME", names.service(Member::Validator).server_name())
            } else {
                program
                    .env("SALLYPORT_POLICY_DIR", &policies)
                    .env("SALLYPORT_CLIENT_NAME", names.client_name())
                    .env("SALLYPORT_RELOAD_INTERVAL", "1")
            };
            let address = SocketAddr::from(([127, 0, 0, 1], *port));
            let service = Service::start(program, address, *admin)?;
            make_pod(&self.client, &self.settings, pod, *member, *admin).await?;
            let server = Server {
                pod: (*pod).to_owned(),
                member: *member,
                address,
                admin: service.admin.clone(),
                name: match member {
                    Member::Webhook => "127.0.0.1".to_owned(),
                    _ => names.service(*member).server_name(),
                },
                directory: mounted,
            };
            self.replicas.push(Replica { pod: (*pod).to_owned(), server, service });
        }
        for replica in &mut self.replicas {
            replica.service.ready().await?;
        }
        for replica in self.replicas.iter().filter(|replica| replica.server.member == Member::Webhook) {
            self.balancer.add(replica.server.address);
        }
        Ok(())
    }

    async fn in_force(&self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.load_namespace());
        let begun = Instant::now();
        // The API server learns of the configurations by its own watch (C-97): ten in a row are no chance.
        let mut row = 0;
        while row < 10 {
            let answers =
                (load::create(&pods, "first", false).await, load::create(&pods, "first", true).await);
            row = if answers == (Ok(()), Ok(())) { row + 1 } else { 0 };
            ensure!(begun.elapsed() < START, "the registration did not come into force: {answers:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The namespace whose pods both doors are for.
    pub fn load_namespace(&self) -> String {
        format!("{}-load", self.settings.release)
    }

    /// The name of both configurations.
    pub fn configuration(&self) -> String {
        format!("{}.{}", self.settings.release, self.settings.namespace)
    }

    /// A verifier of everything that is served and trusted.
    pub fn verifier(&self) -> Verifier {
        let servers = self.replicas.iter().map(|replica| replica.server.clone()).collect();
        Verifier::start(self.client.clone(), &self.configuration(), servers, self.kubelet.clone())
    }

    /// Cuts the connections of all fronts to one backend after the other, for ever: each phase of a rotation then
    /// sees new handshakes between them.
    pub async fn keep_cutting(&self, pause: Duration) {
        for (_, wire) in self.wires.iter().cycle() {
            tokio::time::sleep(pause).await;
            wire.cut();
        }
    }

    /// Asks for another authority.
    pub async fn ask(&self, request: &str) -> Result<()> {
        let name = format!("{}-ca", self.settings.release);
        let patch = json!({"metadata": {"annotations": {"sallyport.dev/rotate": request}}});
        self.secrets().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Whether no rotation is under way, and every Secret and entry has the bundle with the one authority: then, it.
    pub async fn whole(&self) -> Result<Option<Certificate>> {
        let Some(secret) = self.secret("ca").await? else { return Ok(None) };
        let trusted = value(&secret, "ca.crt");
        let bundle = Bundle::from_pem(trusted.as_deref().unwrap_or_default());
        if value(&secret, "next.crt").is_some()
            || !bundle.is_ok_and(|bundle| bundle.certificates().len() == 1)
        {
            return Ok(None);
        }
        for member in Member::ALL {
            let given = self.secret(&format!("{}-tls", member.word())).await?;
            if given.is_none_or(|given| value(&given, "ca.crt") != trusted) {
                return Ok(None);
            }
        }
        let bundles = self.ca_bundles().await?;
        let is_registered = bundles.len() == 2 && bundles.iter().all(|bundle| *bundle == trusted);
        let certificate = value(&secret, "tls.crt").unwrap_or_default();
        Ok(if is_registered { Certificate::from_pem(&certificate).ok() } else { None })
    }

    /// Whether the request was answered and all is [`Release::whole`]: then, the authority.
    pub async fn rotated(&self, request: &str) -> Result<Option<Certificate>> {
        let annotations = self.secret("ca").await?.and_then(|secret| secret.metadata.annotations);
        let answered = annotations.unwrap_or_default().remove("sallyport.dev/rotated");
        if answered.is_some_and(|answered| answered == request) { self.whole().await } else { Ok(None) }
    }

    /// Waits for [`Release::rotated`].
    pub async fn settled(&self, request: &str, patience: Duration) -> Result<Certificate> {
        let begun = Instant::now();
        loop {
            if let Some(authority) = self.rotated(request).await? {
                return Ok(authority);
            }
            ensure!(
                begun.elapsed() < patience,
                "the rotation {request} took over {patience:?}\n{}",
                self.evidence()
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// The certificate in one of the release's Secrets: of `ca`, or of `webhook-tls` and the like.
    pub async fn stored(&self, word: &str) -> Result<Option<Certificate>> {
        let Some(secret) = self.secret(word).await? else { return Ok(None) };
        Ok(Certificate::from_pem(&value(&secret, "tls.crt").unwrap_or_default()).ok())
    }

    async fn secret(&self, word: &str) -> Result<Option<Secret>> {
        Ok(self.secrets().get_opt(&format!("{}-{word}", self.settings.release)).await?)
    }

    async fn ca_bundles(&self) -> Result<Vec<Option<Vec<u8>>>> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mutating = mutating.get(&self.configuration()).await?.webhooks.unwrap_or_default();
        let validating = validating.get(&self.configuration()).await?.webhooks.unwrap_or_default();
        let mutating = mutating.into_iter().map(|entry| entry.client_config.ca_bundle);
        let all = mutating.chain(validating.into_iter().map(|entry| entry.client_config.ca_bundle));
        Ok(all.map(|bundle| bundle.map(|ByteString(pem)| pem)).collect())
    }

    /// The version of every object of the release, by kind and name.
    pub async fn versions(&self) -> Result<BTreeMap<String, String>> {
        let Settings { namespace, release, .. } = &self.settings;
        let mut versions = BTreeMap::new();
        let mut note =
            |name: String, version: Option<String>| drop(versions.insert(name, version.unwrap_or_default()));
        for word in ["ca", "webhook-tls", "mutator-tls", "validator-tls"] {
            let name = format!("{release}-{word}");
            let secret = self.secrets().get(&name).await?;
            note(format!("Secret {name}"), secret.metadata.resource_version);
        }
        let name = self.configuration();
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        note(format!("mutating {name}"), mutating.get(&name).await?.metadata.resource_version);
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        note(format!("validating {name}"), validating.get(&name).await?.metadata.resource_version);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let map = maps.get(&format!("{release}-registration")).await?;
        note("ConfigMap".to_owned(), map.metadata.resource_version);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        for (pod, _) in PODS {
            let pod = pods.get(&format!("{release}-{pod}")).await?;
            note(format!("Pod {}", pod.metadata.name.unwrap_or_default()), pod.metadata.resource_version);
        }
        Ok(versions)
    }

    /// Memory of every process in use now, in KiB, by its name.
    pub fn memory(&self) -> Result<BTreeMap<String, u64>> {
        let pods = self.replicas.iter().map(|replica| (replica.pod.clone(), replica.service.process.pid()));
        let rotators = self.rotators.iter().enumerate();
        let rotators =
            rotators.map(|(number, rotator)| (format!("rotator-{number}"), rotator.lock().process.pid()));
        pods.chain(rotators).map(|(name, pid)| Ok((name, resident(pid)?))).collect()
    }

    /// The rotators' logs and the ends of all others, for whoever has to explain a failure.
    pub fn evidence(&self) -> String {
        let pods =
            self.replicas.iter().map(|replica| (replica.pod.as_str(), replica.service.process.log_tail()));
        let rotators =
            self.rotators.iter().map(|rotator| ("rotator", rotator.lock().log().unwrap_or_default()));
        let logs: Vec<_> = pods.chain(rotators).map(|(name, log)| format!("--- {name}\n{log}")).collect();
        logs.join("\n")
    }

    /// The Secrets of its namespace.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}

fn value(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(key).map(|ByteString(bytes)| bytes.clone())
}

/// Resident memory in KiB.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/status")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

async fn make_namespace(client: &Client, name: &str, labels: &[(&str, &str)]) -> Result<()> {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    match Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).map_err(Into::into),
    }
}

async fn make_pod(client: &Client, settings: &Settings, pod: &str, member: Member, admin: u16) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &settings.namespace);
    let name = format!("{}-{pod}", settings.release);
    let object: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": "sallyport",
                "app.kubernetes.io/instance": settings.release,
                "app.kubernetes.io/component": member.word(),
            },
        },
        "spec": {
            "nodeName": "here",
            "containers": [{
                "name": "main", "image": "none", "ports": [{"name": "admin", "containerPort": admin}],
            }],
        },
    }))?;
    pods.create(&PostParams::default(), &object).await?;
    let status =
        json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn rotator(kubeconfig: &Path, settings: &Settings, flags: &[String]) -> Result<Rotator> {
    let [admin] = free_ports::<1>()?;
    let Settings { namespace, release, .. } = settings;
    let mut program = Program::new(binary("sallyport-cert-rotator")?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--namespace", namespace])
        .args(["--pods", &format!("app.kubernetes.io/name=sallyport,app.kubernetes.io/instance={release}")])
        .args(["--registration-configmap", &format!("{release}-registration")])
        .args(["--ca-secret", &format!("{release}-ca")])
        .args(["--extra-addresses", "127.0.0.1", "--propagation", "1s", "--interval", "5s"])
        .args(["--admin-address", &format!("127.0.0.1:{admin}"), "--log-level", "info"]);
    for member in Member::ALL.map(Member::word) {
        program = program
            .args([format!("--{member}-service"), format!("{release}-{member}")])
            .args([format!("--{member}-secret"), format!("{release}-{member}-tls")]);
    }
    let program = program.args(flags);
    let process = program.start()?;
    Ok(Rotator { process, admin: format!("http://127.0.0.1:{admin}"), program, former: String::new() })
}
