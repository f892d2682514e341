//! Whether a partial object is one of its kind: types, keys, and what may be named at all.
//!
//! The API server merges by a schema that tells numbers from texts and no more, then decodes the result into
//! its own types. Both are done here before anything is merged, with its messages. Two things it lets pass
//! are refused: an integer beyond its field, which it cuts off, and a number beyond all integers.

use std::collections::HashSet;

use sallyport_cel::check_quantity;

use crate::error::ConfigurationError;
use crate::mutate::configuration::instant::{self, Precision};
use crate::mutate::configuration::value::{Node, float, quoted};
use crate::schema::{Key, List, Map, Relation, Scalar, Schema};

/// Most problems that are written down.
const MAX_PROBLEMS: usize = 16;

/// Checks the fields of a partial object.
pub(crate) fn check(fields: &Node, schema: Schema<'_>) -> Result<(), ConfigurationError> {
    collect_problems(fields, schema, false).map_err(ConfigurationError::Mistyped)?;
    let mut atomics = Vec::new();
    find_atomics(fields, schema, &mut String::new(), &mut atomics);
    if atomics.is_empty() { Ok(()) } else { Err(ConfigurationError::Atomic(atomics.join(", "))) }
}

/// Checks an object that is to be changed. Keys may repeat, as they may in what clients send.
pub(crate) fn check_original(object: &Node, schema: Schema<'_>) -> Result<(), ConfigurationError> {
    collect_problems(object, schema, true).map_err(ConfigurationError::Original)
}

fn collect_problems(node: &Node, schema: Schema<'_>, repeated: bool) -> Result<(), String> {
    let mut walk = Walk { repeated, path: String::new(), found: Vec::new() };
    walk.check_node(node, schema);
    match walk.found.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("errors:\n  {}", several.join("\n  "))),
    }
}

struct Walk {
    repeated: bool,
    path: String,
    found: Vec<String>,
}

/// The way in which a node is looked at, of those that its type allows.
enum Shape<'s> {
    Scalar(Scalar),
    List(&'s List),
    Map(&'s Map),
    Nothing,
}

/// What a node is as its type has it; where it is none of what is allowed, what is allowed first.
fn shape<'s>(node: &Node, schema: Schema<'s>) -> Shape<'s> {
    match (node, schema.scalar(), schema.list(), schema.map()) {
        (node, Some(scalar), ..) if node.is_scalar() => Shape::Scalar(scalar),
        (Node::List(_), _, Some(list), _) => Shape::List(list),
        (_, _, _, Some(map)) => Shape::Map(map),
        (_, Some(scalar), ..) => Shape::Scalar(scalar),
        (_, _, Some(list), _) => Shape::List(list),
        _ => Shape::Nothing,
    }
}

impl Walk {
    fn add_problem(&mut self, text: &str) {
        if self.found.len() < MAX_PROBLEMS {
            let separator = if self.path.is_empty() { "" } else { ": " };
            self.found.push(format!("{}{separator}{text}", self.path));
        }
    }

    fn check_child(&mut self, element: &str, node: &Node, schema: Schema<'_>) {
        let length = self.path.len();
        self.path.push_str(element);
        self.check_node(node, schema);
        self.path.truncate(length);
    }

    fn check_node(&mut self, node: &Node, schema: Schema<'_>) {
        if *node == Node::Null {
            return;
        }
        match (shape(node, schema), node) {
            (Shape::Scalar(scalar), node) => {
                if let Some(problem) = describe_mistype(scalar, node) {
                    self.add_problem(&problem);
                }
            }
            (Shape::List(list), Node::List(items)) => self.check_list(items, list, schema.at(list.items)),
            (Shape::List(_), other) => {
                self.add_problem(&format!("expected list, got &{{{}}}", other.plain()));
            }
            (Shape::Map(map), Node::Map(fields)) => {
                for (name, node) in fields {
                    let Some(id) = map.entry(name) else {
                        let length = self.path.len();
                        self.path.push('.');
                        self.path.push_str(name);
                        self.add_problem("field not declared in schema");
                        self.path.truncate(length);
                        return;
                    };
                    self.check_child(&format!(".{name}"), node, schema.at(id));
                }
            }
            (Shape::Map(_), other) => self.add_problem(&format!("expected map, got &{{{}}}", other.plain())),
            (Shape::Nothing, _) => self.add_problem("schema error: invalid atom"),
        }
    }

