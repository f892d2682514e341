//! `sallyport certs rotate`: asks for another authority, and shows how the suite gets there.

use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use sallyport_pki::{Certificate, check};
use serde_json::json;
use tokio::time::Instant;

use super::freeze::annotate;
use super::lifetime::parse_lifetime;
use crate::cluster::clock;
use crate::cluster::installation::{Installation, InstallationArgs};
use crate::cluster::inventory::{FREEZE, Holding, Inventory, ROTATE, ROTATED, annotations, key_id};
use crate::cluster::{Access, Cluster};
use crate::leadership::Leadership;
use crate::output::exit_status::ExitStatus;
use crate::output::terminal::{self, GOOD, NOTICE, STRONG, plain};

/// How often it is looked how far the rotation is.
const LOOK: Duration = Duration::from_secs(1);
/// How many times in a row the cluster may fail to answer.
const MAX_FAILURES: u32 = 30;

const EXAMPLES: &str = "\
The cert-rotator makes another authority with a new key, has everybody trust it, issues all
certificates anew, has everybody serve them, and then forgets the former one: some minutes, in which
nothing fails and nothing restarts. It needs the right to patch the Secret RELEASE-ca, and with
--wait to get the Secrets and the Lease.

Examples:
  sallyport certs rotate
  sallyport certs rotate --wait 10m

Exit status:
  0  asked; with --wait: done
  1  an error
  3  with --wait: not done in that time; it goes on by itself";

/// Have the authority and all certificates replaced, now.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    installation: InstallationArgs,

    #[command(flatten)]
    access: Access,

    /// Show how it goes until it is done, at most so long: a number with s, m, h or d.
    #[arg(long, env = "SALLYPORT_WAIT", value_name = "TIME", value_parser = parse_lifetime)]
    wait: Option<Duration>,
}

/// How far a rotation is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// The request is not answered.
    Asked,
    /// The successor with this key is being made known to everybody.
    Published(String),
    /// The authority with this key is in office, and issues or waits until everybody serves what it issued.
    Switched(String),
    /// The authority with this key is alone.
    Done(String),
}

impl Progress {
    /// What the Secrets say of the rotation that `request` asked for, when `former` was in office.
    fn of(inventory: &Inventory, request: &str, former: Option<&Certificate>) -> Self {
        let Some(authority) = inventory.authority() else { return Self::Asked };
        if let Some(successor) = &authority.successor {
            return Self::Published(key_id(successor.subject_key_id()));
        }
        let Some(certificate) = authority.certificate() else { return Self::Asked };
        let is_answered = authority.annotation(ROTATED) == Some(request);
        if !is_answered && former.is_none_or(|former| former == certificate) {
            return Self::Asked;
        }
        let key = key_id(certificate.subject_key_id());
        let is_alone = authority.bundle.certificates() == std::slice::from_ref(certificate);
        let now = SystemTime::now();
        let mut leaves = inventory.members.values().filter_map(|read| read.as_ref().ok()?.as_ref());
        let follow = leaves.all(|leaf| {
            leaf.bundle == authority.bundle && check::verifies(&leaf.chain, &authority.bundle, now)
        });
        if is_answered && is_alone && follow { Self::Done(key) } else { Self::Switched(key) }
    }

    fn describe(&self) -> String {
        match self {
            Self::Asked => "asked; the cert-rotator has not begun".to_owned(),
            Self::Published(key) => {
                format!(
                    "published: the authority {key} is being made known; it takes office when all trust it"
                )
            }
            Self::Switched(key) => format!(
                "switched: the authority {key} is in office; the former one goes when all serve its certificates"
            ),
            Self::Done(key) => format!("done: the authority {key} is in office, and alone"),
        }
    }
}

pub(super) async fn run(args: &RotateArgs) -> anyhow::Result<ExitStatus> {
    let installation = args.installation.installation()?;
    let cluster = Cluster::connect(&args.access).await?;
    let former = match args.wait {
        Some(_) => {
            let inventory = Inventory::read(&cluster, &installation).await;
            let held = inventory.authority.context("failed to read the authority's Secret")?;
            held.as_ref().and_then(Holding::certificate).cloned()
        }
        None => None,
    };
    let request = make_request(SystemTime::now());
    let metadata = annotate(&cluster, &installation, &json!({ROTATE: request})).await?;
    terminal::print_note(&format!("{STRONG}asked for another authority{STRONG:#}: {request}"));
    if let Some(reason) = annotations(&metadata).get(FREEZE) {
        let reason = plain(reason);
        terminal::print_note(&format!(
            "{NOTICE}rotations are held{NOTICE:#} ({reason}): it begins after sallyport certs unfreeze"
        ));
    }
    if let Some(limit) = args.wait {
        return follow(&cluster, &installation, &request, former.as_ref(), limit).await;
    }
    terminal::print_note("sallyport certs status shows how far it is");
    Ok(ExitStatus::Success)
}

