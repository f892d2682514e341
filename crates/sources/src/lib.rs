//! Where policies come from: a directory of YAML or JSON files.
//!
//! Policies are edited while they are in force, by people and by kubelet, so
//! a directory is polled, and what is found may be half written,
//! misspelt or hostile. Reading it therefore never fails as a whole once it
//! has succeeded: what cannot be used becomes a [`Problem`] that names file,
//! line and policy.
//!
//! The invariant: a policy that was good stays in force in its last good form
//! until a readable source says otherwise. Only a document that can be read
//! changes a policy, and only a file that can be read whole removes one.
//!
//! Start with [`Directory`], which gives a [`Snapshot`], and with [`watch`] to follow it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod collection;
mod directory;
mod document;
mod snapshot;
mod watch;

pub use collection::Collection;
pub use directory::{Directory, SourceError};
pub use snapshot::{Entry, PolicyId, PolicyKind, Problem, Scope, Snapshot};
pub use watch::watch;
