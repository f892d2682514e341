//! The compiled form of an expression: what the machine runs.

use std::sync::Arc;

use crate::functions::Function;
use crate::regexes::{Pattern, PatternUse};
use crate::scope::Slot;
use crate::value::Val;

/// One step of a plan. Its depth is that of the syntax tree, which is bounded.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Val<'static>),
    Variable(Slot),
    /// A variable of a comprehension, by its place above the program's first.
    Local(usize),
    /// `variables.NAME`
    Definition(usize),
    Select(Box<Node>, Arc<str>),
    Has(Box<Node>, Arc<str>),
    OptionalSelect(Box<Node>, Arc<str>),
    Index(Box<(Node, Node)>),
    OptionalIndex(Box<(Node, Node)>),
    And(Box<(Node, Node)>),
    Or(Box<(Node, Node)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Conditional(Box<(Node, Node, Node)>),
    Binary(Operator, Box<(Node, Node)>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    Struct(Arc<str>, Vec<Field>),
    Call(&'static Function, Vec<Node>),
    /// A function of a pattern that was compiled with the expression; the pattern is not among the arguments.
    Pattern(PatternUse, Arc<Pattern>, Vec<Node>),
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

/// Operators that evaluate both sides and fail when one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    /// CEL's name of the operator's function, as messages show it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessOrEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterOrEqual => "_>=_",
            Self::In => "@in",
        }
    }
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter` and `transformList`
    List,
    /// `transformMap`: the same keys with other values.
    Map,
    /// `transformMapEntry`: each body is a map whose entries are taken.
    MapEntries,
    /// `sortBy`
    Sorted,
}
