//! The names an expression may use.

use std::sync::Arc;

use crate::check::{self, Type};
use crate::program::Program;

/// The variable that holds the definitions.
pub(crate) const VARIABLES: &str = "variables";
/// Names that a type or a variable with dots in its name begins with.
pub(crate) const QUALIFIERS: &[&str] = &["Object", "authorizer", "google", "net"];

/// Place of a variable in a [`Scope`] and in the activations made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) usize);

/// The names an expression may use: variables, bound for every evaluation, and definitions
/// (`variables.NAME`), programs evaluated when first used. Cheap to clone.
///
/// A scope only grows: programs compiled earlier stay valid with a grown scope.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub(crate) names: Arc<Names>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) variables: Vec<Variable>,
    pub(crate) definitions: Vec<Definition>,
    /// Whether there is `variables`, also without a definition in it.
    composed: bool,
    /// Whether `Object{…}` and `JSONPatch{…}` are unknown.
    without_patches: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    declared: Type,
}

#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) program: Program,
    pub(crate) declared: Type,
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
        for variable in &mut Arc::make_mut(&mut self.names).variables {
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
        if let Some(slot) = self.slot(name) {
            return slot;
        }
        let names = Arc::make_mut(&mut self.names);
        names.variables.push(Variable { name: name.into(), declared });
        Slot(names.variables.len() - 1)
    }

    /// Lets there be `variables`, whose fields are the definitions, also before there is one.
    pub fn compose(&mut self) {
        if !self.names.composed {
            Arc::make_mut(&mut self.names).composed = true;
        }
    }

    /// Takes `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey()` away, which only mutations have.
    pub fn forbid_patches(&mut self) {
        Arc::make_mut(&mut self.names).without_patches = true;
    }

    /// Defines `variables.NAME` for programs compiled from now on. It is evaluated at most once in an
    /// activation, when first used, and its error is kept as its value would be. A second definition of a name
    /// hides the first, except from programs already compiled.
    pub fn define(&mut self, name: &str, program: Program) {
        let declared = program.result_type().of_definition();
        self.compose();
        Arc::make_mut(&mut self.names).definitions.push(Definition { name: name.into(), program, declared });
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.names.variables.iter().position(|variable| &*variable.name == name).map(Slot)
    }

    /// The declared type of a variable.
    pub(crate) fn type_of(&self, name: &str) -> Option<&Type> {
        let found = self.names.variables.iter().find(|variable| &*variable.name == name);
        found.map(|variable| &variable.declared)
    }

    pub(crate) fn is_composed(&self) -> bool {
        self.names.composed
    }

    pub(crate) fn has_patches(&self) -> bool {
        !self.names.without_patches
    }

    pub(crate) fn definition(&self, name: &str) -> Option<(usize, &Definition)> {
        self.names.definitions.iter().enumerate().rfind(|(_, definition)| &*definition.name == name)
    }
}
