//! The cert-rotator: gives the suite its certificates and registers it with the API server.
//!
//! Start with [`run`], the program; [`run_with`] is the same within a process that has its own telemetry, and [`issue`]
//! makes certificates once. What to do next is decided by two pure functions: `state::next` for certificates and
//! [`sallyport_registration::decide`] for what is registered.
//!
//! Tasks, one after the other, in rounds: certificates are made good (`issuance`), the registration is brought to what
//! is described (`registration`), and objects of others that ask for it are given their `caBundle`
//! ([`sallyport_ca_injection`]). A round reads everything anew and writes only what differs, so any number of rotators
//! may run at once and any of them may die at any point; nothing is remembered but how patient to be with other
//! writers.
//!
//! Private keys go from [`sallyport_pki`] to the [`Store`] and nowhere else: never into a log, a metric or an
//! error.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod arguments;
mod deployment;
mod issuance;
mod metrics;
mod offers;
mod registration;
mod rotator;
mod state;
mod store;

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
pub use arguments::Args;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
pub use deployment::Pods;
pub use issuance::{IssuanceError, Policy};
pub use offers::Offers;
use prometheus::Registry;
pub use registration::{Objects, Source};
pub use rotator::{Config, Registration};
use sallyport_leadership::Events;
use sallyport_pki::Bundle;
use sallyport_telemetry::Readiness;
pub use state::Wanted;
pub use store::{DirectoryStore, Store, StoreError};

use crate::issuance::Issuance;

/// How long a check waits for what is not as it should be to become so.
const CHECK_PATIENCE: Duration = Duration::from_secs(60);
/// How often it looks meanwhile.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Runs as a process of its own, until SIGTERM or SIGINT; with `--check`, until everything is as it should be; as a
/// job, until it is done. Flags that contradict each other are a [`clap::Error`].
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(job) = args.job {
        job.check().map_err(|text| Args::command().error(ErrorKind::ValueValidation, text))?;
        sallyport_certgen::run(job, terminated()).await?;
        return Ok(());
    }
    if args.check {
        check(&args.into_config().await?, CHECK_PATIENCE).await?;
        println!("certificates and registration are as they should be");
        return Ok(());
    }
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
    // The state of every task together is more than a stack should hold.
    Box::pin(rotator::run(config, metrics, certificates, pin!(shutdown))).await;
    Ok(())
}

/// Issues what is missing or due in a `store`, once. Returns the bundle that everybody is to trust.
///
/// ```
/// use sallyport_cert_rotator::{DirectoryStore, Policy, Store, Wanted, issue};
/// use sallyport_pki::authority::{AUTHORITY_LIFE, LEAF_LIFE};
/// use sallyport_pki::names::{Extras, Member, Suite};
/// use sallyport_pki::{Algorithm, Renewal};
///
/// # fn main() -> anyhow::Result<()> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let suite = Suite::with_prefix("sallyport", "sallyport", "cluster.local")?;
/// let leaf = |member| suite.leaf(member, &Extras::loopback()).map(|leaf| (member, leaf));
/// let policy = Policy {
///     wanted: Wanted {
///         leaves: Member::ALL.into_iter().map(leaf).collect::<Result<_, _>>()?,
///         renewal: Renewal::TwoThirds,
///     },
///     algorithm: Algorithm::EcdsaP256,
///     authority_life: AUTHORITY_LIFE,
///     leaf_life: LEAF_LIFE,
/// };
/// let directory = tempfile::tempdir()?;
/// let store = Store::Directory(DirectoryStore::new(directory.path().to_owned()));
/// let bundle = issue(&store, &policy).await?;
/// assert_eq!(bundle.certificates().len(), 1);
/// assert_eq!(issue(&store, &policy).await?, bundle, "what is good is kept");
/// # Ok(())
/// # })
/// # }
/// ```
pub async fn issue(store: &Store, policy: &Policy) -> anyhow::Result<Bundle> {
    let metrics = metrics::Metrics::register(&Registry::new()).context("failed to register metrics")?;
    let issuance = Issuance { store, offers: None, policy, metrics: &metrics, events: &Events::none() };
    Ok(issuance.settle(SystemTime::now).await?.bundle)
}

/// Looks whether certificates, fronts and registration are as they should be, again and again for `patience`.
/// Writes nothing.
///
/// # Errors
/// What is not as it should be in the end.
pub async fn check(config: &Config, patience: Duration) -> anyhow::Result<()> {
    let metrics = metrics::Metrics::register(&Registry::new()).context("failed to register metrics")?;
    let begun = Instant::now();
    loop {
        let faults = rotator::inspect(config, &metrics).await;
        match faults {
            Ok(faults) if faults.is_empty() => return Ok(()),
            Err(error) if begun.elapsed() >= patience => return Err(error),
            Ok(faults) if begun.elapsed() >= patience => anyhow::bail!("{}", faults.join("; ")),
            _ => tokio::time::sleep(CHECK_INTERVAL).await,
        }
    }
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
