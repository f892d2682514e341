//! The object as mutations have made it: to be changed, and to be read by the expressions of the next ones.

use std::cell::OnceCell;

use sallyport_document::{Document, Node, Part, Tree};

use crate::error::PolicyError;
use crate::review::documents::unwritable;

/// The object, once it is no longer the one received.
#[derive(Default)]
pub(crate) struct Current<'r> {
    tree: Option<Tree<'r>>,
    /// The same, as expressions see it.
    document: OnceCell<Result<Document<'static>, PolicyError>>,
}

impl<'r> Current<'r> {
    /// The object, `None` as long as it is the one received.
    pub(crate) fn tree(&self) -> Option<&Tree<'r>> {
        self.tree.as_ref()
    }

    /// The same, as expressions see it.
    pub(crate) fn node(&self) -> Result<Option<Node<'_>>, PolicyError> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let document =
            self.document.get_or_init(|| tree.document().map_err(|error| unwritable("object", &error)));
        document.as_ref().map(|document| Some(document.root())).map_err(Clone::clone)
    }

    /// Takes it out; the object is as received until another is put in.
    pub(crate) fn take(&mut self) -> Option<Tree<'r>> {
        self.document.take();
        self.tree.take()
    }

    /// Puts another in its place.
    pub(crate) fn set(&mut self, tree: Option<Tree<'r>>) {
        self.document.take();
        self.tree = tree;
    }

    /// Lets `change` change the object, which is `received` if it is still that. It must say so if it changed
    /// anything.
    pub(crate) fn change_object<E>(
        &mut self,
        received: impl FnOnce() -> Tree<'r>,
        change: impl FnOnce(&mut Tree<'r>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let was_received = self.tree.is_none();
        let changed = change(self.tree.get_or_insert_with(received));
        match changed {
            Ok(false) if was_received => self.tree = None,
            Ok(false) => {}
            Ok(true) | Err(_) => drop(self.document.take()),
        }
        changed
    }

    /// Lets `change` change a copy of the object, which is `received` if it is still that, with the object as it was
    /// beside it. The copy takes the object's place if `change` returns true and the two differ. Returns whether the
    /// object changed.
    pub(crate) fn replace_object<E>(
        &mut self,
        received: impl FnOnce() -> Tree<'r>,
        change: impl FnOnce(&mut Tree<'r>, Part<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let fresh;
        let before = if let Some(tree) = &self.tree {
            tree
        } else {
            fresh = received();
            &fresh
        };
        let mut copy = before.clone();
        if !change(&mut copy, before.part())? || equal(before.part(), copy.part()) {
            return Ok(false);
        }
        self.set(Some(copy));
        Ok(true)
    }
}

/// Returns whether two parts are equal as values. What both left where it lay is seen at once to be the same.
fn equal(left: Part<'_>, right: Part<'_>) -> bool {
    match (left, right) {
        (Part::Read(left), right) => left == right,
        (left, Part::Read(right)) => right == left,
        (Part::Made(left), right) => right == *left,
        (left, Part::Made(right)) => left == *right,
        (Part::Object(left), Part::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|((one, left), (other, right))| one == other && equal(left.part(), right.part()))
        }
        (Part::Array(left), Part::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| equal(left.part(), right.part()))
        }
        (Part::Object(_), Part::Array(_)) | (Part::Array(_), Part::Object(_)) => false,
    }
}
