//! Values: views of JSON where they come from an object, shared data where an expression made them.

pub(crate) mod address;
pub(crate) mod arithmetic;
mod authorization;
pub(crate) mod comparison;
mod json;
pub(crate) mod named_format;
pub(crate) mod network;
pub(crate) mod number;
mod operator;
pub(crate) mod quantity;
pub(crate) mod temporal;
pub(crate) mod url;
mod val;
pub(crate) mod version;
mod view;

use std::sync::Arc;

pub(crate) use authorization::{Authorization, Caller};
pub(crate) use operator::Operator;
use sallyport_admission::UserInfo;
use sallyport_document::{Document, Node};
use serde_json::Value as Json;
pub(crate) use val::{Key, List, MAX_NESTING, Outcome, StructVal, Text, Val};
pub use view::View;

use crate::authorizer::{Authorizer, Resource};
use crate::error::EvalError;
use crate::meter::{Limits, Meter};

/// A value of CEL. It borrows from the JSON it was taken from: making one from a whole object costs nothing,
/// and only what an expression looks at is ever converted.
///
/// Integers of JSON are `int`; those beyond the range of `int`, and numbers written with a fraction or an
/// exponent, are `double`, as in Kubernetes. Equality is CEL's: numbers compare across their types.
#[derive(Clone, Debug)]
pub struct Value<'a>(pub(crate) Val<'a>);

impl<'a> Value<'a> {
    /// `null`
    pub fn null() -> Self {
        Self(Val::Null)
    }

    /// A `bool`.
    pub fn bool(value: bool) -> Self {
        Self(Val::Bool(value))
    }

    /// An `int`.
    pub fn int(value: i64) -> Self {
        Self(Val::Int(value))
    }

    /// A `string`, owned.
    pub fn string(value: impl Into<Arc<str>>) -> Self {
        Self(Val::Str(Text::Shared(value.into())))
    }

    /// A `string`, borrowed.
    pub fn str(value: &'a str) -> Self {
        Self(Val::Str(Text::Borrowed(value)))
    }

    /// The `authorizer` of a user's request.
    pub fn authorizer(authorizer: &'a dyn Authorizer, user: Arc<UserInfo>) -> Self {
        let caller = Caller { authorizer, user };
        Self(Val::Authorization(Arc::new(Authorization::Authorizer(caller))))
    }

    /// The `authorizer.requestResource` of a user's request: the check of what the request is about.
    pub fn resource_authorizer(
        authorizer: &'a dyn Authorizer,
        user: Arc<UserInfo>,
        resource: Resource,
    ) -> Self {
        let caller = Caller { authorizer, user };
        Self(Val::Authorization(Arc::new(Authorization::Resource(caller, resource))))
    }

    /// The value of a `bool`.
    pub fn as_bool(&self) -> Option<bool> {
        match self.0 {
            Val::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The value of an `int`.
    pub fn as_int(&self) -> Option<i64> {
        match self.0 {
            Val::Int(value) => Some(value),
            _ => None,
        }
    }

    /// The text of a `string`.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Val::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a `list`. They keep borrowing from the JSON, not from this value.
    pub fn as_list(&self) -> Option<impl Iterator<Item = Value<'a>> + use<'a>> {
        let items = match &self.0 {
            Val::JsonList(items) => List::Json(*items),
            Val::List(items) => List::Made(Arc::clone(items)),
            _ => return None,
        };
        Some(items.into_iter().map(Value))
    }

    /// The value of a `double`.
    pub fn as_double(&self) -> Option<f64> {
        match self.0 {
            Val::Double(value) => Some(value),
            _ => None,
        }
    }

    /// The entries of a `map` in the order of its keys, or the fields of a struct as they were written.
    pub fn as_map(&self) -> Option<Vec<(Value<'a>, Value<'a>)>> {
        Some(match &self.0 {
            Val::JsonMap(map) => {
                map.entries().map(|(key, value)| (Value::str(key), Value::from(value))).collect()
            }
            Val::Map(map) => {
                map.entries.iter().map(|(key, value)| (Value(key.to_value()), Value(value.clone()))).collect()
            }
            Val::Struct(made) => {
                let fields = made.fields.iter();
                fields.map(|(name, value)| (Value::string(Arc::clone(name)), Value(value.clone()))).collect()
            }
            _ => return None,
        })
    }

    /// What an optional holds, if it is one: `Some(None)` for `optional.none()`.
    pub fn as_optional(&self) -> Option<Option<Value<'a>>> {
        match &self.0 {
            Val::Optional(optional) => Some(optional.as_ref().map(|optional| Value(optional.value.clone()))),
            _ => None,
        }
    }

    /// The name of a type, if the value is one, as that of `type(1)`.
    pub fn as_type(&self) -> Option<&str> {
        match &self.0 {
            Val::Type(name) => Some(name),
            _ => None,
        }
    }

    /// The text of a value of Kubernetes' libraries: quantities, URLs, addresses, networks, versions.
    pub fn to_text(&self) -> Option<String> {
        match &self.0 {
            Val::Quantity(quantity) => Some(quantity.text()),
            Val::Url(url) => Some(url.text.clone()),
            Val::Ip(address) => Some(address.to_string()),
            Val::Cidr(network) => Some(network.to_string()),
            Val::Version(version) => Some(version.text.clone()),
            Val::Format(format) => Some(format.name.to_owned()),
            _ => None,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.0, Val::Null)
    }

    /// CEL's name of its type: `int`, `map`, `google.protobuf.Timestamp`, …
    pub fn type_name(&self) -> &str {
        match &self.0 {
            Val::Struct(made) => &made.type_name,
            other => other.type_name(),
        }
    }

    /// The value as JSON: structs become plain objects, bytes base64, timestamps and durations strings; keys
    /// of maps become strings. An error for what has no form in JSON (optionals, types, values
    /// of Kubernetes' libraries, numbers that are not finite) and for values beyond 8 MiB.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        json::write(&self.0)
    }
}

impl<'a> From<Node<'a>> for Value<'a> {
    fn from(node: Node<'a>) -> Self {
        Self(Val::from_json(node))
    }
}

impl<'a> From<&'a Document<'a>> for Value<'a> {
    fn from(document: &'a Document<'a>) -> Self {
        Self::from(document.root())
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        let meter = Meter::new(Limits::default());
        comparison::equal(&meter, &self.0, &other.0).unwrap_or(false)
    }
}
