//! The gRPC services: each answers from the policies of one kind.

use std::convert::Infallible;

use sallyport_policy::{MutationSet, ValidationSet};
use sallyport_proto::v1alpha1::mutator_server::{Mutator, MutatorServer};
use sallyport_proto::v1alpha1::validator_server::{Validator, ValidatorServer};
use sallyport_proto::v1alpha1::{MutateResponse, ReviewRequest, ValidateResponse};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tower::Service;

use crate::engine::PolicySet;
use crate::reviewer::Reviewer;

#[tonic::async_trait]
impl Mutator for Reviewer<MutationSet> {
    async fn mutate(&self, request: Request<ReviewRequest>) -> Result<Response<MutateResponse>, Status> {
        Ok(Response::new(self.review(request).await?.answer.into()))
    }
}

#[tonic::async_trait]
impl Validator for Reviewer<ValidationSet> {
    async fn validate(&self, request: Request<ReviewRequest>) -> Result<Response<ValidateResponse>, Status> {
        Ok(Response::new(self.review(request).await?.answer.into()))
    }
}

/// A kind of backend: a policy set and the gRPC service that answers from it.
pub trait Kind: PolicySet {
    /// The gRPC service.
    type Server: Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = Infallible,
            Future: Send + 'static,
        > + NamedService
        + Clone
        + Send
        + Sync
        + 'static;

    /// The service over a reviewer; messages have at most `limit` bytes.
    fn server(reviewer: Reviewer<Self>, limit: usize) -> Self::Server;
}

impl Kind for MutationSet {
    type Server = MutatorServer<Reviewer<Self>>;

    fn server(reviewer: Reviewer<Self>, limit: usize) -> Self::Server {
        MutatorServer::new(reviewer).max_decoding_message_size(limit).max_encoding_message_size(limit)
    }
}

impl Kind for ValidationSet {
    type Server = ValidatorServer<Reviewer<Self>>;

    fn server(reviewer: Reviewer<Self>, limit: usize) -> Self::Server {
        ValidatorServer::new(reviewer).max_decoding_message_size(limit).max_encoding_message_size(limit)
    }
}
