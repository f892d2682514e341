//! Any value, as the machine handles it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use ipnet::IpNet;
use sallyport_document::{Array, Content, Items, Node, Object};
use time::OffsetDateTime;

use crate::error::{EvalError, Mismatch, shorten};
use crate::meter::Meter;
use crate::value::authorization::Authorization;
use crate::value::named_format::NamedFormat;
use crate::value::number::integral;
use crate::value::quantity::Quantity;
use crate::value::url::Url;
use crate::value::version::Version;

/// Deepest nesting of values that an expression may make, on top of the JSON inside.
const MAX_MADE_DEPTH: u16 = 128;
/// Deepest nesting that anything goes through: what expressions can make and as much JSON as a parser takes.
pub(crate) const MAX_NESTING: usize = 256;

/// What an evaluation comes to.
pub(crate) type Outcome<'a> = Result<Val<'a>, EvalError>;

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
    Cidr(Arc<IpNet>),
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
            Val::Double(value) => Self::Int(i64::try_from(integral(*value)?).ok()?),
            Val::Str(text) => Self::Str(text.clone()),
            _ => return None,
        })
    }

    /// The key of a map that a value finds: doubles beyond `int` find the `uint` they equal.
    pub(crate) fn to_find(value: &Val<'a>) -> Option<Self> {
        let unsigned = || match value {
            Val::Double(value) => u64::try_from(integral(*value)?).ok().map(Self::Uint),
            _ => None,
        };
        Self::from_value(value).or_else(unsigned)
    }

    /// The key of a map that is being made; doubles are refused here although they find the key they equal.
    pub(crate) fn to_insert(value: &Val<'a>) -> Result<Self, EvalError> {
        match Self::from_value(value) {
            Some(found) if !matches!(value, Val::Double(_)) => Ok(found),
            _ => Err(EvalError::invalid("map", format!("unsupported key type: {}", value.type_name()))),
        }
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
            return Err(EvalError::RepeatedKey(shorten(&key.text())));
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

impl EvalError {
    pub(crate) fn no_such_overload(function: &'static str, arguments: &[Val<'_>]) -> Self {
        let arguments = arguments.iter().map(Val::type_name).collect::<Vec<_>>().join(", ");
        Self::NoSuchOverload(Box::new(Mismatch { function, arguments }))
    }
}
