//! The machine: runs plans over the values of an activation.

mod activation;
mod comprehension;
mod evaluator;
mod found;
mod lookup;
mod state;

pub use activation::Activation;
pub(crate) use evaluator::evaluate;
