//! Runs a plan.
//!
//! Recursion is as deep as plans nest, and is counted, since definitions nest plans in plans. Steps and bytes
//! are counted by the meter.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::activation::Activation;
use crate::error::EvalError;
use crate::functions::{Function, MAX_ARGUMENTS, Outcome};
use crate::meter::Meter;
use crate::plan::{Element, Entry, Field, Node, Operator};
use crate::regexes::{self, Pattern, PatternUse};
use crate::value::{Key, Val};
use crate::{arithmetic, compare, conversions, optionals};

/// Deepest nesting of steps, those of definitions included: in a debug build 2 MiB of stack hold twice as many.
const MAX_DEPTH: usize = 256;

pub(crate) struct Machine<'e, 'a> {
    activation: &'e Activation<'a>,
    /// Variables of the comprehensions under way.
    pub(crate) locals: Vec<Val<'a>>,
    /// Where the locals of the program at hand begin.
    pub(crate) base: usize,
    depth: usize,
}

impl<'e, 'a> Machine<'e, 'a> {
    pub(crate) fn new(activation: &'e Activation<'a>) -> Self {
        Self { activation, locals: Vec::new(), base: 0, depth: 0 }
    }

    pub(crate) fn meter(&self) -> &'e Meter {
        &self.activation.meter
    }

    pub(crate) fn evaluate(&mut self, node: &Node) -> Outcome<'a> {
        if self.depth >= MAX_DEPTH {
            return Err(EvalError::TooDeep);
        }
        self.meter().tick(1)?;
        self.depth += 1;
        let result = self.step(node);
        self.depth -= 1;
        result
    }

    /// Only dispatches: what it would keep on the stack is multiplied by the depth.
    fn step(&mut self, node: &Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(slot) => self.activation.variable(*slot),
            Node::Local(index) => self.local(*index),
            Node::Definition(index) => self.definition(*index),
            Node::Select(operand, field) => self.select(operand, field),
            Node::Has(operand, field) => self.has(operand, field),
            Node::OptionalSelect(operand, field) => self.optional_select(operand, field),
            Node::Index(operands) => self.index(&operands.0, &operands.1),
            Node::OptionalIndex(operands) => self.optional_index(&operands.0, &operands.1),
            Node::And(operands) => self.logical("_&&_", false, &operands.0, &operands.1),
            Node::Or(operands) => self.logical("_||_", true, &operands.0, &operands.1),
            Node::Not(operand) => self.not(operand),
            Node::Negate(operand) => self.negate(operand),
            Node::Conditional(operands) => self.conditional(&operands.0, &operands.1, &operands.2),
            Node::Binary(operator, operands) => self.binary(*operator, &operands.0, &operands.1),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Struct(type_name, fields) => self.structure(type_name, fields),
            Node::Call(function, arguments) => self.call(function, arguments),
            Node::Pattern(usage, pattern, arguments) => self.pattern(*usage, pattern, arguments),
            Node::Comprehension(comprehension) => self.comprehension(comprehension),
            Node::OptionalMap { operand, body, flat } => self.optional_map(operand, body, *flat),
            Node::OptionalOr { operands, value } => self.optional_or(&operands.0, &operands.1, *value),
        }
    }

    fn local(&self, index: usize) -> Outcome<'a> {
        self.locals.get(self.base + index).cloned().ok_or_else(|| EvalError::Unbound(String::new()))
    }

    fn definition(&mut self, index: usize) -> Outcome<'a> {
        if let Some(cached) = self.activation.cached(index) {
            return cached;
        }
        let activation = self.activation;
        let Some(definition) = activation.scope.names.definitions.get(index) else {
            return Err(EvalError::Unbound("variables".to_owned()));
        };
        let (base, length) = (self.base, self.locals.len());
        self.base = length;
        let result = self.evaluate(definition.program.plan());
        self.locals.truncate(length);
        self.base = base;
        activation.cache(index, &result);
        result
    }

    fn select(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        match &value {
            Val::Optional(optional) => optionals::select(optional.as_deref(), field),
            _ => compare::field(&value, field).ok_or_else(|| EvalError::no_such_key(field)),
        }
    }

    /// A field that is null is there; scalars and null have no fields.
    fn has(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        let inner = match &value {
            Val::Optional(None) => return Ok(Val::Bool(false)),
            Val::Optional(Some(optional)) => &optional.value,
            other => other,
        };
        Ok(Val::Bool(compare::field(inner, field).is_some()))
    }

    fn optional_select(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        match self.evaluate(operand)? {
            Val::Optional(optional) => optionals::select(optional.as_deref(), field),
            Val::Null => Ok(Val::Optional(None)),
            value @ (Val::JsonMap(_) | Val::Map(_) | Val::Struct(_)) => match compare::field(&value, field) {
                Some(found) => Val::optional(found),
                None => Ok(Val::Optional(None)),
            },
            other => Err(EvalError::no_such_overload("_?._", &[other])),
        }
    }

    fn index(&mut self, operand: &Node, key: &Node) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        let key = self.evaluate(key)?;
        if let Val::Optional(optional) = &value {
            let Some(optional) = optional else { return Ok(Val::Optional(None)) };
            return optionals::at(&optional.value, &key);
        }
        optionals::find(&value, &key)?.ok_or_else(|| match Key::from_value(&key) {
            Some(key) if value.as_list().is_some() => EvalError::IndexOutOfBounds(key.text()),
            Some(key) => EvalError::no_such_key(&key.text()),
            None => EvalError::no_such_overload("_[_]", &[value.clone(), key.clone()]),
        })
    }

    fn optional_index(&mut self, operand: &Node, key: &Node) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        let key = self.evaluate(key)?;
        match &value {
            Val::Optional(None) | Val::Null => Ok(Val::Optional(None)),
            Val::Optional(Some(optional)) => optionals::at(&optional.value, &key),
            other => optionals::at(other, &key),
        }
    }

    /// `&&` and `||`: an operand that `decides` settles it, whatever the other is, an error included.
    fn logical(&mut self, name: &'static str, decides: bool, left: &Node, right: &Node) -> Outcome<'a> {
        let left = self.truth(name, left);
        match left {
            Ok(value) if value == decides => return Ok(Val::Bool(decides)),
            Err(error) if error.is_limit() => return Err(error),
            _ => {}
        }
        match (left, self.truth(name, right)) {
            (_, Ok(value)) if value == decides => Ok(Val::Bool(decides)),
            (_, Err(error)) if error.is_limit() => Err(error),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Val::Bool(!decides)),
        }
    }

    pub(crate) fn truth(&mut self, name: &'static str, node: &Node) -> Result<bool, EvalError> {
        match self.evaluate(node)? {
            Val::Bool(value) => Ok(value),
            other => Err(EvalError::no_such_overload(name, &[other])),
        }
    }

    fn not(&mut self, operand: &Node) -> Outcome<'a> {
        self.truth("!_", operand).map(|value| Val::Bool(!value))
    }

    fn negate(&mut self, operand: &Node) -> Outcome<'a> {
        arithmetic::negate(&self.evaluate(operand)?)
    }

    fn conditional(&mut self, condition: &Node, yes: &Node, no: &Node) -> Outcome<'a> {
        let chosen = if self.truth("_?_:_", condition)? { yes } else { no };
        self.evaluate(chosen)
    }

    fn binary(&mut self, operator: Operator, left: &Node, right: &Node) -> Outcome<'a> {
        let left = self.evaluate(left)?;
        let right = self.evaluate(right)?;
        let meter = self.meter();
        let holds = match operator {
            Operator::Equal | Operator::NotEqual => {
                if compare::is_incomparable(&left, &right) {
                    return Err(EvalError::no_such_overload(operator.name(), &[left, right]));
                }
                compare::equal(meter, &left, &right)? == (operator == Operator::Equal)
            }
            Operator::Less => {
                compare::order(meter, operator.name(), &left, &right)?.is_some_and(Ordering::is_lt)
            }
            Operator::LessOrEqual => {
                compare::order(meter, operator.name(), &left, &right)?.is_some_and(Ordering::is_le)
            }
            Operator::Greater => {
                compare::order(meter, operator.name(), &left, &right)?.is_some_and(Ordering::is_gt)
            }
            Operator::GreaterOrEqual => {
                compare::order(meter, operator.name(), &left, &right)?.is_some_and(Ordering::is_ge)
            }
            Operator::In => match compare::contains(meter, &left, &right)? {
                Some(holds) => holds,
                None => return Err(EvalError::no_such_overload(operator.name(), &[left, right])),
            },
            Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                return arithmetic::apply(meter, operator, left, right);
            }
        };
        Ok(Val::Bool(holds))
    }

    fn list(&mut self, elements: &[Element]) -> Outcome<'a> {
        self.meter().produce_items(elements.len())?;
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.evaluate(&element.value)?;
            items.extend(present(value, element.optional)?);
        }
        Val::list(items)
    }

    fn map(&mut self, literal: &[Entry]) -> Outcome<'a> {
        self.meter().produce_items(2 * literal.len())?;
        let mut entries = Vec::with_capacity(literal.len());
        for entry in literal {
            let key = self.evaluate(&entry.key)?;
            let value = self.evaluate(&entry.value)?;
            let key = map_key(&key)?;
            entries.extend(present(value, entry.optional)?.map(|value| (key, value)));
        }
        Val::map(entries)
    }

    fn structure(&mut self, type_name: &Arc<str>, literal: &[Field]) -> Outcome<'a> {
        self.meter().produce_items(2 * literal.len())?;
        let mut fields = Vec::with_capacity(literal.len());
        for field in literal {
            let value = self.evaluate(&field.value)?;
            fields.extend(present(value, field.optional)?.map(|value| (Arc::clone(&field.name), value)));
        }
        Val::structure(type_name, fields)
    }

    fn call(&mut self, function: &Function, arguments: &[Node]) -> Outcome<'a> {
        let mut values = [const { Val::Null }; MAX_ARGUMENTS];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = self.evaluate(argument)?;
        }
        (function.body)(self.meter(), values.get(..arguments.len()).unwrap_or_default())
    }

    fn pattern(&mut self, usage: PatternUse, pattern: &Pattern, arguments: &[Node]) -> Outcome<'a> {
        let mut values = [const { Val::Null }; 2];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = self.evaluate(argument)?;
        }
        regexes::apply(self.meter(), usage, pattern, values.get(..arguments.len()).unwrap_or_default())
    }

    fn optional_map(&mut self, operand: &Node, body: &Node, flat: bool) -> Outcome<'a> {
        let name = if flat { "optFlatMap" } else { "optMap" };
        let optional = match self.evaluate(operand)? {
            Val::Optional(Some(optional)) => optional,
            Val::Optional(None) => return Ok(Val::Optional(None)),
            other => return Err(EvalError::no_such_overload(name, &[other])),
        };
        let length = self.locals.len();
        self.locals.push(optional.value.clone());
        let result = self.evaluate(body);
        self.locals.truncate(length);
        match result? {
            value @ Val::Optional(_) if flat => Ok(value),
            other if flat => Err(EvalError::no_such_overload(name, &[other])),
            value => Val::optional(value),
        }
    }

    fn optional_or(&mut self, first: &Node, second: &Node, unwrap: bool) -> Outcome<'a> {
        let name = if unwrap { "orValue" } else { "or" };
        match self.evaluate(first)? {
            Val::Optional(Some(optional)) if unwrap => Ok(optional.value.clone()),
            value @ Val::Optional(Some(_)) => Ok(value),
            Val::Optional(None) => match self.evaluate(second)? {
                value if unwrap => Ok(value),
                value @ Val::Optional(_) => Ok(value),
                other => Err(EvalError::no_such_overload(name, &[other])),
            },
            // As in Kubernetes: what is no optional is there.
            other => Ok(other),
        }
    }
}

/// What an element of a literal contributes: an optional one that is empty, nothing.
fn present(value: Val<'_>, optional: bool) -> Result<Option<Val<'_>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Val::Optional(optional) => Ok(optional.map(|optional| optional.value.clone())),
        other => {
            Err(EvalError::conversion(other.type_name(), "optional_type", &conversions::display(&other)))
        }
    }
}

/// A key of a map that is being made; doubles are refused here although they find the key they equal.
pub(crate) fn map_key<'a>(key: &Val<'a>) -> Result<Key<'a>, EvalError> {
    match Key::from_value(key) {
        Some(found) if !matches!(key, Val::Double(_)) => Ok(found),
        _ => Err(EvalError::invalid("map", format!("unsupported key type: {}", key.type_name()))),
    }
}
