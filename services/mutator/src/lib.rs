//! The mutator: changes objects before they are stored, by policies.
//!
//! All that it shares with the validator is in `sallyport-backend`; here is
//! what makes it a Mutator. The invariant: it answers the one patch from the
//! received object to the wanted one, or none when nothing changes.

use sallyport_backend::{BackendArgs, BackendError};
use sallyport_policy::MutationSet;

/// Changes objects before they are stored, by policies.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "sallyport-mutator", version)]
pub struct Args {
    /// What all backends are told.
    #[command(flatten)]
    pub backend: BackendArgs,
}

/// Runs the mutator as a process of its own until a signal has drained it.
///
/// # Errors
/// When it cannot start: the message names what to set right.
pub async fn run(args: Args) -> Result<(), BackendError> {
    sallyport_backend::run::<MutationSet>(&args.backend).await
}
