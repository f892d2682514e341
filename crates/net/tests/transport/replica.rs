//! Replicas of a backend: tonic servers, each in a runtime of its own, so that one can die as a process does.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sallyport_net::{AcceptLimits, Balancer, BalancerOptions, Target, grpc_incoming};
use sallyport_proto::v1alpha1::mutator_client::MutatorClient;
use sallyport_proto::v1alpha1::mutator_server::{Mutator, MutatorServer};
use sallyport_proto::v1alpha1::{MutateResponse, ReviewRequest};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::authority::{Ca, Member, name};
use crate::server::{PATIENCE, eventually};

/// Message limit of both sides, in bytes.
pub const LIMIT: usize = 9 << 20;

type Answer = Pin<Box<dyn Future<Output = Result<MutateResponse, Status>> + Send>>;

/// What a replica does with a call.
pub type Behaviour = Arc<dyn Fn(Request<ReviewRequest>) -> Answer + Send + Sync>;

/// Allows at once, or after a while.
pub fn allow(after: Duration) -> Behaviour {
    Arc::new(move |_| {
        Box::pin(async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            Ok(MutateResponse { allowed: true, ..MutateResponse::default() })
        })
    })
}

/// Fails with a status of its own.
pub fn fail(code: tonic::Code) -> Behaviour {
    Arc::new(move |_| Box::pin(async move { Err(Status::new(code, "said by the backend")) }))
}

#[derive(Clone)]
struct Service {
    behaviour: Behaviour,
    calls: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Mutator for Service {
    async fn mutate(&self, request: Request<ReviewRequest>) -> Result<Response<MutateResponse>, Status> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.behaviour)(request).await.map(Response::new)
    }
}

/// One running replica.
pub struct Replica {
    pub address: SocketAddr,
    calls: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
    _member: Member,
}

impl Replica {
    pub async fn start(ca: &Ca, behaviour: Behaviour) -> Self {
        Self::start_at(ca, "mutator", "127.0.0.1:0".parse().unwrap(), behaviour).await
    }

    pub async fn start_at(ca: &Ca, service: &str, address: SocketAddr, behaviour: Behaviour) -> Self {
        let member = ca.member(service);
        let tls = member.credentials.mutual_server_config(&name("front")).unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let service = MutatorServer::new(Service { behaviour, calls: calls.clone() })
            .max_decoding_message_size(LIMIT)
            .max_encoding_message_size(LIMIT);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listening = runtime.spawn(async move {
            // After a death the port may be in use for a moment more.
            let binding = async {
                loop {
                    match TcpListener::bind(address).await {
                        Ok(listener) => break listener,
                        Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
            };
            let listener = tokio::time::timeout(PATIENCE, binding).await.expect("the address stays in use");
            let address = listener.local_addr().unwrap();
            let (_, health) = tonic_health::server::health_reporter();
            let server = tonic::transport::Server::builder()
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(8 << 20)
                .add_service(health)
                .add_service(service)
                .serve_with_incoming(grpc_incoming(listener, tls, AcceptLimits::default()));
            tokio::spawn(server);
            address
        });
        let address = listening.await.unwrap();
        Self { address, calls, runtime: Some(runtime), _member: member }
    }

    /// Calls that reached it.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Dies at once, with all connections; returns where it was.
    pub fn kill(mut self) -> SocketAddr {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.address
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An address where nobody listens.
pub async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// The front's side.
#[derive(Clone)]
pub struct Front {
    pub balancer: Arc<Balancer>,
    member: Arc<Member>,
    tries: Arc<AtomicUsize>,
}

impl Front {
    /// A balancer over these addresses, once `up` of them answer.
    pub async fn start(ca: &Ca, addresses: &[SocketAddr], up: usize) -> Self {
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let front = Self::with_fallback(ca, hosts, vec![]);
        if up > 0 {
            tokio::time::timeout(PATIENCE, front.balancer.reached())
                .await
                .expect("no replica is ever reached");
        }
        eventually("the replicas are found", || front.balancer.replicas() == (addresses.len(), up)).await;
        front
    }

    /// A balancer that has just begun to look.
    pub fn with_fallback(ca: &Ca, hosts: Vec<String>, fallback: Vec<String>) -> Self {
        let member = ca.member("front");
        let target = Target { hosts, fallback, server_name: name("mutator") };
        let balancer = Balancer::new(target, &member.credentials, BalancerOptions::default()).unwrap();
        tokio::spawn(balancer.clone().run());
        Self { balancer, member: Arc::new(member), tries: Arc::default() }
    }

    /// How often a replica was tried, whether it was there or not.
    pub fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }

    /// Its certificates.
    pub fn member(&self) -> &Member {
        &self.member
    }

    pub async fn call(&self, limit: Duration) -> Result<MutateResponse, Status> {
        self.send(ReviewRequest { uid: "u".into(), ..ReviewRequest::default() }, limit).await
    }

    pub async fn send(&self, review: ReviewRequest, limit: Duration) -> Result<MutateResponse, Status> {
        let attempt = |channel: tonic::transport::Channel, left: Duration| {
            self.tries.fetch_add(1, Ordering::SeqCst);
            let mut request = Request::new(review.clone());
            request.set_timeout(left);
            async move {
                let mut client = MutatorClient::new(channel).max_decoding_message_size(LIMIT);
                client.mutate(request).await.map(Response::into_inner)
            }
        };
        self.balancer.call(Instant::now() + limit, attempt).await
    }

    /// Makes `count` calls, `width` at a time; returns those that failed.
    pub async fn load(&self, count: usize, width: usize) -> Vec<Status> {
        let left = Arc::new(AtomicUsize::new(count));
        let mut callers = JoinSet::new();
        for _ in 0..width {
            let (front, left) = (self.clone(), left.clone());
            callers.spawn(async move {
                let mut failed = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    failed.extend(front.call(PATIENCE).await.err());
                }
                failed
            });
        }
        callers.join_all().await.into_iter().flatten().collect()
    }
}
