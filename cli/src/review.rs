//! `sallyport review`: manifests and AdmissionReviews through a front, as an API server would send them.

mod client;
mod decision;
mod json_lines;
mod report;
mod reviewer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use sallyport_telemetry::{LogFormat, TelemetryArgs};

use self::client::Client;
use self::decision::{Subject, Tally};
use self::report::{Format, Report};
use self::reviewer::Reviewer;
use crate::dev::DevState;
use crate::door::Doors;
use crate::input::manifest::{self, Circumstances, Item, Operation};
use crate::output::exit_status::ExitStatus;
use crate::policies::Policies;
use crate::suite::{Suite, SuiteOptions};

/// Largest CA file, in bytes.
const MAX_BUNDLE: u64 = 1 << 20;

const EXAMPLES: &str = "\
Each object is sent through the doors mutate/fail, mutate/ignore, validate/fail and validate/ignore, in this
order, the later ones seeing what the earlier ones changed; --door chooses some. A mutating door is asked once
more if a later one changed the object. Objects are sent as written, without the defaults that an API server
fills in. The resource of a kind is known for Kubernetes' own kinds; of others it is the lower-case plural.

With the file - AdmissionReviews are read from standard input, one a line, and answered in the same order,
each on a line with an AdmissionReview that joins the answers of all doors (patches one after the other). A
line that cannot be answered gets {\"error\": {\"line\", \"code\", \"message\"}} on its line, and the others go on.

Examples:
  sallyport review --policy-dir policies pod.yaml
  kubectl get pods -o yaml > now.yaml && sallyport review --policy-dir policies now.yaml
  sallyport review --policy-dir policies --operation UPDATE --old before.yaml after.yaml
  sallyport review --policy-dir policies -o json pod.yaml | jq '.[].decisions'

  Through a suite that runs (see sallyport dev --state-dir):
    sallyport review --state-dir state pod.yaml
    sallyport review --server https://127.0.0.1:8443 --ca-file ca.crt pod.yaml
    sallyport review --state-dir state --door mutate/fail - < reviews.jsonl

Exit status:
  0  everything was allowed
  1  an error: something could not be reviewed
  2  wrong usage
  3  something was denied";

/// Show what policies do to manifests: decision, warnings, and the difference made.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("through").required(true).args(["policy_dir", "server", "state_dir"])
)]
pub(crate) struct ReviewArgs {
    /// Manifests in YAML or JSON (objects, Lists, AdmissionReviews), or - for AdmissionReviews as JSON lines.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Review with the policies of this directory, in a suite made for the purpose.
    #[arg(long, short, env = "SALLYPORT_POLICY_DIR", value_name = "DIR", help_heading = "Through what")]
    policy_dir: Option<PathBuf>,

    /// Review through the front at this address.
    #[arg(
        long,
        env = "SALLYPORT_SERVER",
        value_name = "URL",
        requires = "ca_file",
        help_heading = "Through what"
    )]
    server: Option<String>,

    /// With --server: certificates in PEM that the front's must verify against.
    #[arg(
        long,
        env = "SALLYPORT_CA_FILE",
        value_name = "FILE",
        requires = "server",
        help_heading = "Through what"
    )]
    ca_file: Option<PathBuf>,

    /// With --server: the name that the front's certificate must be good for [default: the host of --server].
    #[arg(
        long,
        env = "SALLYPORT_SERVER_NAME",
        value_name = "NAME",
        requires = "server",
        help_heading = "Through what"
    )]
    server_name: Option<String>,

    /// Review through the `sallyport dev` that runs with this --state-dir.
    #[arg(long, env = "SALLYPORT_STATE_DIR", value_name = "DIR", help_heading = "Through what")]
    state_dir: Option<PathBuf>,

    /// Doors to go through; one side, or one door.
    #[arg(
        long,
        env = "SALLYPORT_DOOR",
        value_enum,
        default_value = "all",
        value_name = "DOOR",
        help_heading = "Through what"
    )]
    door: Doors,

    /// What is done with the manifests. AdmissionReviews say so themselves.
    #[arg(
        long,
        env = "SALLYPORT_OPERATION",
        value_enum,
        ignore_case = true,
        default_value = "CREATE",
        value_name = "OPERATION",
        help_heading = "The request"
    )]
    operation: Operation,

    /// For UPDATE: the objects as they were; found by kind, namespace and name.
    #[arg(
        long,
        env = "SALLYPORT_OLD",
        value_name = "FILE",
        required_if_eq("operation", "UPDATE"),
        help_heading = "The request"
    )]
    old: Option<PathBuf>,

    /// Subresource, such as ephemeralcontainers.
    #[arg(
        long,
        env = "SALLYPORT_SUBRESOURCE",
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        help_heading = "The request"
    )]
    subresource: String,

    /// Namespace of manifests that name none.
    #[arg(
        long,
        short,
        env = "SALLYPORT_NAMESPACE",
        value_name = "NAME",
        default_value = "default",
        help_heading = "The request"
    )]
    namespace: String,

    /// User who asks.
    #[arg(
        long,
        env = "SALLYPORT_USER",
        value_name = "NAME",
        default_value = "kubernetes-admin",
        help_heading = "The request"
    )]
    user: String,

    /// Groups of the user, separated by commas or given repeatedly [default: system:authenticated].
    #[arg(
        long = "group",
        env = "SALLYPORT_GROUP",
        value_name = "NAME",
        value_delimiter = ',',
        help_heading = "The request"
    )]
    groups: Vec<String>,

    /// Ask as for a request that stores nothing.
    #[arg(long, env = "SALLYPORT_DRY_RUN", help_heading = "The request")]
    dry_run: bool,

    /// How the outcome is written. AdmissionReviews from - are always answered in JSON.
    #[arg(long, short, env = "SALLYPORT_OUTPUT", value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,

    /// What the embedded suite logs: a level (error, warn, info, debug, trace) or a list of target=level.
    #[arg(long, env = "SALLYPORT_LOG_LEVEL", default_value = "off", value_name = "FILTER")]
    log_level: String,
}

