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
//!
//! Start with [`MutationSet::compile`] or [`ValidationSet::compile`], show the set a [`Review`], and read the
//! [`Outcome`]:
//!
//! ```
//! use std::sync::Arc;
//!
//! use sallyport_policy::{
//!     FailurePolicy, GroupVersionKind, GroupVersionResource, Namespaces, Operation, Request, Review,
//!     ValidationSet,
//! };
//!
//! let policy = serde_saphyr::from_str(
//!     r#"
//! apiVersion: sallyport.dev/v1alpha1
//! kind: ValidationPolicy
//! metadata: {name: no-host-network}
//! spec:
//!   matchConstraints:
//!     resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]
//!   validations:
//!   - expression: "!object.spec.?hostNetwork.orValue(false)"
//!     message: pods must not use the host network
//! "#,
//! )?;
//! let set = ValidationSet::compile(vec![policy], Arc::new(Namespaces::default()), None);
//! assert_eq!(set.policies()[0].message, "", "the policy compiles");
//!
//! let core = String::new;
//! let request = Request {
//!     kind: GroupVersionKind { group: core(), version: "v1".to_owned(), kind: "Pod".to_owned() },
//!     resource: GroupVersionResource { group: core(), version: "v1".to_owned(), resource: "pods".to_owned() },
//!     operation: Operation::Create,
//!     namespace: "default".to_owned(),
//!     ..Request::default()
//! };
//! let review = Review { object: br#"{"spec": {"hostNetwork": true}}"#, ..Review::of(&request) };
//! let outcome = set.review(&review, FailurePolicy::Fail);
//! assert!(!outcome.answer.allowed);
//! assert_eq!(
//!     outcome.answer.status.unwrap().message,
//!     "pods must not use the host network (policy no-host-network)"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules are layers, each of which knows those before it: `schema` (what objects look like), `review` (the
//! objects of a review), `matching` (which policies it is for), `expression`, `set` (policies with what puts them in
//! force), and above these `mutate` and `validate`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod authorization;
mod error;
mod expression;
mod family;
mod matching;
mod mutate;
mod outcome;
mod purpose;
mod request;
mod review;
mod schema;
mod set;
mod validate;

pub use authorization::Unconnected;
pub use error::DefinitionError;
pub use mutate::mutation_set::{MutationSet, Mutations};
pub use outcome::{Answer, Cause, Outcome, PolicyResult, PolicyState, PolicyStatus, ResultKind, Status};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request, Review, UserInfo};
pub use review::namespaces::Namespaces;
pub use sallyport_api::FailurePolicy;
pub use sallyport_cel::{
    Attributes, Authorizer, AuthorizerRule, AuthorizerTable, Decision, Resource, Target,
};
pub use schema::ObjectProblem;
pub use set::objects::Objects;
pub use validate::validation_set::{ValidationSet, Validations};
