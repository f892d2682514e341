//! What every service shows of itself: logs, traces, metrics, health.
//!
//! Two levels, because `sallyport dev` runs all services in one process:
//!
//! - [`install`] is for the process: the log and trace subscriber and the panic hook. Once.
//! - [`Admin`] is for a service: its metrics registry, its [`Readiness`] and the plain-HTTP endpoint
//!   that shows them.
//!
//! [`start`] does both for a process that is one service.
//!
//! The invariant: telemetry never decides whether a request is served. A collector that is away, a
//! scraper that is slow or a probe that misbehaves costs a bounded amount and changes no answer.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admin;
mod arguments;
pub mod buckets;
pub mod certificate;
mod process;
mod readiness;
mod service;
mod subscriber;
pub mod trace;

pub use admin::{Admin, AdminServer};
pub use arguments::{LogFormat, TelemetryArgs};
pub use certificate::{CertificateGauges, CertificateMeters};
pub use readiness::{Condition, Readiness};
pub use service::{Telemetry, start};
pub use subscriber::{TelemetryError, Tracing, install};
