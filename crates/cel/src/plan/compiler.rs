//! From the syntax tree to a plan: names become slots, macros become steps, literal patterns are compiled.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::check::{
    LIMITS, Names, Overload, Overloads, QUALIFIERS, Type, VARIABLES, constant, qualified, type_named,
};
use crate::cost::UNIT;
use crate::library::lists;
use crate::library::{self, Function, MAX_ARGUMENTS, PatternUse};
use crate::meter::Meter;
use crate::plan::node::{Comprehension, Element, Entry, Field, Node};
use crate::plan::price::{self, Price};
use crate::regex::LiteralPatterns;
use crate::syntax::ast::{
    CallExpr, Expr, IdedExpr, Kind, ListExpr, LiteralValue, MapEntry, StructField, operators,
};
use crate::syntax::{Fault, FaultKind};
use crate::value::{Key, Operator, Val};

type Compiled<T = Node> = Result<T, Fault>;

/// Functions that convert one value. Of a constant they are computed at compile time, as in Kubernetes, where
/// their failing is an error then.
const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Compiles a tree that was checked. Gives the plan and the names of the variables it reads, through definitions
/// too.
pub(crate) fn compile(
    tree: &IdedExpr,
    scope: &Names,
    overloads: Overloads,
    patterns: LiteralPatterns,
) -> Compiled<(Node, BTreeSet<Arc<str>>)> {
    let mut compiler = Compiler { scope, overloads, locals: Vec::new(), uses: BTreeSet::new(), patterns };
    let plan = compiler.node(tree)?;
    Ok((plan, compiler.uses))
}

struct Compiler<'s> {
    scope: &'s Names,
    overloads: Overloads,
    /// Variables of the macros around, innermost last.
    locals: Vec<String>,
    uses: BTreeSet<Arc<str>>,
    patterns: LiteralPatterns,
}

