//! The four services as processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sallyport_testkit::ports::free_ports;
use sallyport_testkit::process::binary;
use sallyport_testkit::{ControlPlane, Process, Program};
use tempfile::TempDir;

use crate::registration::{self, Entry};
use crate::{Inspector, root};

const START: Duration = Duration::from_secs(30);

/// What is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Recipes of `policies/` to install.
    pub recipes: Vec<&'static str>,
    /// How many mutators.
    pub mutators: usize,
    /// How many fronts.
    pub fronts: usize,
    /// OTLP endpoint for traces.
    pub otlp: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { recipes: Vec::new(), mutators: 1, fronts: 1, otlp: None }
    }
}

/// One running service.
#[derive(Debug)]
pub struct Service {
    /// Its process.
    pub process: Process,
    /// Where it serves.
    pub address: SocketAddr,
    /// Base URL of its admin endpoint.
    pub admin: String,
    program: Program,
}

impl Service {
    pub(crate) fn start(program: Program, address: SocketAddr, admin: u16) -> Result<Self> {
        let program = program
            .env("SALLYPORT_LISTEN", address.to_string())
            .env("SALLYPORT_ADMIN_ADDRESS", format!("127.0.0.1:{admin}"))
            .env("SALLYPORT_LOG_LEVEL", "info");
        let process = program.start()?;
        Ok(Self { process, address, admin: format!("http://127.0.0.1:{admin}"), program })
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self) -> Result<()> {
        self.process.wait_ready(&self.admin, START).await
    }

    /// Starts it again, at the same address, after it has ended.
    pub async fn restart(&mut self) -> Result<()> {
        self.process = self.program.start()?;
        self.ready().await
    }
}

/// The suite, registered with an API server.
#[derive(Debug)]
pub struct Suite {
    /// The fronts.
    pub fronts: Vec<Service>,
    /// The mutators.
    pub mutators: Vec<Service>,
    /// The validator.
    pub validator: Service,
    /// The rotator, once registered.
    pub rotator: Process,
    /// Base URL of its admin endpoint.
    pub rotator_admin: String,
    directory: TempDir,
}

impl Suite {
    /// Starts all services; nothing is registered yet.
    pub async fn start(options: &Options) -> Result<Self> {
        let directory = TempDir::with_prefix("sallyport-suite-")?;
        let policies = directory.path().join("policies");
        std::fs::create_dir(&policies)?;
        for recipe in &options.recipes {
            let from = root().join("policies").join(recipe).join("policy.yaml");
            std::fs::copy(&from, policies.join(format!("{recipe}.yaml")))
                .with_context(|| format!("{}", from.display()))?;
        }
        let tls = directory.path().join("tls");
        let [admin] = free_ports::<1>()?;
        let mut rotator = rotator(&tls, admin)?.start()?;
        let rotator_admin = format!("http://127.0.0.1:{admin}");
        rotator.wait_ready(&rotator_admin, START).await?;

        let mut mutators = Vec::new();
        for _ in 0..options.mutators {
            mutators.push(backend("mutator", &tls, &policies, options)?);
        }
        let mut validator = backend("validator", &tls, &policies, options)?;
        for service in mutators.iter_mut().chain([&mut validator]) {
            service.ready().await?;
        }
        let hosts: Vec<String> = mutators.iter().map(|service| service.address.to_string()).collect();
        let mut fronts = Vec::new();
        for _ in 0..options.fronts {
            let [port, admin] = free_ports::<2>()?;
            let program = traced(Program::new(binary("sallyport-webhook")?), options)
                .env("SALLYPORT_TLS_DIR", tls.join("webhook"))
                .env("SALLYPORT_TLS_RELOAD", "200ms")
                .env("SALLYPORT_MUTATOR", hosts.join(","))
                .env("SALLYPORT_MUTATOR_NAME", "sallyport-mutator.sallyport.svc")
                .env("SALLYPORT_VALIDATOR", validator.address.to_string())
                .env("SALLYPORT_VALIDATOR_NAME", "sallyport-validator.sallyport.svc");
            fronts.push(Service::start(program, loopback(port), admin)?);
        }
        for front in &mut fronts {
            front.ready().await?;
        }
        Ok(Self { fronts, mutators, validator, rotator, rotator_admin, directory })
    }

    /// Directory with one sub-directory of certificates a service.
    pub fn tls(&self) -> PathBuf {
        self.directory.path().join("tls")
    }

    /// Directory that the policies are read from.
    pub fn policies(&self) -> PathBuf {
        self.directory.path().join("policies")
    }

    /// An inspector before the first front.
    pub async fn inspector(&self) -> Result<Inspector> {
        Inspector::start(&self.tls().join("webhook"), self.fronts[0].address).await
    }

