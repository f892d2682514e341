//! From source to tokens.

/// One token, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) text: &'s str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    End,
    /// No token, with the reason. The lexer does not get past it.
    Error(&'static str),
    Ident,
    /// A word that is no name, though a field may have it.
    Reserved,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    /// An operator, a bracket or a keyword.
    Symbol(&'static str),
}

/// Longer ones before those that they begin with.
const SYMBOLS: &[&str] = &[
    ".", "(", ")", ",", "&&", "||", "==", "!=", "[", "]", "!", "?", ":", "{", "}", "<=", "<", ">=", ">", "+",
    "-", "*", "/", "%", "=",
];

const KEYWORDS: &[&str] = &["true", "false", "null", "in"];

const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Reads tokens one after the other.
#[derive(Debug)]
pub(super) struct Lexer<'s> {
    source: &'s str,
    rest: &'s str,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, rest: source }
    }

    /// The next token; the same again at the end and at what is no token.
    pub(super) fn token(&mut self) -> Token<'s> {
        self.skip_blanks();
        let (kind, length) = scan(self.rest);
        let mut start = self.source.len() - self.rest.len();
        if kind == TokenKind::End {
            // A line break that ends the source does not begin another line.
            let shown = self.source.strip_suffix('\n').unwrap_or(self.source);
            start = shown.strip_suffix('\r').unwrap_or(shown).len();
        }
        let (text, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        Token { kind, start, text }
    }

    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\n', '\t', '\r', '\u{b}', '\u{c}']);
            let Some(comment) = self.rest.strip_prefix("//") else { return };
            self.rest = comment.split_once('\n').map_or("", |(_, after)| after);
        }
    }
}

/// The kind of token that `rest` begins with, and its length.
fn scan(rest: &str) -> (TokenKind, usize) {
    match rest.as_bytes() {
        [] => (TokenKind::End, 0),
        bytes @ ([b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..]) => number(bytes),
        [b'`', ..] => (TokenKind::Error("unsupported syntax: '`'"), 0),
        bytes @ [first, ..] => {
            if let Some(found) = string(bytes) {
                return found;
            }
            if first.is_ascii_alphabetic() || *first == b'_' {
                return word(rest);
            }
            match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => (TokenKind::Symbol(symbol), symbol.len()),
                None => (TokenKind::Error(stray(*first)), 0),
            }
        }
    }
}

fn stray(first: u8) -> &'static str {
    match first {
        b'&' => "unexpected single '&', expected '&&'",
        b'|' => "unexpected single '|', expected '||'",
        _ => "unexpected character",
    }
}

fn word(rest: &str) -> (TokenKind, usize) {
    let length = rest.bytes().take_while(|byte| is_of_name(*byte)).count();
    let word = rest.get(..length).unwrap_or_default();
    let kind = match KEYWORDS.iter().find(|keyword| **keyword == word) {
        Some(keyword) => TokenKind::Symbol(keyword),
        None if RESERVED.contains(&word) => TokenKind::Reserved,
        None => TokenKind::Ident,
    };
    (kind, length)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn number(bytes: &[u8]) -> (TokenKind, usize) {
    let past = |start: usize, is_digit: fn(&u8) -> bool| {
        start + bytes.iter().skip(start).take_while(|byte| is_digit(byte)).count()
    };
    let is = |at: usize, accepted: &[u8]| bytes.get(at).is_some_and(|byte| accepted.contains(byte));
    let (mut kind, mut end) = (TokenKind::Int, 0);
    if is(0, b"0") && is(1, b"xX") {
        end = past(2, u8::is_ascii_hexdigit);
        if end == 2 {
            return (TokenKind::Error("integral literal missing digits after hexadecimal separator"), 0);
        }
    } else {
        end = past(end, u8::is_ascii_digit);
        if is(end, b".") && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            (kind, end) = (TokenKind::Double, past(end + 1, u8::is_ascii_digit));
        }
        if is(end, b"eE") {
            let exponent = end + if is(end + 1, b"+-") { 2 } else { 1 };
            (kind, end) = (TokenKind::Double, past(exponent, u8::is_ascii_digit));
            if end == exponent {
                return (
                    TokenKind::Error("floating point literal missing digits after exponent separator"),
                    0,
                );
            }
        }
    }
    if kind == TokenKind::Int && is(end, b"uU") {
        (kind, end) = (TokenKind::Uint, end + 1);
    }
    if bytes.get(end).is_some_and(|byte| is_of_name(*byte)) {
        kind = TokenKind::Error(match kind {
            TokenKind::Uint => "uint literal has unexpected trailing characters",
            TokenKind::Double => "float literal has unexpected trailing characters",
            _ => "int literal has unexpected trailing characters",
        });
    }
    (kind, end)
}

/// Strings and bytes, with their prefix; nothing for what is neither.
fn string(source: &[u8]) -> Option<(TokenKind, usize)> {
    let (raw, bytes, prefix) = match source {
        [b'\'' | b'"', ..] => (false, false, 0),
        [b'r' | b'R', b'\'' | b'"', ..] => (true, false, 1),
        [b'b' | b'B', b'\'' | b'"', ..] => (false, true, 1),
        [b'r' | b'R', b'b' | b'B', b'\'' | b'"', ..] | [b'b' | b'B', b'r' | b'R', b'\'' | b'"', ..] => {
            (true, true, 2)
        }
        _ => return None,
    };
    let (kind, unterminated) = if bytes {
        (TokenKind::Bytes, "unterminated bytes literal")
    } else {
        (TokenKind::String, "unterminated string literal")
    };
    let opening = source.get(prefix..)?;
    let quote = match opening {
        [first, second, third, ..] if first == second && first == third => opening.get(..3)?,
        _ => opening.get(..1)?,
    };
    let mut at = prefix + quote.len();
    while let Some(left @ [first, ..]) = source.get(at..) {
        if left.starts_with(quote) {
            return Some((kind, at + quote.len()));
        }
        at += if *first == b'\\' && !raw { 2 } else { 1 };
    }
    Some((TokenKind::Error(unterminated), 0))
}
