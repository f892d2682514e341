//! What can go wrong when compiling and when evaluating, in the words that users know from Kubernetes.

use std::fmt::Write as _;
use std::sync::Arc;

use thiserror::Error;

/// Longest part of a user's data that a message repeats, in characters.
const MAX_QUOTED: usize = 128;

/// An expression that cannot be compiled: the first thing that is wrong with its place in the source, and what
/// else is.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{line}:{column}: {message}")]
pub struct CompileError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, without the place.
    pub message: String,
    stage: Stage,
    others: Vec<Problem>,
}

/// One thing that is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, without the place.
    pub message: String,
}

/// When an expression turned out to be wrong. Kubernetes tells the place of errors of the first kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// While its text, its names and its types were looked at.
    Check,
    /// While its constants were computed.
    Constants,
    /// While its result was compared with what is wanted.
    Result,
}

impl CompileError {
    pub(crate) fn at(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { line, column, message: message.into(), stage: Stage::Check, others: Vec::new() }
    }

    pub(crate) fn of_result(message: String) -> Self {
        Self { stage: Stage::Result, ..Self::at(1, 1, message) }
    }

    /// Nothing when there is no problem.
    pub(crate) fn of_problems(stage: Stage, problems: Vec<Problem>) -> Option<Self> {
        let mut problems = problems.into_iter();
        let Problem { line, column, message } = problems.next()?;
        Some(Self { line, column, message, stage, others: problems.collect() })
    }

    /// All that is wrong, in the order of the places.
    pub fn problems(&self) -> Vec<Problem> {
        let first = Problem { line: self.line, column: self.column, message: self.message.clone() };
        std::iter::once(first).chain(self.others.iter().cloned()).collect()
    }

    /// All that is wrong as Kubernetes tells it, each problem with its line of `source` and a mark below.
    pub fn describe(&self, source: &str) -> String {
        match self.stage {
            Stage::Result => self.message.clone(),
            Stage::Constants => format!("program instantiation failed: {}", self.message),
            Stage::Check => {
                let problems = self.problems();
                let shown: Vec<String> = problems.iter().map(|problem| problem.describe(source)).collect();
                format!("compilation failed: {}", shown.join("\n"))
            }
        }
    }
}

impl Problem {
    fn describe(&self, source: &str) -> String {
        let Self { line, column, message } = self;
        let mut text = format!("ERROR: <input>:{line}:{column}: {message}");
        let Some(shown) = source.split('\n').nth(line.saturating_sub(1)) else { return text };
        let shown = shown.replace('\t', " ");
        text.push_str("\n | ");
        text.push_str(&shown);
        text.push_str("\n | ");
        // Characters outside of ASCII are often twice as wide, and so are their marks.
        let mut characters = shown.chars();
        let before = characters.by_ref().take(column.saturating_sub(1));
        text.extend(before.map(|character| if character.is_ascii() { '.' } else { '\u{ff0e}' }));
        text.push(if characters.next().is_none_or(|character| character.is_ascii()) {
            '^'
        } else {
            '\u{ff3e}'
        });
        text
    }
}

/// An evaluation that gave no value. Every step of an evaluation hands one on or a value, so that it is kept small.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvalError {
    /// A map has no such key, or the value is not a map at all.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A function or an operator does not take values of these types.
    #[error("{}", overload(.0))]
    NoSuchOverload(Box<Mismatch>),
    /// A list has no such index.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(String),
    /// The result does not fit into its type.
    #[error("{0} overflow")]
    Overflow(&'static str),
    /// Division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// Remainder of a division by zero.
    #[error("modulus by zero")]
    ModulusByZero,
    /// The same key twice in a map literal.
    #[error("repeated key: {0}")]
    RepeatedKey(String),
    /// A value that cannot be converted.
    #[error("type conversion error from '{}' to '{}'", .0.from, .0.to)]
    Conversion(Box<Unconvertible>),
    /// An argument of the right type with a value that the function refuses.
    #[error("{}{}", if .0.function == "format" { "error during formatting: " } else { "" }, .0.message)]
    InvalidArgument(Box<Refusal>),
    /// A question to the authorizer that cannot be asked.
    #[error("{0}")]
    Authorization(&'static str),
    /// The authorizer has no answer yet: see [`Authorizer::check`](crate::Authorizer::check).
    #[error("what the authorizer was asked is not answered yet")]
    Undecided,
    /// A pattern made at run time that is not a regular expression, or too big a one.
    #[error("invalid regular expression: {0}")]
    InvalidPattern(String),
    /// `value()` of an empty optional.
    #[error("optional.none() dereference")]
    NoValue,
    /// A variable that was declared but not bound for this evaluation.
    #[error("no such attribute(s): {0}")]
    Unbound(String),
    /// The evaluation cost more than its limit, as the API server counts cost.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostExceeded,
    /// Evaluations that share a budget have spent it.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    BudgetExceeded,
    /// The evaluation took more steps than its limit.
    #[error("operation cancelled: the evaluation takes too long")]
    WorkExceeded,
    /// The evaluation made more data than its limit.
    #[error("operation cancelled: the result is too large")]
    SizeExceeded,
    /// A definition (`variables.NAME`) failed.
    #[error("composited variable \"{name}\" fails to evaluate: {source}")]
    Definition {
        /// The definition.
        name: Arc<str>,
        /// Why.
        source: Arc<EvalError>,
    },
    /// Values or definitions nest too deep.
    #[error("operation cancelled: the evaluation nests too deep")]
    TooDeep,
    /// A value that has no form in JSON.
    #[error("a value of type '{0}' cannot be written as JSON")]
    NotJson(&'static str),
}

/// A call of a function, or an operator, with values that it does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The function, or the operator in CEL's spelling (`_+_`).
    pub function: &'static str,
    /// Names of the types given, joined by commas.
    pub arguments: String,
}

/// A value that has no form in another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconvertible {
    /// Type of the value.
    pub from: &'static str,
    /// Type asked for.
    pub to: &'static str,
}

