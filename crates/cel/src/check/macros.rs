//! Each macro is checked as what it stands for, so that messages are those of the expansion: `sortBy` asks for an
//! overload of `@sortByAssociatedKeys`.

use std::iter;

use crate::check::cel_type::Type;
use crate::check::checker::Checker;
use crate::syntax::Fault;
use crate::syntax::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, Kind, operators};

/// Inserts an entry, or the entries of a map, into the map that a macro makes.
const MAP_INSERT: &str = "cel.@mapInsert";

impl<'t> Checker<'t> {
    /// The result of a macro; nothing for other calls, and for macros that are not written right, which the
    /// compiler tells of.
    pub(super) fn macro_call(
        &mut self,
        expr: &'t IdedExpr,
        target: &'t IdedExpr,
        call: &'t CallExpr,
    ) -> Option<Type> {
        Some(match (call.func_name.as_str(), call.args.as_slice()) {
            ("optMap", [variable, body]) => self.optional_map(expr, target, variable, body, false),
            ("optFlatMap", [variable, body]) => self.optional_map(expr, target, variable, body, true),
            ("sortBy", [variable, key]) => self.sort_by(expr, target, variable, key),
            (name @ ("all" | "exists" | "existsOne" | "exists_one"), [first, second, body]) => {
                let kind = match name {
                    "all" => Kind::All,
                    "exists" => Kind::Exists,
                    _ => Kind::ExistsOne,
                };
                self.pairs(expr, target, kind, [first, second], None, body)
            }
            (
                name @ ("transformList" | "transformMap" | "transformMapEntry"),
                [first, second, filter @ .., body],
            ) if filter.len() <= 1 => {
                let kind = match name {
                    "transformList" => Kind::List,
                    "transformMap" => Kind::Map,
                    _ => Kind::MapEntries,
                };
                self.pairs(expr, target, kind, [first, second], filter.first(), body)
            }
            _ => return None,
        })
    }

    /// The name of a macro's variable.
    fn variable(&mut self, expr: &'t IdedExpr) -> &'t str {
        match &expr.expr {
            Expr::Ident(name) if !name.starts_with('.') => name,
            _ => {
                self.fault(Fault::of_macro(expr, "argument must be a simple name"));
                ""
            }
        }
    }

    /// `o.hasValue() ? optional.of(BODY) : optional.none()`, where the variable is `o.value()`.
    fn optional_map(
        &mut self,
        expr: &'t IdedExpr,
        target: &'t IdedExpr,
        variable: &'t IdedExpr,
        body: &'t IdedExpr,
        flat: bool,
    ) -> Type {
        let name = self.variable(variable);
        let known = self.faults.len();
        let optional = [self.check(target)];
        // What is wrong with the optional is told for each of its two places.
        let again: Vec<Fault> = self.faults.get(known..).unwrap_or_default().to_vec();
        let condition = self.resolve_named(expr, "hasValue", &optional, true);
        self.bindings.fresh(1);
        for fault in again {
            self.fault(fault);
        }
        let value = self.resolve_named(expr, "value", &optional, true);
        let found = self.within([(name, value)], |checker| checker.check(body));
        let found = self.bindings.resolve(&found);
        let found = if flat { found } else { self.resolve_named(expr, "optional.of", &[found], false) };
        let none = self.resolve_named(expr, "optional.none", &[], false);
        self.resolve_named(expr, operators::CONDITIONAL, &[condition, found, none], false)
    }

    /// The list, sorted by what mapping it gives.
    fn sort_by(
        &mut self,
        expr: &'t IdedExpr,
        target: &'t IdedExpr,
        variable: &'t IdedExpr,
        key: &'t IdedExpr,
    ) -> Type {
        if matches!(target.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_)) {
            let allowed = "a list, identifier, comprehension, call or select expression";
            return self.fault(Fault::of_macro(target, format!("sortBy can only be applied to {allowed}")));
        }
        let name = self.variable(variable);
        self.bindings.fresh(1);
        let list = self.check(target);
        let gathered = Type::list(Type::Variable(self.bindings.fresh(1)));
        let (item, _) = self.range(expr, &list);
        let found = self.within([("@result", gathered.clone()), (name, item)], |checker| checker.check(key));
        let step = self.resolve_named(expr, operators::ADD, &[gathered.clone(), Type::list(found)], false);
        self.demand(expr, &gathered, &step);
        let keys = self.bindings.resolve(&gathered);
        self.resolve_named(expr, "@sortByAssociatedKeys", &[list, keys], true)
    }

