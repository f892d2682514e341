//! The front: HTTPS in, gRPC out.
//!
//! ```text
//! POST /mutate/fail   ─▶ body ─▶ envelope ─▶ mutator   ─▶ answer checked ─▶ 200
//! POST /validate/fail ─▶   (bounded, borrowed)  validator       │
//!                                                               ▼
//!                       could not decide ─▶ failure: 429 500 503 504, never allow or deny
//! ```
//!
//! It has no access to Kubernetes and knows no policy. The invariant: every
//! decision that it answers was made by a backend. What it says by itself are
//! HTTP errors, which the API server takes as a failed call, so that the
//! failurePolicy of the registration decides.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod arguments;
mod body;
mod deadline;
mod door;
mod failure;
mod front;
mod metrics;
mod outcome;
mod review;
mod state;

use anyhow::Context;
pub use arguments::Args;
pub use front::{Front, FrontError};
use sallyport_net::Shutdown;
use sallyport_telemetry::certificate;

/// Runs the front as a process of its own until a signal has drained it.
///
/// # Errors
/// When it cannot start: the message names what to set right.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut telemetry = sallyport_telemetry::start("webhook", &args.telemetry)?;
    let shutdown = Shutdown::on_signals().context("failed to install signal handlers")?;
    let front = Front::bind(&args, telemetry.registry(), telemetry.readiness(), shutdown).await?;
    telemetry.admin_mut().page(certificate::PAGE, certificate::page(front.credentials().clone()));
    let admin = telemetry.serve_admin().await?;
    tracing::info!(address = %front.address(), %admin, version = env!("CARGO_PKG_VERSION"), "serving");
    front.serve().await;
    tracing::info!("drained");
    telemetry.shutdown().await;
    Ok(())
}
