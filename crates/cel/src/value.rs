//! Values: views of JSON where they come from an object, shared data where an expression made them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use sallyport_admission::UserInfo;
use sallyport_document::{Array, Content, Document, Items, Node, Object};
use serde_json::Value as Json;
use time::OffsetDateTime;

use crate::authorizer::{Authorization, Authorizer, Caller, Resource};
use crate::error::EvalError;
use crate::meter::{Limits, Meter};
use crate::named_formats::NamedFormat;
use crate::networks::Network;
use crate::quantity::Quantity;
use crate::urls::Url;
use crate::versions::Version;
use crate::{compare, json};

/// What an item of a list counts in the meter, in bytes.
pub(crate) const ITEM_BYTES: usize = 32;

/// Deepest nesting of values that an expression may make, on top of the JSON inside.
const MAX_MADE_DEPTH: u16 = 128;

/// Deepest nesting that anything goes through: what expressions can make and as much JSON as a parser takes.
pub(crate) const MAX_NESTING: usize = 256;

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
        compare::equal(&meter, &self.0, &other.0).unwrap_or(false)
    }
}

/// Any value, as the machine handles it.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Text<'a>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Arc<OffsetDateTime>),
    JsonList(Array<'a>),
    JsonMap(Object<'a>),
    List(Arc<ListVal<'a>>),
    Map(Arc<MapVal<'a>>),
    Struct(Arc<StructVal<'a>>),
    Optional(Option<Arc<OptionalVal<'a>>>),
    Type(Arc<str>),
    Quantity(Arc<Quantity>),
    Version(Arc<Version>),
    Url(Arc<Url>),
    Ip(Arc<IpAddr>),
    Cidr(Arc<Network>),
    Format(&'static NamedFormat),
    Authorization(Arc<Authorization<'a>>),
}

/// The items of either kind of list.
#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json(Array<'a>),
    Made(Arc<ListVal<'a>>),
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Made(items) => items.items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(Val::from_json),
            Self::Made(items) => items.items.get(index).cloned(),
        }
    }

    pub(crate) fn iter(&self) -> ListItems<'a> {
        self.clone().into_iter()
    }
}

impl<'a> IntoIterator for List<'a> {
    type Item = Val<'a>;
    type IntoIter = ListItems<'a>;

    fn into_iter(self) -> ListItems<'a> {
        match self {
            Self::Json(items) => ListItems::Json(items.iter()),
            Self::Made(items) => ListItems::Made(items, 0),
        }
    }
}

/// The items of a list, from some place on.
pub(crate) enum ListItems<'a> {
    Json(Items<'a>),
    Made(Arc<ListVal<'a>>, usize),
}

impl<'a> Iterator for ListItems<'a> {
    type Item = Val<'a>;

    #[inline]
    fn next(&mut self) -> Option<Val<'a>> {
        match self {
            Self::Json(items) => items.next().map(Val::from_json),
            Self::Made(list, next) => {
                let item = list.items.get(*next).cloned()?;
                *next += 1;
                Some(item)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Self::Json(items) => items.len(),
            Self::Made(list, next) => list.items.len().saturating_sub(*next),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for ListItems<'_> {}

/// A string that borrows from the input, or is shared.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ListVal<'a> {
    pub(crate) items: Vec<Val<'a>>,
    depth: u16,
}

/// Entries in the order of their keys.
#[derive(Debug)]
pub(crate) struct MapVal<'a> {
    pub(crate) entries: Vec<(Key<'a>, Val<'a>)>,
    depth: u16,
}

#[derive(Debug)]
pub(crate) struct StructVal<'a> {
    pub(crate) type_name: Arc<str>,
    pub(crate) fields: Vec<(Arc<str>, Val<'a>)>,
    depth: u16,
}

#[derive(Debug)]
pub(crate) struct OptionalVal<'a> {
    pub(crate) value: Val<'a>,
    depth: u16,
}

/// A key of a map. `int` and `uint` of the same number are the same key.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Str(Text<'a>),
}

impl<'a> Key<'a> {
    /// The key that a value denotes, if it can be one. Doubles denote the integer they equal.
    pub(crate) fn from_value(value: &Val<'a>) -> Option<Self> {
        Some(match value {
            Val::Bool(value) => Self::Bool(*value),
            Val::Int(value) => Self::Int(*value),
            Val::Uint(value) => Self::Uint(*value),
            Val::Double(value) => Self::Int(i64::try_from(compare::integral(*value)?).ok()?),
            Val::Str(text) => Self::Str(text.clone()),
            _ => return None,
        })
    }

    /// The key of a map that a value finds: doubles beyond `int` find the `uint` they equal.
    pub(crate) fn to_find(value: &Val<'a>) -> Option<Self> {
        let unsigned = || match value {
            Val::Double(value) => u64::try_from(compare::integral(*value)?).ok().map(Self::Uint),
            _ => None,
        };
        Self::from_value(value).or_else(unsigned)
    }

    pub(crate) fn to_value(&self) -> Val<'a> {
        match self {
            Self::Bool(value) => Val::Bool(*value),
            Self::Int(value) => Val::Int(*value),
            Self::Uint(value) => Val::Uint(*value),
            Self::Str(text) => Val::Str(text.clone()),
        }
    }

    /// The key as text, for messages and for JSON.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Bool(value) => Cow::Owned(value.to_string()),
            Self::Int(value) => Cow::Owned(value.to_string()),
            Self::Uint(value) => Cow::Owned(value.to_string()),
            Self::Str(text) => Cow::Borrowed(text),
        }
    }

    /// Its length, when it is a text.
    pub(crate) fn text_len(&self) -> usize {
        match self {
            Self::Str(text) => text.len(),
            _ => 0,
        }
    }

    pub(crate) fn compare(&self, other: &Key<'_>) -> Ordering {
        fn number(key: &Key<'_>) -> Option<i128> {
            match key {
                Key::Int(value) => Some(i128::from(*value)),
                Key::Uint(value) => Some(i128::from(*value)),
                _ => None,
            }
        }
        fn rank(key: &Key<'_>) -> u8 {
            match key {
                Key::Bool(_) => 0,
                Key::Int(_) | Key::Uint(_) => 1,
                Key::Str(_) => 2,
            }
        }
        match (self, other) {
            (Key::Str(left), Key::Str(right)) => (**left).cmp(&**right),
            (Key::Bool(left), Key::Bool(right)) => left.cmp(right),
            _ => rank(self).cmp(&rank(other)).then_with(|| number(self).cmp(&number(other))),
        }
    }
}

