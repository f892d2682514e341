//! Goes through the tree and finds the type of every expression.

use std::collections::HashMap;

use crate::check::cel_type::{FieldLookup, Type};
use crate::check::faults::{mismatch, undeclared, undefined, unresolved};
use crate::check::lint::Lint;
use crate::check::names::{Names, QUALIFIERS, VARIABLES};
use crate::check::signatures::{Overload, overloads};
use crate::check::type_names::type_named;
use crate::check::unification::Bindings;
use crate::regex::LiteralPatterns;
use crate::syntax::ast::{CallExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapEntry, StructExpr, operators};
use crate::syntax::{Fault, FaultKind};

/// Most errors told of one expression.
const MAX_FAULTS: usize = 100;

/// The overloads of calls, by the calls' numbers, where only one fits the types.
pub(crate) type Overloads = HashMap<usize, &'static Overload>;

/// What the check found out about a good expression.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The type of the result.
    pub(crate) result: Type,
    pub(crate) overloads: Overloads,
    pub(crate) patterns: LiteralPatterns,
}

/// The type of an expression's result, or all that is wrong with it.
pub(crate) fn check(tree: &IdedExpr, scope: &Names) -> Result<Checked, Vec<Fault>> {
    let (bindings, faults, lint) = (Bindings::new(), Vec::new(), Lint::default());
    let mut checker =
        Checker { scope, locals: Vec::new(), bindings, overloads: Overloads::new(), faults, lint };
    let result = checker.check(tree);
    let Checker { mut bindings, overloads, mut faults, lint, .. } = checker;
    let result = bindings.settle(&result);
    let patterns =
        if faults.is_empty() { lint.report(&mut bindings, &mut faults) } else { LiteralPatterns::default() };
    if bindings.is_exhausted() {
        return Err(vec![Fault::new(tree, "the types of the expression are too large")]);
    }
    if faults.iter().any(|fault| fault.kind == FaultKind::Macro) {
        faults.retain(|fault| fault.kind == FaultKind::Macro);
    }
    if faults.is_empty() { Ok(Checked { result, overloads, patterns }) } else { Err(faults) }
}

pub(super) struct Checker<'t> {
    scope: &'t Names,
    /// Variables of the macros around, innermost last.
    locals: Vec<(&'t str, Type)>,
    pub(super) bindings: Bindings,
    overloads: Overloads,
    pub(super) faults: Vec<Fault>,
    lint: Lint<'t>,
}

impl<'t> Checker<'t> {
    /// Only dispatches: what it would keep on the stack is multiplied by the depth.
    pub(super) fn check(&mut self, expr: &'t IdedExpr) -> Type {
        match &expr.expr {
            Expr::Literal(literal) => of_literal(literal),
            Expr::Ident(name) => self.identifier(expr, name),
            Expr::Select(select) => self.select(expr, &select.operand, &select.field, select.test),
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => self.list(list),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct(made) => self.structure(expr, made),
            Expr::Comprehension(comprehension) => self.comprehension(expr, comprehension),
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) -> Type {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        }
        Type::Error
    }

    pub(super) fn mismatch(&mut self, expr: &IdedExpr, expected: &Type, found: &Type) -> Type {
        self.fault(mismatch(expr.id, expected, found))
    }

    fn identifier(&mut self, expr: &IdedExpr, name: &str) -> Type {
        match self.lookup(name) {
            Some(found) => found,
            None => self.fault(Fault::new(expr, undeclared(name))),
        }
    }

    /// What a name stands for. A leading dot asks for its outermost meaning.
    fn lookup(&self, name: &str) -> Option<Type> {
        let name = match name.strip_prefix('.') {
            Some(name) => name,
            None => match self.locals.iter().rfind(|(local, _)| *local == name) {
                Some((_, found)) => return Some(found.clone()),
                None => name,
            },
        };
        if let Some(found) = self.scope.type_of(name) {
            return Some(found.clone());
        }
        if name == VARIABLES && self.scope.is_composed() {
            return Some(Type::hidden("kubernetes.variables"));
        }
        self.constructed(name).or_else(|| type_named(name)).map(Type::type_of)
    }

    /// The type behind `NAME{…}`, if it has fields of its own.
    fn constructed(&self, name: &str) -> Option<Type> {
        if !self.scope.has_patches() {
            return None;
        }
        match name {
            "JSONPatch" => Some(Type::json_patch()),
            _ if name == "Object" || name.starts_with("Object.") => Some(Type::object(name)),
            _ => None,
        }
    }

