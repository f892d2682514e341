//! Runs a plan.
//!
//! Recursion is as deep as plans nest, and is counted, since definitions nest plans in plans. Steps and bytes
//! are counted by the meter.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::activation::Activation;
use crate::cost::{self, Price, UNIT};
use crate::error::EvalError;
use crate::functions::{Function, MAX_ARGUMENTS, Outcome};
use crate::meter::Meter;
use crate::plan::{Element, Entry, Field, Node, Operator};
use crate::regexes::{self, Pattern, PatternUse};
use crate::scope::Slot;
use crate::value::{Key, Val};
use crate::{arithmetic, compare, optionals};

/// Deepest nesting of steps, those of definitions included: in a debug build 2 MiB of stack hold twice as many.
const MAX_DEPTH: usize = 256;

pub(crate) struct Machine<'e, 'a> {
    activation: &'e Activation<'a>,
    /// Variables of the comprehensions under way.
    pub(crate) locals: Vec<Val<'a>>,
    /// Where the locals of the program at hand begin.
    first_local: usize,
    depth: usize,
    deferred: Vec<Deferred>,
    /// What deferred costs of locals that are still there have come to.
    deferred_cost: u64,
}

/// What the first use of a local costs.
struct Deferred {
    local: usize,
    cost: u64,
}