    fn check_list(&mut self, items: &[Node], list: &List, schema: Schema<'_>) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = match identify(item, list) {
                Ok(Some(element)) => element,
                Ok(None) => format!("[{index}]"),
                Err(problem) => return self.add_problem(&format!("element {index}: {problem}")),
            };
            if list.relation != Relation::Atomic && !seen.insert(element.clone()) && !self.repeated {
                self.add_problem(&format!("duplicate entries for key {element}"));
            }
            self.check_child(&element, item, schema);
        }
    }
}

fn describe_mistype(scalar: Scalar, node: &Node) -> Option<String> {
    let number = matches!(node, Node::Int(_) | Node::Float(_));
    match scalar {
        Scalar::Int32 | Scalar::Int64 | Scalar::Number => {
            (!number).then(|| format!("expected numeric (int or float), got {}", node.type_name()))
        }
        Scalar::String | Scalar::Bytes => (!matches!(node, Node::Text(_)))
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", node.literal())),
        Scalar::Boolean => {
            (!matches!(node, Node::Bool(_))).then(|| format!("expected boolean, got &{{{}}}", node.plain()))
        }
        Scalar::Untyped | Scalar::Quantity | Scalar::IntOrString | Scalar::Time | Scalar::MicroTime => {
            (!node.is_scalar()).then(|| format!("expected any scalar, got &{{{}}}", node.plain()))
        }
    }
}

