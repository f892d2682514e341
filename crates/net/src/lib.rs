//! How Sallyport's processes talk: TLS with hot-reloaded certificates, an
//! HTTPS server that loses no review, a balanced gRPC client, and draining.
//!
//! ```text
//! API server ──TLS──▶ https::serve ─▶ front ─▶ balance::Balancer ══mTLS══▶ grpc_incoming ─▶ backend
//!                          ▲                        ▲                            ▲
//!                          └──────────── credentials::Credentials ───────────────┘
//! ```
//!
//! The invariant: whatever happens to certificates, endpoints or connections,
//! a review that can still be decided is decided, and none is decided twice
//! differently, because backends have no side effects.
//!
//! Start with [`https::serve`] for a server, with [`Balancer`] for a client of many replicas; both need
//! [`Credentials`]. [`bind`] and [`accept`] are what all servers share, those without TLS too.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod accept;
pub mod balance;
pub mod budget;
mod coalesce;
pub mod credentials;
mod guard;
pub mod https;
mod linger;
pub mod listener;
pub mod shutdown;
mod trust;

pub use accept::{Place, accept, bind};
pub use balance::{Balancer, BalancerOptions, Target};
pub use budget::{ByteBudget, Reservation};
pub use credentials::{CertificateStatus, Credentials, CredentialsError, Reload};
pub use listener::{AcceptLimits, Connection, grpc_incoming};
pub use shutdown::Shutdown;