impl<'a> MapVal<'a> {
    pub(crate) fn get(&self, key: &Key<'_>) -> Option<&Val<'a>> {
        let index = self.entries.binary_search_by(|(candidate, _)| candidate.compare(key)).ok()?;
        self.entries.get(index).map(|(_, value)| value)
    }
}

impl<'a> StructVal<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&Val<'a>> {
        self.fields.iter().find(|(field, _)| &**field == name).map(|(_, value)| value)
    }
}

impl<'a> Val<'a> {
    #[inline]
    #[allow(clippy::cast_precision_loss)] // as in Kubernetes, where these are doubles
    pub(crate) fn from_json(node: Node<'a>) -> Self {
        match node.content() {
            Content::Null => Self::Null,
            Content::Bool(value) => Self::Bool(value),
            Content::Int(value) => Self::Int(value),
            Content::Uint(value) => Self::Double(value as f64),
            Content::Float(value) => Self::Double(value),
            Content::Str(text) => Self::Str(Text::Borrowed(text)),
            Content::Array(items) => Self::JsonList(items),
            Content::Object(map) => Self::JsonMap(map),
        }
    }

    pub(crate) fn text(text: String) -> Self {
        Self::Str(Text::Shared(text.into()))
    }

    pub(crate) fn size(size: usize) -> Self {
        Self::Int(i64::try_from(size).unwrap_or(i64::MAX))
    }

    /// A list of these items, unless they nest too deep.
    pub(crate) fn list(items: Vec<Val<'a>>) -> Result<Self, EvalError> {
        let depth = deepen(items.iter().map(Self::depth))?;
        Ok(Self::List(Arc::new(ListVal { items, depth })))
    }

    /// A list with the items of another added, in place when nobody else has it.
    pub(crate) fn extended(mut self, more: &Self) -> Result<Self, EvalError> {
        if let Self::List(list) = &mut self
            && let Some(list) = Arc::get_mut(list)
        {
            list.depth = list.depth.max(deepen(more.items().map(|item| item.depth()))?);
            list.items.extend(more.items());
            return Ok(self);
        }
        Self::list(self.items().chain(more.items()).collect())
    }

