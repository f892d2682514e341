//! `sallyport certs freeze` and `unfreeze`: holds rotations and renewals, and lets them go.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::cluster::installation::{Installation, InstallationArgs};
use crate::cluster::inventory::{FREEZE, annotations};
use crate::cluster::{Access, Cluster};
use crate::output::exit_status::ExitStatus;
use crate::output::terminal;

/// The longest reason, in bytes.
const MAX_REASON: usize = 1024;

const FREEZE_EXAMPLES: &str = "\
No rotation and no renewal goes on until it is undone. Certificates that are in use stay as they are,
so a freeze that is forgotten ends with them: sallyport doctor warns of one that stands for long.

Examples:
  sallyport certs freeze --reason 'no changes until 2 January'
  sallyport certs unfreeze";

const UNFREEZE_EXAMPLES: &str = "\
Examples:
  sallyport certs unfreeze
  sallyport certs unfreeze --namespace prod --release gate";

/// Hold rotations and renewals.
#[derive(Debug, clap::Args)]
#[command(after_help = FREEZE_EXAMPLES)]
pub(super) struct FreezeArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    #[command(flatten)]
    access: Access,

    /// Why, for whoever wonders.
    #[arg(long, env = "SALLYPORT_REASON", value_name = "TEXT", default_value = "asked for by hand")]
    reason: String,
}

/// Let rotations and renewals go on.
#[derive(Debug, clap::Args)]
#[command(after_help = UNFREEZE_EXAMPLES)]
pub(super) struct UnfreezeArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    #[command(flatten)]
    access: Access,
}

pub(super) async fn freeze(args: &FreezeArgs) -> anyhow::Result<ExitStatus> {
    let reason = args.reason.trim();
    ensure!(!reason.is_empty(), "--reason must not be empty");
    ensure!(reason.len() <= MAX_REASON, "--reason has more than {MAX_REASON} bytes");
    ensure!(!reason.contains(char::is_control), "--reason must be one line");
    let installation = args.installation.installation()?;
    let cluster = Cluster::connect(&args.access).await?;
    annotate(&cluster, &installation, &json!({FREEZE: reason})).await?;
    terminal::print_note("rotations and renewals are held; sallyport certs unfreeze lets them go on");
    Ok(ExitStatus::Success)
}

pub(super) async fn unfreeze(args: &UnfreezeArgs) -> anyhow::Result<ExitStatus> {
    let installation = args.installation.installation()?;
    let cluster = Cluster::connect(&args.access).await?;
    let secrets = installation.collection("/api/v1", "secrets");
    let before = cluster
        .get_metadata(&secrets, &installation.authority_secret())
        .await
        .context("failed to read the authority's Secret")?;
    let metadata = before.as_ref().and_then(|before| before.get("metadata")).cloned().unwrap_or_default();
    let was_frozen = annotations(&metadata).contains_key(FREEZE);
    if before.is_some() && !was_frozen {
        terminal::print_note("nothing was held");
        return Ok(ExitStatus::Success);
    }
    annotate(&cluster, &installation, &json!({FREEZE: Value::Null})).await?;
    terminal::print_note("rotations and renewals go on");
    Ok(ExitStatus::Success)
}

/// Annotates the authority's Secret. Returns its metadata.
pub(super) async fn annotate(
    cluster: &Cluster,
    installation: &Installation,
    annotations: &Value,
) -> anyhow::Result<Value> {
    let name = installation.authority_secret();
    let secrets = installation.collection("/api/v1", "secrets");
    let written = cluster.annotate(&secrets, &name, annotations).await;
    let written = written.with_context(|| format!("failed to annotate the Secret {name}"))?;
    let written = written.with_context(|| {
        let namespace = &installation.namespace;
        format!("there is no Secret {name} in namespace {namespace}: give --namespace and --release")
    })?;
    Ok(written.get("metadata").cloned().unwrap_or_default())
}