impl Compiler<'_> {
    fn node(&mut self, expr: &IdedExpr) -> Compiled {
        match &expr.expr {
            Expr::Literal(literal) => Ok(Node::Constant(constant(literal))),
            Expr::Ident(name) => self.identifier(expr, name),
            Expr::Select(select) => self.select(expr, &select.operand, &select.field, select.test),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => self.list(list),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct(made) => self.structure(expr, &made.type_name, &made.fields),
            Expr::Comprehension(made) => {
                self.loop_with(&made.range, made.kind, &[&made.variable], made.filter.as_ref(), &made.body)
            }
        }
    }

    fn boxed(&mut self, expr: &IdedExpr) -> Compiled<Box<Node>> {
        self.node(expr).map(Box::new)
    }

    /// The one overload that a call has, if the types tell.
    fn overload(&self, expr: &IdedExpr) -> Option<&'static Overload> {
        self.overloads.get(&expr.id).copied()
    }

    fn pair(&mut self, left: &IdedExpr, right: &IdedExpr) -> Compiled<Box<(Node, Node)>> {
        Ok(Box::new((self.node(left)?, self.node(right)?)))
    }

    fn identifier(&mut self, expr: &IdedExpr, name: &str) -> Compiled {
        if let Some(index) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Node::Local(index, UNIT));
        }
        // A leading dot asks for the outermost meaning, past the variables of macros.
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(slot) = self.scope.slot(name) {
            self.uses.insert(name.into());
            return Ok(Node::Variable(slot, UNIT));
        }
        if type_named(name).is_some() {
            return Ok(Node::Constant(Val::Type(name.into())));
        }
        if self.scope.has_patches() && is_patch_type(name) {
            return Err(valueless(expr, name));
        }
        Err(Fault::new(expr, format!("undeclared reference to '{name}' (in container '')")))
    }

    fn is_declared(&self, name: &str) -> bool {
        self.locals.iter().any(|local| local == name) || self.scope.slot(name).is_some()
    }

    fn select(&mut self, expr: &IdedExpr, operand: &IdedExpr, field: &str, test: bool) -> Compiled {
        if let Expr::Ident(name) = &operand.expr
            && name == VARIABLES
            && !self.is_declared(VARIABLES)
        {
            let Some((index, definition)) = self.scope.definition(field) else {
                return Err(Fault::new(expr, format!("undefined field '{field}'")));
            };
            self.uses.extend(definition.uses.iter().cloned());
            return Ok(if test { Node::HasDefinition(index) } else { Node::Definition(index, 2 * UNIT) });
        }
        if !test && let Some(name) = qualified(operand, field, QUALIFIERS) {
            if let Some(slot) = self.scope.slot(&name) {
                self.uses.insert(name.into());
                return Ok(Node::Variable(slot, UNIT));
            }
            if type_named(&name).is_some() {
                return Ok(Node::Constant(Val::Type(name.into())));
            }
            if self.scope.has_patches() && is_patch_type(&name) {
                return Err(valueless(expr, &name));
            }
        }
        let operand = self.node(operand)?.looked_into();
        Ok(if test {
            let conditional = operand.begins_with_conditional();
            let has = Node::Has(Box::new(operand.steps_only()), field.into());
            if conditional { Node::HasOfConditional(Box::new(has)) } else { has }
        } else {
            Node::Select(Box::new(operand), field.into())
        })
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> Compiled {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (None, arguments) => self.global_call(expr, name, arguments),
            (Some(target), arguments) => {
                if let Expr::Ident(namespace) = &target.expr {
                    let qualified = format!("{namespace}.{name}");
                    if library::has_function(&qualified) {
                        return self.function(expr, &qualified, None, arguments);
                    }
                }
                self.member_call(expr, target, name, arguments)
            }
        }
    }

    fn global_call(&mut self, expr: &IdedExpr, name: &str, arguments: &[IdedExpr]) -> Compiled {
        let operator = match name {
            operators::ADD => Operator::Add,
            operators::SUBTRACT => Operator::Subtract,
            operators::MULTIPLY => Operator::Multiply,
            operators::DIVIDE => Operator::Divide,
            operators::MODULO => Operator::Modulo,
            operators::EQUALS => Operator::Equal,
            operators::NOT_EQUALS => Operator::NotEqual,
            operators::LESS => Operator::Less,
            operators::LESS_EQUALS => Operator::LessOrEqual,
            operators::GREATER => Operator::Greater,
            operators::GREATER_EQUALS => Operator::GreaterOrEqual,
            operators::IN => Operator::In,
            _ => return self.special_call(expr, name, arguments),
        };
        match arguments {
            [left, right] => {
                let pair = self.pair(left, right)?;
                Ok(self.binary(expr, operator, pair))
            }
            _ => Err(Fault::new(expr, format!("operator '{name}' takes two operands"))),
        }
    }

    fn binary(&self, expr: &IdedExpr, operator: Operator, pair: Box<(Node, Node)>) -> Node {
        let price = match (Price::of_operator(operator, self.overload(expr)), &pair.1) {
            // Nothing is in it, and nobody looks.
            (Price::Items, Node::Constant(list)) if price::size(list) == 0 => {
                return Node::Constant(Val::Bool(false));
            }
            (Price::Items, Node::Constant(list)) if is_plain(list) => Price::Free,
            (price, _) => price,
        };
        Node::Binary(operator, price, pair)
    }

    fn special_call(&mut self, expr: &IdedExpr, name: &str, arguments: &[IdedExpr]) -> Compiled {
        Ok(match (name, arguments) {
            (operators::LOGICAL_AND, [left, right]) => Node::And(self.pair(left, right)?),
            (operators::LOGICAL_OR, [left, right]) => Node::Or(self.pair(left, right)?),
            (operators::LOGICAL_NOT, [operand]) => Node::Not(self.boxed(operand)?),
            (operators::NEGATE, [operand]) => Node::Negate(self.boxed(operand)?),
            (operators::INDEX, [operand, key]) => Node::Index(self.indexed(operand, key)?),
            (operators::OPT_INDEX, [operand, key]) => Node::OptionalIndex(self.indexed(operand, key)?),
            (operators::OPT_SELECT, [operand, field]) => match &field.expr {
                Expr::Literal(LiteralValue::String(field)) => {
                    Node::OptionalSelect(Box::new(self.node(operand)?.looked_into()), field.as_str().into())
                }
                _ => return Err(Fault::new(field, "unsupported optional field selection")),
            },
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let condition = self.node(condition)?;
                let (yes, no) = (self.node(yes)?.steps_only(), self.node(no)?.steps_only());
                Node::Conditional(Box::new((condition, yes, no)))
            }
            _ => return self.function(expr, name, None, arguments),
        })
    }

    /// A value and what it is indexed with. Constants that no list and no map could have are refused, as in
    /// Kubernetes.
    fn indexed(&mut self, operand: &IdedExpr, key: &IdedExpr) -> Compiled<Box<(Node, Node)>> {
        let pair = Box::new((self.node(operand)?.looked_into(), self.node(key)?.steps_only()));
        match &pair.1 {
            Node::Constant(Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Str(_)) => {
                Ok(pair)
            }
            Node::Constant(value) => {
                Err(Fault::of_constant(key, format!("invalid qualifier type: {}", value.type_name())))
            }
            _ => Ok(pair),
        }
    }

    fn member_call(
        &mut self,
        expr: &IdedExpr,
        target: &IdedExpr,
        name: &str,
        arguments: &[IdedExpr],
    ) -> Compiled {
        match (name, arguments) {
            ("optMap" | "optFlatMap", [variable, body]) => {
                let operand = self.boxed(target)?;
                let variable = variable_name(variable)?;
                let body = Box::new(self.within(&[variable], |compiler| compiler.node(body))?);
                Ok(Node::OptionalMap { operand, body, flat: name == "optFlatMap" })
            }
            ("or" | "orValue", [other]) => {
                Ok(Node::OptionalOr { operands: self.pair(target, other)?, value: name == "orValue" })
            }
            ("sortBy", [variable, key]) => {
                let mut node = self.loop_over(target, Kind::Sorted, &[variable], None, key)?;
                if let Node::Comprehension(sort) = &mut node
                    && self.overload(expr).is_some()
                {
                    sort.price = Price::SelfComparison;
                }
                Ok(node)
            }
            ("all", [first, second, body]) => self.loop_over(target, Kind::All, &[first, second], None, body),
            ("exists", [first, second, body]) => {
                self.loop_over(target, Kind::Exists, &[first, second], None, body)
            }
            ("existsOne" | "exists_one", [first, second, body]) => {
                self.loop_over(target, Kind::ExistsOne, &[first, second], None, body)
            }
            ("transformList" | "transformMap" | "transformMapEntry", [first, second, rest @ .., body])
                if rest.len() <= 1 =>
            {
                let kind = match name {
                    "transformList" => Kind::List,
                    "transformMap" => Kind::Map,
                    _ => Kind::MapEntries,
                };
                self.loop_over(target, kind, &[first, second], rest.first(), body)
            }
            _ => self.function(expr, name, Some(target), arguments),
        }
    }

    /// A call of a function of the table, or of a pattern known now.
    fn function(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Compiled {
        let operands: Vec<&IdedExpr> = target.into_iter().chain(arguments).collect();
        let function = library::find_function(name, target.is_some(), operands.len())
            .map_err(|message| Fault::new(expr, message))?;
        if operands.len() > MAX_ARGUMENTS {
            return Err(Fault::new(expr, format!("'{name}' takes too many arguments")));
        }
        let mut nodes = operands.iter().map(|operand| self.node(operand)).collect::<Compiled<Vec<_>>>()?;
        if let (Some(usage), Some(pattern), Some(Node::Constant(Val::Str(source)))) =
            (PatternUse::of(function.name), operands.get(1), nodes.get(1))
        {
            let compiled = self.patterns.get(source);
            let compiled = compiled.map_err(|error| Fault::of_constant(pattern, error.to_string()))?;
            nodes.remove(1);
            let price = Price::of(name, target.is_some(), None);
            return Ok(Node::Pattern(usage, price, compiled, nodes));
        }
        if let [Node::Constant(value)] = nodes.as_slice()
            && CONVERSIONS.contains(&function.name)
        {
            match (function.body)(&Meter::new(LIMITS), std::slice::from_ref(value)) {
                Ok(converted) => return Ok(Node::Constant(converted)),
                // Too long a constant is converted whenever it is needed.
                Err(error) if error.is_limit() => {}
                Err(error) => return Err(Fault::of_constant(expr, error.to_string())),
            }
        }
        let overload = self.overload(expr);
        let price = Price::of(name, target.is_some(), overload);
        let typed = overload.filter(|_| name == "sum").and_then(|overload| sum_of(&overload.result));
        Ok(Node::Call(typed.unwrap_or(function), price, nodes))
    }

    fn list(&mut self, list: &ListExpr) -> Compiled {
        let mut elements = Vec::with_capacity(list.elements.len());
        for (index, element) in list.elements.iter().enumerate() {
            let optional = list.optional_indices.contains(&index);
            elements.push(Element { value: self.node(element)?, optional });
        }
        // A literal of plain constants is made once, here.
        let constants: Option<Vec<Val<'static>>> = elements
            .iter()
            .map(|element| match &element.value {
                Node::Constant(value) if !element.optional => Some(value.clone()),
                _ => None,
            })
            .collect();
        Ok(match constants.and_then(|items| Val::list(items).ok()) {
            Some(list) => Node::Constant(list),
            None => Node::List(elements),
        })
    }

    fn map(&mut self, literal: &[MapEntry]) -> Compiled {
        let mut entries = Vec::with_capacity(literal.len());
        for entry in literal {
            let (key, value) = (self.node(&entry.key)?, self.node(&entry.value)?);
            entries.push(Entry { key, value, optional: entry.optional });
        }
        // As with lists. What would be an error stays one for the evaluation.
        let constants: Option<Vec<(Key<'static>, Val<'static>)>> = entries
            .iter()
            .map(|entry| match (&entry.key, &entry.value) {
                (Node::Constant(key), Node::Constant(value)) if !entry.optional => {
                    Some((Key::to_insert(key).ok()?, value.clone()))
                }
                _ => None,
            })
            .collect();
        Ok(match constants.and_then(|entries| Val::map(&Meter::new(LIMITS), entries).ok()) {
            Some(map) => Node::Constant(map),
            None => Node::Map(entries),
        })
    }

    /// `Object{…}` with the types below it, and `JSONPatch{…}`.
    fn structure(&mut self, expr: &IdedExpr, type_name: &str, literal: &[StructField]) -> Compiled {
        let type_name = type_name.strip_prefix('.').unwrap_or(type_name);
        let is_patch = type_name == "JSONPatch";
        if !is_patch_type(type_name) {
            return Err(Fault::new(expr, format!("undeclared reference to '{type_name}' (in container '')")));
        }
        let mut fields: Vec<Field> = Vec::with_capacity(literal.len());
        for field in literal {
            let fault = |message| Fault { node: field.id, message, kind: FaultKind::Node };
            if is_patch && !matches!(field.field.as_str(), "op" | "from" | "path" | "value") {
                return Err(fault(format!("undefined field '{}'", field.field)));
            }
            if fields.iter().any(|earlier| *earlier.name == *field.field) {
                return Err(fault(format!("repeated field '{}'", field.field)));
            }
            let value = self.node(&field.value)?;
            fields.push(Field { name: field.field.as_str().into(), value, optional: field.optional });
        }
        Ok(Node::Struct(type_name.into(), fields))
    }

    fn loop_over(
        &mut self,
        range: &IdedExpr,
        kind: Kind,
        variables: &[&IdedExpr],
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
    ) -> Compiled {
        let names = variables.iter().map(|variable| variable_name(variable)).collect::<Compiled<Vec<_>>>()?;
        if let ([first, second], Some(variable)) = (names.as_slice(), variables.get(1))
            && first == second
        {
            return Err(Fault::new(variable, format!("duplicate variable name: {first}")));
        }
        self.loop_with(range, kind, &names, filter, body)
    }

    fn loop_with(
        &mut self,
        range: &IdedExpr,
        kind: Kind,
        variables: &[&str],
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
    ) -> Compiled {
        let range = self.node(range)?;
        let (filter, body) = self.within(variables, |compiler| {
            let filter = filter.map(|filter| compiler.node(filter)).transpose()?;
            Ok((filter, compiler.node(body)?))
        })?;
        let pair = variables.len() == 2;
        Ok(Node::Comprehension(Box::new(Comprehension {
            kind,
            range,
            pair,
            filter,
            body,
            price: Price::Unit,
        })))
    }

    fn within<T>(
        &mut self,
        variables: &[&str],
        compile: impl FnOnce(&mut Self) -> Compiled<T>,
    ) -> Compiled<T> {
        let length = self.locals.len();
        self.locals.extend(variables.iter().map(|&name| name.to_owned()));
        let result = compile(self);
        self.locals.truncate(length);
        result
    }
}

/// `sum` of a list whose items are known to be of another type than `int`.
fn sum_of(items: &Type) -> Option<&'static Function> {
    match items {
        Type::Uint => Some(&lists::SUM_OF_UINTS),
        Type::Double => Some(&lists::SUM_OF_DOUBLES),
        Type::Duration => Some(&lists::SUM_OF_DURATIONS),
        _ => None,
    }
}

/// Whether `in` such a literal list is looked up in a set made beforehand.
fn is_plain(list: &Val<'_>) -> bool {
    list.as_list().is_some_and(|items| {
        items.iter().all(|item| {
            matches!(item, Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Str(_))
        })
    })
}

/// Whether the name is that of a type that mutations make values of.
fn is_patch_type(name: &str) -> bool {
    matches!(name, "JSONPatch" | "Object") || name.starts_with("Object.")
}

/// Types of mutations are not values.
fn valueless(expr: &IdedExpr, name: &str) -> Fault {
    Fault::of_constant(expr, format!("reference to undefined type: {name}"))
}

fn variable_name(expr: &IdedExpr) -> Compiled<&str> {
    match &expr.expr {
        Expr::Ident(name) if !name.starts_with('.') => Ok(name),
        _ => Err(Fault::new(expr, "argument must be a simple name")),
    }
}
