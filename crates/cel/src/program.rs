//! A compiled expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::activation::Activation;
use crate::error::{CompileError, EvalError};
use crate::machine::Machine;
use crate::plan::Node;
use crate::scope::Scope;
use crate::value::Value;
use crate::{compile, syntax};

/// A compiled expression. Cheap to clone, and good for any number of evaluations in any thread.
#[derive(Clone, Debug)]
pub struct Program {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    source: String,
    plan: Node,
    uses: BTreeSet<Arc<str>>,
}

impl Program {
    /// Compiles `source`, whose names are those of `scope`.
    ///
    /// Syntax errors, unknown names, unknown functions, calls with a wrong number of arguments and literal
    /// patterns that are no regular expressions are errors here; types are not checked before evaluation.
    pub fn compile(source: &str, scope: &Scope) -> Result<Self, CompileError> {
        let (plan, uses) = syntax::parse(source, |tree| compile::compile(tree, scope))?;
        Ok(Self { inner: Arc::new(Inner { source: source.to_owned(), plan, uses }) })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Evaluates within the activation's limits.
    pub fn evaluate<'a>(&self, activation: &Activation<'a>) -> Result<Value<'a>, EvalError> {
        activation.meter.reset(activation.limits);
        Machine::new(activation).evaluate(&self.inner.plan).map(Value)
    }

    /// Whether the expression, or a definition it uses, reads this variable of its scope.
    pub fn uses(&self, variable: &str) -> bool {
        self.inner.uses.contains(variable)
    }

    pub(crate) fn plan(&self) -> &Node {
        &self.inner.plan
    }

    pub(crate) fn used(&self) -> &BTreeSet<Arc<str>> {
        &self.inner.uses
    }
}
