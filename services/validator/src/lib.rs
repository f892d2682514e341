//! The validator: accepts or refuses objects after all mutation is done, by policies.
//!
//! All that it shares with the mutator is in `sallyport-backend`; here is what
//! makes it a Validator. The invariant: it gathers every denial, warning and
//! audit annotation, and never changes an object.

use sallyport_backend::{BackendArgs, BackendError};
use sallyport_policy::ValidationSet;

/// Accepts or refuses objects after all mutation is done, by policies.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "sallyport-validator", version)]
pub struct Args {
    /// What all backends are told.
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Runs the validator as a process of its own until a signal has drained it.
///
/// # Errors
/// When it cannot start: the message names what to set right.
pub async fn run(args: Args) -> Result<(), BackendError> {
    sallyport_backend::run::<ValidationSet>(&args.backend).await
}
