//! Backends that say what a test wants, over real gRPC and mutual TLS.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sallyport_net::{AcceptLimits, Credentials, Shutdown, grpc_incoming};
use sallyport_proto::MESSAGE_OVERHEAD;
use sallyport_proto::v1alpha1::mutator_server::{Mutator, MutatorServer};
use sallyport_proto::v1alpha1::validator_server::{Validator, ValidatorServer};
use sallyport_proto::v1alpha1::{MutateResponse, ReviewRequest, ValidateResponse};
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

type Answering = Pin<Box<dyn Future<Output = Result<MutateResponse, Status>> + Send>>;
type Behaviour = Arc<dyn Fn(ReviewRequest) -> Answering + Send + Sync>;

/// A call as it arrived.
#[derive(Clone, Debug)]
pub struct Call {
    pub review: ReviewRequest,
    pub metadata: MetadataMap,
}

impl Call {
    /// The time that `grpc-timeout` grants.
    pub fn granted(&self) -> Duration {
        let header = self.metadata.get("grpc-timeout").expect("no grpc-timeout").to_str().unwrap();
        let (number, unit) = header.split_at(header.len() - 1);
        let seconds = match unit {
            "S" => 1.0,
            "m" => 1e-3,
            "u" => 1e-6,
            "n" => 1e-9,
            _ => panic!("{header}"),
        };
        Duration::from_secs_f64(number.parse::<f64>().unwrap() * seconds)
    }
}

/// What a backend does, and what it saw. Both services at once: the front calls the one that the door leads to.
#[derive(Clone)]
pub struct Script {
    behaviour: Arc<Mutex<Behaviour>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Script {
    fn new() -> Self {
        let script =
            Self { behaviour: Arc::new(Mutex::new(Arc::new(|_| unreachable!()))), calls: Arc::default() };
        script.answer(MutateResponse { allowed: true, ..MutateResponse::default() });
        script
    }

    /// From now on, this is done with every call.
    pub fn act<F>(&self, behaviour: impl Fn(ReviewRequest) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<MutateResponse, Status>> + Send + 'static,
    {
        *self.behaviour.lock() = Arc::new(move |review| Box::pin(behaviour(review)));
    }

    /// From now on, this is the answer. A validator's lacks the patch.
    pub fn answer(&self, answer: MutateResponse) {
        self.act(move |_| std::future::ready(Ok(answer.clone())));
    }

    /// From now on, every call fails like this.
    pub fn fail(&self, status: Status) {
        self.act(move |_| std::future::ready(Err(status.clone())));
    }

    pub fn calls(&self) -> usize {
        self.calls.lock().len()
    }

    pub fn last(&self) -> Call {
        self.calls.lock().last().expect("the backend was not called").clone()
    }

    async fn called(&self, request: Request<ReviewRequest>) -> Result<MutateResponse, Status> {
        let (metadata, _, review) = request.into_parts();
        self.calls.lock().push(Call { review: review.clone(), metadata });
        let behaviour = self.behaviour.lock().clone();
        behaviour(review).await
    }
}

#[tonic::async_trait]
impl Mutator for Script {
    async fn mutate(&self, request: Request<ReviewRequest>) -> Result<Response<MutateResponse>, Status> {
        self.called(request).await.map(Response::new)
    }
}

#[tonic::async_trait]
impl Validator for Script {
    async fn validate(&self, request: Request<ReviewRequest>) -> Result<Response<ValidateResponse>, Status> {
        let MutateResponse { allowed, status, warnings, audit_annotations, .. } =
            self.called(request).await?;
        Ok(Response::new(ValidateResponse { allowed, status, warnings, audit_annotations }))
    }
}

/// A running backend.
pub struct Backend {
    pub address: SocketAddr,
    pub script: Script,
    credentials: Arc<Credentials>,
    client_name: String,
    shutdown: Shutdown,
    serving: tokio::task::JoinHandle<()>,
}

impl Backend {
    pub async fn start(directory: &Path, client_name: &str) -> Self {
        let credentials = Credentials::load(directory).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, script, shutdown) = (listener.local_addr().unwrap(), Script::new(), Shutdown::new());
        let serving = serve(listener, &credentials, client_name, &script, &shutdown);
        Self { address, script, credentials, client_name: client_name.to_owned(), shutdown, serving }
    }

    /// Ends it; its connections too.
    pub async fn stop(&mut self) {
        self.shutdown.trigger();
        tokio::time::timeout(Duration::from_secs(10), &mut self.serving)
            .await
            .expect("does not stop")
            .unwrap();
    }

    /// Starts it again at the same address.
    pub async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.shutdown = Shutdown::new();
        self.serving = serve(listener, &self.credentials, &self.client_name, &self.script, &self.shutdown);
    }
}

fn serve(
    listener: TcpListener,
    credentials: &Credentials,
    client_name: &str,
    script: &Script,
    shutdown: &Shutdown,
) -> tokio::task::JoinHandle<()> {
    let tls = credentials.mutual_server_config(client_name).unwrap();
    let (script, shutdown) = (script.clone(), shutdown.clone());
    let limit = (8 << 20) + MESSAGE_OVERHEAD;
    tokio::spawn(async move {
        let (_, health) = tonic_health::server::health_reporter();
        tonic::transport::Server::builder()
            .add_service(health)
            .add_service(MutatorServer::new(script.clone()).max_decoding_message_size(limit))
            .add_service(ValidatorServer::new(script).max_decoding_message_size(limit))
            .serve_with_incoming_shutdown(grpc_incoming(listener, tls, AcceptLimits::default()), async move {
                shutdown.started().await;
            })
            .await
            .unwrap();
    })
}
