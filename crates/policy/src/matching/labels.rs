//! The labels that selectors look at, looked up once a review however many selectors there are.

use std::cell::OnceCell;

use sallyport_document::{Node, Object};

use crate::error::PolicyError;
use crate::matching::selector::Selector;
use crate::review::documents::Documents;

/// The labels of an object, `None` if it has none.
type Set<'d> = Option<Object<'d>>;
/// Those of an object that may be absent.
type Found<'d> = OnceCell<Result<Option<Set<'d>>, PolicyError>>;

/// The labels of one review.
pub(crate) struct Labels<'d, 'a> {
    documents: &'d Documents<'a>,
    namespace: Found<'d>,
    object: Found<'d>,
    old_object: Found<'d>,
}

impl<'d, 'a> Labels<'d, 'a> {
    pub(crate) fn new(documents: &'d Documents<'a>) -> Self {
        Self { documents, namespace: OnceCell::new(), object: OnceCell::new(), old_object: OnceCell::new() }
    }

    /// Returns whether the namespace matches. What has none is in whatever namespace is asked for.
    pub(crate) fn match_namespace(&self, selector: &Selector) -> Result<bool, PolicyError> {
        match get_or_find(&self.namespace, || self.namespace()) {
            Ok(labels) => Ok(labels.is_none_or(|labels| selector.matches(labels))),
            Err(unknown) => {
                let request = self.documents.review.request;
                let known =
                    if request.is_namespace() { None } else { selector.matches_name(&request.namespace) };
                known.ok_or_else(|| unknown.clone())
            }
        }
    }

    /// Returns whether the object matches, or the one that was there before.
    pub(crate) fn match_object(&self, selector: &Selector) -> Result<bool, PolicyError> {
        let matches = |labels: Option<Set<'_>>| labels.is_some_and(|labels| selector.matches(labels));
        let object = get_or_find(&self.object, || Ok(self.documents.object()?.and_then(labels_if_any)));
        if matches(object.map_err(PolicyError::clone)?) {
            return Ok(true);
        }
        let old_object =
            get_or_find(&self.old_object, || Ok(self.documents.old_object()?.and_then(labels_if_any)));
        Ok(matches(old_object.map_err(PolicyError::clone)?))
    }

    /// A Namespace is in itself. What is sent to one of its subresources has labels that nobody stores, so that
    /// the Namespace as it is counts there.
    fn namespace(&self) -> Result<Option<Set<'d>>, PolicyError> {
        let documents = self.documents;
        let request = documents.review.request;
        if request.is_namespace() {
            let sent = if request.sub_resource.is_empty() { documents.object()? } else { None };
            let own = match sent {
                Some(object) => Some(object),
                None => documents.old_object()?,
            };
            let namespace = match own {
                Some(namespace) => namespace,
                None => documents.namespace(&request.name)?,
            };
            return Ok(Some(labels_of(namespace)));
        }
        if request.namespace.is_empty() {
            return Ok(None);
        }
        documents.namespace(&request.namespace).map(|namespace| Some(labels_of(namespace)))
    }
}

fn get_or_find<'c, 'd>(
    cell: &'c Found<'d>,
    find: impl FnOnce() -> Result<Option<Set<'d>>, PolicyError>,
) -> Result<Option<Set<'d>>, &'c PolicyError> {
    cell.get_or_init(find).as_ref().copied()
}

fn labels_of(object: Node<'_>) -> Set<'_> {
    object.at(&["metadata", "labels"]).and_then(Node::as_object)
}

/// An object that cannot have labels, such as the options of a CONNECT, matches no selector but the empty one.
fn labels_if_any(object: Node<'_>) -> Option<Set<'_>> {
    object.get("metadata").is_some().then(|| labels_of(object))
}
