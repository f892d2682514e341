//! The plan: what an expression is compiled to and the machine runs.

pub(crate) mod compiler;
mod node;
pub(crate) mod price;

pub(crate) use node::{Comprehension, Element, Entry, Field, Node, Operator};

pub(crate) use crate::syntax::ast::Kind;
