//! The suite as its users run it: four processes with real TLS and gRPC between
//! them, registered with a real API server.
//!
//! ```text
//! kubectl ─▶ kube-apiserver ─▶ inspector ─▶ webhook ─▶ mutator, validator
//!                 ▲            (checks every answer)
//!                 └── cert-rotator registers, issues certificates
//! ```

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a harness: a broken step is a failed test

pub mod inspector;
pub mod registration;
pub mod suite;

pub use inspector::Inspector;
pub use registration::Entry;
pub use suite::{Options, Suite};

use std::path::{Path, PathBuf};

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
