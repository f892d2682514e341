//! The cluster and the programs, as the environment names them:
//!
//! - `KUBECONFIG`: the cluster
//! - `SALLYPORT_HELM`, `SALLYPORT_HELM_3`: Helm 4 and Helm 3; by default `helm` and `helm3` on the PATH
//! - `SALLYPORT_CHART`: the chart; by default the one of this repository
//! - `SALLYPORT_IMAGE_REGISTRY`: where the images are; by default `localhost`, as `make images` names them
//! - `SALLYPORT_NODE`: the directory of the testbed's own node, if that is the cluster: some scenarios restart
//!   its API server, take its images away or read its audit log
//! - `SALLYPORT_IMAGES`: the directory with the archives that its images came from

use std::future::Future;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The longest that one command may take.
const COMMAND: Duration = Duration::from_secs(300);

/// The label of everything that belongs to a suite.
pub const PART_OF: &str = "app.kubernetes.io/part-of=sallyport";

/// What a suite registers.
pub const CONFIGURATIONS: &str = "mutatingwebhookconfigurations,validatingwebhookconfigurations";

/// A program's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helm {
    /// Helm 3.
    Three,
    /// Helm 4.
    Four,
}

/// The cluster that the scenarios share.
pub struct Cluster {
    /// A client with all rights.
    pub client: kube::Client,
    /// The chart's directory.
    pub chart: PathBuf,
    /// Where the images are.
    pub registry: String,
    /// The testbed's own node, if it is the cluster.
    node: Option<PathBuf>,
    helms: [String; 2],
}

impl Cluster {
    /// Looks at the environment and asks the API server for its version.
    pub async fn connect() -> Result<Self> {
        let config = kube::Config::infer().await.context("no cluster: set KUBECONFIG, or run tests/e2e")?;
        let client = kube::Client::try_from(config)?;
        let version = client.apiserver_version().await.context("the API server does not answer")?;
        eprintln!("cluster: Kubernetes {}", version.git_version);
        let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        let chart = std::env::var_os("SALLYPORT_CHART").map(PathBuf::from);
        Ok(Self {
            client,
            chart: chart.unwrap_or_else(|| sallyport_tests::root().join("charts/sallyport")),
            registry: variable("SALLYPORT_IMAGE_REGISTRY", "localhost"),
            node: std::env::var_os("SALLYPORT_NODE").map(PathBuf::from),
            helms: [variable("SALLYPORT_HELM_3", "helm3"), variable("SALLYPORT_HELM", "helm")],
        })
    }

    /// The testbed's own node: what only it allows.
    pub fn node(&self) -> Result<&PathBuf> {
        self.node
            .as_ref()
            .context("this scenario needs the testbed's own node: run tests/e2e without KUBECONFIG")
    }

    /// The archives that the node's images came from.
    pub fn image_archives() -> Result<Vec<String>> {
        let directory = std::env::var_os("SALLYPORT_IMAGES").context("SALLYPORT_IMAGES is not set")?;
        let mut archives = Vec::new();
        for entry in
            std::fs::read_dir(&directory).context("the directory of SALLYPORT_IMAGES cannot be read")?
        {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "tar") {
                archives.push(path.to_str().context("a path that is not UTF-8")?.to_owned());
            }
        }
        Ok(archives)
    }

    /// Runs kubectl; its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        run("kubectl", arguments, None).await
    }

    /// Runs kubectl with standard input.
    pub async fn kubectl_with(&self, arguments: &[&str], stdin: &str) -> Result<String> {
        run("kubectl", arguments, Some(stdin)).await
    }

    /// Applies an object.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        self.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.map(drop)
    }

    /// Reads objects as JSON: `kubectl get ARGUMENTS -o json`.
    pub async fn get(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat()).await?;
        serde_json::from_str(&text).context("kubectl did not answer in JSON")
    }

    /// Runs Helm.
    pub async fn helm(&self, helm: Helm, arguments: &[&str], values: &Value) -> Result<String> {
        let program = &self.helms[usize::from(helm == Helm::Four)];
        run(program, arguments, Some(&values.to_string())).await
    }

    /// Makes a namespace, with labels.
    pub async fn namespace(&self, name: &str, labels: &Value) -> Result<()> {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}
        });
        self.apply(&object).await
    }
}

/// Runs a program to its end; its standard output, or an error with what it said.
pub async fn run(program: &str, arguments: &[&str], stdin: Option<&str>) -> Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        // A program that does not read is told from its exit status.
        let _ = pipe.write_all(text.as_bytes()).await;
    }
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = tokio::time::timeout(COMMAND, child.wait_with_output())
        .await
        .with_context(|| format!("{} does not end", shown()))??;
    if !output.status.success() {
        let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        bail!("{}: {}", shown(), said.concat().trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Asks again and again until there is an answer. How long it took is in it.
pub async fn eventually<T, F>(
    what: &str,
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> Result<(T, Duration)>
where
    F: Future<Output = Result<Option<T>>>,
{
    let begun = Instant::now();
    let mut last = None;
    loop {
        match ask().await {
            Ok(Some(answer)) => return Ok((answer, begun.elapsed())),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        if begun.elapsed() > patience {
            let why = last.map(|error| format!(": {error:#}")).unwrap_or_default();
            bail!("not within {} s: {what}{why}", patience.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// The items of a list.
pub fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Fails if a list of complaints is not empty.
pub fn none(what: &str, complaints: &[String]) -> Result<()> {
    ensure!(complaints.is_empty(), "{what}: {} of them, such as {}", complaints.len(), complaints[0]);
    Ok(())
}
