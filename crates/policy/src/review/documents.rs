//! The objects of one review, parsed when first needed and once.

use std::cell::OnceCell;

use sallyport_document::{Content, Document, DocumentError, Node, Tree};
use serde_json::Value;

use crate::error::PolicyError;
use crate::family::Family;
use crate::request::{self, Request, Review};
use crate::review::namespaces::Namespaces;

type Parsed<'a> = OnceCell<Result<Option<Document<'a>>, PolicyError>>;

/// The objects of one review.
pub(crate) struct Documents<'a> {
    pub(crate) review: Review<'a>,
    /// What the objects say of their version, where it is not what they were sent with.
    api_version: Option<String>,
    namespaces: &'a Namespaces,
    object: Parsed<'a>,
    old_object: Parsed<'a>,
    /// As policies of each family see it.
    request: [OnceCell<Result<Document<'static>, PolicyError>>; 2],
}

impl<'a> Documents<'a> {
    pub(crate) fn new(review: &'a Review<'a>, namespaces: &'a Namespaces) -> Self {
        Self {
            review: *review,
            api_version: None,
            namespaces,
            object: OnceCell::new(),
            old_object: OnceCell::new(),
            request: Default::default(),
        }
    }

    /// The same as another request for the same objects has it, which differ from these in `apiVersion` alone.
    pub(crate) fn converted<'b>(&'b self, request: &'b Request) -> Documents<'b> {
        Documents {
            review: Review { request, ..self.review },
            api_version: Some(request.kind.api_version()),
            namespaces: self.namespaces,
            object: OnceCell::new(),
            old_object: OnceCell::new(),
            request: Default::default(),
        }
    }

    /// What the objects say of their version, where it is not what they were sent with.
    pub(crate) fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// The new object, `None` if absent or null. An error for what is not an object of JSON, or nests deeper
    /// than 127.
    pub(crate) fn object(&self) -> Result<Option<Node<'_>>, PolicyError> {
        self.parse_once(&self.object, "object", self.review.object)
    }

    /// The old object, likewise.
    pub(crate) fn old_object(&self) -> Result<Option<Node<'_>>, PolicyError> {
        self.parse_once(&self.old_object, "oldObject", self.review.old_object)
    }

    /// `request` as expressions of a family's policies see it.
    pub(crate) fn request(&self, family: Family) -> Result<Node<'_>, PolicyError> {
        let with_empty = family.shows_empty_fields_of_requests();
        let [with, without] = &self.request;
        let cell = if with_empty { with } else { without };
        let request = cell.get_or_init(|| {
            let options = parse("options", self.review.options)?;
            let options = options.map_or(Value::Null, |options| options.root().to_value());
            to_document("request", &request::document(self.review.request, options, with_empty))
        });
        request.as_ref().map(Document::root).map_err(Clone::clone)
    }

    /// `namespaceObject` as expressions see it: null for what has no namespace, Namespaces included.
    pub(crate) fn namespace_object(&self) -> Result<Option<Node<'a>>, PolicyError> {
        if self.review.request.namespace.is_empty() || self.review.request.is_namespace() {
            return Ok(None);
        }
        self.namespace(&self.review.request.namespace).map(Some)
    }

    /// The Namespace `name`, or an error saying that it is not known.
    pub(crate) fn namespace(&self, name: &str) -> Result<Node<'a>, PolicyError> {
        self.namespaces.get(name).ok_or_else(|| PolicyError::Namespace(name.to_owned()))
    }

    fn parse_once<'c>(
        &self,
        cell: &'c Parsed<'a>,
        document: &'static str,
        text: &'a [u8],
    ) -> Result<Option<Node<'c>>, PolicyError> {
        let read = || {
            let Some(object) = parse(document, text)? else { return Ok(None) };
            let Some(version) = &self.api_version else { return Ok(Some(object)) };
            let mut object = Tree::Read(object.root());
            set_api_version(&mut object, version);
            object.document().map(Some).map_err(|error| unwritable(document, &error))
        };
        match cell.get_or_init(read) {
            Ok(document) => Ok(document.as_ref().map(Document::root)),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Makes an object say that it is of another version.
pub(crate) fn set_api_version(object: &mut Tree<'_>, version: &str) {
    if let Some(stated) = object.members_mut().and_then(|members| members.get_mut("apiVersion")) {
        *stated = Tree::Made(Value::from(version));
    }
}

fn parse<'t>(document: &'static str, text: &'t [u8]) -> Result<Option<Document<'t>>, PolicyError> {
    if text.is_empty() {
        return Ok(None);
    }
    let unreadable = |problem: String| PolicyError::Document { document, problem };
    let parsed = Document::parse(text).map_err(|error| unreadable(error.to_string()))?;
    match parsed.root().content() {
        Content::Null => Ok(None),
        Content::Object(_) => Ok(Some(parsed)),
        _ => Err(unreadable("it is not a JSON object".to_owned())),
    }
}

/// What was made here, as expressions see it.
fn to_document(document: &'static str, value: &Value) -> Result<Document<'static>, PolicyError> {
    Document::of(value).map_err(|error| unwritable(document, &error))
}

/// What was made here has become too large.
pub(crate) fn unwritable(document: &'static str, error: &DocumentError) -> PolicyError {
    PolicyError::Document { document, problem: error.to_string() }
}
