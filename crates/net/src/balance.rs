//! A gRPC client over all replicas of a backend.
//!
//! Replicas come from a name that is looked up again and again (a headless
//! Service). A call goes to the less loaded of two random ones. A replica that
//! loses a connection is left out until a health check succeeds, so no review
//! is spent on finding out. A call that cannot have been decided is tried once
//! more elsewhere, as far as the retry budget goes: retries are a tenth of the
//! calls at most, lest an outage be doubled.

use crate::credentials::{Credentials, CredentialsError};
use crate::endpoint::Endpoint;
use crate::resolve::resolve;
use arc_swap::ArcSwap;
use rustls::ClientConfig;
use sallyport_error_chain::{causes, format_chain};
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Which backend, and by what name it proves itself.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port` of the backend, or of several; a host that is a headless
    /// Service's absolute name (`name.namespace.svc.cluster.local.`) stands for
    /// all its replicas.
    pub hosts: Vec<String>,
    /// `host:port` that leads to any replica, for as long as none of `hosts` answers; may be empty. Meant for
    /// a Service with an address: cluster DNS remembers for 30 s that a headless Service had no pods, or had
    /// others, while the address leads to a new pod as soon as it is ready.
    pub fallback: Vec<String>,
    /// The name that its certificates must be valid for.
    pub server_name: String,
}

/// Times of a balancer.
#[derive(Clone, Copy, Debug)]
pub struct BalancerOptions {
    /// Time between look-ups; CoreDNS' own cache comes on top.
    pub resolve: Duration,
    /// First wait before a lost replica's health is asked; doubles up to one second.
    pub probe: Duration,
}

impl Default for BalancerOptions {
    fn default() -> Self {
        Self { resolve: Duration::from_secs(5), probe: Duration::from_millis(100) }
    }
}

/// Tenths of a retry: what each call earns, what a retry costs, and the most that
/// can be saved up: enough for every call in flight on a replica that dies.
const EARNED_PER_CALL: i64 = 1;
const COST_OF_RETRY: i64 = 10;
const MOST_SAVED: i64 = 10_000;

/// A replica that answered with a failure of its own counts as this slow.
const PENALTY: Duration = Duration::from_secs(5);

/// Where a backend may be called.
#[derive(Debug, Default)]
struct Known {
    replicas: Vec<Arc<Endpoint>>,
    /// Carries no share of the load: called when no replica answers.
    fallback: Vec<Arc<Endpoint>>,
}

impl Known {
    fn contains(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.replicas.iter().chain(&self.fallback).any(|known| Arc::ptr_eq(known, endpoint))
    }
}

/// Calls a backend's replicas.
#[derive(Debug)]
pub struct Balancer {
    target: Target,
    options: BalancerOptions,
    tls: Arc<ClientConfig>,
    known: ArcSwap<Known>,
    /// How many picks there were.
    picks: AtomicU64,
    /// Tenths of retries saved up.
    retries: AtomicI64,
    reached: AtomicBool,
    reached_now: Notify,
}

impl Balancer {
    /// A balancer without replicas yet; [`Balancer::run`] finds them.
    ///
    /// # Errors
    /// When the server's name is no DNS name, or TLS cannot be configured.
    pub fn new(
        target: Target,
        credentials: &Credentials,
        options: BalancerOptions,
    ) -> Result<Arc<Self>, CredentialsError> {
        crate::credentials::dns_name(&target.server_name)?;
        Ok(Arc::new(Self {
            target,
            options,
            tls: credentials.client_config()?,
            known: ArcSwap::default(),
            picks: AtomicU64::new(0),
            retries: AtomicI64::new(MOST_SAVED),
            reached: AtomicBool::new(false),
            reached_now: Notify::new(),
        }))
    }

    /// Replicas known now, and how many of them answer.
    pub fn replicas(&self) -> (usize, usize) {
        let known = self.known.load();
        (known.replicas.len(), known.replicas.iter().filter(|endpoint| !endpoint.is_down()).count())
    }

    /// Waits until a replica has answered once since start.
    pub async fn reached(&self) {
        loop {
            let notified = self.reached_now.notified();
            if self.reached.load(Ordering::Acquire) {
                return;
            }
            notified.await;
        }
    }

    /// Looks the replicas up, again and again, until the process ends.
    pub async fn run(self: Arc<Self>) {
        let mut failing = false;
        loop {
            let (replicas, fallback) =
                tokio::join!(resolve(&self.target.hosts), resolve(&self.target.fallback));
            let error = [&replicas, &fallback].into_iter().find_map(|found| found.as_ref().err());
            if let Some(error) = error
                && !failing
            {
                tracing::warn!(hosts = ?self.target.hosts, %error, "failed to look up a backend");
            }
            failing = error.is_some();
            let current = self.known.load_full();
            let next = Known {
                replicas: self.endpoints(&current.replicas, replicas),
                fallback: self.endpoints(&current.fallback, fallback),
            };
            if !same(&next.replicas, &current.replicas) {
                let replicas: Vec<_> = next.replicas.iter().map(|endpoint| endpoint.address).collect();
                tracing::info!(backend = %self.target.server_name, ?replicas, "backend replicas");
            }
            let is_empty = next.replicas.is_empty();
            let next = Arc::new(next);
            self.known.store(next.clone());
            for endpoint in next.replicas.iter().chain(&next.fallback) {
                if !current.contains(endpoint) {
                    tokio::spawn(self.clone().probe(endpoint.clone()));
                }
            }
            // Until there is one, look more often: a Service may be seconds old.
            let wait = if is_empty { self.options.probe * 5 } else { self.options.resolve };
            tokio::time::sleep(wait.min(self.options.resolve)).await;
        }
    }

    /// The endpoints at the addresses that were found, known ones as they are. When nothing was found the last
    /// good set stays: deaths are found by calls, not by DNS.
    fn endpoints(
        &self,
        current: &[Arc<Endpoint>],
        found: std::io::Result<Vec<std::net::SocketAddr>>,
    ) -> Vec<Arc<Endpoint>> {
        let addresses = found.unwrap_or_default();
        if addresses.is_empty() {
            return current.to_vec();
        }
        let mut next = Vec::with_capacity(addresses.len());
        for address in addresses {
            if let Some(known) = current.iter().find(|endpoint| endpoint.address == address) {
                next.push(known.clone());
                continue;
            }
            match Endpoint::new(address, &self.target.server_name, self.tls.clone()) {
                Ok(endpoint) => {
                    // Takes no call before its first handshake, unless there is nobody else.
                    endpoint.mark_down();
                    next.push(Arc::new(endpoint));
                }
                Err(error) => {
                    tracing::error!(error = format_chain(&error), "failed to prepare a backend's endpoint");
                }
            }
        }
        next
    }

    /// Asks a replica's health until it answers or is no longer ours.
    async fn probe(self: Arc<Self>, endpoint: Arc<Endpoint>) {
        let mut wait = self.options.probe;
        loop {
            let mut request = tonic::Request::new(HealthCheckRequest::default());
            request.set_timeout(Duration::from_secs(2));
            let mut health = HealthClient::new(endpoint.channel.clone());
            let answer = health.check(request);
            let up = match tokio::time::timeout(Duration::from_secs(2), answer).await {
                Ok(Ok(answer)) => answer.get_ref().status() == tonic_health::ServingStatus::Serving.into(),
                // A backend of others need not have the health service; that it answers is enough.
                Ok(Err(status)) => status.code() == Code::Unimplemented,
                Err(_) => false,
            };
            if up {
                endpoint.mark_up();
                self.mark_reached();
                return;
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
            if !self.known.load().contains(&endpoint) {
                return;
            }
        }
    }

    fn mark_reached(&self) {
        if !self.reached.swap(true, Ordering::Release) {
            self.reached_now.notify_waiters();
        }
    }

    /// Picks the less loaded of two random replicas that answer, other than `but`; when none does, the fallback,
    /// and when that does not either, any.
    fn pick(&self, but: Option<&Arc<Endpoint>>) -> Option<Arc<Endpoint>> {
        let known = self.known.load();
        let other = |endpoint: &&Arc<Endpoint>| but.is_none_or(|but| !Arc::ptr_eq(endpoint, but));
        let is_up = |endpoint: &&Arc<Endpoint>| !endpoint.is_down();
        let up: Vec<&Arc<Endpoint>> = known.replicas.iter().filter(other).filter(is_up).collect();
        match up.as_slice() {
            [] => {
                let fallback = known.fallback.iter().filter(other).find(is_up);
                fallback.cloned().or_else(|| {
                    let any: Vec<&Arc<Endpoint>> =
                        known.replicas.iter().chain(&known.fallback).filter(other).collect();
                    fastrand::choice(any).cloned()
                })
            }
            [one] => Some((*one).clone()),
            several => {
                let first = fastrand::usize(..several.len());
                let step = 1 + fastrand::usize(..several.len() - 1);
                let (first, second) = (several[first], several[(first + step) % several.len()]);
                let better = if first.is_better_than(second) { first } else { second };
                better.note_pick(self.picks.fetch_add(1, Ordering::Relaxed) + 1);
                Some(better.clone())
            }
        }
    }

    /// Makes a call on one replica and, when it cannot have been decided there
    /// and time and budget allow, once more on another.
    ///
    /// `make` gets the replica's channel and what is left until `deadline`, to
    /// be sent as `grpc-timeout`.
    ///
    /// # Errors
    /// The status of the last try; `DeadlineExceeded` when time is up.
    pub async fn call<T, F, C>(self: &Arc<Self>, deadline: Instant, make: C) -> Result<T, Status>
    where
        C: Fn(Channel, Duration) -> F,
        F: Future<Output = Result<T, Status>>,
    {
        self.earn();
        let Some(first) = self.pick(None) else {
            return Err(Status::unavailable("no replica of the backend is known"));
        };
        let status = match self.attempt(&first, deadline, &make).await {
            Ok(answer) => return Ok(answer),
            Err(status) => status,
        };
        if !undecided(&status) || Instant::now() >= deadline {
            return Err(clear(status));
        }
        // With one replica, the same again: its connection may only have been old.
        let second = self.pick(Some(&first)).unwrap_or(first);
        if !self.spend() {
            return Err(clear(status));
        }
        self.attempt(&second, deadline, &make).await.map_err(clear)
    }

    async fn attempt<T, F, C>(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        deadline: Instant,
        make: &C,
    ) -> Result<T, Status>
    where
        C: Fn(Channel, Duration) -> F,
        F: Future<Output = Result<T, Status>>,
    {
        let left = deadline.saturating_duration_since(Instant::now());
        let in_flight = endpoint.enter();
        let late = || Status::deadline_exceeded("the review's deadline has passed");
        let answer = match tokio::time::timeout_at(deadline, make(endpoint.channel.clone(), left)).await {
            Ok(Err(status)) if expired(&status) => Err(late()),
            Ok(answer) => answer,
            Err(_) => Err(late()),
        };
        match &answer {
            Ok(_) => {
                in_flight.answered();
                if endpoint.is_down() {
                    endpoint.mark_up();
                }
                self.mark_reached();
            }
            Err(status) if lost_connection(status) => {
                if endpoint.mark_down() {
                    tracing::warn!(replica = %endpoint.address, error = %status, cause = status.source().map(format_chain), "lost a backend replica");
                    tokio::spawn(self.clone().probe(endpoint.clone()));
                }
            }
            Err(_) => in_flight.penalise(PENALTY.min(left)),
        }
        answer
    }

    fn earn(&self) {
        let _ = self.retries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            (saved < MOST_SAVED).then_some(saved + EARNED_PER_CALL)
        });
    }

    fn spend(&self) -> bool {
        let spent = self.retries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| {
            (saved >= COST_OF_RETRY).then_some(saved - COST_OF_RETRY)
        });
        spent.is_ok()
    }
}

fn same(one: &[Arc<Endpoint>], other: &[Arc<Endpoint>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// A status that tonic's own client made from `grpc-timeout`, perhaps a moment before our
/// timer fired. It comes as `Cancelled` with a source, as a lost connection does.
fn expired(status: &Status) -> bool {
    causes(status).any(<dyn Error>::is::<tonic::TimeoutExpired>)
}

/// A status that tonic made because the connection failed, not one that a
/// backend sent: those have no source.
fn lost_connection(status: &Status) -> bool {
    status.source().is_some()
        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
}

/// A status that says what happened. tonic calls a connection that broke `Unknown`, and `Cancelled`
/// both a connection that was gone before the call and a call that the backend broke off (a
/// handler that panicked); none of them is a call that was cancelled or took too long.
fn clear(status: Status) -> Status {
    if !lost_connection(&status) {
        return status;
    }
    let code = match status.code() {
        Code::Cancelled if !never_sent(&status) => Code::Internal,
        Code::Cancelled | Code::Unknown => Code::Unavailable,
        code => code,
    };
    Status::new(code, status.message())
}

/// Whether the connection ended before it took the call.
fn never_sent(status: &Status) -> bool {
    causes(status).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled))
}

/// Whether a backend cannot have decided, so that another may be asked.
fn undecided(status: &Status) -> bool {
    lost_connection(status) || matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}
