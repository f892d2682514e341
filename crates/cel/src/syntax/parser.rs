//! From tokens to the tree: recursive descent, and precedence climbing for binary operators.
//!
//! The parser recurses once per level of the tree, whose depth is bounded: operands of one chain, signs in a row
//! and parentheses in a row are loops.

use std::mem;

use super::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, Kind, ListExpr, LiteralValue, MapEntry, SelectExpr,
    StructExpr, StructField, operators,
};
use super::lexer::{Lexer, Token, TokenKind};
use super::literals;

/// Deepest nesting of an expression, macros expanded.
pub const MAX_DEPTH: usize = 100;

/// The first thing that is wrong.
#[derive(Debug)]
pub(super) struct SyntaxError {
    /// Where it is, in bytes.
    pub(super) offset: usize,
    pub(super) message: String,
}

/// Boxed, and nodes are made in functions that do not recurse: what is kept on the stack is multiplied by the depth.
type Parsed<T = Box<IdedExpr>> = Result<T, SyntaxError>;

/// The tree, and the offset at which messages place each node.
pub(super) fn parse(source: &str) -> Parsed<(IdedExpr, Vec<usize>)> {
    let mut lexer = Lexer::new(source);
    let next = lexer.token();
    let mut parser = Parser { lexer, next, nesting: 0, places: Vec::new() };
    let root = parser.expression()?;
    if parser.next.kind == TokenKind::End {
        return Ok((*root, parser.places));
    }
    Err(parser.mismatched("<EOF>"))
}

struct Parser<'s> {
    lexer: Lexer<'s>,
    next: Token<'s>,
    /// Nodes around the one that is being read, at least.
    nesting: usize,
    places: Vec<usize>,
}

