//! The policy engine: which policies a review is for, what they decide, and the patch they make.
//!
//! Pure functions over JSON. A set of policies is compiled once, never changes, and is shared by all reviews;
//! whoever serves reviews compiles a new set aside and swaps it in. Compiling never fails as a whole: a policy
//! that is wrong stays in force in its last good form, or is an error for the requests it matches.
//!
//! ```text
//! Review ─▶ index ─▶ constraints ─▶ matchConditions ─▶ mutations ───▶ merge ─▶ diff ─▶ Outcome
//!           (no policy that cannot match costs anything)  └ validations ──────────────▶
//! ```
//!
//! The object is parsed once, and only if a policy may match. The first mutation that changes something copies
//! it; the patch is the difference between copy and original, so a field that nobody asked about, or a number
//! in an unusual notation, is never touched.
//!
//! Invariant: whatever the review and whatever the policies, a review ends with an [`Outcome`], soon and
//! without a panic.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admission_policy;
mod annotation;
mod apply;
mod authorization;
mod binding;
mod condition;
mod configuration;
mod conformance;
mod current;
mod decoding;
mod diff;
mod documents;
mod error;
mod expression;
mod family;
mod findings;
mod index;
mod instant;
mod labels;
mod library_patch;
mod matcher;
mod measure;
mod merge;
mod mutation;
mod namespaces;
mod objects;
mod outcome;
mod overlay;
mod patch;
mod request;
mod round;
mod safety;
mod schema;
mod selector;
mod set;
mod template;
mod validation;

pub use authorization::Unconnected;
pub use error::DefinitionError;
pub use mutation::{MutationSet, Mutations};
pub use namespaces::Namespaces;
pub use objects::{ObjectProblem, Objects};
pub use outcome::{Cause, Outcome, PolicyResult, PolicyState, PolicyStatus, ResultKind, Status};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request, Review, UserInfo};
pub use sallyport_api::FailurePolicy;
pub use sallyport_cel::{
    Attributes, Authorizer, AuthorizerRule, AuthorizerTable, Decision, Resource, Target, User,
};
pub use validation::{ValidationSet, Validations};
