//! From and to `serde_json::Value`.

use serde_json::{Map, Number, Value};

use crate::builder::Builder;
use crate::error::DocumentError;
use crate::node::{Content, Node};
use crate::tape::{Document, MAX_BYTES};
use crate::tree::{Part, Tree};

impl Document<'static> {
    /// A document of a value's copy. It recurses as deep as the value nests.
    ///
    /// # Errors
    /// When the value is larger than a document can be.
    pub fn of(value: &Value) -> Result<Self, DocumentError> {
        Self::of_part(Part::Made(value))
    }

    /// The same of a part of a tree.
    pub(crate) fn of_part(part: Part<'_>) -> Result<Self, DocumentError> {
        let mut builder = Builder::new("", 0);
        write(&mut builder, part)?;
        Ok(builder.document)
    }
}

fn write(builder: &mut Builder<'_>, part: Part<'_>) -> Result<(), DocumentError> {
    if builder.document.tape.len() >= MAX_BYTES {
        return Err(DocumentError::TooLarge);
    }
    match part {
        Part::Read(node) => match node.content() {
            Content::Null => builder.null(),
            Content::Bool(value) => builder.bool(value),
            Content::Int(number) => builder.int(number),
            Content::Uint(number) => builder.uint(number),
            Content::Float(number) => builder.float(number),
            Content::Str(text) => text_value(builder, text)?,
            Content::Array(items) => array(builder, items.iter().map(Part::Read))?,
            Content::Object(object) => {
                let members = object.entries().map(|(key, value)| (key, Part::Read(value)));
                self::object(builder, members)?;
            }
        },
        Part::Made(value) => match value {
            Value::Null => builder.null(),
            Value::Bool(value) => builder.bool(*value),
            Value::Number(number) => {
                if let Some(number) = number.as_i64() {
                    builder.int(number);
                } else if let Some(number) = number.as_u64() {
                    builder.uint(number);
                } else {
                    builder.float(number.as_f64().unwrap_or(f64::NAN));
                }
            }
            Value::String(text) => text_value(builder, text)?,
            Value::Array(items) => array(builder, items.iter().map(Part::Made))?,
            Value::Object(fields) => {
                object(builder, fields.iter().map(|(key, value)| (key.as_str(), Part::Made(value))))?;
            }
        },
        Part::Array(items) => array(builder, items.iter().map(Tree::part))?,
        Part::Object(members) => {
            object(builder, members.iter().map(|(key, value)| (&**key, value.part())))?;
        }
    }
    Ok(())
}

fn text_value(builder: &mut Builder<'_>, text: &str) -> Result<(), DocumentError> {
    let word = keep(builder, text)?;
    builder.value(word);
    Ok(())
}

fn array<'a>(builder: &mut Builder<'_>, items: impl Iterator<Item = Part<'a>>) -> Result<(), DocumentError> {
    builder.open(false);
    for item in items {
        write(builder, item)?;
    }
    builder.close();
    Ok(())
}

fn object<'a>(
    builder: &mut Builder<'_>,
    members: impl Iterator<Item = (&'a str, Part<'a>)>,
) -> Result<(), DocumentError> {
    builder.open(true);
    for (key, value) in members {
        let word = keep(builder, key)?;
        builder.key(word);
        write(builder, value)?;
    }
    builder.close();
    Ok(())
}

fn keep(builder: &mut Builder<'_>, text: &str) -> Result<u64, DocumentError> {
    if text.len() > MAX_BYTES - builder.document.kept.len() {
        return Err(DocumentError::TooLarge);
    }
    Ok(builder.keep(text))
}

impl Node<'_> {
    /// The value with everything in it, for those who are going to change it. It recurses as deep as the value
    /// nests.
    pub fn to_value(self) -> Value {
        match self.content() {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(value),
            Content::Int(number) => Value::from(number),
            Content::Uint(number) => Value::from(number),
            Content::Float(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            Content::Str(text) => Value::from(text),
            Content::Array(array) => array.iter().map(Node::to_value).collect(),
            Content::Object(object) => {
                let fields = object.members().map(|(key, value)| (key.to_owned(), value.to_value()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl PartialEq<Value> for Node<'_> {
    /// Equal to the value that [`Node::to_value`] would make of it.
    fn eq(&self, other: &Value) -> bool {
        match (self.content(), other) {
            (Content::Null, Value::Null) => true,
            (Content::Bool(left), Value::Bool(right)) => left == *right,
            (Content::Int(left), Value::Number(right)) => right.as_i64() == Some(left),
            (Content::Uint(left), Value::Number(right)) => right.as_u64() == Some(left),
            (Content::Float(left), Value::Number(right)) => right.is_f64() && right.as_f64() == Some(left),
            (Content::Str(left), Value::String(right)) => left == right,
            (Content::Array(left), Value::Array(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left == *right)
            }
            (Content::Object(left), Value::Object(right)) => {
                left.len() == right.len()
                    && left.members().all(|(key, value)| right.get(key).is_some_and(|other| value == *other))
            }
            _ => false,
        }
    }
}
