//! The names that an expression may use, with their types.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::check::cel_type::Type;

/// The variable that holds the definitions.
pub(crate) const VARIABLES: &str = "variables";
/// Names that a type or a variable with dots in its name begins with.
pub(crate) const QUALIFIERS: &[&str] = &["Object", "authorizer", "google", "net"];

/// Place of a variable in a [`Scope`](crate::Scope) and in the activations made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) usize);

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) variables: Vec<Variable>,
    pub(crate) definitions: Vec<Definition>,
    /// Whether there is `variables`, also without a definition in it.
    pub(crate) composed: bool,
    /// Whether `Object{…}` and `JSONPatch{…}` are unknown.
    pub(crate) without_patches: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Arc<str>,
    pub(crate) declared: Type,
}

#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: Arc<str>,
    pub(crate) declared: Type,
    /// The variables that it reads, through other definitions too.
    pub(crate) uses: Arc<BTreeSet<Arc<str>>>,
}

impl Names {
    /// Declares one more variable. One declared earlier keeps its slot and its type.
    pub(crate) fn declare(&mut self, name: &str, declared: Type) -> Slot {
        self.slot(name).unwrap_or_else(|| {
            self.variables.push(Variable { name: name.into(), declared });
            Slot(self.variables.len() - 1)
        })
    }

    pub(crate) fn slot(&self, name: &str) -> Option<Slot> {
        self.variables.iter().position(|variable| &*variable.name == name).map(Slot)
    }

    /// The declared type of a variable.
    pub(crate) fn type_of(&self, name: &str) -> Option<&Type> {
        let found = self.variables.iter().find(|variable| &*variable.name == name);
        found.map(|variable| &variable.declared)
    }

    pub(crate) fn is_composed(&self) -> bool {
        self.composed
    }

    pub(crate) fn has_patches(&self) -> bool {
        !self.without_patches
    }

    pub(crate) fn definition(&self, name: &str) -> Option<(usize, &Definition)> {
        self.definitions.iter().enumerate().rfind(|(_, definition)| &*definition.name == name)
    }
}
