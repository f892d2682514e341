//! The admission model: what the API server asks, what it is answered, and both on the wire.
//!
//! Start with [`Review::parse`] for what came over HTTP, and with [`Answer`] for what is to be said:
//!
//! ```
//! use sallyport_admission::{Answer, Operation, Review, Status};
//!
//! # fn main() -> Result<(), sallyport_admission::EnvelopeError> {
//! let body = br#"{
//!     "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
//!     "request": {
//!         "uid": "705ab4f5", "operation": "CREATE", "name": "web",
//!         "resource": {"group": "", "version": "v1", "resource": "pods"},
//!         "object": {"spec": {"hostNetwork": true}}
//!     }
//! }"#;
//! let review = Review::parse(body)?;
//! assert_eq!(review.request.operation, Operation::Create);
//! assert_eq!(review.object.map(|object| object.get()), Some(r#"{"spec": {"hostNetwork": true}}"#));
//!
//! let mut answer = Answer::deny(Status { message: "no host network".to_owned(), ..Status::default() });
//! answer.clean();
//! let body = answer.render(review.api_version, &review.request.uid);
//! assert!(String::from_utf8_lossy(&body).contains(r#""uid":"705ab4f5","allowed":false"#));
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! body ─▶ envelope::Review (borrowed, objects stay raw text) ─▶ request::Request ─▶ … a backend decides …
//! body ◀─ patch checked, warnings and annotations cleaned ◀─ answer::Answer ◀────────────────┘
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
pub mod request;
mod scan;
pub mod warnings;

pub use answer::{Answer, Cause, Status};
pub use envelope::{ApiVersion, EnvelopeError, Review};
pub use patch::{Patch, PatchError};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request, UserInfo};
