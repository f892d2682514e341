//! Regular expressions as Go writes them, bounded in what they take.

pub(crate) mod breadth;
pub(crate) mod pattern;
pub(crate) mod re2;
