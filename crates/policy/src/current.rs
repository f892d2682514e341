//! The object as mutations have made it: to be changed, and to be read by the expressions of the next ones.

use std::cell::OnceCell;

use sallyport_document::{Document, Node};
use serde_json::Value;

use crate::documents::made;
use crate::error::PolicyError;

/// The object, once it is no longer the one received.
#[derive(Default)]
pub(crate) struct Current {
    value: Option<Value>,
    /// The same, as expressions see it.
    document: OnceCell<Result<Document<'static>, PolicyError>>,
}

impl Current {
    /// The object, `None` as long as it is the one received.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// The same, as expressions see it.
    pub(crate) fn node(&self) -> Result<Option<Node<'_>>, PolicyError> {
        let Some(value) = &self.value else { return Ok(None) };
        let document = self.document.get_or_init(|| made("object", value));
        document.as_ref().map(|document| Some(document.root())).map_err(Clone::clone)
    }

    /// The object, to be changed.
    pub(crate) fn change(&mut self) -> &mut Option<Value> {
        self.document.take();
        &mut self.value
    }
}
