//! The object as mutations have made it: to be changed, and to be read by the expressions of the next ones.

use std::cell::OnceCell;

use sallyport_document::{Document, Node, Tree};

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
    pub(crate) fn change<E>(
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
}
