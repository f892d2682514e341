//! A real etcd and kube-apiserver on loopback, with an administrator's kubeconfig and `kubectl`.
//!
//! There is no controller manager, scheduler or node: objects stay as they were admitted. Service accounts are
//! not required of pods. Webhooks are registered by `clientConfig.url`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time;

use crate::ports::free_ports;
use crate::process::{Process, Program};
use crate::{probe, warden};

/// Names a directory that holds etcd, kube-apiserver and kubectl; nothing is built then.
pub const TOOLS_DIR: &str = "SALLYPORT_TESTBED_BIN";
/// The script that finds or builds the programs.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/testbed/tools");
/// How often a start is tried again when another process takes a port that was free.
const ATTEMPTS: usize = 5;
/// How long an answer may take while a program starts.
const ANSWER: Duration = Duration::from_secs(5);
/// How long one `kubectl` may take.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(60);
const TOKEN: &str = "testkit-administrator";

/// The directory with etcd, kube-apiserver and kubectl: `SALLYPORT_TESTBED_BIN`, or what `tests/testbed/tools`
/// gives, which builds them the first time (minutes) and honours `KUBEBUILDER_ASSETS`.
pub async fn tools() -> Result<PathBuf> {
    let dir = if let Some(dir) = std::env::var_os(TOOLS_DIR) {
        PathBuf::from(dir)
    } else {
        // Its progress goes to standard error, for whoever waits to see.
        let output = Command::new(TOOLS)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await
            .context("failed to start tests/testbed/tools")?;
        ensure!(output.status.success(), "tests/testbed/tools failed ({})", output.status);
        let text = String::from_utf8(output.stdout).context("tests/testbed/tools printed no UTF-8")?;
        PathBuf::from(text.lines().last().context("tests/testbed/tools printed no directory")?)
    };
    for program in ["etcd", "kube-apiserver", "kubectl"] {
        ensure!(dir.join(program).is_file(), "{program} is not in {}", dir.display());
    }
    Ok(dir)
}

/// How to start a [`ControlPlane`].
#[derive(Debug, Clone)]
pub struct Builder {
    api_server_arguments: Vec<String>,
    api_server_environment: Vec<(String, String)>,
    tracing: Option<String>,
    timeout: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            api_server_arguments: Vec::new(),
            api_server_environment: Vec::new(),
            tracing: None,
            timeout: Duration::from_secs(60),
        }
    }
}

impl Builder {
    /// Adds an argument to kube-apiserver's, for instance `--audit-policy-file=…`.
    #[must_use]
    pub fn api_server_arg(mut self, argument: impl Into<String>) -> Self {
        self.api_server_arguments.push(argument.into());
        self
    }

    /// Sets an environment variable of kube-apiserver's, for instance `DISABLE_HTTP2`, by which it calls webhooks by
    /// HTTP/1.1.
    #[must_use]
    pub fn api_server_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.api_server_environment.push((name.into(), value.into()));
        self
    }

    /// Lets kube-apiserver trace every request, send its spans to an OTLP/gRPC receiver at `host:port`, and send
    /// `traceparent` to webhooks.
    #[must_use]
    pub fn tracing(mut self, receiver: impl Into<String>) -> Self {
        self.tracing = Some(receiver.into());
        self
    }

    /// How long each of the two programs may take to become ready; 60 s unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts both programs and waits until the API server is ready.
    pub async fn start(self) -> Result<ControlPlane> {
        let tools = tools().await?;
        let mut attempt = 1;
        loop {
            match self.try_start(&tools).await {
                Err(error) if attempt < ATTEMPTS && port_taken(&error) => attempt += 1,
                result => return result.context("failed to start the control plane"),
            }
        }
    }

    async fn try_start(&self, tools: &Path) -> Result<ControlPlane> {
        let directory = warden::directory()?;
        let dir = directory.path();
        let [client, peer, secure] = free_ports()?;
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));

        let mut etcd = Program::new(tools.join("etcd"))
            .log_file(dir.join("etcd.log"))
            .arg(format!("--data-dir={}", dir.join("etcd").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=default={peer}"))
            .args(["--unsafe-no-fsync", "--log-level=warn"])
            .start()?;
        let health = format!("{client}/health");
        etcd.wait_until("it was healthy", self.timeout, async || {
            let answer = probe::get(&health, ANSWER).await.ok()?;
            (answer.status == 200).then_some(())
        })
        .await?;

        let api_server = self.api_server(tools, dir, &client, secure)?.start()?;
        let url = format!("https://127.0.0.1:{secure}");
        let ca_file = dir.join("certificates/apiserver.crt");
        let kubeconfig = dir.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": ca_file}}],
            "users": [{"name": "administrator", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "administrator"}}],
        });
        fs::write(&kubeconfig, config.to_string()).context("failed to write the kubeconfig")?;

        let kubectl = tools.join("kubectl");
        let mut plane = ControlPlane { api_server, etcd, url, ca_file, kubeconfig, kubectl, directory };
        plane.wait_ready(self.timeout).await?;
        Ok(plane)
    }

    fn api_server(&self, tools: &Path, dir: &Path, etcd: &str, port: u16) -> Result<Program> {
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("failed to write {name}"))?;
            anyhow::Ok(path.display().to_string())
        };
        let tokens = write("tokens.csv", &format!("{TOKEN},administrator,administrator,system:masters\n"))?;
        let key = rcgen::KeyPair::generate().context("failed to make the key for service accounts")?;
        let public_key = write("service-account.pub", &key.public_key_pem())?;
        let key = write("service-account.key", &key.serialize_pem())?;
        let mut program = Program::new(tools.join("kube-apiserver"))
            .log_file(dir.join("kube-apiserver.log"))
            .arg(format!("--etcd-servers={etcd}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", dir.join("certificates").display()))
            .arg(format!("--token-auth-file={tokens}"))
            .arg("--authorization-mode=RBAC")
            .arg(format!("--service-account-key-file={public_key}"))
            .arg(format!("--service-account-signing-key-file={key}"))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg("--service-cluster-ip-range=198.19.0.0/24")
            // A loopback address is no valid endpoint for the `kubernetes` Service, which nobody needs here.
            .arg("--endpoint-reconciler-type=none")
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg("--allow-privileged");
        if let Some(receiver) = &self.tracing {
            let config = json!({
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "TracingConfiguration",
                "endpoint": receiver,
                "samplingRatePerMillion": 1_000_000,
            });
            let path = write("tracing.json", &config.to_string())?;
            program = program.arg(format!("--tracing-config-file={path}"));
        }
        for (name, value) in &self.api_server_environment {
            program = program.env(name, value);
        }
        Ok(program.args(&self.api_server_arguments))
    }
}

