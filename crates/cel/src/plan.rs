//! The plan: what an expression is compiled to and the machine runs.

pub(crate) mod compiler;
mod expression;
mod node;
pub(crate) mod price;

pub(crate) use expression::CompiledExpression;
pub(crate) use node::{Comprehension, Element, Entry, Field, Node};
