//! What the mutator and the validator share: policies that are kept current,
//! and a gRPC server that answers reviews with them.
//!
//! ```text
//! sources::watch ─▶ Policies (compiled aside, swapped in one step)
//!                       │
//! mutual TLS ─▶ Gate ─▶ Reviewer ─▶ Outcome ─▶ the answer of Mutator or Validator
//!           (places,   (deadline, trace,│ ▲
//!            bytes)     log, metrics)  ▼ │
//!                         SubjectAccessReviews, where policies ask `authorizer` and somebody is connected
//! ```
//!
//! The invariant: a request is evaluated against one set of policies from
//! beginning to end, and whatever keeps it from being evaluated (load, time, a
//! panic) is a gRPC status and never a decision.
//!
//! Start with [`run`], which is a whole process, or with [`Backend::bind`] for a backend inside another one.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access_review;
mod arguments;
mod authorization;
mod engine;
mod fault;
mod gate;
mod meters;
mod policies;
mod question;
mod reviewer;
mod server;
mod service;

pub use access_review::ConnectError;
pub use arguments::{AuthorizerKind, BackendArgs, Config};
pub use engine::{PolicySet, Source};
pub use reviewer::Reviewer;
pub use server::{Backend, BackendError, run};
pub use service::Kind;
