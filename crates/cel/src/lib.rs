//! Kubernetes' CEL, evaluated over borrowed JSON.
//!
//! Start with [`Program`]: a [`Scope`] says which names an expression may use, [`Program::compile`] checks and compiles
//! it, an [`Activation`] binds the names to values, and [`Program::evaluate`] gives a [`Value`].
//!
//! An expression is parsed, its types are checked as Kubernetes does, and it is compiled into a small plan (names
//! resolved to slots, literal regular expressions compiled) that an evaluator runs. All are our own, because those of
//! the `cel` crate bound neither depth, nor time, nor memory, and its evaluator copies its input.
//!
//! ```text
//! source ──syntax──▶ tree ──check──▶ tree ──compile──▶ plan ──machine──▶ Value
//!          (bounded: length, depth)  (bounded: steps)          (bounded: steps, bytes, depth)
//! ```
//!
//! The invariant: whatever the expression and whatever the object, compiling and evaluating end soon, with a
//! value or an error, within a stack of 2 MiB.
//!
//! Modules form layers; each imports from those before it alone:
//!
//! ```text
//! error, cost, authorizer │ syntax, regex │ meter │ value │ library │ check │ plan │ scope │ machine │ program
//! ```
//!
//! The functions live in one module per library (`library::strings`, `library::lists`, …); each gives a table from
//! name and arity to a function, and `library` joins the tables.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod authorizer;
mod check;
mod cost;
mod error;
mod library;
mod machine;
mod meter;
mod plan;
mod program;
mod regex;
mod scope;
mod syntax;
mod value;

pub use authorizer::{Attributes, Authorizer, AuthorizerRule, AuthorizerTable, Decision, Resource, Target};
pub use check::{Slot, Structure, Type};
pub use error::{CompileError, EvalError, Mismatch, Problem, Refusal, Unconvertible};
pub use machine::Activation;
pub use meter::{Budget, Limits};
pub use program::Program;
pub use scope::Scope;
pub use syntax::{MAX_DEPTH, MAX_SOURCE_BYTES};
pub use value::quantity::check_quantity;
pub use value::{Value, View};
