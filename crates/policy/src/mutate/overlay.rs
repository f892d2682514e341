//! Overlays: partial objects with expressions in them.

use sallyport_cel::{Activation, Scope};
use serde_json::{Map, Value};

use crate::error::{DefinitionError, PolicyError};
use crate::expression::compiled::Uses;
use crate::expression::template::Template;
use crate::schema::{List, Relation, Schema};

/// Deepest nesting of an overlay.
const MAX_DEPTH: usize = 64;

/// A compiled overlay.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    fields: Vec<(Name, Node)>,
}

#[derive(Clone, Debug)]
enum Name {
    Literal(String),
    Template(String, Template),
}

#[derive(Clone, Debug)]
enum Node {
    /// Without any expression in it.
    Literal(Value),
    Template(Template),
    List(Vec<Node>),
    Map(Vec<(Name, Node)>),
}

impl Overlay {
    /// Compiles an overlay that stands at `field` for objects of any of these schemas.
    pub(crate) fn compile(
        field: &str,
        overlay: &Map<String, Value>,
        schemas: &[Schema<'_>],
        scope: &Scope,
        uses: &mut Uses,
    ) -> Result<Self, DefinitionError> {
        if overlay.is_empty() {
            return Err(DefinitionError::field(field, "must not be empty"));
        }
        for identity in ["apiVersion", "kind"] {
            if overlay.contains_key(identity) {
                let problem = "must be left out: an overlay takes the kind of the object it is merged into";
                return Err(DefinitionError::field(format!("{field}.{identity}"), problem));
            }
        }
        for schema in schemas {
            check_keys(field, overlay, *schema)?;
        }
        let mut compiler = Compiler { scope, uses };
        Ok(Self { fields: compiler.compile_map(field, overlay, 0)? })
    }

    /// The partial object to merge.
    pub(crate) fn render(&self, activation: &Activation<'_>) -> Result<Map<String, Value>, PolicyError> {
        render_map(&self.fields, activation)
    }
}

struct Compiler<'c> {
    scope: &'c Scope,
    uses: &'c mut Uses,
}

impl Compiler<'_> {
    fn compile_map(
        &mut self,
        field: &str,
        map: &Map<String, Value>,
        depth: usize,
    ) -> Result<Vec<(Name, Node)>, DefinitionError> {
        map.iter()
            .map(|(key, value)| {
                let field = format!("{field}.{key}");
                let name = match Template::compile(&field, key, self.scope, self.uses)? {
                    Some(template) => Name::Template(field.clone(), template),
                    None => Name::Literal(key.clone()),
                };
                Ok((name, self.compile_node(&field, value, depth + 1)?))
            })
            .collect()
    }

    fn compile_node(&mut self, field: &str, value: &Value, depth: usize) -> Result<Node, DefinitionError> {
        if depth > MAX_DEPTH {
            return Err(DefinitionError::field(field, format!("nests deeper than {MAX_DEPTH}")));
        }
        Ok(match value {
            Value::String(text) => match Template::compile(field, text, self.scope, self.uses)? {
                Some(template) => Node::Template(template),
                None => Node::Literal(value.clone()),
            },
            Value::Array(items) => {
                let nodes = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.compile_node(&format!("{field}[{index}]"), item, depth + 1))
                    .collect::<Result<Vec<_>, _>>()?;
                if nodes.iter().all(Node::is_literal) {
                    Node::Literal(value.clone())
                } else {
                    Node::List(nodes)
                }
            }
            Value::Object(map) => {
                let fields = self.compile_map(field, map, depth)?;
                let literal =
                    fields.iter().all(|(name, node)| matches!(name, Name::Literal(_)) && node.is_literal());
                if literal { Node::Literal(value.clone()) } else { Node::Map(fields) }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Node::Literal(value.clone()),
        })
    }
}

impl Node {
    fn is_literal(&self) -> bool {
        matches!(self, Self::Literal(_))
    }

    /// The value; `None` where an absent optional leaves it out.
    fn render(&self, activation: &Activation<'_>) -> Result<Option<Value>, PolicyError> {
        Ok(Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Template(template) => return template.evaluate(activation),
            Self::List(items) => {
                let mut rendered = Vec::with_capacity(items.len());
                for item in items {
                    rendered.extend(item.render(activation)?);
                }
                Value::Array(rendered)
            }
            Self::Map(fields) => Value::Object(render_map(fields, activation)?),
        }))
    }
}

fn render_map(
    fields: &[(Name, Node)],
    activation: &Activation<'_>,
) -> Result<Map<String, Value>, PolicyError> {
    let mut rendered = Map::new();
    for (name, node) in fields {
        let name = match name {
            Name::Literal(name) => name.clone(),
            Name::Template(field, template) => match template.evaluate(activation)? {
                Some(Value::String(name)) => name,
                None => continue,
                Some(_) => {
                    return Err(PolicyError::Type {
                        what: field.clone(),
                        expected: "a string",
                        found: "another type".to_owned(),
                    });
                }
            },
        };
        if let Some(value) = node.render(activation)? {
            rendered.insert(name, value);
        }
    }
    Ok(rendered)
}

/// Refuses entries of list-maps that can never be told apart, as far as they are written out.
fn check_keys(field: &str, overlay: &Map<String, Value>, schema: Schema<'_>) -> Result<(), DefinitionError> {
    for (name, value) in overlay {
        let field = format!("{field}.{name}");
        let Some(schema) = schema.entry(name) else { continue };
        match (schema.list(), value) {
            (_, Value::Object(value)) if schema.map().is_some() => check_keys(&field, value, schema)?,
            (Some(list @ List { relation: Relation::Map(keys), .. }), Value::Array(entries)) => {
                for (index, entry) in entries.iter().enumerate() {
                    let field = format!("{field}[{index}]");
                    let entry = match entry {
                        Value::Object(entry) => entry,
                        Value::String(text) if text.contains("${{") => continue,
                        _ => return Err(DefinitionError::field(field, "must be an object")),
                    };
                    for key in keys.iter().filter(|key| key.meant().is_none()) {
                        if entry.get(&*key.field).is_none_or(Value::is_null)
                            && !entry.keys().any(|name| name.contains("${{"))
                        {
                            let problem = format!("lacks {}, by which the entries are told apart", key.field);
                            return Err(DefinitionError::field(field, problem));
                        }
                    }
                    check_keys(&field, entry, schema.at(list.items))?;
                }
            }
            (
                Some(List { relation: Relation::Map(_) | Relation::Set, .. }),
                Value::Object(_) | Value::Bool(_) | Value::Number(_),
            ) => return Err(DefinitionError::field(field, "must be a list")),
            _ => {}
        }
    }
    Ok(())
}
