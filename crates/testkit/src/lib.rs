//! What the tests need of the outside world, and nothing of the product itself.
//!
//! - [`control_plane`]: a real etcd and kube-apiserver on loopback, with `kubectl`
//! - [`process`]: our own services as child processes, with their logs
//! - [`balancer`]: a TCP balancer standing in for a Kubernetes Service
//! - [`otlp`]: an OTLP trace receiver
//! - [`verdict`]: the API server's own reading of a webhook's answer
//! - [`probe`]: a plain HTTP GET for admin endpoints
//!
//! Invariant: everything lives on loopback and in temporary directories, and nothing outlives the test that
//! started it, not even when the test's process is killed.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod balancer;
pub mod control_plane;
pub mod otlp;
pub mod probe;
pub mod process;
pub mod verdict;
mod warden;

pub use balancer::Balancer;
pub use control_plane::ControlPlane;
pub use otlp::TraceReceiver;
pub use process::{Process, Program};
