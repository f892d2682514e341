//! The compiled form of an expression: what the machine runs.

use std::sync::Arc;

use crate::check::Slot;
use crate::cost::UNIT;
use crate::library::{Function, PatternUse};
use crate::plan::price::Price;
use crate::regex::Pattern;
use crate::syntax::ast::Kind;
use crate::value::{Operator, Val};

/// One step of a plan. Its depth is that of the syntax tree, which is bounded.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Val<'static>),
    /// A variable, with what it costs.
    Variable(Slot, u64),
    /// A variable of a comprehension, by its place above the program's first, with what it costs.
    Local(usize, u64),
    /// `variables.NAME`, with what it costs besides its own evaluation.
    Definition(usize, u64),
    /// `has(variables.NAME)`
    HasDefinition(usize),
    /// A value that is made and then looked into by the nodes around, which costs one more.
    Base(Box<Node>),
    Select(Box<Node>, Arc<str>),
    Has(Box<Node>, Arc<str>),
    /// `has()` of what a conditional gives, which costs one less than its steps, if they cost anything.
    HasOfConditional(Box<Node>),
    OptionalSelect(Box<Node>, Arc<str>),
    Index(Box<(Node, Node)>),
    OptionalIndex(Box<(Node, Node)>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Conditional(Box<(Node, Node, Node)>),
    Binary(Operator, Price, Box<(Node, Node)>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    Struct(Arc<str>, Vec<Field>),
    Call(&'static Function, Price, Vec<Node>),
    /// A function of a pattern that was compiled with the expression; the pattern is not among the arguments.
    Pattern(PatternUse, Price, Arc<Pattern>, Vec<Node>),
    Comprehension(Box<Comprehension>),
    /// `o.optMap(v, e)`, and `o.optFlatMap(v, e)` when flat.
    OptionalMap {
        operand: Box<Node>,
        body: Box<Node>,
        flat: bool,
    },
    /// `o.or(p)`, and `o.orValue(v)` when `value`: the second is only evaluated when needed.
    OptionalOr {
        operands: Box<(Node, Node)>,
        value: bool,
    },
}

impl Node {
    /// Whether it is a place that is looked up step by step: what is looked up in it costs nothing of its own.
    pub(crate) fn is_place(&self) -> bool {
        matches!(
            self,
            Self::Variable(..)
                | Self::Local(..)
                | Self::Definition(..)
                | Self::HasDefinition(_)
                | Self::Select(..)
                | Self::Has(..)
                | Self::HasOfConditional(_)
                | Self::OptionalSelect(..)
                | Self::Index(_)
                | Self::OptionalIndex(_)
                | Self::Conditional(_)
                | Self::OptionalMap { .. }
                | Self::Base(_)
        )
    }

    /// Whether the place that it looks into is what a conditional gives.
    pub(crate) fn begins_with_conditional(&self) -> bool {
        let mut node = self;
        loop {
            node = match node {
                Self::Conditional(_) | Self::OptionalMap { .. } => return true,
                Self::Select(operand, _) | Self::OptionalSelect(operand, _) | Self::Has(operand, _) => {
                    operand
                }
                Self::Index(operands) | Self::OptionalIndex(operands) => &operands.0,
                _ => return false,
            };
        }
    }

    /// As what another node looks into.
    pub(crate) fn looked_into(self) -> Self {
        if self.is_place() { self } else { Self::Base(Box::new(self)) }
    }

    /// As the branch of a conditional, as an index or under `has()`, where a place costs only the steps to it.
    pub(crate) fn steps_only(mut self) -> Self {
        let mut node = &mut self;
        loop {
            node = match node {
                Self::Variable(_, cost) | Self::Local(_, cost) | Self::Definition(_, cost) => {
                    *cost = cost.saturating_sub(UNIT);
                    break;
                }
                Self::Base(inner) => {
                    let inner = std::mem::replace(&mut **inner, Self::Constant(Val::Null));
                    *node = inner;
                    break;
                }
                Self::Select(operand, _) | Self::OptionalSelect(operand, _) => operand,
                Self::Index(operands) | Self::OptionalIndex(operands) => &mut operands.0,
                _ => break,
            };
        }
        self
    }
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

/// A macro that goes through a list or a map.
#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) kind: Kind,
    pub(crate) range: Node,
    /// Two variables (index or key, and value) instead of one (item or key).
    pub(crate) pair: bool,
    pub(crate) filter: Option<Node>,
    /// The predicate of `all`, `exists` and `exists_one`, else what is collected.
    pub(crate) body: Node,
    /// What sorting costs.
    pub(crate) price: Price,
}
