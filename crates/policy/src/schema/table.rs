//! The types of all built-in kinds, read from a table that is made from a real API server (`make schema`).
//!
//! ```text
//! resource GROUP VERSION NAME[/SUBRESOURCE] GROUP VERSION KIND   what a resource's objects are
//! together GROUP NAME GROUP NAME …                               resources that are stored in one place
//! kind GROUP VERSION KIND TYPE
//! type NAME EXPRESSION
//! type NAME {}[RELATION]                                         its fields follow, each on a line that begins
//!  FIELD EXPRESSION                                              with a space
//! ```
//!
//! `-` is the core group. An expression is a scalar, `any`, `untyped`, the name of a type, `[ITEMS]` or
//! `{VALUES}`, each with the way it merges: `[…]` is one value, `[…]=` a set, `[…]KEY,KEY=DEFAULT` a list told
//! apart by keys; `!` makes a map one value, `~` undoes that.

use std::collections::HashMap;

use serde_json::Value;

use crate::request::{GroupVersionKind, GroupVersionResource};
use crate::schema::types::{Key, List, Map, Relation, Scalar, Type, TypeId, Types};

/// The committed table.
pub(super) const TEXT: &str = include_str!("table.txt");
/// Deepest nesting of an expression.
const MAX_DEPTH: usize = 8;

/// What the table says.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) types: Types,
    pub(super) kinds: Vec<(GroupVersionKind, TypeId)>,
    /// With the subresource in the name.
    pub(super) resources: Vec<(GroupVersionResource, GroupVersionKind)>,
    /// Group and name of the resources that are stored in one place.
    pub(super) together: Vec<Vec<(String, String)>>,
}

/// Reads a table; the error is the line that makes no sense.
pub(super) fn parse(text: &str) -> Result<Table, String> {
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.read_line(line).ok_or_else(|| line.to_owned())?;
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    table: Table,
    names: HashMap<String, TypeId>,
    /// Types that differ from a named one in the relation of their map.
    related: HashMap<(TypeId, bool), TypeId>,
    any: Option<(TypeId, TypeId)>,
    scalars: HashMap<&'static str, TypeId>,
    /// The structure whose fields are being read.
    open: Option<(TypeId, Map)>,
}