impl<'e, 'a> Machine<'e, 'a> {
    pub(crate) fn new(activation: &'e Activation<'a>) -> Self {
        Self {
            activation,
            locals: Vec::new(),
            first_local: 0,
            depth: 0,
            deferred: Vec::new(),
            deferred_cost: 0,
        }
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
            Node::Variable(slot, cost) => self.variable(*slot, *cost),
            Node::Local(index, cost) => self.local(*index, *cost),
            Node::Definition(index, cost) => self.definition(*index, *cost),
            Node::HasDefinition(index) => self.has_definition(*index),
            Node::Base(value) => self.base(value),
            Node::Select(operand, field) => self.select(operand, field),
            Node::Has(operand, field) => self.has(operand, field),
            Node::HasOfConditional(has) => self.has_of_conditional(has),
            Node::OptionalSelect(operand, field) => self.optional_select(operand, field),
            Node::Index(operands) => self.index(&operands.0, &operands.1),
            Node::OptionalIndex(operands) => self.optional_index(&operands.0, &operands.1),
            Node::And(operands) => self.logical("_&&_", false, &operands.0, &operands.1),
            Node::Or(operands) => self.logical("_||_", true, &operands.0, &operands.1),
            Node::Not(operand) => self.not(operand),
            Node::Negate(operand) => self.negate(operand),
            Node::Conditional(operands) => self.conditional(&operands.0, &operands.1, &operands.2),
            Node::Binary(operator, price, operands) => self.binary(*operator, *price, operands),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Struct(type_name, fields) => self.structure(type_name, fields),
            Node::Call(function, price, arguments) => self.call(function, *price, arguments),
            Node::Pattern(usage, price, pattern, arguments) => {
                self.pattern(*usage, *price, pattern, arguments)
            }
            Node::Comprehension(comprehension) => self.comprehension(comprehension),
            Node::OptionalMap { operand, body, flat } => self.optional_map(operand, body, *flat),
            Node::OptionalOr { operands, value } => self.optional_or(&operands.0, &operands.1, *value),
        }
    }

    fn charge(&self, cost: u64) -> Result<(), EvalError> {
        self.activation.meter.charge(cost)
    }

    fn variable(&self, slot: Slot, cost: u64) -> Outcome<'a> {
        self.charge(cost)?;
        self.activation.variable(slot)
    }

    fn local(&mut self, index: usize, cost: u64) -> Outcome<'a> {
        let index = self.first_local + index;
        if !self.deferred.is_empty() {
            self.pay_deferred(index)?;
        }
        self.charge(cost)?;
        self.locals.get(index).cloned().ok_or_else(|| EvalError::Unbound(String::new()))
    }

    /// Counts what a local costs when it is first used.
    #[cold]
    fn pay_deferred(&mut self, index: usize) -> Result<(), EvalError> {
        let Some(found) = self.deferred.iter().position(|deferred| deferred.local == index) else {
            return Ok(());
        };
        let cost = self.deferred.swap_remove(found).cost;
        self.deferred_cost = self.deferred_cost.saturating_add(cost);
        self.charge(cost)
    }

    fn definition(&mut self, index: usize, cost: u64) -> Outcome<'a> {
        self.charge(cost)?;
        if let Some(cached) = self.activation.cached(index) {
            return cached;
        }
        let activation = self.activation;
        let Some(definition) = activation.scope.names.definitions.get(index) else {
            return Err(EvalError::Unbound("variables".to_owned()));
        };
        let (first_local, length) = (self.first_local, self.locals.len());
        self.first_local = length;
        let result = activation.meter.apart(|| self.evaluate(definition.program.plan()));
        self.locals.truncate(length);
        self.first_local = first_local;
        let result = result.map_err(|source| EvalError::Definition {
            name: Arc::clone(&definition.name),
            source: Arc::new(source),
        });
        activation.cache(index, &result);
        result
    }

    /// It is there, but for that it is evaluated.
    fn has_definition(&mut self, index: usize) -> Outcome<'a> {
        self.definition(index, UNIT).map(|_| Val::Bool(true))
    }

    /// Costs one more, whether there is a value or not.
    fn base(&mut self, value: &Node) -> Outcome<'a> {
        let value = self.evaluate(value);
        self.charge(UNIT)?;
        value
    }

    fn select(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        if let Val::Optional(optional) = &value {
            let found = optionals::select(optional.as_deref(), field)?;
            self.charge_found(&found)?;
            return Ok(found);
        }
        self.charge(UNIT)?;
        optionals::field(&value, field)?.ok_or_else(|| EvalError::no_such_key(field))
    }

    /// A step of an optional chain costs only when it leads somewhere.
    fn charge_found(&self, found: &Val<'a>) -> Result<(), EvalError> {
        match found {
            Val::Optional(None) => Ok(()),
            _ => self.charge(UNIT),
        }
    }

    /// A field that is null is there; scalars and null have no fields, lists are not asked for any.
    fn has(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        let found = match &value {
            Val::Optional(None) => return Ok(Val::Bool(false)),
            Val::Optional(Some(optional)) => {
                let found = optionals::field(&optional.value, field)?.is_some();
                self.charge(if found { UNIT } else { 0 })?;
                found
            }
            other => {
                self.charge(UNIT)?;
                optionals::field(other, field)?.is_some()
            }
        };
        Ok(Val::Bool(found))
    }

    fn has_of_conditional(&mut self, has: &Node) -> Outcome<'a> {
        let value = self.evaluate(has);
        self.meter().refund(UNIT);
        value
    }

    fn optional_select(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        let found = match self.evaluate(operand)? {
            Val::Optional(optional) => optionals::select(optional.as_deref(), field)?,
            value => match optionals::field(&value, field)? {
                Some(found) => Val::optional(found)?,
                None => Val::Optional(None),
            },
        };
        self.charge_found(&found)?;
        Ok(found)
    }

    fn index(&mut self, operand: &Node, key: &Node) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        if let Val::Optional(optional) = &value {
            // Nobody asks for the key when there is nothing to look into.
            let Some(optional) = optional else { return Ok(Val::Optional(None)) };
            let key = self.evaluate(key)?;
            let found = optionals::at(&optional.value, &key)?;
            self.charge_found(&found)?;
            return Ok(found);
        }
        let key = self.evaluate(key);
        self.charge(UNIT)?;
        let key = key?;
        optionals::find(&value, &key)?.ok_or_else(|| match Key::from_value(&key) {
            Some(key) if value.as_list().is_some() => EvalError::IndexOutOfBounds(key.text()),
            Some(key) => EvalError::no_such_key(&key.text()),
            None => EvalError::no_such_overload("_[_]", &[value.clone(), key.clone()]),
        })
    }

    fn optional_index(&mut self, operand: &Node, key: &Node) -> Outcome<'a> {
        let value = self.evaluate(operand)?;
        if matches!(value, Val::Optional(None)) {
            return Ok(value);
        }
        let key = self.evaluate(key)?;
        let found = match &value {
            Val::Null => Val::Optional(None),
            Val::Optional(Some(optional)) => optionals::at(&optional.value, &key)?,
            other => optionals::at(other, &key)?,
        };
        self.charge_found(&found)?;
        Ok(found)
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
        let value = self.truth("!_", operand);
        self.charge(UNIT)?;
        value.map(|value| Val::Bool(!value))
    }

    fn negate(&mut self, operand: &Node) -> Outcome<'a> {
        let value = self.evaluate(operand);
        self.charge(UNIT)?;
        arithmetic::negate(&value?)
    }

    fn conditional(&mut self, condition: &Node, yes: &Node, no: &Node) -> Outcome<'a> {
        let chosen = if self.truth("_?_:_", condition)? { yes } else { no };
        self.evaluate(chosen)
    }

    /// Both operands are evaluated, even when the first fails: that shows in the cost.
    fn binary(&mut self, operator: Operator, price: Price, operands: &(Node, Node)) -> Outcome<'a> {
        let left = match self.evaluate(&operands.0) {
            Ok(left) => left,
            Err(error) => return self.binary_failed(price, error, &operands.1),
        };
        let right = match self.evaluate(&operands.1) {
            Ok(right) => right,
            Err(error) => {
                price.charge_pair(self.meter(), &left, &Val::Null)?;
                return Err(error);
            }
        };
        price.charge_pair(self.meter(), &left, &right)?;
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

    #[cold]
    fn binary_failed(&mut self, price: Price, error: EvalError, right: &Node) -> Outcome<'a> {
        if error.is_limit() {
            return Err(error);
        }
        let right = match self.evaluate(right) {
            Ok(right) => right,
            Err(error) if error.is_limit() => return Err(error),
            Err(_) => Val::Null,
        };
        price.charge_pair(self.meter(), &Val::Null, &right)?;
        Err(error)
    }

    fn list(&mut self, elements: &[Element]) -> Outcome<'a> {
        self.charge(cost::LIST)?;
        self.meter().produce_items(elements.len())?;
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.evaluate(&element.value)?;
            items.extend(present(value, element.optional)?);
        }
        Val::list(items)
    }

    fn map(&mut self, literal: &[Entry]) -> Outcome<'a> {
        self.charge(cost::MAP)?;
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
        self.charge(cost::STRUCT)?;
        self.meter().produce_items(2 * literal.len())?;
        let mut fields = Vec::with_capacity(literal.len());
        for field in literal {
            let value = self.evaluate(&field.value)?;
            fields.extend(present(value, field.optional)?.map(|value| (Arc::clone(&field.name), value)));
        }
        Val::structure(type_name, fields)
    }

    fn call(&mut self, function: &Function, price: Price, arguments: &[Node]) -> Outcome<'a> {
        let mut values = [const { Val::Null }; MAX_ARGUMENTS];
        let mut failed = None;
        let mut left = arguments.len();
        for (value, argument) in values.iter_mut().zip(arguments) {
            left -= 1;
            match self.evaluate(argument) {
                Ok(argument) => *value = argument,
                // When it is the last, or one of two, the call is counted even so.
                Err(error) if left == 0 || (arguments.len() == 2 && price.goes_on()) => {
                    if error.is_limit() {
                        return Err(error);
                    }
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let values = values.get(..arguments.len()).unwrap_or_default();
        let result = match failed {
            Some(error) => Err(error),
            None => (function.body)(self.meter(), values),
        };
        price.charge(self.meter(), values, result.as_ref().ok())?;
        result
    }

    fn pattern(
        &mut self,
        usage: PatternUse,
        price: Price,
        pattern: &Pattern,
        arguments: &[Node],
    ) -> Outcome<'a> {
        let mut values = [const { Val::Null }; 2];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = self.evaluate(argument)?;
        }
        let values = values.get(..arguments.len()).unwrap_or_default();
        self.charge(match price {
            Price::Pattern => cost::matched(values.first().map_or(1, cost::size), pattern.cost()),
            _ => UNIT,
        })?;
        regexes::apply(self.meter(), usage, pattern, values)
    }

    /// The API server makes it of a conditional: the optional is evaluated to see whether there is something in
    /// it, and once more when the body first asks for what is in it.
    fn optional_map(&mut self, operand: &Node, body: &Node, flat: bool) -> Outcome<'a> {
        let (before, deferred) = (self.meter().cost(), self.deferred_cost);
        let optional = self.evaluate(operand);
        let again = (self.meter().cost() - before).saturating_sub(self.deferred_cost - deferred);
        self.charge(UNIT)?;
        let optional = match optional? {
            Val::Optional(Some(optional)) => optional,
            Val::Optional(None) => {
                self.charge(UNIT)?;
                return Ok(Val::Optional(None));
            }
            other => return Err(EvalError::no_such_overload("hasValue", &[other])),
        };
        let length = self.locals.len();
        let cost = again.saturating_add(UNIT);
        self.deferred.push(Deferred { local: length, cost });
        self.locals.push(optional.value.clone());
        let result = self.evaluate(body);
        self.locals.truncate(length);
        if self.deferred.iter().all(|deferred| deferred.local < length) {
            self.deferred_cost = self.deferred_cost.saturating_sub(cost);
        }
        self.deferred.retain(|deferred| deferred.local < length);
        if !flat {
            self.charge(UNIT)?;
        }
        if flat { result } else { Val::optional(result?) }
    }

    /// What is no optional counts as one that is not empty, as in Kubernetes.
    fn optional_or(&mut self, first: &Node, second: &Node, unwrap: bool) -> Outcome<'a> {
        match self.evaluate(first)? {
            Val::Optional(Some(optional)) if unwrap => Ok(optional.value.clone()),
            Val::Optional(None) => self.evaluate(second),
            value => Ok(value),
        }
    }
}

/// What an element of a literal contributes: an optional one that is empty, nothing.
fn present(value: Val<'_>, optional: bool) -> Result<Option<Val<'_>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Val::Optional(optional) => Ok(optional.map(|optional| optional.value.clone())),
        other => Err(EvalError::conversion(other.type_name(), "optional_type")),
    }
}

/// A key of a map that is being made; doubles are refused here although they find the key they equal.
pub(crate) fn map_key<'a>(key: &Val<'a>) -> Result<Key<'a>, EvalError> {
    match Key::from_value(key) {
        Some(found) if !matches!(key, Val::Double(_)) => Ok(found),
        _ => Err(EvalError::invalid("map", format!("unsupported key type: {}", key.type_name()))),
    }
}
