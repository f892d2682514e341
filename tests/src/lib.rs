//! The suite as its users run it: four processes with real TLS and gRPC between
//! them, registered with a real API server.
//!
//! ```text
//! kubectl ─▶ kube-apiserver ─▶ inspector ─▶ webhook ─▶ mutator, validator
//!                 ▲            (checks every answer)
//!                 └── cert-rotator registers, issues certificates
//! ```
//!
//! [`Suite`] keeps certificates in directories. [`Release`] has them in Secrets, two pods of each service and any
//! number of rotators: what it takes to watch rotations, with [`Load`], [`Verifier`], [`Kubelet`] and [`Gateway`].
//!
//! [`Oracle`] is an API server alone, that the policy engine is held against; [`Recorder`] keeps its reviews.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a harness: a broken step is a failed test

pub mod gateway;
pub mod inspector;
pub mod kubelet;
pub mod load;
pub mod oracle;
pub mod recorder;
pub mod registration;
pub mod release;
pub mod schema;
pub mod suite;
pub mod verifier;

use std::path::{Path, PathBuf};

pub use gateway::Gateway;
pub use inspector::Inspector;
pub use kubelet::Kubelet;
pub use load::Load;
pub use oracle::Oracle;
pub use recorder::Recorder;
pub use registration::Entry;
pub use release::{Release, Settings};
pub use suite::{Options, Suite};
pub use verifier::Verifier;

/// The root of the repository.
///
/// # Panics
/// When this crate does not lie in it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// Makes aws-lc-rs the process's TLS provider; kube's client asks for one.
pub fn install_tls_provider() {
    // A second test in the same process finds it installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