    /// A macro of two variables.
    fn pairs(
        &mut self,
        expr: &'t IdedExpr,
        target: &'t IdedExpr,
        kind: Kind,
        variables: [&'t IdedExpr; 2],
        filter: Option<&'t IdedExpr>,
        body: &'t IdedExpr,
    ) -> Type {
        let [first, second] = variables.map(|variable| self.variable(variable));
        if first == second && !first.is_empty() {
            let [_, variable] = variables;
            self.fault(Fault::of_macro(variable, format!("duplicate variable name: {first}")));
        }
        self.fold(expr, target, kind, &[first, second], filter, body)
    }

    /// A macro of one variable, which the parser recognised.
    pub(super) fn comprehension(&mut self, expr: &'t IdedExpr, made: &'t ComprehensionExpr) -> Type {
        let ComprehensionExpr { kind, range, variable, filter, body } = made;
        self.fold(expr, range, *kind, &[variable], filter.as_ref(), body)
    }

    fn fold(
        &mut self,
        expr: &'t IdedExpr,
        target: &'t IdedExpr,
        kind: Kind,
        variables: &[&'t str],
        filter: Option<&'t IdedExpr>,
        body: &'t IdedExpr,
    ) -> Type {
        let range = self.check(target);
        let gathered = match kind {
            Kind::All | Kind::Exists => Type::Bool,
            Kind::ExistsOne => Type::Int,
            Kind::List | Kind::Sorted => Type::list(Type::Variable(self.bindings.fresh(1))),
            Kind::Map | Kind::MapEntries => {
                let variable = self.bindings.fresh(2);
                Type::map(Type::Variable(variable), Type::Variable(variable + 1))
            }
        };
        let (item, (key, value)) = self.range(target, &range);
        let types = if variables.len() == 1 { vec![item] } else { vec![key.clone(), value] };
        let locals = variables.iter().copied().zip(types);
        let locals = iter::once(("@result", gathered.clone())).chain(locals);
        let (filtered, found) = self.within(locals, |checker| {
            let filtered = filter.map(|filter| checker.check(filter));
            (filtered, checker.check(body))
        });
        let mut step = match kind {
            Kind::All | Kind::Exists => {
                if !self.bindings.assignable(&found, &Type::Bool) {
                    self.mismatch(body, &Type::Bool, &found);
                }
                Type::Bool
            }
            Kind::ExistsOne => {
                self.resolve_named(expr, operators::ADD, &[Type::Int, Type::Int], false);
                self.resolve_named(expr, operators::CONDITIONAL, &[found, Type::Int, Type::Int], false)
            }
            Kind::List | Kind::Sorted => {
                let arguments = [gathered.clone(), Type::list(found)];
                self.resolve_named(expr, operators::ADD, &arguments, false)
            }
            Kind::Map => self.resolve_named(expr, MAP_INSERT, &[gathered.clone(), key, found], false),
            Kind::MapEntries => self.resolve_named(expr, MAP_INSERT, &[gathered.clone(), found], false),
        };
        if let Some(filtered) = filtered {
            let arguments = [filtered, step, gathered.clone()];
            step = self.resolve_named(expr, operators::CONDITIONAL, &arguments, false);
        }
        self.demand(expr, &gathered, &step);
        if kind == Kind::ExistsOne {
            return self.resolve_named(expr, operators::EQUALS, &[gathered, Type::Int], false);
        }
        self.bindings.resolve(&gathered)
    }
}
