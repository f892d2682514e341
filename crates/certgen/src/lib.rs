//! Jobs that end, for webhooks that are not Sallyport's own: `create` makes a Secret with a certificate, `patch` writes
//! its authorities into webhook configurations and their like, `bootstrap` does both.
//!
//! Start with [`Job`], the subcommands of the program that has them, and [`run`].
//!
//! A job reads, decides and writes only what differs, over exactly what it read; so it may run any number of times,
//! several at once, and be ended at any point. What is good is kept. Every wait is bounded by `--timeout`: within it
//! the job bears with an API server that is away, with objects that are not there yet, and with other writers; what
//! time will not mend ends it at once.
//!
//! The private key goes from memory into the Secret and nowhere else.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod arguments;
mod certificate;
mod error;
mod patch;
mod secret;
mod session;
mod signer;

use std::pin::{Pin, pin};

pub use arguments::{Job, KeyAlgorithm, duration};
pub use error::JobError;
use tracing::info;

use crate::arguments::CommonArgs;
use crate::session::{Outcome, Session};

/// Runs a job to its end. The last line on standard output says what was done.
/// Its flags have been checked by [`Job::check`]; `shutdown` ends it early.
pub async fn run(job: Job, shutdown: impl Future<Output = ()>) -> Result<(), JobError> {
    let common = match &job {
        Job::Create(args) => &args.common,
        Job::Patch(args) => &args.common,
        Job::Bootstrap(args) => &args.common,
    };
    let tracing = sallyport_telemetry::install("cert-rotator", &common.telemetry())?;
    let outcome = perform(&job, common, pin!(shutdown)).await;
    tracing.shutdown().await;
    let Outcome { is_changed, text } = outcome?;
    info!(is_changed, "{text}");
    if is_changed {
        println!("{text}");
    } else {
        println!("nothing to do: {text}");
    }
    Ok(())
}

async fn perform(
    job: &Job,
    common: &CommonArgs,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<Outcome, JobError> {
    let session = Session::start(common).await?;
    let work = async {
        match job {
            Job::Create(args) => certificate::create(&session, common, &args.certificate, None).await,
            Job::Patch(args) => patch::patch(&session, common, &args.targets).await,
            Job::Bootstrap(args) => {
                let created =
                    certificate::create(&session, common, &args.certificate, Some(&args.targets)).await?;
                let patched = patch::patch(&session, common, &args.targets).await?;
                let text = match (created.is_changed, patched.is_changed) {
                    (true, false) => created.text,
                    (false, true) => patched.text,
                    _ => format!("{}; {}", created.text, patched.text),
                };
                Ok(Outcome { is_changed: created.is_changed || patched.is_changed, text })
            }
        }
    };
    // The first process of a container ignores signals that it does not handle.
    tokio::select! {
        outcome = work => outcome,
        () = shutdown => Err(JobError::Signal),
    }
}
