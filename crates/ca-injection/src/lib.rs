//! Injection of `caBundle` into objects of others: off unless targets and Secrets are named.
//!
//! Start with [`Injector::new`] and call [`Injector::round`] whenever something that is [`Injector::watched`] changes.
//!
//! Three have to agree before anything is written: whoever runs the rotator names the object and the Secret by
//! flags, the object carries the annotation [`INJECT_CA_FROM`] with the Secret's name, and the Secret carries
//! [`ALLOW_INJECTION`]. Then the Secret's `ca.crt` is put into every `caBundle` of the object, and authorities that
//! were there before stay beside the new ones for a while, so that processes that still serve an old certificate
//! are reached.
//!
//! What is written is `caBundle` and nothing else, under a field manager of its own: under the one of the
//! registration, a partial object would take everything else away from a configuration that a rotator registered.
//! Nothing is remembered but patience: what was injected, and when, is read from the object's `managedFields`, so
//! that any rotator continues where another stopped.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod annotations;
mod field;
mod injector;
mod metrics;
mod overlap;
mod source;
mod target;

pub use annotations::{ALLOW_INJECTION, INJECT_CA_FROM};
pub use field::MANAGER;
pub use injector::{Injection, InjectionError, Injector, Round};
pub use metrics::Metrics;
pub use source::{SecretName, Unfit};
pub use target::{Kind, Target};
