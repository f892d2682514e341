//! JSON patches that expressions make, carried out on an object under change.
//!
//! There are two readings of a patch, which a [`Dialect`](dialect::Dialect) tells apart: that of RFC 6902, which our
//! own policies keep to, and that of the library which carries out the patches of the API server's own policies.

pub(crate) mod apply;
#[cfg(test)]
mod corpus;
pub(crate) mod decoding;
pub(crate) mod dialect;
mod fault;
pub(crate) mod operation;
#[cfg(test)]
mod oracle;
mod place;
mod wording;
