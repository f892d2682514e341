//! An expression, compiled.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::check::Type;
use crate::plan::node::Node;

#[derive(Debug)]
pub(crate) struct CompiledExpression {
    pub(crate) source: String,
    pub(crate) plan: Node,
    /// The variables that it reads, through definitions too.
    pub(crate) uses: Arc<BTreeSet<Arc<str>>>,
    pub(crate) result: Type,
}
