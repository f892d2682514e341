//! What Sallyport's controllers share: one of several leads by a Lease, calls to the API server are bounded, and what
//! a person should know of becomes an Event or a condition.
//!
//! Start with [`Candidacy`]: a controller stands for the Lease and works while its [`Standing`] is
//! [`Standing::Leading`]. [`Watches`] wake it, [`call`] bounds each of its calls, and [`Backoff`] makes it patient with
//! other writers.
//!
//! Each controller writes under a field manager of its own, which it passes in: nothing here has a name.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
mod backoff;
mod conditions;
mod connection;
mod election;
mod events;
mod owner;
mod watches;

pub use access::{AccessError, Verb, call};
pub use backoff::Backoff;
pub use conditions::{CONDITIONS_ANNOTATION, Conditions, Type};
pub use connection::{ConnectError, client, cluster, connect};
pub use election::{Candidacy, LeaseConfig, Standing};
pub use events::Events;
pub use owner::{labels, service_account, uid};
pub use watches::{Watched, Watches};