    /// Has a rotator register `entries` at `url`, and waits until it has. With a probe's entry among them it is told to
    /// promote what is Fail, and the backends get the policies for the probe.
    pub async fn register(
        &mut self,
        plane: &ControlPlane,
        name: &str,
        url: &str,
        entries: &[Entry],
    ) -> Result<()> {
        let file = self.directory.path().join(format!("{name}.yaml"));
        std::fs::write(&file, registration::describe(name, url, entries))?;
        let [admin] = free_ports::<1>()?;
        self.rotator.kill()?;
        let promote = entries.iter().any(Entry::is_probe);
        if promote {
            let from = root().join("services/cert-rotator/src/registration/probe.yaml");
            std::fs::copy(&from, self.policies().join("probe.yaml"))
                .with_context(|| format!("{}", from.display()))?;
        }
        self.rotator = rotator(&self.tls(), admin)?
            // Nothing to inject into, but its metrics.
            .args(["--inject-into=crd/absent.example.com", "--inject-from=absent/absent"])
            .env("SALLYPORT_REGISTRATION_FILE", &file)
            .env("SALLYPORT_KUBECONFIG", plane.kubeconfig())
            .env("SALLYPORT_PROMOTE", promote.to_string())
            .start()?;
        self.rotator_admin = format!("http://127.0.0.1:{admin}");
        for side in ["mutate", "validate"] {
            if !entries.iter().any(|entry| entry.side == side) {
                continue;
            }
            let kind = if side == "mutate" {
                "mutatingwebhookconfiguration"
            } else {
                "validatingwebhookconfiguration"
            };
            self.rotator
                .wait_until(&format!("{kind} {name} is registered"), START, async || {
                    let found = plane
                        .kubectl(
                            &["get", kind, name, "-o", "jsonpath={.webhooks[*].clientConfig.caBundle}"],
                            None,
                        )
                        .await
                        .ok()?;
                    (found.success && !found.stdout.trim().is_empty()).then_some(())
                })
                .await?;
        }
        Ok(())
    }

    /// Waits until `kind` has the failurePolicies `wanted`, in the order of its entries.
    pub async fn promoted(
        &mut self,
        plane: &ControlPlane,
        kind: &str,
        name: &str,
        wanted: &str,
    ) -> Result<()> {
        let get = ["get", kind, name, "-o", "jsonpath={.webhooks[*].failurePolicy}"];
        self.rotator
            .wait_until(&format!("{kind} {name} is {wanted}"), START, async || {
                let found = plane.kubectl(&get, None).await.ok()?;
                (found.success && found.stdout.trim() == wanted).then_some(())
            })
            .await
    }

    /// Gives every service new leaves of the same authority.
    pub fn renew_leaves(&self) -> Result<()> {
        for service in ["webhook", "mutator", "validator"] {
            std::fs::remove_file(self.tls().join(service).join("tls.crt"))?;
        }
        Ok(())
    }
}

/// Waits until a create with the registration in force is seen by `inspector`:
/// the API server learns of configurations by its own watch (C-97).
pub async fn in_force(plane: &ControlPlane, inspector: &Inspector, namespace: &str) -> Result<()> {
    let marker = pod("marker", &serde_json::json!({}), &serde_json::json!({}));
    for _ in 0..200 {
        plane.kubectl(&["-n", namespace, "create", "--dry-run=server", "-f", "-"], Some(&marker)).await?;
        if !inspector.of("marker").is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the registration did not come into force within 10 s")
}

/// A small pod as JSON text.
pub fn pod(name: &str, labels: &serde_json::Value, annotations: &serde_json::Value) -> String {
    sallyport_testkit::pod(name, labels.clone(), annotations.clone()).to_string()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn rotator(tls: &Path, admin: u16) -> Result<Program> {
    Ok(Program::new(binary("sallyport-cert-rotator")?)
        .env("SALLYPORT_NAMESPACE", registration::NAMESPACE)
        .env("SALLYPORT_STORE_DIR", tls)
        .env("SALLYPORT_EXTRA_NAMES", "localhost")
        .env("SALLYPORT_EXTRA_ADDRESSES", "127.0.0.1")
        .env("SALLYPORT_INTERVAL", "1s")
        .env("SALLYPORT_ADMIN_ADDRESS", format!("127.0.0.1:{admin}")))
}

fn backend(name: &str, tls: &Path, policies: &Path, options: &Options) -> Result<Service> {
    let [port, admin] = free_ports::<2>()?;
    let program = traced(Program::new(binary(&format!("sallyport-{name}"))?), options)
        .env("SALLYPORT_TLS_DIR", tls.join(name))
        .env("SALLYPORT_POLICY_DIR", policies)
        .env("SALLYPORT_CLIENT_NAME", "sallyport-webhook.sallyport.svc")
        .env("SALLYPORT_RELOAD_INTERVAL", "1");
    Service::start(program, loopback(port), admin)
}

fn traced(program: Program, options: &Options) -> Program {
    match &options.otlp {
        Some(endpoint) => {
            program.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "200")
        }
        None => program,
    }
}
