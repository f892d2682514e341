//! A gRPC client over all replicas of a backend.
//!
//! Replicas come from a name that is re-resolved all the time (a headless
//! Service). A call goes to the less loaded of two random ones. A replica that
//! loses a connection is left out until a health check succeeds, so no review
//! is spent on finding out. A call that cannot have been decided is made once
//! more elsewhere, as far as the retry budget goes: retries are a tenth of the
//! calls at most, lest an outage be doubled.
//!
//! Start with [`Balancer`]. [`pick`] is its decision alone, without a network.

mod endpoint;
mod load;
mod picker;
mod resolve;
mod retry;
mod status;

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use sallyport_error_chain::format_chain;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use self::endpoint::Endpoint;
pub use self::load::Load;
pub use self::picker::{Candidate, pick};
use self::resolve::resolve;
use self::retry::SharedBudget;
use self::status::{clarify, is_expired, is_lost_connection, is_undecided};
use crate::credentials::{Credentials, CredentialsError};

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
    /// Time between lookups; CoreDNS' own cache comes on top.
    pub resolve: Duration,
    /// First wait before a lost replica's health is asked; doubles up to one second.
    pub probe: Duration,
}

impl Default for BalancerOptions {
    fn default() -> Self {
        Self { resolve: Duration::from_secs(5), probe: Duration::from_millis(100) }
    }
}

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
    retries: SharedBudget,
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
            retries: SharedBudget::full(),
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

    /// Re-resolves the endpoints every `options.resolve`. Never returns.
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
            if !are_same(&next.replicas, &current.replicas) {
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

    /// Picks where a call is made, other than at `but`.
    fn pick(&self, but: Option<&Arc<Endpoint>>) -> Option<Arc<Endpoint>> {
        let known = self.known.load();
        let may = |endpoint: &Arc<Endpoint>| but.is_none_or(|but| !Arc::ptr_eq(endpoint, but));
        let picked = pick(&known.replicas, &known.fallback, may, Instant::now(), &mut fastrand::Rng::new())?;
        picked.record_pick(self.picks.fetch_add(1, Ordering::Relaxed) + 1);
        Some(picked.clone())
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
        self.call_endpoint(deadline, |endpoint, left| make(endpoint.channel.clone(), left)).await
    }

    async fn call_endpoint<T, F, C>(self: &Arc<Self>, deadline: Instant, make: C) -> Result<T, Status>
    where
        C: Fn(&Endpoint, Duration) -> F,
        F: Future<Output = Result<T, Status>>,
    {
        self.retries.deposit();
        let Some(first) = self.pick(None) else {
            return Err(Status::unavailable("no replica of the backend is known"));
        };
        let status = match self.attempt(&first, deadline, &make).await {
            Ok(answer) => return Ok(answer),
            Err(status) => status,
        };
        if !is_undecided(&status) || Instant::now() >= deadline {
            return Err(clarify(status));
        }
        // With one replica, the same again: its connection may only have been old.
        let second = self.pick(Some(&first)).unwrap_or(first);
        if !self.retries.withdraw() {
            return Err(clarify(status));
        }
        self.attempt(&second, deadline, &make).await.map_err(clarify)
    }

    async fn attempt<T, F, C>(
        self: &Arc<Self>,
        endpoint: &Arc<Endpoint>,
        deadline: Instant,
        make: &C,
    ) -> Result<T, Status>
    where
        C: Fn(&Endpoint, Duration) -> F,
        F: Future<Output = Result<T, Status>>,
    {
        let left = deadline.saturating_duration_since(Instant::now());
        let in_flight = endpoint.enter();
        let late = || Status::deadline_exceeded("the review's deadline has passed");
        let answer = match tokio::time::timeout_at(deadline, make(endpoint, left)).await {
            Ok(Err(status)) if is_expired(&status) => Err(late()),
            Ok(answer) => answer,
            Err(_) => Err(late()),
        };
        match &answer {
            Ok(_) => {
                in_flight.record_answer();
                if endpoint.is_down() {
                    endpoint.mark_up();
                }
                self.mark_reached();
            }
            Err(status) if is_lost_connection(status) => {
                if endpoint.mark_down() {
                    tracing::warn!(replica = %endpoint.address, error = %status, cause = status.source().map(format_chain), "lost a backend replica");
                    tokio::spawn(self.clone().probe(endpoint.clone()));
                }
            }
            Err(_) => in_flight.penalise(PENALTY.min(left)),
        }
        answer
    }
}

fn are_same(one: &[Arc<Endpoint>], other: &[Arc<Endpoint>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

#[cfg(test)]
mod tests;
