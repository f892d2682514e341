//! `sallyport doctor`: is a release well, seen from outside?
//!
//! ```text
//! gathering ──▶ snapshot (raw objects, or why they could not be read) ──▶ judge ──▶ diagnosis ──▶ text, JSON
//! ```
//!
//! Everything that is read is read first, bounded, and nothing is written. The judge is a pure function of what was
//! read, so that every check is shown by a table of snapshots. What could not be read is not checked, and said so:
//! it is never taken for good.

mod authorities;
mod configurations;
mod dangers;
mod diagnosis;
mod entry;
mod gathering;
mod judge;
mod neighbours;
mod release;
mod snapshot;

use std::io::Write as _;

use crate::cluster::installation::InstallationArgs;
use crate::cluster::{Access, Cluster};
use crate::output::exit_status::ExitStatus;
use crate::output::format::Format;

const EXAMPLES: &str = "\
Checks, in this order: the API server and its clock; the Deployments; certificates, and what pods
serve; the registration, its caBundles, its Service; what its entries must not intercept; critical
workloads and other releases that they do; leftovers; rotations, the leader; and the webhooks of
others: Service, endpoints, caBundle, dangers. It reads as whoever the kubeconfig names, writes
nothing, and says what it could not read.

In an emergency, this frees the cluster of every Sallyport review:
  kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations \\
    -l app.kubernetes.io/part-of=sallyport

Examples:
  sallyport doctor
  sallyport doctor --namespace prod --release gate
  sallyport doctor --strict -o json | jq '.checks[] | select(.status == \"failure\")'

  Also hold a webhook of somebody else's to all that ours has to be:
    sallyport doctor --webhook cert-manager-webhook

Exit status:
  0  no failure; warnings are allowed
  1  an error
  3  a failure; with --strict also a warning";

/// Check a release on a cluster, and the cluster's webhooks, from outside; say what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    #[command(flatten)]
    access: Access,

    /// A configuration of somebody else's whose faults are failures too; may be repeated.
    #[arg(long, env = "SALLYPORT_WEBHOOK", value_name = "NAME", value_delimiter = ',')]
    webhook: Vec<String>,

    /// Let warnings count as failures in the exit status.
    #[arg(long, env = "SALLYPORT_STRICT")]
    strict: bool,

    /// How it is written.
    #[arg(long, short, env = "SALLYPORT_OUTPUT", value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,
}

pub(crate) async fn run(args: &DoctorArgs) -> anyhow::Result<ExitStatus> {
    let installation = args.installation.installation()?;
    let cluster = Cluster::connect(&args.access).await?;
    let snapshot = Box::pin(gathering::gather(&cluster, &installation, &args.webhook)).await;
    let diagnosis = judge::judge(&snapshot);
    match args.output {
        Format::Text => diagnosis.write(&mut anstream::stdout().lock())?,
        Format::Json => {
            let text = serde_json::to_string_pretty(&diagnosis.to_json(&installation))? + "\n";
            std::io::stdout().write_all(text.as_bytes())?;
        }
    }
    Ok(if diagnosis.is_sound(args.strict) { ExitStatus::Success } else { ExitStatus::Negative })
}