    /// The items of a list; none of what is no list.
    fn items(&self) -> impl Iterator<Item = Self> + '_ {
        let (json, made): (Option<Array<'a>>, &[Self]) = match self {
            Self::JsonList(items) => (Some(*items), &[]),
            Self::List(list) => (None, &list.items),
            _ => (None, &[]),
        };
        json.into_iter().flatten().map(Self::from_json).chain(made.iter().cloned())
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::JsonList(_) | Self::List(_))
    }

    /// Whether it is of one of Kubernetes' own types, which are compared at once and are no keys.
    pub(crate) fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Quantity(_)
                | Self::Version(_)
                | Self::Url(_)
                | Self::Ip(_)
                | Self::Cidr(_)
                | Self::Format(_)
                | Self::Authorization(_)
        )
    }

    /// The item at an index, when it is a list that has one.
    pub(crate) fn item(&self, index: usize) -> Option<Self> {
        match self {
            Self::JsonList(items) => items.get(index).map(Self::from_json),
            Self::List(list) => list.items.get(index).cloned(),
            _ => None,
        }
    }

    /// How many items there are, when it is a list.
    pub(crate) fn list_len(&self) -> Option<usize> {
        match self {
            Self::JsonList(items) => Some(items.len()),
            Self::List(list) => Some(list.items.len()),
            _ => None,
        }
    }

    /// A map of these entries, in any order. The error names a key that is there twice.
    ///
    /// The work of sorting is paid for here: any two keys may differ at the end only.
    pub(crate) fn map(meter: &Meter, mut entries: Vec<(Key<'a>, Val<'a>)>) -> Result<Self, EvalError> {
        let depth = deepen(entries.iter().map(|(_, value)| value.depth()))?;
        let rounds = usize::BITS - entries.len().leading_zeros();
        for (key, _) in &entries {
            meter.work(key.text_len().saturating_mul(rounds as usize))?;
        }
        entries.sort_by(|(left, _), (right, _)| left.compare(right));
        let repeated = entries
            .windows(2)
            .find(|pair| matches!(pair, [(left, _), (right, _)] if left.compare(right).is_eq()))
            .and_then(<[_]>::first);
        if let Some((key, _)) = repeated {
            return Err(EvalError::RepeatedKey(crate::error::shorten(&key.text())));
        }
        Ok(Self::Map(Arc::new(MapVal { entries, depth })))
    }

    pub(crate) fn structure(
        type_name: &Arc<str>,
        fields: Vec<(Arc<str>, Val<'a>)>,
    ) -> Result<Self, EvalError> {
        let depth = deepen(fields.iter().map(|(_, value)| value.depth()))?;
        Ok(Self::Struct(Arc::new(StructVal { type_name: Arc::clone(type_name), fields, depth })))
    }

    /// An error when an optional of this would nest too deep.
    pub(crate) fn check_optional(&self) -> Result<(), EvalError> {
        if self.depth() < MAX_MADE_DEPTH { Ok(()) } else { Err(EvalError::TooDeep) }
    }

    pub(crate) fn optional(value: Val<'a>) -> Result<Self, EvalError> {
        let depth = deepen(std::iter::once(value.depth()))?;
        Ok(Self::Optional(Some(Arc::new(OptionalVal { value, depth }))))
    }

    /// How deep it nests, as far as expressions made it.
    #[inline]
    fn depth(&self) -> u16 {
        match self {
            Self::List(list) => list.depth,
            Self::Map(map) => map.depth,
            Self::Struct(made) => made.depth,
            Self::Optional(Some(optional)) => optional.depth,
            _ => 0,
        }
    }

    /// The items, when it is a list.
    pub(crate) fn as_list(&self) -> Option<List<'a>> {
        match self {
            Self::JsonList(items) => Some(List::Json(*items)),
            Self::List(items) => Some(List::Made(Arc::clone(items))),
            _ => None,
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::JsonList(_) | Self::List(_) => "list",
            Self::JsonMap(_) | Self::Map(_) => "map",
            Self::Struct(_) => "object",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Version(_) => "kubernetes.Semver",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorization(value) => value.type_name(),
        }
    }
}

/// One more than the deepest of these.
fn deepen(depths: impl Iterator<Item = u16>) -> Result<u16, EvalError> {
    let depth = depths.max().unwrap_or(0);
    if depth < MAX_MADE_DEPTH { Ok(depth + 1) } else { Err(EvalError::TooDeep) }
}
