//! The names an expression may use.

use std::sync::Arc;

use crate::program::Program;

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
    pub(crate) variables: Vec<Arc<str>>,
    pub(crate) definitions: Vec<Definition>,
}

#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) program: Program,
}

impl Scope {
    /// A scope with these variables and no definitions.
    pub fn new(variables: &[&str]) -> Self {
        let mut scope = Self::default();
        for variable in variables {
            scope.variable(variable);
        }
        scope
    }

    /// Declares one more variable, such as `as` of a `forEach`. One declared earlier keeps its slot.
    pub fn variable(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.slot(name) {
            return slot;
        }
        let names = Arc::make_mut(&mut self.names);
        names.variables.push(name.into());
        Slot(names.variables.len() - 1)
    }

    /// Defines `variables.NAME` for programs compiled from now on. It is evaluated at most once in an
    /// activation, when first used, and its error is kept as its value would be. A second definition of a name
    /// hides the first, except from programs already compiled.
    pub fn define(&mut self, name: &str, program: Program) {
        Arc::make_mut(&mut self.names).definitions.push(Definition { name: name.into(), program });
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.names.variables.iter().position(|variable| &**variable == name).map(Slot)
    }

    pub(crate) fn definition(&self, name: &str) -> Option<(usize, &Definition)> {
        self.names.definitions.iter().enumerate().rfind(|(_, definition)| &*definition.name == name)
    }
}