    fn select(&mut self, expr: &'t IdedExpr, operand: &'t IdedExpr, field: &str, test: bool) -> Type {
        if !test
            && let Some(found) = qualified(operand, field, QUALIFIERS).and_then(|name| self.lookup(&name))
        {
            return found;
        }
        let found = self.field(expr, operand, field, false);
        if test { Type::Bool } else { self.bindings.resolve(&found) }
    }

    /// The type of a field of `operand`; an optional one of an optional.
    fn field(&mut self, expr: &'t IdedExpr, operand: &'t IdedExpr, field: &str, optional: bool) -> Type {
        let found = self.check(operand);
        let found = self.bindings.resolve(&found);
        let (target, wrapped) = match &found {
            Type::Optional(inner) => (&**inner, true),
            other => (other, optional),
        };
        let found = match target {
            Type::Map(entry) => entry.1.clone(),
            Type::Struct(structure) if structure.name() == "kubernetes.variables" => {
                match self.scope.definition(field) {
                    Some((_, definition)) => definition.declared.clone(),
                    None => self.fault(Fault::new(expr, undefined(field))),
                }
            }
            Type::Struct(structure) => match structure.field(field) {
                FieldLookup::Found(Type::Nothing) | FieldLookup::Undefined => {
                    self.fault(Fault::new(expr, undefined(field)))
                }
                FieldLookup::Found(found) => found,
                FieldLookup::Unresolved => self.fault(Fault::new(expr, unresolved(structure.name()))),
            },
            Type::Variable(_) => {
                self.bindings.assignable(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", other.message_text());
                self.fault(Fault::new(expr, message));
                Type::Dyn
            }
        };
        if wrapped { Type::optional(found) } else { found }
    }

    fn call(&mut self, expr: &'t IdedExpr, call: &'t CallExpr) -> Type {
        let Some(target) = call.target.as_deref() else { return self.global_call(expr, call) };
        if let Some(found) = self.macro_call(expr, target, call) {
            return found;
        }
        let name = call.func_name.as_str();
        self.lint.enter(call);
        let mut arguments = Vec::with_capacity(call.args.len() + 1);
        arguments.push(Type::Error);
        self.arguments(&mut arguments, &call.args);
        if let Some(qualified) = qualified(target, name, &[])
            && let Some(overloads) = self.overloads(&qualified)
        {
            self.lint.leave(expr, call);
            return self.resolve(expr, &qualified, overloads, arguments.get(1..).unwrap_or_default(), false);
        }
        let receiver = self.check(target);
        if let Some(first) = arguments.first_mut() {
            *first = receiver;
        }
        self.lint.leave(expr, call);
        let Some(overloads) = self.overloads(name) else {
            return self.fault(Fault::new(expr, undeclared(name)));
        };
        self.resolve(expr, name, overloads, &arguments, true)
    }

    fn arguments(&mut self, types: &mut Vec<Type>, arguments: &'t [IdedExpr]) {
        for argument in arguments {
            let found = self.check(argument);
            types.push(found);
        }
    }

    fn overloads(&self, name: &str) -> Option<&'static [Overload]> {
        if name == "jsonpatch.escapeKey" && !self.scope.has_patches() {
            return None;
        }
        overloads(name)
    }