/// What tells an item of a list from the others, as paths show it; `None` if its place does.
pub(crate) fn identify(item: &Node, list: &List) -> Result<Option<String>, String> {
    match &list.relation {
        Relation::Atomic => Ok(None),
        Relation::Set => match item {
            Node::Map(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Node::List(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Node::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            other => Ok(Some(format!("[={}]", show(other)))),
        },
        Relation::Map(keys) => match item {
            Node::Null => Err("associative list with keys may not have a null element".to_owned()),
            Node::Map(fields) => identify_by_keys(fields, keys).map(Some),
            _ => Err("associative list with keys may not have non-map elements".to_owned()),
        },
    }
}

fn identify_by_keys(fields: &[(String, Node)], keys: &[Key]) -> Result<String, String> {
    let mut found: Vec<(&str, String)> = Vec::with_capacity(keys.len());
    for key in keys {
        let own = fields.iter().find(|(name, _)| **name == *key.field).map(|(_, node)| show(node));
        let default =
            || key.default.as_ref().and_then(|default| Node::from_json(default, 0)).map(|it| show(&it));
        found.extend(own.or_else(default).map(|shown| (&*key.field, shown)));
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(|key| quoted(&key.field)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort();
    let pairs: Vec<String> = found.iter().map(|(name, shown)| format!("{name}={shown}")).collect();
    Ok(format!("[{}]", pairs.join(",")))
}

fn show(node: &Node) -> String {
    match node {
        Node::Null => "null".to_owned(),
        Node::Bool(value) => value.to_string(),
        Node::Int(value) => value.to_string(),
        Node::Float(value) => float(*value),
        Node::Text(text) => quoted(text),
        Node::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        Node::Map(fields) => {
            fields.iter().map(|(name, node)| format!("{name}={}", show(node))).collect::<Vec<_>>().concat()
        }
        Node::Foreign(_) => "{{undefined}}".to_owned(),
    }
}

/// Lists and maps that merge as one value. What stands under keys that are not declared is not looked at.
fn find_atomics(node: &Node, schema: Schema<'_>, path: &mut String, found: &mut Vec<String>) {
    let length = path.len();
    match node {
        Node::Map(fields) => {
            let Some(map) = schema.map() else { return };
            if map.atomic {
                found.push(path.clone());
            }
            for (name, node) in fields {
                if let Some(id) = map.field(name) {
                    path.push('.');
                    path.push_str(name);
                    find_atomics(node, schema.at(id), path, found);
                    path.truncate(length);
                }
            }
        }
        Node::List(items) => {
            let Some(list) = schema.list() else { return };
            if list.relation == Relation::Atomic {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                path.push('[');
                path.push_str(&index.to_string());
                path.push(']');
                find_atomics(item, schema.at(list.items), path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Brings a partial object into the form that its built-in kind has: whole numbers are integers. `kind` names
/// it in messages.
pub(crate) fn decode(node: &mut Node, schema: Schema<'_>, kind: &str) -> Result<(), ConfigurationError> {
    decode_node(node, schema)
        .map_err(|problem| ConfigurationError::Undecodable { kind: kind.to_owned(), problem })
}

fn decode_node(node: &mut Node, schema: Schema<'_>) -> Result<(), String> {
    if schema.scalar().is_some_and(|scalar| scalar != Scalar::Untyped)
        && (node.is_scalar() || schema.scalar() == Some(Scalar::IntOrString))
    {
        return schema.scalar().map_or(Ok(()), |scalar| decode_scalar(node, scalar));
    }
    match node {
        Node::Map(fields) => fields.iter_mut().try_for_each(|(name, node)| match schema.entry(name) {
            Some(schema) => decode_node(node, schema),
            None => Ok(()),
        }),
        Node::List(items) => match schema.items() {
            Some(schema) => items.iter_mut().try_for_each(|item| decode_node(item, schema)),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Brings a scalar into the form that a field of this type has.
pub(crate) fn decode_scalar(node: &mut Node, scalar: Scalar) -> Result<(), String> {
    match (scalar, &*node) {
        (Scalar::Int32 | Scalar::Int64, Node::Float(value)) => {
            let bits = if scalar == Scalar::Int32 { "int32" } else { "int64" };
            let whole = to_integer(*value).ok_or_else(|| format!("cannot convert float64 to {bits}"))?;
            *node = Node::Int(whole);
            decode_scalar(node, scalar)
        }
        (Scalar::Int32, Node::Int(value)) if i32::try_from(*value).is_err() => {
            Err(format!("{value} is beyond int32"))
        }
        (Scalar::Quantity, Node::Text(text)) => check_quantity(text).map_err(str::to_owned),
        (Scalar::Quantity, other) => check_quantity(&other.plain()).map_err(str::to_owned),
        (Scalar::IntOrString, Node::Int(value)) if i32::try_from(*value).is_ok() => Ok(()),
        (Scalar::IntOrString, Node::Text(_) | Node::Null) => Ok(()),
        (Scalar::IntOrString, other) => Err(match other {
            Node::Int(_) | Node::Float(_) => {
                format!("json: cannot unmarshal number {} into Go value of type int32", other.plain())
            }
            Node::Bool(_) => "json: cannot unmarshal bool into Go value of type int32".to_owned(),
            Node::List(_) => "json: cannot unmarshal array into Go value of type int32".to_owned(),
            _ => "json: cannot unmarshal object into Go value of type int32".to_owned(),
        }),
        (Scalar::Time | Scalar::MicroTime, Node::Text(text)) => {
            let micro = scalar == Scalar::MicroTime;
            instant::check(text, if micro { Precision::Microseconds } else { Precision::Seconds })
        }
        (Scalar::Time | Scalar::MicroTime, Node::Bool(_)) => {
            Err("json: cannot unmarshal bool into Go value of type string".to_owned())
        }
        (Scalar::Time | Scalar::MicroTime, _) => {
            Err("json: cannot unmarshal number into Go value of type string".to_owned())
        }
        (Scalar::Bytes, Node::Text(text)) => match find_base64_fault(text) {
            Some(at) => Err(format!("error decoding from json: illegal base64 data at input byte {at}")),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The integer that a number is.
fn to_integer(value: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_possible_truncation)] // whole and within range
    (value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value)).then_some(value as i64)
}

/// Where a text stops being standard base64 with padding; line ends do not count.
pub(crate) fn find_base64_fault(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    // How many characters of a group of four have been seen.
    let mut seen = 0;
    while let Some((at, byte)) = bytes.next() {
        match (byte, seen) {
            (b'=', 0 | 1) => return Some(at),
            (b'=', 2) => match bytes.next() {
                None => return Some(text.len()),
                Some((_, b'=')) => return bytes.next().map(|(at, _)| at),
                Some((at, _)) => return Some(at - 1),
            },
            (b'=', _) => return bytes.next().map(|(at, _)| at),
            (byte, _) if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => seen = (seen + 1) % 4,
            _ => return Some(at),
        }
    }
    (seen > 0).then(|| text.len() - seen)
}

#[cfg(test)]
mod tests {
    use super::find_base64_fault;

    #[test]
    fn faults_of_base64_are_where_the_api_server_sees_them() {
        let rows = [
            ("", None),
            ("AAEC", None),
            ("AAE=", None),
            ("AA==", None),
            ("AA\n==", None),
            ("!", Some(0)),
            ("AAE", Some(0)),
            ("AAECAA", Some(4)),
            ("A===", Some(1)),
            ("AA=", Some(3)),
            ("AA=A", Some(2)),
            ("AA==A", Some(4)),
            ("AAE=A", Some(4)),
            ("AA-A", Some(2)),
        ];
        for (text, at) in rows {
            assert_eq!(find_base64_fault(text), at, "{text:?}");
        }
    }
}
