//! A compiled expression.

use std::sync::Arc;

use crate::check::{self, Type};
use crate::error::{CompileError, EvalError};
use crate::machine::{Activation, evaluate};
use crate::plan::{CompiledExpression, compiler};
use crate::scope::Scope;
use crate::syntax;
use crate::value::Value;

/// A compiled expression. Cheap to clone, and good for any number of evaluations in any thread.
///
/// ```
/// use sallyport_cel::{Activation, Limits, Program, Scope, Value};
/// use sallyport_document::Document;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut scope = Scope::new(&["object"]);
/// scope.define("replicas", Program::compile("object.spec.replicas", &scope)?);
/// let program = Program::compile("variables.replicas <= 3", &scope)?;
///
/// let object = Document::parse(br#"{"spec": {"replicas": 2}}"#)?;
/// let mut activation = Activation::new(&scope, Limits::default());
/// activation.bind("object", Value::from(&object));
/// assert_eq!(program.evaluate(&activation)?.as_bool(), Some(true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    expression: Arc<CompiledExpression>,
}

impl Program {
    /// Compiles `source`, whose names are those of `scope`.
    ///
    /// Syntax errors, unknown names and functions, types that do not fit, constants that cannot be converted and
    /// literal patterns that are no regular expressions are errors here.
    pub fn compile(source: &str, scope: &Scope) -> Result<Self, CompileError> {
        let tree = syntax::parse(source)?;
        let checked = check::check(&tree.root, scope.names()).map_err(|faults| tree.error(faults))?;
        let (plan, uses) = compiler::compile(&tree.root, scope.names(), checked.overloads, checked.patterns)
            .map_err(|fault| tree.error(vec![fault]))?;
        let (source, uses) = (source.to_owned(), Arc::new(uses));
        Ok(Self { expression: Arc::new(CompiledExpression { source, plan, uses, result: checked.result }) })
    }

    /// The type of the result as far as it is known before evaluation.
    pub fn result_type(&self) -> &Type {
        &self.expression.result
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
        &self.expression.source
    }

    /// Evaluates within the activation's limits, and its budget when it has one: an evaluation that goes beyond
    /// the budget is an error whatever it gave.
    pub fn evaluate<'a>(&self, activation: &Activation<'a>) -> Result<Value<'a>, EvalError> {
        activation.check_budget()?;
        activation.meter.reset(activation.limits);
        let result = evaluate(activation, &self.expression.plan).map(Value);
        activation.pay()?;
        result
    }

    /// Whether the expression, or a definition it uses, reads this variable of its scope.
    pub fn uses(&self, variable: &str) -> bool {
        self.expression.uses.contains(variable)
    }
}

// Here and not with the others, because a scope is what programs are compiled in.
impl Scope {
    /// Defines `variables.NAME` for programs compiled from now on. It is evaluated at most once in an
    /// activation, when first used, and its error is kept as its value would be. A second definition of a name
    /// hides the first, except from programs already compiled.
    pub fn define(&mut self, name: &str, program: Program) {
        self.add(name, program.expression);
    }
}