    fn global_call(&mut self, expr: &'t IdedExpr, call: &'t CallExpr) -> Type {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (operators::OPT_SELECT, [operand, field]) => return self.optional_select(expr, operand, field),
            (operators::LOGICAL_AND | operators::LOGICAL_OR, operands) => return self.logical(operands),
            _ => {}
        }
        self.lint.enter(call);
        let mut arguments = Vec::with_capacity(call.args.len());
        self.arguments(&mut arguments, &call.args);
        self.lint.leave(expr, call);
        let name = name.strip_prefix('.').unwrap_or(name);
        let Some(overloads) = self.overloads(name) else {
            return self.fault(Fault::new(expr, undeclared(&call.func_name)));
        };
        self.resolve(expr, name, overloads, &arguments, false)
    }

    fn optional_select(&mut self, expr: &'t IdedExpr, operand: &'t IdedExpr, field: &'t IdedExpr) -> Type {
        let Expr::Literal(LiteralValue::String(name)) = &field.expr else {
            return self.fault(Fault::new(field, "unsupported optional field selection"));
        };
        let found = self.field(expr, operand, name, true);
        self.bindings.resolve(&found)
    }

    fn logical(&mut self, operands: &'t [IdedExpr]) -> Type {
        let mut result = Type::Bool;
        for operand in operands {
            let found = self.check(operand);
            if !self.bindings.assignable(&found, &Type::Bool) {
                result = self.mismatch(operand, &Type::Bool, &found);
            }
        }
        result
    }

    /// The result of a call of one of the library's functions; for use by macros too.
    pub(super) fn resolve_named(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        arguments: &[Type],
        member: bool,
    ) -> Type {
        match overloads(name) {
            Some(overloads) => self.resolve(expr, name, overloads, arguments, member),
            None => self.fault(Fault::new(expr, undeclared(name))),
        }
    }

    /// Tries the signatures in turn. Each that fits binds type variables, also when another did before.
    fn resolve(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        overloads: &'static [Overload],
        arguments: &[Type],
        member: bool,
    ) -> Type {
        let mut result: Option<Type> = None;
        self.overloads.remove(&expr.id);
        for overload in overloads {
            if overload.member != member {
                continue;
            }
            let Some(found) = self.fits(overload, arguments) else { continue };
            if result.is_none() {
                self.overloads.insert(expr.id, overload);
            } else {
                self.overloads.remove(&expr.id);
            }
            result = Some(match result {
                None => found,
                Some(Type::Dyn) => Type::Dyn,
                Some(earlier) if self.bindings.same(&earlier, &found, 0) => earlier,
                Some(_) => Type::Dyn,
            });
        }
        result.unwrap_or_else(|| {
            let message = self.no_overload(name, arguments, member);
            self.fault(Fault::new(expr, message))
        })
    }

    fn fits(&mut self, overload: &'static Overload, arguments: &[Type]) -> Option<Type> {
        if overload.parameters == 0 {
            let fits = overload.arguments.len() == arguments.len()
                && self.bindings.assignable_all(arguments.iter().zip(&overload.arguments));
            return fits.then(|| overload.result.clone());
        }
        let first = self.bindings.fresh(overload.parameters);
        if overload.arguments.len() != arguments.len() {
            return None;
        }
        let wanted: Vec<Type> = overload.arguments.iter().map(|wanted| renumbered(wanted, first)).collect();
        let fits = self.bindings.assignable_all(arguments.iter().zip(&wanted));
        fits.then(|| self.bindings.resolve(&renumbered(&overload.result, first)))
    }

    fn no_overload(&mut self, name: &str, arguments: &[Type], member: bool) -> String {
        let mut texts = arguments.iter().map(|argument| self.bindings.settle(argument).message_text());
        let receiver = if member { texts.next().map(|text| text + ".") } else { None };
        let arguments = texts.collect::<Vec<_>>().join(", ");
        format!(
            "found no matching overload for '{name}' applied to '{}({arguments})'",
            receiver.unwrap_or_default()
        )
    }

    fn list(&mut self, list: &'t ListExpr) -> Type {
        let mut types = Vec::with_capacity(list.elements.len());
        let mut joined = None;
        for (index, element) in list.elements.iter().enumerate() {
            let optional = list.optional_indices.contains(&index);
            let (found, held) = self.element(element, optional);
            joined = Some(self.join(joined, &held));
            types.push(if self.lint.formats() { found } else { held });
        }
        self.lint.list(&list.elements, types);
        Type::list(joined.unwrap_or_else(|| Type::Variable(self.bindings.fresh(1))))
    }

    /// The type of an element or an entry's value, and the one that it adds to a literal.
    fn element(&mut self, element: &'t IdedExpr, optional: bool) -> (Type, Type) {
        let found = self.check(element);
        let held = match &found {
            Type::Optional(inner) if optional => (**inner).clone(),
            found => found.clone(),
        };
        if optional && !matches!(found, Type::Optional(_) | Type::Dyn) {
            self.mismatch(element, &Type::optional(found.clone()), &found);
        }
        (found, held)
    }

    fn join(&mut self, earlier: Option<Type>, found: &Type) -> Type {
        match earlier {
            None => found.clone(),
            Some(earlier) if self.bindings.assignable(&earlier, found) => {
                self.bindings.most_general(&earlier, found)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn map(&mut self, entries: &'t [MapEntry]) -> Type {
        let mut types = Vec::with_capacity(entries.len());
        let mut joined: Option<(Type, Type)> = None;
        for entry in entries {
            let key = self.check(&entry.key);
            let (keys, values) = joined.unzip();
            let keys = self.join(keys, &key);
            let (found, held) = self.element(&entry.value, entry.optional);
            let values = self.join(values, &held);
            joined = Some((keys, values));
            types.push((key, if self.lint.formats() { found } else { held }));
        }
        self.lint.map(entries, types);
        let (key, value) = joined.unwrap_or_else(|| {
            let first = self.bindings.fresh(2);
            (Type::Variable(first), Type::Variable(first + 1))
        });
        Type::map(key, value)
    }

    fn structure(&mut self, expr: &'t IdedExpr, made: &'t StructExpr) -> Type {
        let name = made.type_name.strip_prefix('.').unwrap_or(&made.type_name);
        let Some(found) = self.lookup(&made.type_name) else {
            return self.fault(Fault::new(expr, undeclared(&made.type_name)));
        };
        let is_type = matches!(found, Type::Type(_));
        let result = match found {
            Type::Type(Some(inner)) if matches!(*inner, Type::Struct(_)) => (*inner).clone(),
            Type::Type(_) => self.fault(Fault::new(expr, format!("'{name}' is not a message type"))),
            other => {
                let message = format!("'{}' is not a type", other.runtime_name());
                self.fault(Fault::new(expr, message))
            }
        };
        for field in &made.fields {
            let (_, value) = self.element(&field.value, field.optional);
            let fault = |message| Fault { node: field.id, message, kind: FaultKind::Node };
            let wanted = match &result {
                Type::Struct(structure) => structure.field(&field.field),
                _ if is_type => FieldLookup::Undefined,
                _ => FieldLookup::Unresolved,
            };
            let wanted = match wanted {
                FieldLookup::Found(wanted) => wanted,
                FieldLookup::Undefined => {
                    self.fault(fault(undefined(&field.field)));
                    continue;
                }
                FieldLookup::Unresolved => {
                    self.fault(fault(unresolved(name)));
                    continue;
                }
            };
            if !self.bindings.assignable(&wanted, &value) {
                let message = format!(
                    "expected type of field '{}' is '{}' but provided type is '{}'",
                    field.field,
                    wanted.message_text(),
                    value.message_text()
                );
                self.fault(fault(message));
            }
        }
        result
    }

    /// The types that the variables of a macro over `range` have: those of items or keys, with one variable, and
    /// of indices or keys and of items or values with two.
    pub(super) fn range(&mut self, expr: &IdedExpr, range: &Type) -> (Type, (Type, Type)) {
        let range = self.bindings.resolve(range);
        match &range {
            Type::List(item) => ((**item).clone(), (Type::Int, (**item).clone())),
            Type::Map(entry) => (entry.0.clone(), (entry.0.clone(), entry.1.clone())),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.bindings.assignable(&Type::Dyn, &range);
                (Type::Dyn, (Type::Dyn, Type::Dyn))
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.message_text()
                );
                self.fault(Fault::new(expr, message));
                (Type::Error, (Type::Error, Type::Error))
            }
        }
    }

    pub(super) fn demand(&mut self, expr: &IdedExpr, wanted: &Type, found: &Type) {
        if !self.bindings.assignable(wanted, found) {
            self.mismatch(expr, wanted, found);
        }
    }

    /// Checks with more variables around.
    pub(super) fn within<T>(
        &mut self,
        locals: impl IntoIterator<Item = (&'t str, Type)>,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let length = self.locals.len();
        self.locals.extend(locals);
        let result = check(self);
        self.locals.truncate(length);
        result
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Null => Type::Null,
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::UInt(_) => Type::Uint,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::String(_) => Type::String,
        LiteralValue::Bytes(_) => Type::Bytes,
    }
}

/// `a.b.c` as a name, if it begins with one of `roots`, or with any when there are none.
pub(crate) fn qualified(operand: &IdedExpr, field: &str, roots: &[&str]) -> Option<String> {
    let mut names = vec![field];
    let mut expr = operand;
    loop {
        match &expr.expr {
            Expr::Ident(name) => {
                let root = name.strip_prefix('.').unwrap_or(name);
                if !roots.is_empty() && !roots.contains(&root) {
                    return None;
                }
                names.push(root);
                names.reverse();
                return Some(names.join("."));
            }
            Expr::Select(select) if !select.test => {
                names.push(&select.field);
                expr = &select.operand;
            }
            _ => return None,
        }
    }
}

/// An overload's type with its parameters as variables from `first` on.
fn renumbered(given: &Type, first: u32) -> Type {
    match given {
        Type::Variable(number) => Type::Variable(number.saturating_add(first)),
        Type::List(inner) => Type::list(renumbered(inner, first)),
        Type::Optional(inner) => Type::optional(renumbered(inner, first)),
        Type::Type(Some(inner)) => Type::type_of(renumbered(inner, first)),
        Type::Map(entry) => Type::map(renumbered(&entry.0, first), renumbered(&entry.1, first)),
        plain => plain.clone(),
    }
}
