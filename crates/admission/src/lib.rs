//! `AdmissionReview` on the wire: what the API server sends, what it accepts as
//! an answer, and whether a patch will apply.
//!
//! ```text
//! body ─▶ envelope::Review (borrowed, objects stay raw text)
//!                                   … a backend decides …
//! answer::Answer ─▶ warnings, annotations, patch checked ─▶ body
//! ```
//!
//! No network and no async: pure functions over bytes. The invariant: a field
//! that this crate does not know is never lost, because objects are never
//! decoded here, and an answer that it renders is one that the API server takes.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod annotations;
pub mod answer;
pub mod envelope;
mod node;
mod object;
pub mod patch;
mod scan;
pub mod warnings;

pub use answer::{Answer, Cause, Status};
pub use envelope::{ApiVersion, EnvelopeError, Operation, Review, UserInfo};
pub use patch::{Patch, PatchError};
