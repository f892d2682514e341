//! From source text to a syntax tree of bounded depth.
//!
//! The parser of the `cel` crate recurses as deep as the source nests (in ternaries without any limit of its
//! own) and copies a call's target for every call of a chain. So the length is bounded first, and chains and the
//! nesting by looking at the tokens. What nests deep is parsed on a thread whose stack holds whatever the longest
//! source can need, and so is what has something in it that is no token; starting it takes longer than the rest, so
//! what is shallow is parsed in place. A panic in the parser is an error. What comes out is refused when it is deeper
//! than the check, the compiler and the machine are made for.

use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::parser::PrattParser;
use cel::parser::pratt_parser::{Lexer, TokenKind};

use crate::error::{CompileError, Problem, Stage};

/// Longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 8 << 10;
/// Deepest nesting of an expression, macros expanded.
pub const MAX_DEPTH: usize = 100;
/// Nodes of the syntax tree, macros expanded: far more than the longest sensible source makes.
const MAX_NODES: usize = 20_000;
/// Virtual memory of which only what is touched is ever taken. The deepest source, a chain of 2-byte
/// operators, needs about a tenth.
const STACK_BYTES: usize = 64 << 20;

/// Nesting of brackets, conditionals and signs that is parsed on the caller's stack.
const MAX_SHALLOW: usize = 16;
/// Tokens of what is parsed on the caller's stack: every second may be an operator, whose tree is one deeper.
const MAX_SHALLOW_TOKENS: usize = 600;

/// Something wrong with a node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The node's number, by which its place is found.
    pub(crate) node: u64,
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

/// Parses `source` and hands the tree, whose depth is at most [`MAX_DEPTH`], to `compile`.
pub(crate) fn parse<T: Send>(
    source: &str,
    compile: impl FnOnce(&IdedExpr) -> Result<T, Vec<Fault>> + Send,
) -> Result<T, CompileError> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("expression of {} bytes is longer than {MAX_SOURCE_BYTES}", source.len());
        return Err(CompileError::at(1, 1, message));
    }
    let shallow = match measure(source) {
        Measure::Overlong(offset) => return Err(at(source, offset, too_deep())),
        Measure::Deep => false,
        Measure::Shallow => true,
    };
    if shallow {
        let parse = AssertUnwindSafe(|| parse_here(source, compile));
        return panic::catch_unwind(parse).unwrap_or_else(|_| Err(failed(source)));
    }
    thread::scope(|scope| {
        thread::Builder::new()
            .name("cel-parser".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || parse_here(source, compile))
            .map_err(|error| at(source, 0, format!("failed to start the parser: {error}")))?
            .join()
            .unwrap_or_else(|_| Err(failed(source)))
    })
}

fn failed(source: &str) -> CompileError {
    at(source, 0, "the parser failed on this expression".to_owned())
}

fn parse_here<T>(
    source: &str,
    compile: impl FnOnce(&IdedExpr) -> Result<T, Vec<Fault>>,
) -> Result<T, CompileError> {
    let tree = parser().parse(source).map_err(|errors| {
        let Some(first) = errors.errors.first() else { return at(source, 0, "syntax error".to_owned()) };
        let message = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg).to_owned();
        let line = usize::try_from(first.pos.0).unwrap_or(0).max(1);
        let byte = usize::try_from(first.pos.1).unwrap_or(0).max(1) - 1;
        let text = source.split('\n').nth(line - 1).unwrap_or_default();
        let column = 1 + text.char_indices().take_while(|(offset, _)| *offset < byte).count();
        CompileError::at(line, column, format!("syntax error: {message}"))
    })?;
    let result = check_depth(&tree).map_err(|fault| vec![fault]).and_then(|()| compile(&tree));
    result.map_err(|faults| locate(source, &tree, faults))
}

fn parser() -> PrattParser {
    PrattParser::new().max_expression_node_count(MAX_NODES).enable_optional_syntax(true)
}

fn too_deep() -> String {
    format!("expression nests deeper than {MAX_DEPTH}")
}

/// Gives faults their places in the source.
///
/// The parser keeps the places to itself unless there is a syntax error, so it is given one, after the end:
/// the numbers of all nodes before stay the same.
fn locate(source: &str, tree: &IdedExpr, faults: Vec<Fault>) -> CompileError {
    let errors = parser().parse(&format!("{source}\n)")).err();
    let places = errors.and_then(|errors| errors.errors.into_iter().find_map(|error| error.source_info));
    let marks = marks(tree);
    let offset = |fault: &Fault| {
        let start = places.as_ref().and_then(|places| places.offset_for(fault.node));
        let start = start.map_or(0, |(start, _)| start as usize);
        let mark = marks.get(&fault.node).and_then(|mark| source.get(start..)?.find(*mark));
        start + mark.unwrap_or(0)
    };
    let constants = faults.iter().any(|fault| fault.kind == FaultKind::Constant);
    let stage = if constants { Stage::Constants } else { Stage::Check };
    let mut problems: Vec<Problem> = faults
        .into_iter()
        .map(|fault| {
            let (line, column) = place(source, offset(&fault));
            Problem { line, column, message: fault.message }
        })
        .collect();
    problems.sort_by_key(|problem| (problem.line, problem.column));
    CompileError::of_problems(stage, problems).unwrap_or_else(|| failed(source))
}

