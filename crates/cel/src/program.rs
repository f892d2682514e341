//! A compiled expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::check;
use crate::check::Type;
use crate::error::{CompileError, EvalError};
use crate::machine::Activation;
use crate::machine::Machine;
use crate::plan::Node;
use crate::plan::compiler;
use crate::scope::Scope;
use crate::syntax;
use crate::value::Value;

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
    result: Type,
}

impl Program {
    /// Compiles `source`, whose names are those of `scope`.
    ///
    /// Syntax errors, unknown names and functions, types that do not fit, constants that cannot be converted and
    /// literal patterns that are no regular expressions are errors here.
    pub fn compile(source: &str, scope: &Scope) -> Result<Self, CompileError> {
        let tree = syntax::parse(source)?;
        let checked = check::check(&tree.root, scope).map_err(|faults| tree.error(faults))?;
        let (plan, uses) = compiler::compile(&tree.root, scope, checked.overloads, checked.patterns)
            .map_err(|fault| tree.error(vec![fault]))?;
        Ok(Self { inner: Arc::new(Inner { source: source.to_owned(), plan, uses, result: checked.result }) })
    }

    /// The type of the result as far as it is known before evaluation.
    pub fn result_type(&self) -> &Type {
        &self.inner.result
    }

    /// An error unless the result's type is one of `wanted`. A type that is only known when evaluated is none
    /// of them, unless `dyn` is.
    pub fn demand(&self, wanted: &[Type]) -> Result<(), CompileError> {
        let found = self.result_type();
        if wanted.contains(found) {
            return Ok(());
        }
        let message = if let [wanted] = wanted {
            format!("must evaluate to {wanted} but got {found}")
        } else {
            let wanted = wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            format!("must evaluate to one of [{wanted}] but got {found}")
        };
        Err(CompileError::of_result(message))
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
        let result = Machine::run(activation, &self.inner.plan).map(Value);
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

    pub(crate) fn used(&self) -> &BTreeSet<Arc<str>> {
        &self.inner.uses
    }
}
