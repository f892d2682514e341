//! Runs a plan.
//!
//! Recursion is as deep as plans nest, and is counted, since definitions nest plans in plans. Steps and bytes
//! are counted by the meter.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::cost::{self, UNIT};
use crate::error::EvalError;
use crate::library::{Function, MAX_ARGUMENTS, PatternUse, regexes};
use crate::machine::activation::Activation;
use crate::machine::found::Found;
use crate::machine::state::{Deferred, Machine};
use crate::plan::price::{self, Price};
use crate::plan::{Element, Entry, Field, Node};
use crate::regex::Pattern;
use crate::value::arithmetic;
use crate::value::comparison;
use crate::value::{Key, Operator, Outcome, Val};

/// What an error counts that a call gives: its text is made although nobody may ever read it.
const ERROR_STEPS: u64 = 64;

/// Runs a plan over the values of an activation.
pub(crate) fn evaluate<'a>(activation: &Activation<'a>, plan: &Node) -> Outcome<'a> {
    let mut machine = Machine::new(activation);
    let result = machine.evaluate(plan);
    activation.give_locals(machine.locals);
    result
}

impl<'a> Machine<'_, 'a> {
    pub(crate) fn evaluate(&mut self, node: &Node) -> Outcome<'a> {
        self.enter()?;
        let result = self.step(node);
        self.leave();
        result
    }

    /// Only dispatches, to functions that stay out of it: what it keeps on the stack is multiplied by the depth, and
    /// made for every node.
    pub(crate) fn step(&mut self, node: &Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(slot, cost) => self.variable(*slot, *cost),
            Node::Local(index, cost) => self.local(*index, *cost),
            Node::Definition(index, cost) => self.definition(*index, *cost),
            Node::HasDefinition(index) => self.has_definition(*index),
            Node::Base(value) => self.base(value),
            Node::Select(..)
            | Node::OptionalSelect(..)
            | Node::Index(_)
            | Node::OptionalIndex(_)
            | Node::OptionalOr { .. } => self.look_up(node)?.into_value(),
            Node::Has(operand, field) => self.has(operand, field),
            Node::HasOfConditional(has) => self.has_of_conditional(has),
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
        }
    }

    #[inline(never)]
    fn definition(&mut self, index: usize, cost: u64) -> Outcome<'a> {
        self.charge(cost)?;
        if let Some(cached) = self.activation.cached(index) {
            return cached;
        }
        let activation = self.activation;
        let Some(definition) = activation.scope.definitions().get(index) else {
            return Err(EvalError::Unbound("variables".to_owned()));
        };
        let (first_local, length) = (self.first_local, self.locals.len());
        self.first_local = length;
        let result = activation.meter.apart(|| self.evaluate(&definition.expression.plan));
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
    #[inline(never)]
    fn base(&mut self, value: &Node) -> Outcome<'a> {
        let value = self.evaluate(value);
        self.charge(UNIT)?;
        value
    }

    #[inline(never)]
    fn has_of_conditional(&mut self, has: &Node) -> Outcome<'a> {
        let before = self.meter().cost();
        let value = self.evaluate(has);
        // Steps that cost nothing leave nothing to take back: the cost never goes down.
        if self.meter().cost() > before {
            self.meter().refund(UNIT);
        }
        value
    }

    /// `&&` and `||`: an operand that `decides` settles it, whatever the other is, an error included.
    #[inline(never)]
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

    #[inline(never)]
    fn not(&mut self, operand: &Node) -> Outcome<'a> {
        let value = self.truth("!_", operand);
        self.charge(UNIT)?;
        value.map(|value| Val::Bool(!value))
    }

    #[inline(never)]
    fn negate(&mut self, operand: &Node) -> Outcome<'a> {
        let value = self.evaluate(operand);
        self.charge(UNIT)?;
        arithmetic::negate(&value?)
    }

    #[inline(never)]
    fn conditional(&mut self, condition: &Node, yes: &Node, no: &Node) -> Outcome<'a> {
        let chosen = if self.truth("_?_:_", condition)? { yes } else { no };
        self.evaluate(chosen)
    }

    /// Both operands are evaluated, even when the first fails: that shows in the cost.
    #[inline(never)]
    fn binary(&mut self, operator: Operator, price: Price, operands: &(Node, Node)) -> Outcome<'a> {
        if operator.makes_value() {
            return self.computed(operator, price, operands);
        }
        let (mut left, mut right) = (Val::Null, Val::Null);
        let left = match self.operand(&operands.0, &mut left) {
            Ok(left) => left,
            Err(error) => return self.binary_failed(price, error, &operands.1),
        };
        let right = match self.operand(&operands.1, &mut right) {
            Ok(right) => right,
            Err(error) => {
                price.charge_pair(self.meter(), left, &Val::Null)?;
                return Err(error);
            }
        };
        price.charge_pair(self.meter(), left, right)?;
        self.compared(operator, left, right)
    }

    #[inline(never)]
    fn computed(&mut self, operator: Operator, price: Price, operands: &(Node, Node)) -> Outcome<'a> {
        let left = match self.evaluate(&operands.0) {
            Ok(left) => left,
            Err(error) => return self.binary_failed(price, error, &operands.1),
        };
        let mut right = Val::Null;
        let right = match self.operand(&operands.1, &mut right) {
            Ok(right) => right,
            Err(error) => {
                price.charge_pair(self.meter(), &left, &Val::Null)?;
                return Err(error);
            }
        };
        price.charge_pair(self.meter(), &left, right)?;
        arithmetic::apply(self.meter(), operator, left, right)
    }

    /// Evaluates what is only looked at. A constant stays where it is, which spares the count of those who share it:
    /// all threads would write to it.
    pub(crate) fn operand<'n>(
        &mut self,
        node: &'n Node,
        room: &'n mut Val<'a>,
    ) -> Result<&'n Val<'a>, EvalError> {
        match node {
            Node::Constant(value) => {
                self.enter()?;
                self.leave();
                Ok(value)
            }
            Node::OptionalOr { operands, value: true } => {
                self.enter()?;
                let found = match self.find(&operands.0) {
                    Ok(Found::Nothing) => self.operand(&operands.1, room),
                    Ok(Found::Held(value) | Found::Plain(value)) => {
                        *room = value;
                        Ok(&*room)
                    }
                    Err(error) => Err(error),
                };
                self.leave();
                found
            }
            other => {
                *room = self.evaluate(other)?;
                Ok(room)
            }
        }
    }

    /// Operators that compare.
    #[inline(never)]
    fn compared(&self, operator: Operator, left: &Val<'a>, right: &Val<'a>) -> Outcome<'a> {
        let meter = self.meter();
        let mismatch = || EvalError::no_such_overload(operator.name(), &[left.clone(), right.clone()]);
        let ordered =
            |wanted: fn(Ordering) -> bool| comparison::order(meter, operator.name(), left, right).map(wanted);
        let holds = match operator {
            Operator::Equal | Operator::NotEqual => {
                if comparison::is_incomparable(left, right) {
                    return Err(mismatch());
                }
                comparison::equal(meter, left, right)? == (operator == Operator::Equal)
            }
            Operator::Less => ordered(Ordering::is_lt)?,
            Operator::LessOrEqual => ordered(Ordering::is_le)?,
            Operator::Greater => ordered(Ordering::is_gt)?,
            Operator::GreaterOrEqual => ordered(Ordering::is_ge)?,
            Operator::In => comparison::contains(meter, left, right)?.ok_or_else(mismatch)?,
            Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Modulo => {
                return Err(mismatch());
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

    #[inline(never)]
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

    #[inline(never)]
    fn map(&mut self, literal: &[Entry]) -> Outcome<'a> {
        self.charge(cost::MAP)?;
        self.meter().produce_items(2 * literal.len())?;
        let mut entries = Vec::with_capacity(literal.len());
        for entry in literal {
            let key = self.evaluate(&entry.key)?;
            let value = self.evaluate(&entry.value)?;
            let key = Key::to_insert(&key)?;
            entries.extend(present(value, entry.optional)?.map(|value| (key, value)));
        }
        Val::map(self.meter(), entries)
    }

    #[inline(never)]
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

    #[inline(never)]
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
        if result.as_ref().is_err_and(|error| !error.is_limit()) {
            self.meter().count_steps(ERROR_STEPS)?;
        }
        price.charge(self.meter(), values, result.as_ref().ok())?;
        result
    }

    #[inline(never)]
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
            Price::Pattern => cost::matched(values.first().map_or(1, price::size), pattern.cost()),
            _ => UNIT,
        })?;
        regexes::apply(self.meter(), usage, pattern, values)
    }

    /// The API server makes it of a conditional: the optional is evaluated to see whether there is something in
    /// it, and once more when the body first asks for what is in it.
    #[inline(never)]
    fn optional_map(&mut self, operand: &Node, body: &Node, flat: bool) -> Outcome<'a> {
        let (before, deferred) = (self.meter().cost(), self.deferred_cost);
        let optional = self.find(operand);
        let paid = self.deferred_cost.saturating_sub(deferred);
        let again = self.meter().cost().saturating_sub(before).saturating_sub(paid);
        self.charge(UNIT)?;
        let held = match optional? {
            Found::Held(value) => value,
            Found::Nothing => {
                self.charge(UNIT)?;
                return Ok(Val::Optional(None));
            }
            Found::Plain(other) => return Err(EvalError::no_such_overload("hasValue", &[other])),
        };
        let length = self.locals.len();
        let cost = again.saturating_add(UNIT);
        self.deferred.push(Deferred { local: length, cost });
        self.locals.push(held);
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
}

/// What an element of a literal contributes: an optional one that is empty, nothing.
fn present(value: Val<'_>, optional: bool) -> Result<Option<Val<'_>>, EvalError> {
    match value {
        value if !optional => Ok(Some(value)),
        Val::Optional(optional) => Ok(optional.map(|optional| optional.value.clone())),
        other => Err(EvalError::conversion(other.type_name(), "optional_type")),
    }
}
