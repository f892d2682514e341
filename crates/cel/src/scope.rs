//! The names an expression may use.

use std::sync::Arc;

use crate::check::{self, Definition, Names, Slot, Type};
use crate::plan::CompiledExpression;

/// The names an expression may use: variables, bound for every evaluation, and definitions
/// (`variables.NAME`), programs evaluated when first used. Cheap to clone.
///
/// A scope only grows: programs compiled earlier stay valid with a grown scope.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    names: Names,
    /// The definitions that `names` declares, in the same order.
    definitions: Vec<ScopedExpression>,
}

/// The expression of a definition.
#[derive(Clone, Debug)]
pub(crate) struct ScopedExpression {
    pub(crate) name: Arc<str>,
    pub(crate) expression: Arc<CompiledExpression>,
}

impl Scope {
    /// A scope with these variables, of type `dyn`, and no definitions.
    pub fn new(variables: &[&str]) -> Self {
        let mut scope = Self::default();
        for variable in variables {
            scope.variable(variable);
        }
        scope
    }

    /// A scope with the variables of admission policies in the types that Kubernetes declares: `object`,
    /// `oldObject`, `request` and `namespaceObject`.
    pub fn admission() -> Self {
        let mut scope = Self::new(&["object", "oldObject"]);
        scope.declare("request", check::request());
        scope.declare("namespaceObject", check::namespace());
        scope
    }

    /// Declares `params`, for policies that have a `paramKind`.
    pub fn declare_params(&mut self) {
        self.variable("params");
    }

    /// Declares `authorizer` and `authorizer.requestResource`, two variables to bind.
    pub fn declare_authorizer(&mut self) {
        self.declare("authorizer", check::authorizer());
        self.declare("authorizer.requestResource", check::resource_check());
    }

    /// Takes `authorizer` away from programs compiled from now on; definitions that use it still have it.
    pub fn hide_authorizer(&mut self) {
        for variable in &mut self.names_mut().variables {
            if matches!(&*variable.name, "authorizer" | "authorizer.requestResource") {
                // The slot stays, without a name that could be written.
                variable.name = Arc::from("");
            }
        }
    }

    /// Declares one more variable of any type, such as `as` of a `forEach`. One declared earlier keeps its
    /// slot and its type.
    pub fn variable(&mut self, name: &str) -> Slot {
        self.declare(name, Type::Dyn)
    }

    /// Declares one more variable. One declared earlier keeps its slot and its type. That the values bound to
    /// it have the type is not checked.
    pub fn declare(&mut self, name: &str, declared: Type) -> Slot {
        if let Some(slot) = self.names().slot(name) {
            return slot;
        }
        self.names_mut().declare(name, declared)
    }

    /// Lets there be `variables`, whose fields are the definitions, also before there is one.
    pub fn compose(&mut self) {
        if !self.names().composed {
            self.names_mut().composed = true;
        }
    }

    /// Takes `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey()` away, which only mutations have.
    pub fn forbid_patches(&mut self) {
        self.names_mut().without_patches = true;
    }

    /// Adds the expression of a definition.
    pub(crate) fn add(&mut self, name: &str, expression: Arc<CompiledExpression>) {
        self.compose();
        let name: Arc<str> = name.into();
        let (declared, uses) = (expression.result.of_definition(), Arc::clone(&expression.uses));
        let inner = Arc::make_mut(&mut self.inner);
        inner.names.definitions.push(Definition { name: Arc::clone(&name), declared, uses });
        inner.definitions.push(ScopedExpression { name, expression });
    }

    pub(crate) fn names(&self) -> &Names {
        &self.inner.names
    }

    pub(crate) fn definitions(&self) -> &[ScopedExpression] {
        &self.inner.definitions
    }

    fn names_mut(&mut self) -> &mut Names {
        &mut Arc::make_mut(&mut self.inner).names
    }
}
