//! What is wrong with a node of a tree, and where messages place it.

use super::ast::IdedExpr;
use super::parser::SyntaxError;
use crate::error::{CompileError, Problem, Stage};

/// Something wrong with a node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The node's number, by which its place is found.
    pub(crate) node: usize,
    pub(crate) message: String,
    pub(crate) kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Told at the node's place.
    Node,
    /// Of a macro that is not written right. Nothing else is told then.
    Macro,
    /// Of a constant that cannot be computed.
    Constant,
}

impl Fault {
    pub(crate) fn new(node: &IdedExpr, message: impl Into<String>) -> Self {
        Self { node: node.id, message: message.into(), kind: FaultKind::Node }
    }

    pub(crate) fn of_macro(node: &IdedExpr, message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Macro, ..Self::new(node, message) }
    }

    pub(crate) fn of_constant(node: &IdedExpr, message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Constant, ..Self::new(node, message) }
    }
}

/// The error that faults of nodes make, whose places are offsets into `source`.
pub(super) fn compile_error(source: &str, places: &[usize], faults: Vec<Fault>) -> CompileError {
    let constants = faults.iter().any(|fault| fault.kind == FaultKind::Constant);
    let stage = if constants { Stage::Constants } else { Stage::Check };
    let mut problems: Vec<Problem> = faults
        .into_iter()
        .map(|fault| {
            let (line, column) = line_and_column(source, places.get(fault.node).copied().unwrap_or(0));
            Problem { line, column, message: fault.message }
        })
        .collect();
    problems.sort_by_key(|problem| (problem.line, problem.column));
    CompileError::of_problems(stage, problems)
        .unwrap_or_else(|| CompileError::at(1, 1, "the expression is wrong"))
}

pub(super) fn syntax_error(source: &str, error: SyntaxError) -> CompileError {
    let (line, column) = line_and_column(source, error.offset);
    CompileError::at(line, column, error.message)
}

fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let line = 1 + before.matches('\n').count();
    (line, 1 + before.rsplit('\n').next().unwrap_or_default().chars().count())
}
