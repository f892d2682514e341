//! The syntax tree.
//!
//! Operators are calls of functions whose names CEL's declarations have (`_+_`). The standard macros over one
//! variable are [`Expr::Comprehension`]s, and `has()` is a [`SelectExpr`]; other macros are calls as written.

/// An expression, numbered within its tree.
#[derive(Debug)]
pub(crate) struct IdedExpr {
    pub(crate) id: usize,
    /// Levels of the tree below and including this one, macros expanded.
    pub(super) depth: usize,
    pub(crate) expr: Expr,
}

#[derive(Debug)]
pub(crate) enum Expr {
    Literal(LiteralValue),
    /// A name. A leading dot is part of it.
    Ident(String),
    Select(SelectExpr),
    Call(CallExpr),
    List(ListExpr),
    Map(Vec<MapEntry>),
    Struct(StructExpr),
    Comprehension(Box<ComprehensionExpr>),
}

#[derive(Debug)]
pub(crate) enum LiteralValue {
    Null,
    Boolean(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct SelectExpr {
    pub(crate) operand: Box<IdedExpr>,
    pub(crate) field: String,
    /// `has(operand.field)`
    pub(crate) test: bool,
}

#[derive(Debug)]
pub(crate) struct CallExpr {
    pub(crate) func_name: String,
    pub(crate) target: Option<Box<IdedExpr>>,
    pub(crate) args: Vec<IdedExpr>,
}

#[derive(Debug)]
pub(crate) struct ListExpr {
    pub(crate) elements: Vec<IdedExpr>,
    /// Which elements are written `?element`.
    pub(crate) optional_indices: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: IdedExpr,
    pub(crate) value: IdedExpr,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct StructExpr {
    pub(crate) type_name: String,
    pub(crate) fields: Vec<StructField>,
}

#[derive(Debug)]
pub(crate) struct StructField {
    pub(crate) id: usize,
    pub(crate) field: String,
    pub(crate) value: IdedExpr,
    pub(crate) optional: bool,
}

/// `range.all(variable, body)` and its like. `range.filter(variable, f)` is `range.map(variable, f, variable)`.
#[derive(Debug)]
pub(crate) struct ComprehensionExpr {
    pub(crate) kind: Kind,
    pub(crate) range: IdedExpr,
    pub(crate) variable: String,
    pub(crate) filter: Option<IdedExpr>,
    pub(crate) body: IdedExpr,
}

/// What a macro over a range makes. The parser knows those over one variable.
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

impl Expr {
    /// The depth of the deepest part. That of macros is the depth of the loops that cel-go expands them to.
    pub(super) fn depth_of_parts(&self) -> usize {
        let deepest = |parts: &[IdedExpr]| parts.iter().map(|part| part.depth).max().unwrap_or(0);
        match self {
            Self::Literal(_) | Self::Ident(_) => 0,
            Self::Select(select) => select.operand.depth,
            Self::Call(call) => {
                call.target.as_ref().map_or(0, |target| target.depth).max(deepest(&call.args))
            }
            Self::List(list) => deepest(&list.elements),
            Self::Map(entries) => {
                entries.iter().map(|entry| entry.key.depth.max(entry.value.depth)).max().unwrap_or(0)
            }
            Self::Struct(made) => made.fields.iter().map(|field| field.value.depth).max().unwrap_or(0),
            Self::Comprehension(made) => {
                let (filter, body) = (made.filter.as_ref().map(|filter| filter.depth), made.body.depth);
                let expanded = match (made.kind, filter) {
                    (Kind::All, _) => 1 + body,
                    (Kind::Exists | Kind::ExistsOne, _) => (1 + body).max(3),
                    (_, None) => 2 + body,
                    (_, Some(filter)) => (1 + filter).max(3 + body),
                };
                made.range.depth.max(expanded)
            }
        }
    }

    /// `a.b.c` as a name.
    pub(super) fn qualified_name(&self) -> Option<String> {
        match self {
            Self::Ident(name) => Some(name.clone()),
            Self::Select(select) if !select.test => {
                Some(format!("{}.{}", select.operand.expr.qualified_name()?, select.field))
            }
            _ => None,
        }
    }
}

/// The names of the functions behind operators.
pub(crate) mod operators {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const LOGICAL_AND: &str = "_&&_";
    pub(crate) const LOGICAL_OR: &str = "_||_";
    pub(crate) const LOGICAL_NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const SUBTRACT: &str = "_-_";
    pub(crate) const MULTIPLY: &str = "_*_";
    pub(crate) const DIVIDE: &str = "_/_";
    pub(crate) const MODULO: &str = "_%_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const LESS: &str = "_<_";
    pub(crate) const LESS_EQUALS: &str = "_<=_";
    pub(crate) const GREATER: &str = "_>_";
    pub(crate) const GREATER_EQUALS: &str = "_>=_";
    pub(crate) const IN: &str = "@in";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
}