fn port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

/// What a `kubectl` run gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Whether it exited with 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error, where warnings and refusals appear.
    pub stderr: String,
}

impl Output {
    /// Standard output of a run that succeeded, or an error with standard error in it.
    pub fn ok(self) -> Result<String> {
        if self.success {
            Ok(self.stdout)
        } else {
            Err(anyhow!("kubectl failed: {}", self.stderr.trim_end()))
        }
    }
}

/// A running etcd and kube-apiserver. Dropping it kills both and removes their files.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order of their ends: the API server before its store, the files last.
    api_server: Process,
    etcd: Process,
    url: String,
    ca_file: PathBuf,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    directory: TempDir,
}

impl ControlPlane {
    /// Starts one with defaults.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// For settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The API server's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The PEM file with the certificate authority that the API server's certificate chains to.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// The bearer token of an administrator (`system:masters`).
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// A kubeconfig for that administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where `kubectl` is, for tests that run it themselves.
    pub fn kubectl_path(&self) -> &Path {
        &self.kubectl
    }

    /// The kube-apiserver process, for its log or to suspend it.
    pub fn api_server(&mut self) -> &mut Process {
        &mut self.api_server
    }

    /// The etcd process.
    pub fn etcd(&mut self) -> &mut Process {
        &mut self.etcd
    }

    /// Runs `kubectl` as the administrator, with `stdin` as its standard input. Fails when it cannot be run or
    /// takes over 60 s; a refusal by the API server is an [`Output`] without success.
    pub async fn kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> Result<Output> {
        time::timeout(KUBECTL_TIMEOUT, self.run_kubectl(arguments, stdin))
            .await
            .with_context(|| format!("kubectl took over {KUBECTL_TIMEOUT:?}: {arguments:?}"))?
            .with_context(|| format!("failed to run kubectl {arguments:?}"))
    }

    async fn run_kubectl(&self, arguments: &[&str], stdin: Option<&str>) -> Result<Output> {
        let mut child = Command::new(&self.kubectl)
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .args(arguments)
            // Its preferences and discovery cache belong to this control plane alone.
            .env("HOME", self.directory.path())
            .env_remove("KUBECONFIG")
            .env_remove("KUBERC")
            .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take();
        let feed = async move {
            if let (Some(mut input), Some(text)) = (input, stdin) {
                // kubectl may refuse its arguments without reading; its own message then says more.
                let _ = input.write_all(text.as_bytes()).await;
            }
        };
        // Both at once: kubectl may write before it has read everything.
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output?;
        Ok(Output {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Kills both programs and removes their files, telling of failures that dropping would keep to itself.
    pub fn stop(mut self) -> Result<()> {
        self.api_server.kill()?;
        self.etcd.kill()?;
        self.directory.close().context("failed to remove the control plane's files")
    }

    async fn wait_ready(&mut self, timeout: Duration) -> Result<()> {
        // The default namespace is made by a controller that readiness does not wait for.
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            let (url, ca_file) = (format!("{}{path}", self.url), &self.ca_file);
            let what = format!("{path} said 200");
            self.api_server
                .wait_until(&what, timeout, async || {
                    let answer = probe::get_securely(&url, ca_file, TOKEN, ANSWER).await.ok()?;
                    (answer.status == 200).then_some(())
                })
                .await?;
        }
        Ok(())
    }
}
