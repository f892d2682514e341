//! The static check of types, as Kubernetes makes it before it takes an expression.
//!
//! ```text
//! tree ──checker (unification, signatures)──▶ type of the result, literals ──lint──▶ done
//! ```
//!
//! What is known of the types decides whether an expression is taken, what `variables.NAME` and the result are,
//! and what calls cost whose overload is certain. The machine finds functions by the values that are there, and
//! gives the same results unchecked.
//!
//! The invariant: the check recurses no deeper than the tree, and takes a bounded number of steps.

mod cel_type;
mod checker;
mod constants;
mod declarations;
mod faults;
mod format_clauses;
mod lint;
mod macros;
mod names;
mod review;
mod signatures;
mod type_names;
mod unification;

pub use cel_type::{Structure, Type};
pub(crate) use checker::{Overloads, check, qualified};
pub(crate) use constants::{LIMITS, constant};
pub use names::Slot;
pub(crate) use names::{Definition, Names, QUALIFIERS, VARIABLES};
pub(crate) use review::{authorizer, namespace, request, resource_check};
pub(crate) use signatures::Overload;
pub(crate) use type_names::type_named;
