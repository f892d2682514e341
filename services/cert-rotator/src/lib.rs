//! The cert-rotator: gives the suite its certificates and registers it with the API server.
//!
//! Two tasks, one after the other, in rounds: certificates are made good ([`issuance`], deciding by
//! [`state`]), then the registration is brought to what is described ([`registration`]). A round reads
//! everything anew and writes only what differs, so any number of rotators may run at once and any of them may
//! die at any point; nothing is remembered but how patient to be with other writers.
//!
//! Private keys go from [`sallyport_pki`] to the [`store`] and nowhere else: never into a log, a metric or an
//! error.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod access;
mod arguments;
mod backoff;
pub mod issuance;
pub mod metrics;
mod owner;
pub mod registration;
mod rotator;
pub mod state;
pub mod store;
mod watches;

use std::future::Future;
use std::path::Path;
use std::pin::pin;

use anyhow::Context as _;
use kube::Client;
use prometheus::Registry;
use sallyport_telemetry::Readiness;

pub use arguments::Args;
pub use rotator::{Config, Registration};

/// The name under which everything is written to the API server.
pub const FIELD_MANAGER: &str = "sallyport-cert-rotator";

/// Runs as a process of its own, until SIGTERM or SIGINT.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let telemetry = sallyport_telemetry::start("cert-rotator", &args.telemetry)?;
    telemetry.serve_admin().await?;
    let config = args.into_config().await?;
    let outcome = run_with(config, telemetry.registry(), telemetry.readiness(), terminated()).await;
    telemetry.shutdown().await;
    outcome
}

/// Runs within a process that has its own telemetry, until `shutdown` completes.
pub async fn run_with(
    config: Config,
    registry: &Registry,
    readiness: &Readiness,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let metrics = metrics::Metrics::register(registry).context("failed to register metrics")?;
    let certificates = readiness.condition("certificates");
    rotator::run(config, metrics, certificates, pin!(shutdown)).await;
    Ok(())
}

/// A client of the API server: of `kubeconfig` if one is given, else as the environment says. It does not try
/// again by itself, because every call here is bounded and repeated in the next round.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = kube::config::Kubeconfig::read_from(path)
                .with_context(|| format!("failed to read --kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default())
                .await
                .with_context(|| format!("failed to use --kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer().await.context(
            "failed to find an API server; inside a cluster a ServiceAccount is needed, outside --kubeconfig",
        )?,
    };
    config.default_retry = false;
    Client::try_from(config).context("failed to make a client of the API server")
}

/// Completes on SIGTERM or SIGINT.
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        }
        // Without handlers the signals end the process by themselves, which is safe at any point.
        _ => std::future::pending().await,
    }
}
