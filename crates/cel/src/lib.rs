//! Kubernetes' CEL, evaluated over borrowed JSON.
//!
//! The `cel` crate gives the parser and the syntax tree and nothing else. What it parsed is compiled into a
//! small plan (names resolved to slots, literal regular expressions compiled, macros recognised) and the plan
//! is run by an evaluator of our own, because the library's evaluator bounds neither depth, nor time, nor
//! memory, and copies its input. Before that, types are checked as Kubernetes does.
//!
//! ```text
//! source ──syntax──▶ tree ──check──▶ tree ──compile──▶ plan ──machine──▶ Value
//!          (bounded: length, depth)  (bounded: steps)          (bounded: ticks, bytes, depth)
//! ```
//!
//! The invariant: whatever the expression and whatever the object, compiling and evaluating end soon, with a
//! value or an error, within a stack of 2 MiB.
//!
//! The functions live in one module a library (`strings`, `lists`, `regexes`, `quantity`, …); each gives a
//! table from name and arity to a function, and `functions` joins the tables.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod activation;
mod addresses;
mod arithmetic;
mod authorizer;
mod breadth;
mod check;
mod compare;
mod compile;
mod comprehension;
mod conversions;
mod cost;
mod error;
mod format;
mod functions;
mod json;
mod lists;
mod lookup;
mod machine;
mod meter;
mod named_formats;
mod networks;
mod optionals;
mod orders;
mod patches;
mod plan;
mod program;
mod quantity;
mod re2;
mod regexes;
mod scope;
mod sets;
mod strings;
mod syntax;
mod temporal;
mod urls;
mod value;
mod versions;
mod view;

pub use activation::Activation;
pub use authorizer::{Attributes, Authorizer, AuthorizerRule, AuthorizerTable, Decision, Resource, Target};
pub use check::{Structure, Type};
pub use error::{CompileError, EvalError, Mismatch, Problem, Refusal, Unconvertible};
pub use meter::{Budget, Limits};
pub use program::Program;
pub use quantity::check_quantity;
pub use scope::{Scope, Slot};
pub use syntax::{MAX_DEPTH, MAX_SOURCE_BYTES};
pub use value::Value;
pub use view::View;