/// An argument that a function refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function.
    pub function: &'static str,
    /// What is wrong.
    pub message: String,
}

/// As Kubernetes says it: operators and methods whose first operand is of a type that has them at all are not
/// named, others are without their operands.
fn overload(Mismatch { function, arguments }: &Mismatch) -> String {
    const NUMBERS: &[&str] = &["int", "uint", "double"];
    const TIMES: &[&str] = &["google.protobuf.Timestamp", "google.protobuf.Duration"];
    let first = arguments.split(", ").next().unwrap_or_default();
    let is_number = NUMBERS.contains(&first);
    let knows = match *function {
        "@predicate" | "_&&_" | "_||_" | "_?_:_" | "-_" | "!_" | "@in" | "filter" | "sum" | "startsWith"
        | "endsWith" | "contains" | "matches" | "find" | "findAll" | "containsIP" | "containsCIDR" => true,
        "_+_" => is_number || TIMES.contains(&first) || ["string", "bytes", "list"].contains(&first),
        "_-_" => is_number || TIMES.contains(&first),
        "_*_" | "_/_" => is_number,
        "_%_" => is_number && first != "double",
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            is_number || TIMES.contains(&first) || ["string", "bytes", "bool"].contains(&first)
        }
        "size" | "sort" => false,
        "flatten" => return format!("no such overload: {first}.flatten()"),
        "@iterate" => return format!("got 'types.{}', expected iterable type", go_name(first)),
        "_._" if first == "list" => return "unsupported index type 'string' in list".to_owned(),
        "_[_]" if first == "list" => {
            let index = arguments.split(", ").nth(1).unwrap_or_default();
            return format!("unsupported index type '{index}' in list");
        }
        _ => return format!("no such overload: {function}({arguments})"),
    };
    if knows { "no such overload".to_owned() } else { format!("no such overload: {function}") }
}

/// What the API server's implementation calls a type.
fn go_name(name: &str) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    let mut letters = last.strip_suffix("_type").unwrap_or(last).chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

impl EvalError {
    /// Whether a limit was reached, or an answer is not there yet. Such errors end the evaluation: `&&`, `||`,
    /// `all()` and `exists()` do not absorb them. As in the API server, they absorb that a definition cost too
    /// much.
    pub fn is_limit(&self) -> bool {
        match self {
            Self::CostExceeded
            | Self::BudgetExceeded
            | Self::WorkExceeded
            | Self::SizeExceeded
            | Self::TooDeep
            | Self::Undecided => true,
            Self::Definition { source, .. } => **source != Self::CostExceeded && source.is_limit(),
            _ => false,
        }
    }

    pub(crate) fn no_such_key(key: &str) -> Self {
        Self::NoSuchKey(shorten(key))
    }

    pub(crate) fn conversion(from: &'static str, to: &'static str) -> Self {
        Self::Conversion(Box::new(Unconvertible { from, to }))
    }

    pub(crate) fn invalid(function: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidArgument(Box::new(Refusal { function, message: message.into() }))
    }
}

/// Text between double quotes, with escapes for what cannot be seen, as Go writes it and Kubernetes' messages
/// show it. Bytes that are no UTF-8 are escaped.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\u{7}' => quoted.push_str("\\a"),
                '\u{8}' => quoted.push_str("\\b"),
                '\u{c}' => quoted.push_str("\\f"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                '\u{b}' => quoted.push_str("\\v"),
                ' ' => quoted.push(' '),
                '\0'..='\u{7f}' if character.is_control() => {
                    let _ = write!(quoted, "\\x{:02x}", u32::from(character));
                }
                _ if is_visible(character) => quoted.push(character),
                '\0'..='\u{ffff}' => {
                    let _ = write!(quoted, "\\u{:04x}", u32::from(character));
                }
                _ => {
                    let _ = write!(quoted, "\\U{:08x}", u32::from(character));
                }
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(quoted, "\\x{byte:02x}");
        }
    }
    quoted.push('"');
    quoted
}

/// Neither a control nor a space nor a mark of formatting nor for private use.
fn is_visible(character: char) -> bool {
    let hidden = matches!(
        character,
        '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{feff}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{10ffff}'
    );
    !hidden && !character.is_control() && !character.is_whitespace()
}

/// The text between quotes, shortened, for messages.
pub(crate) fn shown(text: &str) -> String {
    quoted(shorten(text).as_bytes())
}

/// The beginning of `text`, so that a message cannot grow with hostile data.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
