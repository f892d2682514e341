//! The machine: runs plans over the values of an activation.

mod activation;
mod comprehension;
mod evaluator;
mod lookup;

pub use activation::Activation;
pub(crate) use evaluator::Machine;
