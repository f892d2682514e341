//! The objects of one review, parsed when first needed and once.

use std::cell::OnceCell;

use serde_json::Value;

use crate::error::PolicyError;
use crate::family::Family;
use crate::namespaces::Namespaces;
use crate::request::{Request, Review};

type Parsed = OnceCell<Result<Option<Value>, PolicyError>>;

/// The objects of one review.
pub(crate) struct Documents<'a> {
    pub(crate) review: Review<'a>,
    /// What the objects say of their version, where it is not what they were sent with.
    api_version: Option<String>,
    namespaces: &'a Namespaces,
    object: Parsed,
    old_object: Parsed,
    /// As policies of each family see it.
    request: [OnceCell<Result<Value, PolicyError>>; 2],
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

    /// The new object, `None` if absent or null. An error for what is not an object of JSON, or nests deeper
    /// than 127.
    pub(crate) fn object(&self) -> Result<Option<&Value>, PolicyError> {
        self.read(&self.object, "object", self.review.object)
    }

    /// The old object, likewise.
    pub(crate) fn old_object(&self) -> Result<Option<&Value>, PolicyError> {
        self.read(&self.old_object, "oldObject", self.review.old_object)
    }

    /// `request` as expressions of a family's policies see it.
    pub(crate) fn request(&self, family: Family) -> Result<&Value, PolicyError> {
        let with_empty = family.shows_empty_fields_of_requests();
        let [with, without] = &self.request;
        let cell = if with_empty { with } else { without };
        cell.get_or_init(|| {
            let options = parse("options", self.review.options)?;
            Ok(self.review.request.document(options.unwrap_or(Value::Null), with_empty))
        })
        .as_ref()
        .map_err(Clone::clone)
    }

    /// `namespaceObject` as expressions see it: null for what has no namespace, Namespaces included.
    pub(crate) fn namespace_object(&self) -> Result<Option<&'a Value>, PolicyError> {
        if self.review.request.namespace.is_empty() || self.review.request.is_namespace() {
            return Ok(None);
        }
        self.namespace(&self.review.request.namespace).map(Some)
    }

    /// The Namespace `name`, or an error saying that it is not known.
    pub(crate) fn namespace(&self, name: &str) -> Result<&'a Value, PolicyError> {
        self.namespaces.get(name).ok_or_else(|| PolicyError::Namespace(name.to_owned()))
    }

    fn read<'c>(
        &self,
        cell: &'c Parsed,
        document: &'static str,
        text: &[u8],
    ) -> Result<Option<&'c Value>, PolicyError> {
        let read = || {
            let mut object = parse(document, text)?;
            if let (Some(object), Some(version)) = (&mut object, &self.api_version) {
                set_api_version(object, version);
            }
            Ok(object)
        };
        match cell.get_or_init(read) {
            Ok(value) => Ok(value.as_ref()),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Makes an object say that it is of another version.
pub(crate) fn set_api_version(object: &mut Value, version: &str) {
    if let Some(stated) = object.get_mut("apiVersion") {
        *stated = Value::from(version);
    }
}

fn parse(document: &'static str, text: &[u8]) -> Result<Option<Value>, PolicyError> {
    if text.is_empty() {
        return Ok(None);
    }
    match serde_json::from_slice(text) {
        Ok(Value::Null) => Ok(None),
        Ok(value @ Value::Object(_)) => Ok(Some(value)),
        Ok(_) => Err(PolicyError::Document { document, problem: "it is not a JSON object".to_owned() }),
        Err(error) => Err(PolicyError::Document { document, problem: error.to_string() }),
    }
}