pub(crate) async fn run(args: ReviewArgs) -> anyhow::Result<ExitStatus> {
    let is_lines = args.files.iter().any(|file| file.as_os_str() == "-");
    ensure!(!is_lines || args.files.len() == 1, "- stands alone: it cannot be reviewed together with files");
    // Read before anything is started, so that a misspelt name costs nothing.
    let items = if is_lines { Vec::new() } else { read_files(&args.files)? };
    let about = args.circumstances()?;
    let (suite, client) = args.connect().await?;
    let reviewer = Reviewer { client, doors: args.door.doors() };
    // Both let go of the client when they are done: a front that is told to stop waits for open connections.
    let tally = if is_lines {
        json_lines::answer_lines(reviewer).await
    } else {
        review_items(reviewer, items, &about, args.output).await
    };
    if let Some(suite) = suite {
        suite.stop().await;
    }
    let tally = tally?;
    Ok(match tally {
        Tally { failed: true, .. } => ExitStatus::Failure,
        Tally { denied: true, .. } => ExitStatus::Negative,
        Tally { .. } => ExitStatus::Success,
    })
}

impl ReviewArgs {
    fn circumstances(&self) -> anyhow::Result<Circumstances> {
        let old = match &self.old {
            Some(path) => manifest::read_items(path)?
                .into_iter()
                .filter_map(|item| match item {
                    Item::Object(object) => Some(object),
                    Item::Review(_) => None,
                })
                .collect(),
            None => Vec::new(),
        };
        let groups = if self.groups.is_empty() {
            vec!["system:authenticated".to_owned()]
        } else {
            self.groups.clone()
        };
        Ok(Circumstances {
            operation: self.operation,
            old,
            user: self.user.clone(),
            groups,
            namespace: self.namespace.clone(),
            subresource: self.subresource.clone(),
            dry_run: self.dry_run,
            kinds: Arc::default(),
        })
    }

    /// A client of the front that is to be asked, and the suite that it belongs to if it is ours.
    async fn connect(&self) -> anyhow::Result<(Option<Suite>, Client)> {
        if let Some(policy_dir) = &self.policy_dir {
            let telemetry = TelemetryArgs {
                log_format: LogFormat::Text,
                log_level: self.log_level.clone(),
                ..TelemetryArgs::default()
            };
            sallyport_telemetry::install("review", &telemetry)?;
            Policies::load(policy_dir)?.print_problems();
            let suite = Suite::start(SuiteOptions::ephemeral(policy_dir.clone())).await?;
            let client = Client::new(&suite.url(), &read_bundle(&suite.ca_file())?, None)?;
            return Ok((Some(suite), client));
        }
        let (url, ca_file) = match (&self.server, &self.ca_file, &self.state_dir) {
            (Some(server), Some(ca_file), _) => (server.clone(), ca_file.clone()),
            (_, _, Some(directory)) => {
                let state = DevState::read(directory)?;
                (state.webhook, state.ca_file)
            }
            // clap asks for one of them.
            _ => bail!("one of --policy-dir, --server with --ca-file, and --state-dir is needed"),
        };
        let client = Client::new(&url, &read_bundle(&ca_file)?, self.server_name.as_deref())
            .with_context(|| format!("failed to prepare a connection to {url} with {}", ca_file.display()))?;
        Ok((None, client))
    }
}

fn read_bundle(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BUNDLE).read_to_end(&mut bytes))
        .with_context(|| format!("failed to read {}", path.display()))?;
    Ok(bytes)
}

fn read_files(files: &[PathBuf]) -> anyhow::Result<Vec<Item>> {
    let mut items = Vec::new();
    for file in files {
        let mut found = manifest::read_items(file)?;
        ensure!(!found.is_empty(), "{} holds no object", file.display());
        items.append(&mut found);
    }
    Ok(items)
}

async fn review_items(
    reviewer: Reviewer,
    items: Vec<Item>,
    about: &Circumstances,
    format: Format,
) -> anyhow::Result<Tally> {
    let mut report = Report::new(format);
    let mut tally = Tally::default();
    for (index, item) in items.into_iter().enumerate() {
        let review = match item {
            Item::Review(review) => review,
            Item::Object(object) => manifest::make_review(object, index + 1, about)?,
        };
        let subject = Subject::of(&review);
        let before = review.pointer("/request/object").cloned().unwrap_or_default();
        let body = Bytes::from(serde_json::to_vec(&review)?);
        let outcome = reviewer.review(body, Some(review)).await;
        tally.denied |= outcome.denied();
        tally.failed |= outcome.failed();
        report.add(&subject, &before, &outcome)?;
    }
    report.finish()?;
    Ok(tally)
}
