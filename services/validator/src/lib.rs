//! The validator: accepts or refuses objects after all mutation is done, by policies.
//!
//! All that it shares with the mutator is in `sallyport-backend`; here is what
//! makes it a Validator. The invariant: it gathers every denial, warning and
//! audit annotation, and never changes an object.

use anyhow::Context;
use sallyport_backend::{Backend, BackendArgs, BackendError, Config, Reviewer};
use sallyport_net::Shutdown;
use sallyport_policy::ValidationSet;
use sallyport_proto::v1alpha1::validator_server::{Validator, ValidatorServer};
use sallyport_proto::v1alpha1::{ReviewRequest, ValidateResponse};
use tonic::{Request, Response, Status};

/// Accepts or refuses objects after all mutation is done, by policies.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "sallyport-validator", version)]
pub struct Args {
    /// What all backends are told.
    #[command(flatten)]
    pub backend: BackendArgs,
}

struct Service(Reviewer<ValidationSet>);

#[tonic::async_trait]
impl Validator for Service {
    async fn validate(&self, request: Request<ReviewRequest>) -> Result<Response<ValidateResponse>, Status> {
        Ok(Response::new(self.0.review(request).await?.answer.into()))
    }
}

/// Runs the validator as a process of its own until a signal has drained it.
///
/// # Errors
/// When it cannot start: the message names what to set right.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let tracing = sallyport_telemetry::install("validator", &args.backend.telemetry)?;
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
pub async fn serve(backend: Backend<ValidationSet>, shutdown: Shutdown) -> Result<(), BackendError> {
    let limit = backend.message_limit();
    let service = ValidatorServer::new(Service(backend.reviewer()))
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    backend.run(service, shutdown).await
}