impl<'s> Parser<'s> {
    fn advance(&mut self) -> Token<'s> {
        mem::replace(&mut self.next, self.lexer.token())
    }

    fn is_next(&self, symbol: &'static str) -> bool {
        self.next.kind == TokenKind::Symbol(symbol)
    }

    fn takes(&mut self, symbol: &'static str) -> bool {
        let found = self.is_next(symbol);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, symbol: &'static str, message: &'static str) -> Parsed<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(message)) }
    }

    /// Whether a list in brackets ends here. What is missing then is the bracket.
    fn is_at_end_of_list(&self, close: &'static str) -> bool {
        self.is_next(close) || self.next.kind == TokenKind::End
    }

    /// An error at the next token; what the lexer says of it comes first.
    fn unexpected(&self, message: &str) -> SyntaxError {
        let message = if let TokenKind::Error(reason) = self.next.kind { reason } else { message };
        wrong(self.next.start, message)
    }

    fn mismatched(&self, expected: &str) -> SyntaxError {
        let found = match self.next.kind {
            TokenKind::End => "<EOF>".to_owned(),
            _ => format!("'{}'", self.next.text),
        };
        self.unexpected(&format!("mismatched input {found} expecting {expected}"))
    }

    fn id(&mut self, place: usize) -> usize {
        self.places.push(place);
        self.places.len() - 1
    }

    fn node(&mut self, place: usize, expr: Expr) -> Parsed {
        let depth = 1 + expr.depth_of_parts();
        if depth > MAX_DEPTH {
            return Err(too_deep(place));
        }
        Ok(Box::new(IdedExpr { id: self.id(place), depth, expr }))
    }

    fn operator(&mut self, place: usize, name: &str, args: Vec<IdedExpr>) -> Parsed {
        self.node(place, Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }

    fn binary(&mut self, place: usize, name: &str, operands: [Box<IdedExpr>; 2]) -> Parsed {
        self.operator(place, name, operands.map(|operand| *operand).into())
    }

    /// Reads a part of a node.
    fn within<T>(&mut self, read: fn(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting + 1 >= MAX_DEPTH {
            return Err(too_deep(self.next.start));
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    fn nested(&mut self) -> Parsed {
        self.within(Self::expression)
    }

    fn expression(&mut self) -> Parsed {
        let first = self.operand()?;
        self.expression_from(first)
    }

    /// An expression of which the first operand was read.
    fn expression_from(&mut self, first: Box<IdedExpr>) -> Parsed {
        let condition = self.chain(first, OR)?;
        let place = self.next.start;
        if !self.takes("?") {
            return Ok(condition);
        }
        let (yes, no) = self.within(Self::branches)?;
        self.operator(place, operators::CONDITIONAL, vec![*condition, *yes, *no])
    }

    fn branches(&mut self) -> Parsed<(Box<IdedExpr>, Box<IdedExpr>)> {
        let first = self.operand()?;
        let yes = self.chain(first, OR)?;
        self.expect(":", "expected ':' in conditional expression")?;
        Ok((yes, self.expression()?))
    }

    /// Binary operators from `lowest` on, of which the first operand was read.
    fn chain(&mut self, mut left: Box<IdedExpr>, lowest: u8) -> Parsed {
        while let Some((level, name)) = binary_operator(self.next.kind)
            && level >= lowest
        {
            if level < RELATION {
                left = self.logical_chain(left, level, name)?;
            } else {
                let place = self.advance().start;
                let right = self.right_operand(level)?;
                left = self.binary(place, name, [left, right])?;
            }
        }
        Ok(left)
    }

    fn right_operand(&mut self, level: u8) -> Parsed {
        self.within(match level {
            OR => |parser| parser.tighter(AND),
            AND => |parser| parser.tighter(RELATION),
            RELATION => |parser| parser.tighter(SUM),
            SUM => |parser| parser.tighter(PRODUCT),
            _ => Self::operand,
        })
    }

    fn tighter(&mut self, lowest: u8) -> Parsed {
        let first = self.operand()?;
        self.chain(first, lowest)
    }

    /// `a && b && c …` as a balanced tree, as cel-go makes it.
    fn logical_chain(&mut self, first: Box<IdedExpr>, level: u8, name: &str) -> Parsed {
        let operator = self.next.kind;
        let (mut terms, mut places) = (vec![first], Vec::new());
        while self.next.kind == operator {
            places.push(self.advance().start);
            terms.push(self.right_operand(level)?);
        }
        self.balanced(name, &mut terms.into_iter(), &places)
    }

    fn balanced(
        &mut self,
        name: &str,
        terms: &mut impl Iterator<Item = Box<IdedExpr>>,
        places: &[usize],
    ) -> Parsed {
        let (before, rest) = places.split_at(places.len() / 2);
        let Some((place, after)) = rest.split_first() else {
            return terms.next().ok_or_else(|| self.unexpected("expected an operand"));
        };
        let left = self.balanced(name, terms, before)?;
        let right = self.balanced(name, terms, after)?;
        self.binary(*place, name, [left, right])
    }

    /// Signs and what they are before.
    fn operand(&mut self) -> Parsed {
        if !self.is_next("!") && !self.is_next("-") {
            return self.member();
        }
        // Two of a kind cancel each other out.
        let mut signs: Vec<Token<'s>> = Vec::new();
        let mut read = 0;
        while self.is_next("!") || self.is_next("-") {
            let sign = self.advance();
            read += 1;
            match signs.last() {
                Some(last) if last.kind == sign.kind => drop(signs.pop()),
                _ => signs.push(sign),
            }
        }
        if read == 1
            && let [sign] = signs.as_slice()
            && sign.kind == TokenKind::Symbol("-")
            && matches!(self.next.kind, TokenKind::Int | TokenKind::Double)
        {
            let literal = self.literal(sign.start, true)?;
            return self.member_from(literal);
        }
        let mut operand = self.within(Self::member)?;
        while let Some(sign) = signs.pop() {
            let name =
                if sign.kind == TokenKind::Symbol("-") { operators::NEGATE } else { operators::LOGICAL_NOT };
            operand = self.operator(sign.start, name, vec![*operand])?;
        }
        Ok(operand)
    }

    fn member(&mut self) -> Parsed {
        let first = self.primary()?;
        self.member_from(first)
    }

    /// Fields, calls and indexes behind what was read.
    fn member_from(&mut self, mut operand: Box<IdedExpr>) -> Parsed {
        loop {
            let place = self.next.start;
            operand = if self.takes(".") {
                self.field(operand, place)?
            } else if self.takes("[") {
                let name = if self.takes("?") { operators::OPT_INDEX } else { operators::INDEX };
                let key = self.nested()?;
                self.expect("]", "expected ']'")?;
                self.binary(place, name, [operand, key])?
            } else if self.is_next("{")
                && let Some(type_name) = operand.expr.qualified_name()
            {
                self.structure(type_name)?
            } else {
                return Ok(operand);
            };
        }
    }

    /// What is behind the dot at `place`.
    fn field(&mut self, operand: Box<IdedExpr>, place: usize) -> Parsed {
        let optional = self.takes("?");
        if !matches!(self.next.kind, TokenKind::Ident | TokenKind::Reserved) {
            return Err(self.unexpected("expected identifier after '.'"));
        }
        let Token { start, text, .. } = self.advance();
        if optional {
            let field = self.node(start, Expr::Literal(LiteralValue::String(text.to_owned())))?;
            return self.binary(place, operators::OPT_SELECT, [operand, field]);
        }
        let open = self.next.start;
        if self.takes("(") {
            let arguments = self.arguments()?;
            return self.member_call(open, operand, text, arguments);
        }
        self.select(place, operand, text)
    }

    fn select(&mut self, place: usize, operand: Box<IdedExpr>, field: &str) -> Parsed {
        self.node(place, Expr::Select(SelectExpr { operand, field: field.to_owned(), test: false }))
    }

    fn member_call(
        &mut self,
        place: usize,
        target: Box<IdedExpr>,
        name: &str,
        mut args: Vec<IdedExpr>,
    ) -> Parsed {
        if let Some(kind) = macro_kind(name, args.len())
            && let Some(mut body) = args.pop()
        {
            let first = args.swap_remove(0);
            let Expr::Ident(variable) = &first.expr else {
                return Err(self.wrong_at(&first, "argument must be a simple name"));
            };
            let variable = variable.clone();
            let mut filter = args.pop();
            if name == "filter" {
                filter = Some(mem::replace(&mut body, first));
            }
            let made = ComprehensionExpr { kind, range: *target, variable, filter, body };
            return self.node(place, Expr::Comprehension(Box::new(made)));
        }
        self.node(place, Expr::Call(CallExpr { func_name: name.to_owned(), target: Some(target), args }))
    }

    fn arguments(&mut self) -> Parsed<Vec<IdedExpr>> {
        let mut arguments = Vec::new();
        if !self.is_at_end_of_list(")") {
            arguments.push(*self.nested()?);
            while self.takes(",") {
                arguments.push(*self.nested()?);
            }
        }
        if self.takes(")") { Ok(arguments) } else { Err(self.mismatched("')'")) }
    }

    fn structure(&mut self, type_name: String) -> Parsed {
        let place = self.advance().start;
        let mut fields = Vec::new();
        while !self.is_at_end_of_list("}") {
            let optional = self.takes("?");
            if !matches!(self.next.kind, TokenKind::Ident | TokenKind::Reserved) {
                return Err(self.unexpected("expected struct field name"));
            }
            let field = self.advance().text.to_owned();
            let colon = self.next.start;
            self.expect(":", "expected ':' in struct field")?;
            let id = self.id(colon);
            fields.push(StructField { id, field, value: *self.nested()?, optional });
            if !self.takes(",") {
                break;
            }
        }
        self.expect("}", "expected '}'")?;
        self.node(place, Expr::Struct(StructExpr { type_name, fields }))
    }

    fn primary(&mut self) -> Parsed {
        let place = self.next.start;
        match self.next.kind {
            TokenKind::Ident | TokenKind::Reserved | TokenKind::Symbol(".") => self.name(),
            TokenKind::Symbol("(") => self.parentheses(),
            TokenKind::Symbol("[") => self.list(),
            TokenKind::Symbol("{") => self.map(),
            TokenKind::End => Err(self.unexpected("mismatched input '<EOF>' expecting expression")),
            _ => self.literal(place, false),
        }
    }

    /// Parentheses that are opened in a row are read in a loop.
    fn parentheses(&mut self) -> Parsed {
        let mut open = 0_usize;
        while self.takes("(") {
            open += 1;
        }
        let mut inner = self.expression()?;
        loop {
            self.expect(")", "expected ')'")?;
            open -= 1;
            if open == 0 {
                return Ok(inner);
            }
            let first = self.member_from(inner)?;
            inner = self.expression_from(first)?;
        }
    }

    fn list(&mut self) -> Parsed {
        let place = self.advance().start;
        let (mut elements, mut optional_indices) = (Vec::new(), Vec::new());
        while !self.is_at_end_of_list("]") {
            if self.takes("?") {
                optional_indices.push(elements.len());
            }
            elements.push(*self.nested()?);
            if !self.takes(",") {
                break;
            }
        }
        self.expect("]", "expected ']'")?;
        self.node(place, Expr::List(ListExpr { elements, optional_indices }))
    }

    fn map(&mut self) -> Parsed {
        let place = self.advance().start;
        let mut entries = Vec::new();
        while !self.is_at_end_of_list("}") {
            let optional = self.takes("?");
            let key = self.nested()?;
            self.expect(":", "expected ':' in map entry")?;
            entries.push(MapEntry { key: *key, value: *self.nested()?, optional });
            if !self.takes(",") {
                break;
            }
        }
        self.expect("}", "expected '}'")?;
        self.node(place, Expr::Map(entries))
    }

    /// A name or a call of a function.
    fn name(&mut self) -> Parsed {
        let dot = if self.takes(".") { "." } else { "" };
        let Token { kind, start, text } = self.next;
        match kind {
            TokenKind::Ident => {}
            TokenKind::Reserved => return Err(self.unexpected(&format!("reserved identifier: {text}"))),
            _ => return Err(self.unexpected("expected identifier")),
        }
        self.advance();
        let name = format!("{dot}{text}");
        let place = self.next.start;
        if !self.takes("(") {
            return self.node(start, Expr::Ident(name));
        }
        let arguments = self.arguments()?;
        self.global_call(place, &name, arguments)
    }

    fn global_call(&mut self, place: usize, name: &str, mut args: Vec<IdedExpr>) -> Parsed {
        if name == "has" && args.len() == 1 {
            let argument = args.swap_remove(0);
            let Expr::Select(select) = argument.expr else {
                return Err(self.wrong_at(&argument, "invalid argument to has() macro"));
            };
            return self.node(place, Expr::Select(SelectExpr { test: true, ..select }));
        }
        self.operator(place, name, args)
    }

    fn wrong_at(&self, node: &IdedExpr, message: &str) -> SyntaxError {
        wrong(self.places.get(node.id).copied().unwrap_or_default(), message)
    }

    fn literal(&mut self, place: usize, negative: bool) -> Parsed {
        let text = self.next.text;
        let literal = match self.next.kind {
            TokenKind::Int => {
                literals::int(text, negative).map(LiteralValue::Int).ok_or("invalid int literal")
            }
            TokenKind::Uint => literals::uint(text).map(LiteralValue::UInt).ok_or("invalid uint literal"),
            TokenKind::Double => literals::double(text)
                .map(|value| LiteralValue::Double(if negative { -value } else { value }))
                .ok_or("invalid double literal"),
            TokenKind::String => literals::string(text).map(LiteralValue::String),
            TokenKind::Bytes => literals::bytes(text).map(LiteralValue::Bytes),
            TokenKind::Symbol("null") => Ok(LiteralValue::Null),
            TokenKind::Symbol("true") => Ok(LiteralValue::Boolean(true)),
            TokenKind::Symbol("false") => Ok(LiteralValue::Boolean(false)),
            _ => Err("unexpected token"),
        };
        let literal = literal.map_err(|message| self.unexpected(message))?;
        self.advance();
        self.node(place, Expr::Literal(literal))
    }
}

fn wrong(offset: usize, message: &str) -> SyntaxError {
    SyntaxError { offset, message: format!("syntax error: {message}") }
}

fn too_deep(offset: usize) -> SyntaxError {
    SyntaxError { offset, message: format!("expression nests deeper than {MAX_DEPTH}") }
}

/// The macro over one variable that a call of a method is.
fn macro_kind(name: &str, arguments: usize) -> Option<Kind> {
    match (name, arguments) {
        ("all", 2) => Some(Kind::All),
        ("exists", 2) => Some(Kind::Exists),
        ("exists_one" | "existsOne", 2) => Some(Kind::ExistsOne),
        ("map", 2 | 3) | ("filter", 2) => Some(Kind::List),
        _ => None,
    }
}

/// How tightly binary operators bind, from the loosest.
const OR: u8 = 1;
const AND: u8 = 2;
const RELATION: u8 = 3;
const SUM: u8 = 4;
const PRODUCT: u8 = 5;

fn binary_operator(kind: TokenKind) -> Option<(u8, &'static str)> {
    let TokenKind::Symbol(symbol) = kind else { return None };
    Some(match symbol {
        "||" => (OR, operators::LOGICAL_OR),
        "&&" => (AND, operators::LOGICAL_AND),
        "==" => (RELATION, operators::EQUALS),
        "!=" => (RELATION, operators::NOT_EQUALS),
        "<" => (RELATION, operators::LESS),
        "<=" => (RELATION, operators::LESS_EQUALS),
        ">" => (RELATION, operators::GREATER),
        ">=" => (RELATION, operators::GREATER_EQUALS),
        "in" => (RELATION, operators::IN),
        "+" => (SUM, operators::ADD),
        "-" => (SUM, operators::SUBTRACT),
        "*" => (PRODUCT, operators::MULTIPLY),
        "/" => (PRODUCT, operators::DIVIDE),
        "%" => (PRODUCT, operators::MODULO),
        _ => return None,
    })
}
