//! Certificates of the suite: authorities, leaves, trust bundles, their checks and their stored form.
//!
//! Start with [`Authority::generate`] and [`Authority::issue`]; [`check`] judges what is stored or presented, and
//! [`Stored`] is the form in Secrets and directories.
//!
//! What is here is pure: no network, no runtime, no clock. The time comes in as a parameter, so that every
//! rule about lifetimes can be tested, and every caller (the rotator, the offline generator, tests) applies
//! the same rules.
//!
//! The invariant: whatever [`Authority::issue`] returns, [`check::leaf`] accepts against a bundle that holds
//! the authority, and so do Go's verifier (the API server) and webpki (the suite itself): names only as
//! subject alternative names, positive random serials, key identifiers on every certificate.
//!
//! Private keys are text in a [`KeyPair`] and nowhere else; no `Debug` form shows one.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod authority;
pub mod bundle;
pub mod certificate;
pub mod check;
mod dns;
pub mod files;
pub mod key_pair;
pub mod leaf;
pub mod names;
pub mod offline;
pub mod renewal;
pub mod request;
pub mod stored;

pub use authority::{Algorithm, Authority, IssueError};
pub use bundle::{Bundle, MAX_AUTHORITIES};
pub use certificate::{Certificate, CertificateError};
pub use check::{Defect, Validity};
pub use key_pair::KeyPair;
pub use leaf::LeafRequest;
pub use names::{NameError, ServiceName, Suite};
pub use renewal::Renewal;
pub use request::SigningRequest;
pub use stored::{Identity, Stored};
