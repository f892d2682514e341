//! What the tests need of the outside world, and nothing of the product itself.
//!
//! - [`control_plane`]: a real etcd and kube-apiserver on loopback, with `kubectl`
//! - [`process`]: our own services as child processes, with their logs
//! - [`balancer`]: a TCP balancer standing in for a Kubernetes Service
//! - [`otlp`]: an OTLP trace receiver
//! - [`verdict`]: the API server's own reading of a webhook's answer
//! - [`probe`]: a plain HTTP GET for admin endpoints
//! - [`objects`]: objects that tests send about
//! - [`ports`]: loopback ports that no other test program is given, and addresses that refuse connections
//! - [`random`]: random values with a fixed seed
//! - [`wait`]: waiting for conditions
//!
//! Invariant: everything lives on loopback and in temporary directories, and nothing outlives the test that
//! started it, not even when the test's process is killed.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod balancer;
pub mod control_plane;
pub mod objects;
pub mod otlp;
pub mod ports;
pub mod probe;
pub mod process;
pub mod random;
pub mod verdict;
pub mod wait;
mod warden;

pub use balancer::Balancer;
pub use control_plane::ControlPlane;
pub use objects::pod;
pub use otlp::TraceReceiver;
pub use ports::Unreachable;
pub use process::{Process, Program};
pub use random::Random;
pub use wait::eventually;
