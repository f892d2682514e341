//! Which overload a call has, as far as its cost depends on it.
//!
//! The API server's type checker settles on an overload when only one fits the types that it knows; what an
//! object holds it does not know. Where it settles on one that goes through a text or a list, the call costs
//! accordingly, else one. So the types are followed here, only as far as these calls need it and without
//! refusing anything.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use crate::scope::Scope;

/// An overload that costs more than the others of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overload {
    /// Of strings or bytes.
    Text,
    /// Of a list, `in` such a one.
    List,
    /// Of a list whose items have an order.
    Ordered,
}

/// What is known of a value's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Null,
    List(Box<Known>),
    Map(Box<Known>, Box<Known>),
    Optional(Box<Known>),
    /// Anything else, of which nothing depends.
    Other,
}

impl Known {
    fn list(item: Known) -> Self {
        Self::List(Box::new(item))
    }

    fn optional(value: Known) -> Self {
        Self::Optional(Box::new(value))
    }

    fn item(&self) -> Self {
        match self {
            Self::List(item) => (**item).clone(),
            _ => Self::Dyn,
        }
    }

    /// What stands at an index, under a key or a name.
    fn member(&self) -> Self {
        match self {
            Self::List(value) | Self::Map(_, value) => (**value).clone(),
            Self::Optional(inner) => match inner.member() {
                found @ Self::Optional(_) => found,
                found => Self::optional(found),
            },
            _ => Self::Dyn,
        }
    }

    fn value(&self) -> Self {
        match self {
            Self::Optional(value) => (**value).clone(),
            _ => Self::Dyn,
        }
    }

    /// The type of one or the other.
    fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::Dyn }
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::String | Self::Bytes)
    }

    fn has_order(&self) -> bool {
        matches!(
            self,
            Self::Bool
                | Self::Int
                | Self::Uint
                | Self::Double
                | Self::String
                | Self::Bytes
                | Self::Duration
                | Self::Timestamp
        )
    }
}

/// The overloads of a tree's calls, by the calls' numbers, and the type of the whole.
#[derive(Debug)]
pub(crate) struct Overloads {
    found: HashMap<u64, Overload>,
    pub(crate) result: Known,
}

impl Overloads {
    pub(crate) fn of(tree: &IdedExpr, scope: &Scope) -> Self {
        let mut reader = Reader { scope, locals: Vec::new(), found: HashMap::new() };
        let result = reader.node(tree);
        Self { found: reader.found, result }
    }

    pub(crate) fn get(&self, call: &IdedExpr) -> Option<Overload> {
        self.found.get(&call.id).copied()
    }
}

