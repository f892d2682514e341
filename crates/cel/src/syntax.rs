//! From source text to a syntax tree of bounded depth.
//!
//! The parser of the `cel` crate recurses as deep as the source nests (in ternaries without any limit of its
//! own) and copies a call's target for every call of a chain. So the length is bounded first, chains are
//! bounded by looking at the tokens, and the parser runs on a thread whose stack holds whatever the longest
//! source can need; a panic in it ends that thread only. What comes out is refused when it is deeper than the
//! compiler and the machine are made for.

use std::thread;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::parser::PrattParser;
use cel::parser::pratt_parser::{Lexer, TokenKind};

use crate::error::CompileError;

/// Longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 << 10;
/// Deepest nesting of an expression, macros expanded.
pub const MAX_DEPTH: usize = 100;
/// Nodes of the syntax tree, macros expanded: far more than the longest sensible source makes.
const MAX_NODES: usize = 20_000;
/// Virtual memory of which only what is touched is ever taken. The deepest source, a chain of 2-byte
/// operators, needs about a tenth.
const STACK_BYTES: usize = 64 << 20;

/// Something wrong with a node of the tree.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The node's number, by which its place is found.
    pub(crate) node: u64,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(node: &IdedExpr, message: impl Into<String>) -> Self {
        Self { node: node.id, message: message.into() }
    }
}

/// Parses `source` and hands the tree, whose depth is at most [`MAX_DEPTH`], to `compile`.
pub(crate) fn parse<T: Send>(
    source: &str,
    compile: impl FnOnce(&IdedExpr) -> Result<T, Fault> + Send,
) -> Result<T, CompileError> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("expression of {} bytes is longer than {MAX_SOURCE_BYTES}", source.len());
        return Err(CompileError { line: 1, column: 1, message });
    }
    if let Some(offset) = overlong_chain(source) {
        return Err(at(source, offset, too_deep()));
    }
    thread::scope(|scope| {
        thread::Builder::new()
            .name("cel-parser".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || parse_here(source, compile))
            .map_err(|error| at(source, 0, format!("failed to start the parser: {error}")))?
            .join()
            .unwrap_or_else(|_| Err(at(source, 0, "the parser failed on this expression".to_owned())))
    })
}

fn parse_here<T>(
    source: &str,
    compile: impl FnOnce(&IdedExpr) -> Result<T, Fault>,
) -> Result<T, CompileError> {
    let tree = parser().parse(source).map_err(|errors| {
        let Some(first) = errors.errors.first() else { return at(source, 0, "syntax error".to_owned()) };
        let message = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg).to_owned();
        let line = usize::try_from(first.pos.0).unwrap_or(0).max(1);
        let byte = usize::try_from(first.pos.1).unwrap_or(0).max(1) - 1;
        let text = source.split('\n').nth(line - 1).unwrap_or_default();
        let column = 1 + text.char_indices().take_while(|(offset, _)| *offset < byte).count();
        CompileError { line, column, message: format!("syntax error: {message}") }
    })?;
    let result = check_depth(&tree).and_then(|()| compile(&tree));
    result.map_err(|fault| at(source, offset_of(source, fault.node), fault.message))
}

fn parser() -> PrattParser {
    PrattParser::new().max_expression_node_count(MAX_NODES).enable_optional_syntax(true)
}

fn too_deep() -> String {
    format!("expression nests deeper than {MAX_DEPTH}")
}

/// Where a node of the tree stands in the source.
///
/// The parser keeps the places to itself unless there is a syntax error, so it is given one, after the end:
/// the numbers of all nodes before stay the same.
fn offset_of(source: &str, node: u64) -> usize {
    let Err(errors) = parser().parse(&format!("{source}\n)")) else { return 0 };
    errors
        .errors
        .iter()
        .find_map(|error| error.source_info.as_ref()?.offset_for(node))
        .map_or(0, |(start, _)| start as usize)
}

fn at(source: &str, offset: usize, message: String) -> CompileError {
    let before = source.get(..offset).unwrap_or(source);
    let line = 1 + before.matches('\n').count();
    let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count();
    CompileError { line, column, message }
}

/// The offset at which a chain such as `a.b().c[0].d()` gets longer than any tree may be deep.
fn overlong_chain(source: &str) -> Option<usize> {
    let mut lexer = Lexer::new(source);
    // Links so far of the chain in each bracket that is open.
    let mut open = vec![0_usize];
    loop {
        let token = lexer.lex();
        let links = open.last_mut()?;
        match token.kind {
            TokenKind::TokEnd | TokenKind::TokError => return None,
            TokenKind::TokDot | TokenKind::TokLeftBracket => {
                *links += 1;
                if *links > MAX_DEPTH {
                    return Some(token.start);
                }
                if token.kind == TokenKind::TokLeftBracket {
                    open.push(0);
                }
            }
            TokenKind::TokLeftParen | TokenKind::TokLeftBrace => open.push(0),
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace => {
                if open.len() > 1 {
                    open.pop();
                }
            }
            TokenKind::TokWhitespace
            | TokenKind::TokComment
            | TokenKind::TokIdent
            | TokenKind::TokQuestion
            | TokenKind::TokReservedWord => {}
            _ => *links = 0,
        }
    }
}

/// Refuses a tree that nests deeper than [`MAX_DEPTH`], without recursing into it.
fn check_depth(root: &IdedExpr) -> Result<(), Fault> {
    let mut pending = vec![(root, 1_usize)];
    while let Some((node, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return Err(Fault::new(node, too_deep()));
        }
        let mut push = |child| pending.push((child, depth + 1));
        match &node.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).for_each(push),
            Expr::Select(select) => push(&select.operand),
            Expr::List(list) => list.elements.iter().for_each(push),
            Expr::Map(map) => map.entries.iter().for_each(|entry| push_entry(&entry.expr, &mut push)),
            Expr::Struct(made) => made.entries.iter().for_each(|entry| push_entry(&entry.expr, &mut push)),
            Expr::Comprehension(all) => {
                [&all.iter_range, &all.accu_init, &all.loop_cond, &all.loop_step, &all.result]
                    .into_iter()
                    .for_each(push);
            }
        }
    }
    Ok(())
}

fn push_entry<'t>(entry: &'t EntryExpr, push: &mut impl FnMut(&'t IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => push(&field.value),
        EntryExpr::MapEntry(entry) => {
            push(&entry.key);
            push(&entry.value);
        }
    }
}
