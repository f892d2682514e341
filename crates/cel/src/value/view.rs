//! Values laid open, for those who have to tell what an expression made from what it took out of an object.

use sallyport_document::{Array, Object};

use crate::value::temporal;
use crate::value::{Val, Value};

/// What a value is. Lists and maps that come from an object are apart from those that an expression made.
#[derive(Debug)]
pub enum View<'v, 'a> {
    /// `null`
    Null,
    /// A `bool`.
    Bool(bool),
    /// An `int`.
    Int(i64),
    /// A `uint`.
    Uint(u64),
    /// A `double`, maybe not finite.
    Double(f64),
    /// A `string`.
    Str(&'v str),
    /// `bytes`
    Bytes(&'v [u8]),
    /// Nanoseconds.
    Duration(i64),
    /// A timestamp as text (RFC 3339).
    Timestamp(String),
    /// A list of an object.
    JsonList(Array<'a>),
    /// A map of an object.
    JsonMap(Object<'a>),
    /// A list that the expression made.
    List(Vec<Value<'a>>),
    /// A map that the expression made, in the order of its keys.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// `Object{…}` and the types below it: the name of the type, and the fields as they were written.
    Struct(&'v str, Vec<(&'v str, Value<'a>)>),
    /// What an optional holds.
    Optional(Option<Value<'a>>),
    /// The name of a type.
    Type(&'v str),
    /// A value of one of Kubernetes' libraries; the name of its type.
    Opaque(&'static str),
}

impl<'a> Value<'a> {
    /// The value laid open, one level deep.
    pub fn view(&self) -> View<'_, 'a> {
        match &self.0 {
            Val::Null => View::Null,
            Val::Bool(value) => View::Bool(*value),
            Val::Int(value) => View::Int(*value),
            Val::Uint(value) => View::Uint(*value),
            Val::Double(value) => View::Double(*value),
            Val::Str(text) => View::Str(text),
            Val::Bytes(bytes) => View::Bytes(bytes),
            Val::Duration(nanoseconds) => View::Duration(*nanoseconds),
            Val::Timestamp(instant) => View::Timestamp(temporal::timestamp_text(instant).unwrap_or_default()),
            Val::JsonList(items) => View::JsonList(*items),
            Val::JsonMap(map) => View::JsonMap(*map),
            Val::List(list) => View::List(list.items.iter().cloned().map(Value).collect()),
            Val::Map(map) => {
                let entries = map.entries.iter();
                View::Map(entries.map(|(key, value)| (Value(key.to_value()), Value(value.clone()))).collect())
            }
            Val::Struct(made) => {
                let fields = made.fields.iter();
                View::Struct(
                    &made.type_name,
                    fields.map(|(name, value)| (&**name, Value(value.clone()))).collect(),
                )
            }
            Val::Optional(held) => View::Optional(held.as_ref().map(|held| Value(held.value.clone()))),
            Val::Type(name) => View::Type(name),
            Val::Quantity(_)
            | Val::Version(_)
            | Val::Url(_)
            | Val::Ip(_)
            | Val::Cidr(_)
            | Val::Format(_)
            | Val::Authorization(_) => View::Opaque(self.0.type_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sallyport_document::Document;
    use serde_json::json;

    use crate::{Activation, Limits, Program, Scope, Value};

    #[test]
    fn what_was_made_is_told_from_what_was_taken() {
        let object = Document::of(&json!({"list": [1], "map": {"a": 1}})).unwrap();
        let rows = [
            ("null", "Null"),
            ("object.list", "JsonList([1])"),
            ("object.list + [2]", "List([Value(Int(1)), Value(Int(2))])"),
            ("object.map", "JsonMap({\"a\": 1})"),
            ("{'a': 1u}", "Map([(Value(Str(Borrowed(\"a\"))), Value(Uint(1)))])"),
            ("optional.of(true)", "Optional(Some(Value(Bool(true))))"),
            ("optional.none()", "Optional(None)"),
            ("type(1)", "Type(\"int\")"),
            ("duration('1s')", "Duration(1000000000)"),
            ("quantity('1')", "Opaque(\"kubernetes.Quantity\")"),
        ];
        for (source, expected) in rows {
            let scope = Scope::new(&["object"]);
            let program = Program::compile(source, &scope).unwrap();
            let mut activation = Activation::new(&scope, Limits::default());
            activation.bind("object", Value::from(&object));
            let value = program.evaluate(&activation).unwrap();
            assert_eq!(format!("{:?}", value.view()).replace("Shared", "Borrowed"), expected, "{source}");
        }
    }
}
