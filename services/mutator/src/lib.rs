//! The mutator: changes objects before they are stored, by policies.
//!
//! All that it shares with the validator is in `sallyport-backend`; here is
//! what makes it a Mutator. The invariant: it answers the one patch from the
//! received object to the wanted one, or none when nothing changes.

use anyhow::Context;
use sallyport_backend::{Backend, BackendArgs, BackendError, Config, Reviewer};
use sallyport_net::Shutdown;
use sallyport_policy::MutationSet;
use sallyport_proto::v1alpha1::mutator_server::{Mutator, MutatorServer};
use sallyport_proto::v1alpha1::{MutateResponse, ReviewRequest};
use tonic::{Request, Response, Status};

/// Changes objects before they are stored, by policies.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "sallyport-mutator", version)]
pub struct Args {
    /// What all backends are told.
    #[command(flatten)]
    pub backend: BackendArgs,
}

struct Service(Reviewer<MutationSet>);

#[tonic::async_trait]
impl Mutator for Service {
    async fn mutate(&self, request: Request<ReviewRequest>) -> Result<Response<MutateResponse>, Status> {
        Ok(Response::new(self.0.review(request).await?.answer.into()))
    }
}

/// Runs the mutator as a process of its own until a signal has drained it.
///
/// # Errors
/// When it cannot start: the message names what to set right.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let tracing = sallyport_telemetry::install("mutator", &args.backend.telemetry)?;
    let shutdown = Shutdown::on_signals().context("failed to install signal handlers")?;
    let backend = Backend::bind(Config::from(&args.backend)).await?;
    serve(backend, shutdown).await?;
    tracing::info!("drained");
    tracing.shutdown().await;
    Ok(())
}

/// Serves a bound backend until the shutdown has drained it; for running it in-process.
///
/// # Errors
/// When the server ends by itself.
pub async fn serve(backend: Backend<MutationSet>, shutdown: Shutdown) -> Result<(), BackendError> {
    let limit = backend.message_limit();
    let service = MutatorServer::new(Service(backend.reviewer()))
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    backend.run(service, shutdown).await
}