/// A value that was never there before.
fn make_request(now: SystemTime) -> String {
    let suffix: String = std::iter::repeat_with(fastrand::alphanumeric).take(6).collect();
    format!("{}-{}", clock::format_instant(now), suffix.to_ascii_lowercase())
}

/// What was told last.
#[derive(Debug, Default)]
struct Said {
    progress: Option<Progress>,
    waiting: String,
}

async fn follow(
    cluster: &Cluster,
    installation: &Installation,
    request: &str,
    former: Option<&Certificate>,
    limit: Duration,
) -> anyhow::Result<ExitStatus> {
    let begun = Instant::now();
    let mut said = Said::default();
    let mut failures = 0;
    loop {
        let (inventory, leadership) =
            tokio::join!(Inventory::read(cluster, installation), Leadership::read(cluster, installation));
        if let Err(unread) = &inventory.authority {
            failures += 1;
            if failures >= MAX_FAILURES {
                return Err(unread.clone()).context("failed to read the authority's Secret");
            }
        } else {
            failures = 0;
            let progress = Progress::of(&inventory, request, former);
            if said.progress.as_ref() != Some(&progress) {
                terminal::print_note(&progress.describe());
                if matches!(progress, Progress::Done(_)) {
                    let took = clock::format_span(begun.elapsed());
                    terminal::print_note(&format!("{GOOD}rotated{GOOD:#} in {took}"));
                    return Ok(ExitStatus::Success);
                }
                said.progress = Some(progress);
            }
            let awaited = leadership.ok().flatten();
            let awaited = awaited.as_ref().and_then(|leadership| leadership.holds("Rotating"));
            let awaited = awaited.map(|condition| condition.message.clone()).unwrap_or_default();
            if awaited != said.waiting && !awaited.is_empty() {
                terminal::print_note(&format!("  waiting: {}", plain(&awaited)));
            }
            said.waiting = awaited;
        }
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            let limit = clock::format_span(limit);
            terminal::print_note(&format!(
                "{NOTICE}not done within {limit}{NOTICE:#}; it goes on by itself, see sallyport certs status"
            ));
            return Ok(ExitStatus::Negative);
        }
        tokio::time::sleep(LOOK.min(left)).await;
    }
}

#[cfg(test)]
mod tests {
    use sallyport_pki::names::Member;
    use sallyport_pki::{Authority, Bundle};
    use serde_json::Value;

    use super::*;
    use crate::cluster::inventory::fixtures::{authority, bundle, leaf, secret};

    fn inventory(ca: &Value, issuer: &Authority, trust: &Bundle) -> Inventory {
        let now = SystemTime::now();
        let members = Member::ALL.map(|member| {
            let secret = secret("tls", leaf(issuer, "sallyport", member, now), trust, None);
            (member, Ok(Some(Holding::of(&secret))))
        });
        Inventory { authority: Ok(Some(Holding::of(ca))), members: members.into() }
    }

    fn answered(mut ca: Value, request: &str) -> Value {
        ca["metadata"]["annotations"] = json!({ROTATE: request, ROTATED: request});
        ca
    }

    #[test]
    fn each_phase_is_told_from_the_secrets_r04() {
        let now = SystemTime::now();
        let (old, new) = (authority(now), authority(now));
        let next = new.key_pair();
        let (alone, both, after) = (bundle([&old]), bundle([&old, &new]), bundle([&new]));
        let key = key_id(new.certificate().subject_key_id());
        let ca = |pair, trust, next| secret("sallyport-ca", pair, trust, next);
        let before = ca(old.key_pair(), &alone, None);
        let staged = answered(ca(old.key_pair(), &both, Some(&next)), "r");
        let promoted = answered(ca(new.key_pair(), &both, None), "r");
        let dropped = answered(ca(new.key_pair(), &after, None), "r");
        for (ca, issuer, trust, wanted) in [
            (&before, &old, &alone, Progress::Asked),
            // Another request was answered, with the authority that is in office.
            (&answered(before.clone(), "other"), &old, &alone, Progress::Asked),
            (&staged, &old, &both, Progress::Published(key.clone())),
            (&promoted, &old, &both, Progress::Switched(key.clone())),
            (&promoted, &new, &both, Progress::Switched(key.clone())),
            // The bundle has not been given out yet.
            (&dropped, &new, &both, Progress::Switched(key.clone())),
            (&dropped, &new, &after, Progress::Done(key.clone())),
        ] {
            let inventory = inventory(ca, issuer, trust);
            assert_eq!(Progress::of(&inventory, "r", Some(old.certificate())), wanted);
        }
    }

    #[test]
    fn every_request_is_new() {
        let now = SystemTime::now();
        assert_ne!(make_request(now), make_request(now));
        let (time, suffix) =
            make_request(now).rsplit_once('-').map(|(a, b)| (a.to_owned(), b.len())).unwrap();
        assert!(clock::parse(&time).is_some() && suffix == 6, "{time}");
    }
}
