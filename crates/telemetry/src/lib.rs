//! What every service shows of itself: logs, traces, metrics, health.
//!
//! Two levels, because `sallyport dev` runs all services in one process:
//!
//! - [`install`] is for the process: the log and trace subscriber and the panic hook. Once.
//! - [`Admin`] is for a service: its metrics registry, its [`Readiness`] and the plain-HTTP endpoint
//!   that shows them.
//!
//! Start with [`start`], which does both for a process that is one service, or with [`Admin`]:
//!
//! ```
//! use sallyport_telemetry::Admin;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let admin = Admin::new("webhook");
//! let certificate = admin.readiness().condition("certificate");
//! let server = admin.bind("127.0.0.1:0".parse()?).await?;
//! let address = server.local_addr()?;
//! tokio::spawn(server.serve(std::future::pending()));
//!
//! certificate.set(true);
//! let mut stream = tokio::net::TcpStream::connect(address).await?;
//! stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer).await?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK"));
//! # Ok(())
//! # }
//! ```
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
