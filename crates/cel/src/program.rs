//! A compiled expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::activation::Activation;
use crate::error::{CompileError, EvalError};
use crate::machine::Machine;
use crate::overloads::{Known, Overloads};
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
    result: Known,
}

impl Program {
    /// Compiles `source`, whose names are those of `scope`.
    ///
    /// Syntax errors, unknown names, unknown functions, calls with a wrong number of arguments and literal
    /// patterns that are no regular expressions are errors here; types are not checked before evaluation.
    pub fn compile(source: &str, scope: &Scope) -> Result<Self, CompileError> {
        let (plan, uses, result) = syntax::parse(source, |tree| {
            let overloads = Overloads::of(tree, scope);
            let (plan, uses) = compile::compile(tree, scope, &overloads)?;
            Ok((plan, uses, overloads.result))
        })?;
        Ok(Self { inner: Arc::new(Inner { source: source.to_owned(), plan, uses, result }) })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Evaluates within the activation's limits, and its budget when it has one: an evaluation that goes beyond
    /// the budget is an error whatever it gave.
    pub fn evaluate<'a>(&self, activation: &Activation<'a>) -> Result<Value<'a>, EvalError> {
        activation.check_budget()?;
        activation.meter.reset(activation.limits);
        let result = Machine::new(activation).evaluate(&self.inner.plan).map(Value);
        activation.pay()?;
        result
    }

    /// Whether the expression, or a definition it uses, reads this variable of its scope.
    pub fn uses(&self, variable: &str) -> bool {
        self.inner.uses.contains(variable)
    }

    pub(crate) fn plan(&self) -> &Node {
        &self.inner.plan
    }

    /// What is known of the type of its values.
    pub(crate) fn result(&self) -> &Known {
        &self.inner.result
    }

    pub(crate) fn used(&self) -> &BTreeSet<Arc<str>> {
        &self.inner.uses
    }
}