/// Goes through the tree once. Its depth is bounded by that of the tree.
struct Reader<'s, 't> {
    scope: &'s Scope,
    locals: Vec<(&'t str, Known)>,
    found: HashMap<u64, Overload>,
}

impl<'t> Reader<'_, 't> {
    fn node(&mut self, expr: &'t IdedExpr) -> Known {
        match &expr.expr {
            Expr::Unspecified => Known::Dyn,
            Expr::Literal(literal) => match literal {
                LiteralValue::Null => Known::Null,
                LiteralValue::Boolean(_) => Known::Bool,
                LiteralValue::Int(_) => Known::Int,
                LiteralValue::UInt(_) => Known::Uint,
                LiteralValue::Double(_) => Known::Double,
                LiteralValue::String(_) => Known::String,
                LiteralValue::Bytes(_) => Known::Bytes,
            },
            Expr::Ident(name) => {
                let local = self.locals.iter().rfind(|(local, _)| local == name);
                local.map_or(Known::Dyn, |(_, known)| known.clone())
            }
            Expr::Select(select) => {
                if let Expr::Ident(name) = &select.operand.expr
                    && name == "variables"
                    && let Some((_, definition)) = self.scope.definition(&select.field)
                {
                    let known = definition.program.result().clone();
                    return if select.test { Known::Bool } else { known };
                }
                let operand = self.node(&select.operand);
                if select.test { Known::Bool } else { operand.member() }
            }
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => {
                let items: Vec<Known> = list.elements.iter().map(|element| self.node(element)).collect();
                let item = items.into_iter().enumerate().map(|(index, item)| {
                    if list.optional_indices.contains(&index) { item.value() } else { item }
                });
                Known::list(item.reduce(Known::or).unwrap_or(Known::Dyn))
            }
            Expr::Map(map) => {
                let mut types: Option<(Known, Known)> = None;
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let (key, value) = (self.node(&entry.key), self.node(&entry.value));
                    let value = if entry.optional { value.value() } else { value };
                    types = Some(match types {
                        Some((keys, values)) => (keys.or(key), values.or(value)),
                        None => (key, value),
                    });
                }
                let (key, value) = types.unwrap_or((Known::Dyn, Known::Dyn));
                Known::Map(Box::new(key), Box::new(value))
            }
            Expr::Struct(made) => {
                for entry in &made.entries {
                    if let EntryExpr::StructField(field) = &entry.expr {
                        self.node(&field.value);
                    }
                }
                Known::Other
            }
            Expr::Comprehension(all) => {
                let range = self.node(&all.iter_range);
                let start = self.node(&all.accu_init);
                let variable = match &range {
                    Known::Map(key, _) => (**key).clone(),
                    range => range.item(),
                };
                self.locals.push((&all.iter_var, variable));
                // What is gathered; in `map` and `filter` its type is that of what is added.
                self.locals.push((&all.accu_var, Known::Dyn));
                self.node(&all.loop_cond);
                let step = match (&all.loop_step.expr, &start) {
                    (Expr::Call(call), Known::List(_)) => self.added(call),
                    _ => {
                        self.node(&all.loop_step);
                        None
                    }
                };
                self.locals.truncate(self.locals.len() - 2);
                match start {
                    Known::List(_) => step.unwrap_or_else(|| Known::list(Known::Dyn)),
                    Known::Int => Known::Bool,
                    other => other,
                }
            }
        }
    }

    /// The type of the list that a step of `map` or `filter` adds. Nothing is gone through twice.
    fn added(&mut self, step: &'t CallExpr) -> Option<Known> {
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::ADD, arguments) => self.last_of(arguments),
            (operators::CONDITIONAL, [filter, add, _]) => {
                self.node(filter);
                match &add.expr {
                    Expr::Call(add) => self.last_of(&add.args),
                    _ => None,
                }
            }
            (_, arguments) => {
                self.last_of(arguments);
                None
            }
        }
    }

    fn last_of(&mut self, nodes: &'t [IdedExpr]) -> Option<Known> {
        nodes.iter().map(|node| self.node(node)).last()
    }

    fn within(&mut self, variables: &[(&'t IdedExpr, Known)], bodies: &'t [IdedExpr]) -> Known {
        let length = self.locals.len();
        for (variable, known) in variables {
            if let Expr::Ident(name) = &variable.expr {
                self.locals.push((name, known.clone()));
            }
        }
        let known = self.last_of(bodies).unwrap_or(Known::Dyn);
        self.locals.truncate(length);
        known
    }

    fn call(&mut self, expr: &'t IdedExpr, call: &'t CallExpr) -> Known {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target {
            if let Some(known) = self.macro_call(expr, target, name, &call.args) {
                return known;
            }
            // A library's name is no value.
            let qualified = match &target.expr {
                Expr::Ident(library) if !self.locals.iter().any(|(local, _)| local == library) => {
                    matches!(library.as_str(), "lists" | "sets" | "strings" | "optional" | "format" | "ip")
                        .then(|| format!("{library}.{name}"))
                }
                _ => None,
            };
            let receiver = if qualified.is_some() { None } else { Some(self.node(target)) };
            let arguments: Vec<Known> = call.args.iter().map(|argument| self.node(argument)).collect();
            let operands: Vec<Known> = receiver.into_iter().chain(arguments).collect();
            return self.function(expr, qualified.as_deref().unwrap_or(name), true, &operands);
        }
        let operands: Vec<Known> = call.args.iter().map(|argument| self.node(argument)).collect();
        self.function(expr, name, false, &operands)
    }

    /// The macros that the parser leaves as calls.
    fn macro_call(
        &mut self,
        expr: &'t IdedExpr,
        target: &'t IdedExpr,
        name: &str,
        arguments: &'t [IdedExpr],
    ) -> Option<Known> {
        Some(match (name, arguments) {
            ("optMap" | "optFlatMap", [variable, _]) => {
                let value = self.node(target).value();
                let body = self.within(&[(variable, value)], arguments.get(1..)?);
                if name == "optMap" { Known::optional(body) } else { body }
            }
            ("sortBy", [variable, _]) => {
                let list = self.node(target);
                let key = self.within(&[(variable, list.item())], arguments.get(1..)?);
                if key.has_order() {
                    self.found.insert(expr.id, Overload::Ordered);
                }
                list
            }
            ("all" | "exists" | "existsOne" | "exists_one", [first, second, _])
            | (
                "transformList" | "transformMap" | "transformMapEntry",
                [first, second, _] | [first, second, _, _],
            ) => {
                let range = self.node(target);
                let (key, value) = match range {
                    Known::List(item) => (Known::Int, *item),
                    Known::Map(key, value) => (*key, *value),
                    _ => (Known::Dyn, Known::Dyn),
                };
                let body = self.within(&[(first, key.clone()), (second, value)], arguments.get(2..)?);
                match name {
                    "transformList" => Known::list(body),
                    "transformMap" => Known::Map(Box::new(key), Box::new(body)),
                    "transformMapEntry" => body,
                    _ => Known::Bool,
                }
            }
            _ => return None,
        })
    }

    /// Notes the overload of a call and gives its type.
    fn function(&mut self, expr: &IdedExpr, name: &str, member: bool, operands: &[Known]) -> Known {
        if let Some(overload) = overload(name, operands) {
            self.found.insert(expr.id, overload);
        }
        result(name, member, operands)
    }
}

/// The overload that the types of the operands leave, if it is one that costs.
fn overload(name: &str, operands: &[Known]) -> Option<Overload> {
    match (name, operands) {
        (
            operators::ADD
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            [left, right],
        ) => (left.is_text() || right.is_text()).then_some(Overload::Text),
        (operators::IN, [_, Known::List(_)]) => Some(Overload::List),
        ("string", [Known::Bytes]) | ("bytes", [Known::String]) => Some(Overload::Text),
        ("containsIP" | "containsCIDR", [_, Known::String]) => Some(Overload::Text),
        ("indexOf" | "lastIndexOf", [Known::String, ..]) => Some(Overload::Text),
        ("indexOf" | "lastIndexOf", [Known::List(_), ..]) => Some(Overload::List),
        ("sort", [list]) if list.item().has_order() => Some(Overload::Ordered),
        _ => None,
    }
}

/// The type of what a function gives, where it may matter to another.
fn result(name: &str, member: bool, operands: &[Known]) -> Known {
    let first = operands.first().unwrap_or(&Known::Dyn);
    let known = |index: usize| operands.get(index).cloned().unwrap_or(Known::Dyn);
    match name {
        operators::ADD => match (first, &known(1)) {
            (Known::Timestamp, _) | (_, Known::Timestamp) => Known::Timestamp,
            (Known::List(left), Known::List(right)) => {
                Known::list(left.as_ref().clone().or(right.as_ref().clone()))
            }
            (Known::Dyn, other) | (other, _) => other.clone(),
        },
        operators::SUBSTRACT => match (first, &known(1)) {
            (Known::Timestamp, Known::Timestamp) => Known::Duration,
            (Known::Dyn, other) if *other != Known::Duration && *other != Known::Timestamp => other.clone(),
            (first, _) => first.clone(),
        },
        operators::MULTIPLY | operators::DIVIDE | operators::MODULO => match first {
            Known::Dyn => known(1),
            first => first.clone(),
        },
        operators::NEGATE => first.clone(),
        operators::CONDITIONAL => known(1).or(known(2)),
        operators::INDEX => first.member(),
        operators::OPT_SELECT | operators::OPT_INDEX => match first.member() {
            found @ Known::Optional(_) => found,
            found => Known::optional(found),
        },
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::IN
        | operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | "bool"
        | "contains"
        | "startsWith"
        | "endsWith"
        | "matches"
        | "hasValue"
        | "isSorted" => Known::Bool,
        "string"
        | "lowerAscii"
        | "upperAscii"
        | "trim"
        | "replace"
        | "substring"
        | "charAt"
        | "join"
        | "format"
        | "find"
        | "strings.quote"
        | "jsonpatch.escapeKey"
        | "getScheme"
        | "getHost"
        | "getHostname"
        | "getPort"
        | "getEscapedPath"
        | "reason"
        | "error" => Known::String,
        "bytes" => Known::Bytes,
        "double" | "asApproximateFloat" => Known::Double,
        "uint" => Known::Uint,
        "duration" => Known::Duration,
        "timestamp" => Known::Timestamp,
        "size" | "int" | "indexOf" | "lastIndexOf" | "prefixLength" | "asInteger" | "family"
        | "compareTo" | "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek"
        | "getDayOfYear" | "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" | "sign"
        | "major" | "minor" | "patch" => Known::Int,
        "split" | "findAll" => Known::list(Known::String),
        "slice" | "sort" | "reverse" | "distinct" => first.clone(),
        "flatten" if operands.len() == 1 => match first.item() {
            inner @ Known::List(_) => inner,
            _ => Known::list(Known::Dyn),
        },
        "flatten" => Known::list(Known::Dyn),
        "lists.range" => Known::list(Known::Int),
        "sum" | "min" | "max" if member => first.item(),
        "first" | "last" => Known::optional(first.item()),
        "optional.of" | "optional.ofNonZeroValue" => Known::optional(first.clone()),
        "optional.none" => Known::optional(Known::Dyn),
        "value" => first.value(),
        "or" => first.clone(),
        "orValue" => first.value().or(known(1)),
        "unwrapOpt" | "optional.unwrap" => Known::list(first.item().value()),
        "validate" => Known::optional(Known::list(Known::String)),
        "getQuery" => Known::Map(Box::new(Known::String), Box::new(Known::list(Known::String))),
        "dyn" => Known::Dyn,
        _ => Known::Other,
    }
}