/// The nodes that messages place behind their name: calls of functions at the parenthesis, structs at the brace,
/// and names with a leading dot behind it.
fn marks(root: &IdedExpr) -> HashMap<u64, fn(char) -> bool> {
    let mut marks: HashMap<u64, fn(char) -> bool> = HashMap::new();
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        match &node.expr {
            Expr::Call(call) if call.target.is_none() && is_name(&call.func_name) => {
                marks.insert(node.id, |character| character == '(');
            }
            // Only `has()` makes these.
            Expr::Select(select) if select.test => {
                marks.insert(node.id, |character| character == '(');
            }
            Expr::Struct(_) => {
                marks.insert(node.id, |character| character == '{');
            }
            Expr::Ident(name) if name.starts_with('.') => {
                marks.insert(node.id, |character| character != '.' && !character.is_whitespace());
            }
            _ => {}
        }
        each_child(node, |child| pending.push(child));
    }
    marks
}

fn is_name(function: &str) -> bool {
    function.strip_prefix('.').unwrap_or(function).starts_with(|first: char| first.is_ascii_alphabetic())
}

fn at(source: &str, offset: usize, message: String) -> CompileError {
    let (line, column) = place(source, offset);
    CompileError::at(line, column, message)
}

/// Line and column of an offset.
fn place(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or(source);
    let line = 1 + before.matches('\n').count();
    (line, 1 + before.rsplit('\n').next().unwrap_or_default().chars().count())
}

/// What the tokens tell before anything is parsed.
enum Measure {
    /// The offset at which a chain such as `a.b().c[0].d()` gets longer than any tree may be deep.
    Overlong(usize),
    /// The parser may recurse deep.
    Deep,
    /// A small stack holds what the parser needs.
    Shallow,
}

/// What is open while the tokens are read.
#[derive(Clone, Copy, Default)]
struct Open {
    /// Links so far of the chain.
    links: usize,
    /// Conditionals and signs so far.
    nesting: usize,
}

fn measure(source: &str) -> Measure {
    let mut lexer = Lexer::new(source);
    let mut open = vec![Open::default()];
    // Brackets that are open, with the conditionals and signs in them.
    let (mut nesting, mut deepest, mut tokens) = (0_usize, 0_usize, 0_usize);
    let mut before = TokenKind::TokEnd;
    let mut broken = false;
    loop {
        let token = lexer.lex();
        let Some(last) = open.last_mut() else { return Measure::Deep };
        match token.kind {
            TokenKind::TokEnd => {
                let shallow = !broken && deepest <= MAX_SHALLOW && tokens <= MAX_SHALLOW_TOKENS;
                return if shallow { Measure::Shallow } else { Measure::Deep };
            }
            // The parser recovers and goes on, in a way that these counts need not follow.
            TokenKind::TokError => {
                broken = true;
                continue;
            }
            TokenKind::TokWhitespace | TokenKind::TokComment => continue,
            TokenKind::TokDot | TokenKind::TokLeftBracket => {
                last.links += 1;
                if last.links > MAX_DEPTH {
                    return Measure::Overlong(token.start);
                }
            }
            // `.?` and `[?` are no conditionals.
            TokenKind::TokQuestion if matches!(before, TokenKind::TokDot | TokenKind::TokLeftBracket) => {}
            TokenKind::TokQuestion | TokenKind::TokMinus | TokenKind::TokExclamation => {
                last.nesting += 1;
                nesting += 1;
            }
            _ => {}
        }
        match token.kind {
            TokenKind::TokDot | TokenKind::TokIdent | TokenKind::TokQuestion | TokenKind::TokReservedWord => {
            }
            TokenKind::TokLeftParen | TokenKind::TokLeftBrace | TokenKind::TokLeftBracket => {
                open.push(Open::default());
                nesting += 1;
            }
            TokenKind::TokRightParen | TokenKind::TokRightBracket | TokenKind::TokRightBrace => {
                if open.len() > 1
                    && let Some(closed) = open.pop()
                {
                    nesting -= closed.nesting + 1;
                }
            }
            _ => last.links = 0,
        }
        deepest = deepest.max(nesting);
        tokens += 1;
        before = token.kind;
    }
}

/// Refuses a tree that nests deeper than [`MAX_DEPTH`], without recursing into it.
fn check_depth(root: &IdedExpr) -> Result<(), Fault> {
    let mut pending = vec![(root, 1_usize)];
    while let Some((node, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return Err(Fault::new(node, too_deep()));
        }
        each_child(node, |child| pending.push((child, depth + 1)));
    }
    Ok(())
}

fn each_child<'t>(node: &'t IdedExpr, mut push: impl FnMut(&'t IdedExpr)) {
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

fn push_entry<'t>(entry: &'t EntryExpr, push: &mut impl FnMut(&'t IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => push(&field.value),
        EntryExpr::MapEntry(entry) => {
            push(&entry.key);
            push(&entry.value);
        }
    }
}
