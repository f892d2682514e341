//! Regular expressions as Go writes them, bounded in what they take.

mod breadth;
mod cache;
mod literals;
mod pattern;
mod re2;

pub(crate) use cache::PatternCache;
pub(crate) use literals::{LiteralError, LiteralPatterns};
pub(crate) use pattern::{Pattern, translate};
