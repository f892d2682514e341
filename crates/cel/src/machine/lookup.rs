//! Looking into values: fields, indexes and keys, plain and optional.

use crate::cost::UNIT;
use crate::error::EvalError;
use crate::library::optionals;
use crate::machine::found::Found;
use crate::machine::state::Machine;
use crate::plan::Node;
use crate::value::{Key, Outcome, Val};

/// Fields of a chain that are gone through at once.
const MAX_STEPS: usize = 8;

impl<'a> Machine<'_, 'a> {
    /// Evaluates what is looked into.
    pub(crate) fn find(&mut self, node: &Node) -> Result<Found<'a>, EvalError> {
        self.enter()?;
        let found = self.look_up(node);
        self.leave();
        found
    }

    /// The nodes that look into something. All others give a value, with which a chain begins.
    pub(crate) fn look_up(&mut self, node: &Node) -> Result<Found<'a>, EvalError> {
        match node {
            Node::Select(..) | Node::OptionalSelect(..) => self.path(node),
            Node::Index(operands) => self.index(&operands.0, &operands.1),
            Node::OptionalIndex(operands) => self.optional_index(&operands.0, &operands.1),
            Node::OptionalOr { operands, value } => self.optional_or(&operands.0, &operands.1, *value),
            other => self.step(other).map(Found::of),
        }
    }

    /// A chain of fields, which is gone through from its beginning without recursion.
    #[inline(never)]
    fn path(&mut self, node: &Node) -> Result<Found<'a>, EvalError> {
        let mut steps = [None; MAX_STEPS];
        let (mut begin, mut count) = (node, 0_usize);
        for step in &mut steps {
            let (Node::Select(operand, _) | Node::OptionalSelect(operand, _)) = begin else { break };
            *step = Some(begin);
            begin = operand;
            count += 1;
        }
        // The last step is under way.
        let found = self.deeper(count.saturating_sub(1), |machine| machine.find(begin))?;
        let (mut value, mut held) = match found {
            Found::Plain(value) => (value, false),
            Found::Held(value) => (value, true),
            Found::Nothing => return Ok(Found::Nothing),
        };
        for step in steps.iter().rev().flatten() {
            let (field, optional) = match step {
                Node::Select(_, field) => (field, false),
                Node::OptionalSelect(_, field) => (field, true),
                _ => break,
            };
            if let (Val::JsonMap(object), false) = (&value, held || optional) {
                self.charge(UNIT)?;
                let found = object.get(field).ok_or_else(|| EvalError::no_such_key(field))?;
                value = Val::from_json(found);
            } else if held || optional {
                let Some(found) = optionals::get_field(&value, field)? else { return Ok(Found::Nothing) };
                found.check_optional()?;
                self.charge(UNIT)?;
                (value, held) = (found, true);
            } else {
                self.charge(UNIT)?;
                let found =
                    optionals::get_field(&value, field)?.ok_or_else(|| EvalError::no_such_key(field))?;
                match Found::of(found) {
                    Found::Plain(found) => value = found,
                    Found::Held(found) => (value, held) = (found, true),
                    Found::Nothing => return Ok(Found::Nothing),
                }
            }
        }
        Ok(if held { Found::Held(value) } else { Found::Plain(value) })
    }

    /// A step of an optional chain costs only when it leads somewhere.
    fn held(&self, found: Option<Val<'a>>) -> Result<Found<'a>, EvalError> {
        let Some(value) = found else { return Ok(Found::Nothing) };
        value.check_optional()?;
        self.charge(UNIT)?;
        Ok(Found::Held(value))
    }

    /// A field that is null is there; scalars and null have no fields, lists are not asked for any.
    #[inline(never)]
    pub(crate) fn has(&mut self, operand: &Node, field: &str) -> Outcome<'a> {
        let found = match self.find(operand)? {
            Found::Nothing => false,
            Found::Held(value) => {
                let found = optionals::get_field(&value, field)?.is_some();
                self.charge(if found { UNIT } else { 0 })?;
                found
            }
            Found::Plain(value) => {
                self.charge(UNIT)?;
                optionals::get_field(&value, field)?.is_some()
            }
        };
        Ok(Val::Bool(found))
    }

    #[inline(never)]
    fn index(&mut self, operand: &Node, key: &Node) -> Result<Found<'a>, EvalError> {
        let value = match self.find(operand)? {
            Found::Plain(value) => value,
            Found::Held(value) => {
                let key = self.evaluate(key)?;
                let found = optionals::get_element_if_any(self.meter(), &value, &key)?;
                return self.held(found);
            }
            // Nobody asks for the key when there is nothing to look into.
            Found::Nothing => return Ok(Found::Nothing),
        };
        let key = self.evaluate(key);
        self.charge(UNIT)?;
        let key = key?;
        let found =
            optionals::get_element(self.meter(), &value, &key)?.ok_or_else(|| match Key::from_value(&key) {
                Some(key) if value.is_list() => EvalError::IndexOutOfBounds(key.text().into_owned()),
                Some(key) => EvalError::no_such_key(&key.text()),
                None => EvalError::no_such_overload("_[_]", &[value.clone(), key.clone()]),
            });
        found.map(Found::of)
    }

    #[inline(never)]
    fn optional_index(&mut self, operand: &Node, key: &Node) -> Result<Found<'a>, EvalError> {
        let found = self.find(operand)?;
        if matches!(found, Found::Nothing) {
            return Ok(found);
        }
        let key = self.evaluate(key)?;
        optionals::check_key(&key)?;
        let found = match found {
            Found::Plain(Val::Null) | Found::Nothing => None,
            Found::Plain(value) | Found::Held(value) => {
                optionals::get_element_if_any(self.meter(), &value, &key)?
            }
        };
        self.held(found)
    }

    /// What is no optional counts as one that is not empty, as in Kubernetes.
    #[inline(never)]
    fn optional_or(&mut self, first: &Node, second: &Node, unwrap: bool) -> Result<Found<'a>, EvalError> {
        match self.find(first)? {
            Found::Held(value) if unwrap => Ok(Found::of(value)),
            Found::Nothing => self.find(second),
            found => Ok(found),
        }
    }
}
