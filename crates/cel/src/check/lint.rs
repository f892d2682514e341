//! What Kubernetes refuses although the types fit: literals of mixed types, and arguments that are constants and
//! cannot be right.
//!
//! Only looked at when the types fit, since it needs them all to be known.

use std::collections::HashMap;

use crate::check::cel_type::Type;
use crate::check::constants::{LIMITS, constant};
use crate::check::faults::mismatch;
use crate::check::format_clauses;
use crate::check::unification::Bindings;
use crate::library;
use crate::meter::Meter;
use crate::regex::{LiteralError, LiteralPatterns};
use crate::syntax::Fault;
use crate::syntax::ast::{CallExpr, Expr, IdedExpr, LiteralValue, MapEntry};

/// What is to be looked at once all types are known.
#[derive(Debug, Default)]
pub(super) struct Lint<'t> {
    literals: Vec<Literal>,
    /// Calls of functions whose constant arguments are looked at.
    calls: Vec<(&'t IdedExpr, &'t CallExpr)>,
    /// Calls of `format` around.
    formats: u32,
}

/// A list or a map as it is written.
#[derive(Debug)]
struct Literal {
    /// Nodes of the elements with their types, or in turn those of keys and values.
    parts: Vec<(usize, Type)>,
    map: bool,
    /// Inside a call of `format`, where types may be mixed.
    formatted: bool,
}

impl<'t> Lint<'t> {
    pub(super) fn list(&mut self, elements: &[IdedExpr], types: Vec<Type>) {
        if types.len() > 1 || self.formats() {
            let parts = elements.iter().map(|element| element.id).zip(types).collect();
            self.literals.push(Literal { parts, map: false, formatted: self.formats() });
        }
    }

    pub(super) fn map(&mut self, entries: &[MapEntry], types: Vec<(Type, Type)>) {
        if types.len() > 1 || self.formats() {
            let parts = entries.iter().zip(types);
            let parts = parts
                .flat_map(|(entry, (key, value))| [(entry.key.id, key), (entry.value.id, value)])
                .collect();
            self.literals.push(Literal { parts, map: true, formatted: self.formats() });
        }
    }

    /// Whether the parts of a call of `format` are being checked.
    pub(super) fn formats(&self) -> bool {
        self.formats > 0
    }

    /// Notes that the parts of a call are about to be checked.
    pub(super) fn enter(&mut self, call: &CallExpr) {
        self.formats += u32::from(call.func_name == "format");
    }

    /// Notes a call whose parts were checked.
    pub(super) fn leave(&mut self, expr: &'t IdedExpr, call: &'t CallExpr) {
        self.formats -= u32::from(call.func_name == "format");
        if matches!(call.func_name.as_str(), "duration" | "timestamp" | "matches" | "format") {
            self.calls.push((expr, call));
        }
    }

    /// Looks at what was noted.
    pub(super) fn report(self, bindings: &mut Bindings, faults: &mut Vec<Fault>) -> LiteralPatterns {
        let mut patterns = LiteralPatterns::default();
        let mut formats = Vec::new();
        for (expr, call) in self.calls {
            match (call.func_name.as_str(), call.args.as_slice()) {
                ("matches", [argument, ..]) => pattern(argument, &mut patterns, faults),
                ("format", [arguments]) => formats.push((expr, call, arguments)),
                (name, [argument, ..]) => convertible(name, argument, faults),
                _ => {}
            }
        }
        let mut types = HashMap::new();
        for literal in self.literals {
            let parts: Vec<(usize, Type)> =
                literal.parts.iter().map(|(node, found)| (*node, bindings.settle(found))).collect();
            if literal.formatted {
                types.extend(parts);
            } else if literal.map {
                mixed_map(&parts, bindings, faults);
            } else {
                mixed_list(&parts, bindings, faults);
            }
        }
        for (expr, call, arguments) in formats {
            if let (Some(Expr::Literal(LiteralValue::String(text))), Expr::List(list)) =
                (call.target.as_deref().map(|target| &target.expr), &arguments.expr)
            {
                faults.extend(format_clauses::check(expr, text, &list.elements, &types));
            }
        }
        patterns
    }
}

/// The first element whose type is not that of the first.
fn mixed_list(parts: &[(usize, Type)], bindings: &mut Bindings, faults: &mut Vec<Fault>) {
    let Some(((_, wanted), others)) = parts.split_first() else { return };
    let other = others.iter().find(|(_, found)| !bindings.same(wanted, found, 0));
    faults.extend(other.map(|(node, found)| mismatch(*node, wanted, found)));
}

/// Every key and value whose type is not that of the first.
fn mixed_map(parts: &[(usize, Type)], bindings: &mut Bindings, faults: &mut Vec<Fault>) {
    let [(_, key), (_, value), others @ ..] = parts else { return };
    for (index, (node, found)) in others.iter().enumerate() {
        let wanted = if index % 2 == 0 { key } else { value };
        if !bindings.same(wanted, found, 0) {
            faults.push(mismatch(*node, wanted, found));
        }
    }
}

fn pattern(argument: &IdedExpr, patterns: &mut LiteralPatterns, faults: &mut Vec<Fault>) {
    let Expr::Literal(LiteralValue::String(text)) = &argument.expr else { return };
    match patterns.get(text) {
        Ok(_) => {}
        Err(LiteralError::Invalid(_)) => faults.push(Fault::new(argument, "invalid matches argument")),
        Err(error @ LiteralError::TooMany) => faults.push(Fault::new(argument, error.to_string())),
    }
}

fn convertible(name: &str, argument: &IdedExpr, faults: &mut Vec<Fault>) {
    let Expr::Literal(literal) = &argument.expr else { return };
    let Ok(function) = library::find_function(name, false, 1) else { return };
    if (function.body)(&Meter::new(LIMITS), &[constant(literal)]).is_err() {
        faults.push(Fault::new(argument, format!("invalid {name} argument")));
    }
}
