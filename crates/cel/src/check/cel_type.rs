//! The types of CEL, as expressions have them before they are evaluated.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Longest text of a type in a message, in bytes; what is beyond is cut off.
const MAX_TEXT: usize = 1024;
/// Deepest nesting of a type that a definition keeps; what is deeper is `dyn`.
const MAX_KEPT_DEPTH: usize = 16;

/// The type of an expression or a variable. Cheap to clone.
///
/// `Display` writes it as Kubernetes does where it tells what an expression gives: `map(string, dyn)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// Known when evaluated.
    Dyn,
    /// The type of `null`.
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// A list of this.
    List(Arc<Type>),
    /// A map from the first to the second.
    Map(Arc<(Type, Type)>),
    /// An optional of this.
    Optional(Arc<Type>),
    /// The type of a type: `type(int)`, or `type` alone.
    Type(Option<Arc<Type>>),
    /// A type without fields, such as `net.IP`.
    Opaque(&'static str),
    /// A type with fields, such as that of `request`.
    Struct(Arc<Structure>),
    /// Of an expression that is wrong; no program has it.
    Error,
    /// Not known yet, during the check; no program has it.
    Variable(u32),
    /// Of a field of `JSONPatch` that it does not have; no program has it.
    Nothing,
}

/// A type with fields.
#[derive(Debug)]
pub struct Structure {
    name: Arc<str>,
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Declared(BTreeMap<&'static str, Type>),
    /// Any field, of type `dyn`.
    Any,
    /// Those of `JSONPatch`.
    Patch,
    /// A type that only functions look into.
    Hidden,
}

/// What a type says of one of its fields.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FieldLookup {
    Found(Type),
    Undefined,
    /// The type has no fields at all.
    Unresolved,
}

impl PartialEq for Structure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Structure {}

impl Structure {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn field(&self, field: &str) -> FieldLookup {
        match &self.fields {
            Fields::Declared(fields) => fields.get(field).cloned().map(FieldLookup::Found),
            Fields::Any => Some(FieldLookup::Found(Type::Dyn)),
            Fields::Patch => Some(FieldLookup::Found(match field {
                "op" | "path" | "from" => Type::String,
                "value" => Type::Dyn,
                _ => Type::Nothing,
            })),
            Fields::Hidden => Some(FieldLookup::Unresolved),
        }
        .unwrap_or(FieldLookup::Undefined)
    }
}

impl Type {
    /// A list of `item`.
    pub fn list(item: Self) -> Self {
        Self::List(Arc::new(item))
    }

    /// A map.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    /// An optional of `value`.
    pub fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// What `Object{…}` gives, the result of an apply configuration.
    pub fn apply_configuration() -> Self {
        Self::object("Object")
    }

    /// What `JSONPatch{…}` gives.
    pub fn json_patch() -> Self {
        Self::structure("JSONPatch".into(), Fields::Patch)
    }

    pub(crate) fn type_of(inner: Self) -> Self {
        Self::Type(Some(Arc::new(inner)))
    }

    /// `Object` or a type below it, such as `Object.spec`.
    pub(crate) fn object(name: &str) -> Self {
        Self::structure(name.into(), Fields::Any)
    }

    pub(crate) fn hidden(name: &str) -> Self {
        Self::structure(name.into(), Fields::Hidden)
    }

    pub(crate) fn declared(name: &str, fields: BTreeMap<&'static str, Type>) -> Self {
        Self::structure(name.into(), Fields::Declared(fields))
    }

    fn structure(name: Arc<str>, fields: Fields) -> Self {
        Self::Struct(Arc::new(Structure { name, fields }))
    }

    /// The type that `variables.NAME` has when its expression has this one: only values that JSON has keep
    /// theirs, as in Kubernetes.
    pub(crate) fn of_definition(&self) -> Self {
        self.kept(MAX_KEPT_DEPTH)
    }

    fn kept(&self, levels: usize) -> Self {
        let Some(levels) = levels.checked_sub(1) else { return Self::Dyn };
        match self {
            Self::List(item) => Self::list(item.kept(levels)),
            Self::Map(entry) => Self::map(entry.0.kept(levels), entry.1.kept(levels)),
            Self::Null
            | Self::Bool
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::String
            | Self::Bytes
            | Self::Duration
            | Self::Timestamp => self.clone(),
            _ => Self::Dyn,
        }
    }

    /// The name without parameters, as values have it.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn | Self::Variable(_) => "dyn",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Opaque(name) => name,
            Self::Struct(structure) => &structure.name,
            Self::Error => "error",
            Self::Nothing => "",
        }
    }

    /// The type in the words of messages, which shorten some names.
    pub(crate) fn message_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, true);
        text
    }

    fn write(&self, text: &mut String, short: bool) {
        if text.len() > MAX_TEXT {
            return;
        }
        match self {
            Self::Null if short => text.push_str("null"),
            Self::Duration if short => text.push_str("duration"),
            Self::Timestamp if short => text.push_str("timestamp"),
            Self::Error => text.push_str("!error!"),
            Self::Variable(number) => {
                let _ = write!(text, "_var{number}");
            }
            Self::Map(entry) => {
                text.push_str("map(");
                entry.0.write(text, short);
                text.push_str(", ");
                entry.1.write(text, short);
                text.push(')');
            }
            Self::List(inner) | Self::Optional(inner) | Self::Type(Some(inner)) => {
                text.push_str(self.runtime_name());
                text.push('(');
                inner.write(text, short);
                text.push(')');
            }
            _ => text.push_str(self.runtime_name()),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text, false);
        f.write_str(&text)
    }
}