impl Reader {
    fn read_line(&mut self, line: &str) -> Option<()> {
        if let Some(field) = line.strip_prefix(' ') {
            let (name, expression) = field.split_once(' ')?;
            let id = self.read_expression(expression, 0)?;
            let (_, map) = self.open.as_mut()?;
            map.fields.push((name.into(), id));
            return Some(());
        }
        self.close();
        if line.starts_with('#') {
            return Some(());
        }
        let (word, rest) = line.split_once(' ')?;
        match word {
            "resource" => {
                let [group, version, name, kind_group, kind_version, kind] = split_words(rest)?;
                let resource = GroupVersionResource { group, version, resource: name };
                let kind = GroupVersionKind { group: kind_group, version: kind_version, kind };
                self.table.resources.push((resource, kind));
            }
            "together" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let pairs = words.chunks_exact(2).map(|pair| match pair {
                    [group, name] => Some((undash(group), (*name).to_owned())),
                    _ => None,
                });
                self.table.together.push(pairs.collect::<Option<Vec<_>>>()?);
            }
            "kind" => {
                let [group, version, kind, name] = split_words(rest)?;
                let id = self.reserve_named(&name);
                self.table.kinds.push((GroupVersionKind { group, version, kind }, id));
            }
            "type" => {
                let (name, expression) = rest.split_once(' ')?;
                let id = self.reserve_named(name);
                if let Some(relation) = expression.strip_prefix("{}") {
                    let name = Some(with_package(name).into());
                    self.open = Some((id, Map { name, atomic: parse_relation(relation)?, ..Map::default() }));
                } else {
                    let definition = self.read_definition(expression, 0)?;
                    self.table.types.set(id, definition);
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn close(&mut self) {
        if let Some((id, mut map)) = self.open.take() {
            map.fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            self.table.types.set(id, Type { map: Some(map), ..Type::default() });
        }
    }

    fn finish(mut self) -> Result<Table, String> {
        self.close();
        for ((from, atomic), id) in self.related {
            let mut copy = self.table.types.get(from).cloned().unwrap_or_default();
            if let Some(map) = &mut copy.map {
                map.atomic = atomic;
            }
            self.table.types.set(id, copy);
        }
        match self.names.iter().find(|(_, id)| self.table.types.get(**id) == Some(&Type::default())) {
            Some((name, _)) => Err(format!("the type {name} is not defined")),
            None => Ok(self.table),
        }
    }

    fn reserve_named(&mut self, name: &str) -> TypeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.table.types.reserve();
        self.names.insert(name.to_owned(), id);
        id
    }

    /// The type that an expression refers to or is.
    fn read_expression(&mut self, expression: &str, depth: usize) -> Option<TypeId> {
        if let Some((name, scalar)) = SCALARS.iter().find(|(name, _)| *name == expression) {
            let types = &mut self.table.types;
            let add = || types.add(Type { scalar: Some(*scalar), ..Type::default() });
            return Some(*self.scalars.entry(name).or_insert_with(add));
        }
        if expression.starts_with(['[', '{']) || expression == "intOrString" {
            let definition = self.read_definition(expression, depth)?;
            return Some(self.table.types.add(definition));
        }
        if let "any" | "untyped" = expression {
            let (untyped, any) = self.untyped();
            return Some(if expression == "any" { any } else { untyped });
        }
        let name = expression.trim_end_matches(['!', '~']);
        let id = self.reserve_named(name);
        let relation = expression.get(name.len()..)?;
        if relation.is_empty() {
            return Some(id);
        }
        let key = (id, parse_relation(relation)?);
        if let Some(id) = self.related.get(&key) {
            return Some(*id);
        }
        let copy = self.table.types.reserve();
        self.related.insert(key, copy);
        Some(copy)
    }

    fn read_definition(&mut self, expression: &str, depth: usize) -> Option<Type> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some((_, scalar)) = SCALARS.iter().find(|(name, _)| *name == expression) {
            return Some(Type { scalar: Some(*scalar), ..Type::default() });
        }
        if expression == "intOrString" {
            let (_, any) = self.untyped();
            let any = self.table.types.get(any).cloned()?;
            return Some(Type { scalar: Some(Scalar::IntOrString), ..any });
        }
        if let "any" | "untyped" = expression {
            let id = self.read_expression(expression, depth)?;
            return self.table.types.get(id).cloned();
        }
        if let Some(list) = expression.strip_prefix('[') {
            let (items, relation) = list.rsplit_once(']')?;
            let items = self.read_expression(items, depth + 1)?;
            let relation = match relation {
                "" => Relation::Atomic,
                "=" => Relation::Set,
                keys => Relation::Map(keys.split(',').map(parse_key).collect::<Option<_>>()?),
            };
            return Some(Type { list: Some(List { items, relation }), ..Type::default() });
        }
        let (values, relation) = expression.strip_prefix('{')?.rsplit_once('}')?;
        let others = Some(self.read_expression(values, depth + 1)?);
        let map = Map { others, atomic: parse_relation(relation)?, ..Map::default() };
        Some(Type { map: Some(map), ..Type::default() })
    }

    fn untyped(&mut self) -> (TypeId, TypeId) {
        *self.any.get_or_insert_with(|| self.table.types.add_untyped())
    }
}

const SCALARS: &[(&str, Scalar)] = &[
    ("int32", Scalar::Int32),
    ("int64", Scalar::Int64),
    ("number", Scalar::Number),
    ("string", Scalar::String),
    ("boolean", Scalar::Boolean),
    ("bytes", Scalar::Bytes),
    ("quantity", Scalar::Quantity),
    ("time", Scalar::Time),
    ("microTime", Scalar::MicroTime),
];

fn parse_key(text: &str) -> Option<Key> {
    Some(match text.split_once('=') {
        None => Key { field: text.into(), default: None },
        Some((field, default)) => {
            let default: Value = serde_json::from_str(default).ok()?;
            Key { field: field.into(), default: Some(default) }
        }
    })
}

fn parse_relation(relation: &str) -> Option<bool> {
    match relation {
        "" | "~" => Some(false),
        "!" => Some(true),
        _ => None,
    }
}

/// The last two parts of a type's name.
fn with_package(name: &str) -> &str {
    name.rmatch_indices('.').nth(1).and_then(|(dot, _)| name.get(dot + 1..)).unwrap_or(name)
}

fn split_words<const N: usize>(text: &str) -> Option<[String; N]> {
    let words: Vec<String> = text.split(' ').map(undash).collect();
    words.try_into().ok()
}

fn undash(word: &str) -> String {
    if word == "-" { String::new() } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{TEXT, parse};

    /// Without it no kind would have a schema, so that it must never be committed broken.
    #[test]
    fn the_committed_table_is_whole() {
        let table = parse(TEXT).unwrap();
        assert!(table.kinds.len() > 60, "{}", table.kinds.len());
        assert!(table.resources.len() > 130, "{}", table.resources.len());
        assert!(table.types.len() > 1000, "{}", table.types.len());
        assert!(TEXT.len() < 300_000, "{}", TEXT.len());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let rows = [
            ("type a [string", "type a [string"),
            ("type a {}?", "type a {}?"),
            (" field string", " field string"),
            ("kind - v1 Pod", "kind - v1 Pod"),
            ("kind - v1 Pod core.v1.Pod", "the type core.v1.Pod is not defined"),
            ("type a [string]k=", "type a [string]k="),
        ];
        for (text, error) in rows {
            assert_eq!(parse(text).unwrap_err(), error);
        }
    }
}
