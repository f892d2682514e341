//! What `Object{…}` expressions give, before it is JSON: which values are those of JSON and which are not.
//!
//! The API server takes the fields of an `Object`, and one level of the lists and maps in them, out of CEL;
//! what is below that, null that the expression wrote, and numbers without sign stay values of CEL, which then
//! fit nowhere. Messages show a value as the API server does, so that an author finds the same text.

use sallyport_cel::{Value as Cel, View};
use serde_json::Value;

use crate::error::ConfigurationError;
use crate::mutate::measure::MAX_DEPTH;

/// A part of a partial object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the names.
    Map(Vec<(String, Node)>),
    /// What is none of JSON's values.
    Foreign(Foreign),
}

/// A value that JSON lacks, as messages show it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Foreign {
    type_name: &'static str,
    plain: String,
    literal: String,
}

/// The fields of the `Object` that an expression gave.
pub(crate) fn read_fields(value: &Cel<'_>) -> Result<Vec<(String, Node)>, ConfigurationError> {
    let mut mismatches = Vec::new();
    match value.view() {
        View::Struct("Object", _) => check_names(value, "Object", 0, &mut mismatches)?,
        _ => return Err(ConfigurationError::NotAnObject(value.type_name().to_owned())),
    }
    if !mismatches.is_empty() {
        return Err(ConfigurationError::TypeNames(mismatches.join("\n")));
    }
    match read_value(value, 0)? {
        Node::Map(mut fields) => {
            // The object keeps its own, whatever is written.
            fields.retain(|(name, _)| name != "apiVersion" && name != "kind");
            Ok(fields)
        }
        _ => Err(ConfigurationError::Keys),
    }
}

