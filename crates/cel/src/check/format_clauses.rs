//! The clauses of a literal text that is formatted with a list as it is written.

use std::collections::HashMap;

use crate::check::cel_type::Type;
use crate::syntax::Fault;
use crate::syntax::ast::{Expr, IdedExpr};

/// Types of the parts of literals, by node.
type Types = HashMap<usize, Type>;

/// What is wrong with the clauses, or with how many arguments there are.
pub(super) fn check(expr: &IdedExpr, text: &str, arguments: &[IdedExpr], types: &Types) -> Option<Fault> {
    let mut rest = text;
    let mut used = 0;
    while let Some(start) = rest.find('%') {
        rest = rest.get(start + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Some(Fault::new(expr, "unexpected end of string"));
        }
        let Some(argument) = arguments.get(used) else {
            return Some(Fault::new(expr, format!("index {used} out of range")));
        };
        used += 1;
        let problem;
        (problem, rest) = match clause(rest) {
            Ok((clause, after)) => (clause_fault(clause, argument, types), after),
            Err(message) => {
                let message = format!("could not parse formatting clause: {message}");
                (Some(Fault::new(expr, message)), "")
            }
        };
        if problem.is_some() {
            return problem;
        }
    }
    (arguments.len() > used).then(|| {
        let message = format!(
            "too many arguments supplied to string.format (expected {used}, got {})",
            arguments.len()
        );
        Fault::new(expr, message)
    })
}

/// The letter of the clause, and what stands behind it.
fn clause(text: &str) -> Result<(char, &str), String> {
    let mut rest = text;
    if let Some(precision) = text.strip_prefix('.') {
        let end = precision.find(|c: char| !c.is_ascii_digit());
        let Some((digits, after)) = end.and_then(|end| precision.split_at_checked(end)) else {
            return Err("error while parsing precision: could not find end of precision specifier".to_owned());
        };
        if digits.parse::<i64>().is_err() {
            return Err(format!(
                "error while parsing precision: error while converting precision to integer: {digits:?} is no number"
            ));
        }
        rest = after;
    }
    let mut characters = rest.chars();
    match characters.next() {
        Some(letter @ ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o')) => Ok((letter, characters.as_str())),
        Some(other) => Err(format!("unrecognized formatting clause \"{other}\"")),
        None => Err("unexpected end of string".to_owned()),
    }
}

fn clause_fault(clause: char, argument: &IdedExpr, types: &Types) -> Option<Fault> {
    if clause == 's' {
        return unprintable(argument, types);
    }
    let found = types.get(&argument.id)?;
    let (fits, wanted) = match clause {
        'd' => (is_integer(found), "decimal clause can only be used on integers"),
        'o' => (is_integer(found), "octal clause can only be used on integers"),
        'f' => (is_number_or_text(found), "fixed-point clause can only be used on doubles"),
        'e' => (is_number_or_text(found), "scientific clause can only be used on doubles"),
        'b' => {
            (is_integer(found) || *found == Type::Bool, "only integers and bools can be formatted as binary")
        }
        _ => (
            is_integer(found) || matches!(found, Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
    };
    (!fits).then(|| unformattable(argument, wanted, found))
}

fn is_integer(found: &Type) -> bool {
    matches!(found, Type::Int | Type::Uint | Type::Dyn)
}

/// The names of numbers that are not finite are texts.
fn is_number_or_text(found: &Type) -> bool {
    matches!(found, Type::Double | Type::String | Type::Dyn)
}

fn unformattable(argument: &IdedExpr, wanted: &str, found: &Type) -> Fault {
    let found = found.runtime_name();
    Fault::new(argument, format!("error during formatting: {wanted}, was given {found}"))
}

/// The first part of an argument that has no text. Literals are looked into, without recursion.
fn unprintable(argument: &IdedExpr, types: &Types) -> Option<Fault> {
    let mut pending = vec![argument];
    while let Some(part) = pending.pop() {
        let found = types.get(&part.id).unwrap_or(&Type::Dyn);
        if matches!(found, Type::Optional(_) | Type::Opaque(_) | Type::Struct(_)) {
            let wanted = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
                          types, durations, and timestamps";
            return Some(unformattable(part, wanted, found));
        }
        let mut inner: Vec<&IdedExpr> = match &part.expr {
            Expr::List(list) => list.elements.iter().collect(),
            Expr::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect(),
            _ => Vec::new(),
        };
        inner.reverse();
        pending.extend(inner);
    }
    None
}