/// Types are named after the path at which they stand; lists and maps on the way do not count.
fn check_names(
    value: &Cel<'_>,
    path: &str,
    depth: usize,
    mismatches: &mut Vec<String>,
) -> Result<(), ConfigurationError> {
    if depth > MAX_DEPTH {
        return Err(ConfigurationError::TooDeep(MAX_DEPTH));
    }
    match value.view() {
        View::Struct(name, fields) => {
            if name != path {
                mismatches.push(format!(
                    "unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object type"
                ));
            }
            for (field, value) in fields {
                check_names(&value, &format!("{path}.{field}"), depth + 1, mismatches)?;
            }
        }
        View::List(items) => {
            for item in items {
                check_names(&item, path, depth + 1, mismatches)?;
            }
        }
        View::Map(entries) => {
            for (_, value) in entries {
                check_names(&value, path, depth + 1, mismatches)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The value of a field: a list or a map that the expression made is taken out of CEL with its items.
fn read_field(value: &Cel<'_>, depth: usize) -> Result<Result<Node, String>, ConfigurationError> {
    match value.view() {
        View::List(items) => {
            let items = items.iter().map(|item| read_value(item, depth + 1)).collect::<Result<_, _>>()?;
            Ok(Ok(Node::List(items)))
        }
        View::Map(entries) => {
            let mut fields = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                match key.view() {
                    View::Str(name) => fields.push((name.to_owned(), read_value(&value, depth + 1)?)),
                    other => return Ok(Err(describe_key(&other))),
                }
            }
            Ok(Ok(sort_fields(fields)))
        }
        _ => read_value(value, depth).map(Ok),
    }
}

fn read_value(value: &Cel<'_>, depth: usize) -> Result<Node, ConfigurationError> {
    if depth > MAX_DEPTH {
        return Err(ConfigurationError::TooDeep(MAX_DEPTH));
    }
    let foreign =
        |type_name, plain: String, literal: String| Node::Foreign(Foreign { type_name, plain, literal });
    Ok(match value.view() {
        View::Null => foreign("structpb.NullValue", "NULL_VALUE".to_owned(), "0".to_owned()),
        View::Bool(value) => Node::Bool(value),
        View::Int(value) => Node::Int(value),
        View::Uint(value) => foreign("uint64", value.to_string(), format!("0x{value:x}")),
        View::Double(value) => Node::Float(value),
        View::Str(text) | View::Type(text) => Node::Text(text.to_owned()),
        View::Bytes(bytes) => {
            let plain: Vec<String> = bytes.iter().map(u8::to_string).collect();
            let literal: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:x}")).collect();
            foreign("[]uint8", format!("[{}]", plain.join(" ")), format!("[]uint8{{{}}}", literal.join(", ")))
        }
        View::Duration(nanoseconds) => {
            foreign("time.Duration", format!("{nanoseconds}ns"), nanoseconds.to_string())
        }
        View::Timestamp(text) => {
            let plain = format!("{} +0000 UTC", text.trim_end_matches('Z').replace('T', " "));
            foreign("time.Time", plain.clone(), plain)
        }
        View::JsonList(items) => {
            Node::from_json(&items.node().to_value(), depth).ok_or(ConfigurationError::TooDeep(MAX_DEPTH))?
        }
        View::JsonMap(map) => {
            Node::from_json(&map.node().to_value(), depth).ok_or(ConfigurationError::TooDeep(MAX_DEPTH))?
        }
        View::List(items) => {
            let items =
                items.iter().map(|item| read_value(item, depth + 1)).collect::<Result<Vec<_>, _>>()?;
            let plain: Vec<String> = items.iter().map(Node::plain).collect();
            let literal: Vec<String> = items.iter().map(Node::literal).collect();
            foreign(
                "[]ref.Val",
                format!("[{}]", plain.join(" ")),
                format!("[]ref.Val{{{}}}", literal.join(", ")),
            )
        }
        View::Map(entries) => {
            let (mut plain, mut literal) = (Vec::new(), Vec::new());
            for (key, value) in &entries {
                let (key, value) = (read_value(key, depth + 1)?, read_value(value, depth + 1)?);
                plain.push(format!("{}:{}", key.plain(), value.plain()));
                literal.push(format!("{}:{}", key.literal(), value.literal()));
            }
            let literal = format!("map[ref.Val]ref.Val{{{}}}", literal.join(", "));
            foreign("map[ref.Val]ref.Val", format!("map[{}]", plain.join(" ")), literal)
        }
        View::Struct(_, fields) => {
            let mut read = Vec::with_capacity(fields.len());
            for (name, value) in &fields {
                match read_field(value, depth + 1)? {
                    Ok(node) => read.push(((*name).to_owned(), node)),
                    Err(problem) => {
                        let plain = format!("fail to convert field {name:?}: {problem}");
                        return Ok(foreign("*types.Err", plain.clone(), plain));
                    }
                }
            }
            sort_fields(read)
        }
        View::Optional(Some(held)) => read_value(&held, depth + 1)?,
        View::Optional(None) => Node::Null,
        View::Opaque(name) => foreign(name, name.to_owned(), name.to_owned()),
    })
}

fn describe_key(key: &View<'_, '_>) -> String {
    let (shown, type_name) = match key {
        View::Int(value) => (format!("{value}"), "Int"),
        View::Uint(value) => (format!("{value}"), "Uint"),
        View::Bool(value) => (format!("{value}"), "Bool"),
        _ => (String::new(), "Double"),
    };
    format!("map key {shown} is of type types.{type_name}, not string")
}

fn sort_fields(mut fields: Vec<(String, Node)>) -> Node {
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    Node::Map(fields)
}

impl Node {
    /// Takes over JSON; `None` if it nests too deep.
    pub(crate) fn from_json(value: &Value, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return None;
        }
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => {
                Self::List(items.iter().map(|item| Self::from_json(item, depth + 1)).collect::<Option<_>>()?)
            }
            Value::Object(map) => {
                let fields =
                    map.iter().map(|(key, item)| Some((key.clone(), Self::from_json(item, depth + 1)?)));
                sort_fields(fields.collect::<Option<_>>()?)
            }
        })
    }

    /// As JSON; what JSON lacks is null.
    pub(crate) fn into_json(self) -> Value {
        match self {
            Self::Null | Self::Foreign(_) => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::from(value),
            Self::Float(value) => Value::from(value),
            Self::Text(text) => Value::String(text),
            Self::List(items) => items.into_iter().map(Self::into_json).collect(),
            Self::Map(fields) => fields.into_iter().map(|(name, node)| (name, node.into_json())).collect(),
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        const NODE: usize = size_of::<Node>();
        NODE + match self {
            Self::Text(text) => text.len(),
            Self::List(items) => items.iter().map(Self::bytes).sum(),
            Self::Map(fields) => fields.iter().map(|(name, node)| name.len() + node.bytes()).sum(),
            Self::Foreign(foreign) => foreign.plain.len() + foreign.literal.len(),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) => 0,
        }
    }

    pub(crate) fn is_scalar(&self) -> bool {
        matches!(self, Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_))
    }

    /// The name of its type as the API server's language has it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int64",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "[]interface {}",
            Self::Map(_) => "map[string]interface {}",
            Self::Foreign(foreign) => foreign.type_name,
        }
    }

    /// How that language prints it.
    pub(crate) fn plain(&self) -> String {
        match self {
            Self::Null => "<nil>".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => float(*value),
            Self::Text(text) => text.clone(),
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::plain).collect::<Vec<_>>().join(" "))
            }
            Self::Map(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, node)| format!("{name}:{}", node.plain())).collect();
                format!("map[{}]", fields.join(" "))
            }
            Self::Foreign(foreign) => foreign.plain.clone(),
        }
    }

    /// How it is written in that language.
    pub(crate) fn literal(&self) -> String {
        match self {
            Self::Null => "interface {}(nil)".to_owned(),
            Self::Text(text) => quoted(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::literal).collect();
                format!("[]interface {{}}{{{}}}", items.join(", "))
            }
            Self::Map(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, node)| format!("{}:{}", quoted(name), node.literal()))
                    .collect();
                format!("map[string]interface {{}}{{{}}}", fields.join(", "))
            }
            Self::Foreign(foreign) => foreign.literal.clone(),
            Self::Bool(_) | Self::Int(_) | Self::Float(_) => self.plain(),
        }
    }
}

pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The shortest text that reads as the same number, with an exponent from 1e21 on and below 1e-4.
pub(crate) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    value.to_string()
}
