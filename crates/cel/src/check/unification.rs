//! Which type may stand where another is wanted, and what that tells about types not known yet.
//!
//! Types share their parts, and a short expression can make one that is exponentially large when written out.
//! So every step through a type is counted, and after [`MAX_STEPS`] the check is given up.

use std::sync::Arc;

use crate::check::cel_type::Type;

/// Steps through types that the check of one expression may take.
const MAX_STEPS: u32 = 200_000;
/// Deepest type: expressions nest less deep.
const MAX_LEVELS: u16 = 256;

/// What is known of the type variables.
#[derive(Debug)]
pub(crate) struct Bindings {
    bound: Vec<Option<Type>>,
    /// What the variables bound since the last commitment were before.
    trail: Vec<(u32, Option<Type>)>,
    steps: u32,
}

impl Bindings {
    pub(crate) fn new() -> Self {
        Self { bound: Vec::new(), trail: Vec::new(), steps: MAX_STEPS }
    }

    /// Whether the types got too large; answers given since mean nothing.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps == 0
    }

    fn step(&mut self, levels: u16) -> bool {
        if levels >= MAX_LEVELS {
            self.steps = 0;
        }
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    /// So many new variables; the first one's number.
    pub(crate) fn fresh(&mut self, count: u32) -> u32 {
        let first = u32::try_from(self.bound.len()).unwrap_or(u32::MAX);
        for _ in 0..count {
            self.bound.push(None);
        }
        first
    }

    fn find(&self, variable: u32) -> Option<&Type> {
        self.bound.get(variable as usize)?.as_ref()
    }

    fn bind(&mut self, variable: u32, to: Type) {
        if let Some(place) = self.bound.get_mut(variable as usize) {
            self.trail.push((variable, place.replace(to)));
        }
    }

    /// Whether each of `given` may stand for its like in `wanted`; if so, the variables are bound.
    pub(crate) fn assignable_all<'t>(&mut self, pairs: impl Iterator<Item = (&'t Type, &'t Type)>) -> bool {
        for (given, wanted) in pairs {
            if !self.unify(given, wanted, 0) {
                while let Some((variable, earlier)) = self.trail.pop() {
                    if let Some(place) = self.bound.get_mut(variable as usize) {
                        *place = earlier;
                    }
                }
                return false;
            }
        }
        self.trail.clear();
        true
    }

    /// Whether one type may stand for the other; if so, variables in them are bound.
    pub(crate) fn assignable(&mut self, one: &Type, other: &Type) -> bool {
        self.assignable_all(std::iter::once((one, other)))
    }

    fn unify(&mut self, one: &Type, other: &Type, levels: u16) -> bool {
        if !self.step(levels) {
            return false;
        }
        if let Type::Variable(variable) = other {
            match self.stands_for(one, *variable, levels) {
                Fit::Good => return true,
                Fit::Bad => return false,
                Fit::Circular => {}
            }
        }
        if let Type::Variable(variable) = one {
            return matches!(self.stands_for(other, *variable, levels), Fit::Good);
        }
        match (one, other) {
            (Type::Dyn | Type::Error, _) | (_, Type::Dyn | Type::Error) | (Type::Type(_), Type::Type(_)) => {
                true
            }
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Duration
                    | Type::Timestamp
                    | Type::Optional(_)
                    | Type::Opaque(_)
                    | Type::Struct(_)
            ),
            (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
                self.unify(one, other, levels + 1)
            }
            (Type::Map(one), Type::Map(other)) => {
                self.unify(&one.0, &other.0, levels + 1) && self.unify(&one.1, &other.1, levels + 1)
            }
            (Type::Nothing, _) | (_, Type::Nothing) => false,
            (Type::Opaque(one), Type::Opaque(other)) => one == other,
            (Type::Struct(one), Type::Struct(other)) => one == other,
            _ => std::mem::discriminant(one) == std::mem::discriminant(other) && is_plain(one),
        }
    }

    /// Whether a variable may become this type.
    fn stands_for(&mut self, given: &Type, variable: u32, levels: u16) -> Fit {
        if *given == Type::Variable(variable) {
            return Fit::Good;
        }
        if let Some(bound) = self.find(variable).cloned() {
            if self.same(given, &bound, levels) {
                return Fit::Good;
            }
            if !self.unify(given, &bound, levels + 1) {
                return Fit::Bad;
            }
            let general = self.most_general(given, &bound);
            if !self.occurs(variable, &general, levels) {
                self.bind(variable, general);
            }
            return Fit::Good;
        }
        if self.occurs(variable, given, levels) {
            return Fit::Circular;
        }
        self.bind(variable, given.clone());
        Fit::Good
    }

    fn occurs(&mut self, variable: u32, within: &Type, levels: u16) -> bool {
        if !self.step(levels) {
            return true;
        }
        match within {
            Type::Variable(number) if *number == variable => true,
            Type::Variable(number) => match self.find(*number).cloned() {
                Some(bound) => self.occurs(variable, &bound, levels + 1),
                None => false,
            },
            Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => {
                self.occurs(variable, inner, levels + 1)
            }
            Type::Map(entry) => {
                self.occurs(variable, &entry.0, levels + 1) || self.occurs(variable, &entry.1, levels + 1)
            }
            _ => false,
        }
    }

    /// The type with its variables replaced by what they are bound to.
    pub(crate) fn resolve(&mut self, given: &Type) -> Type {
        self.substitute(given, false, 0)
    }

    /// As [`Self::resolve`]; variables that are not bound become `dyn`.
    pub(crate) fn settle(&mut self, given: &Type) -> Type {
        self.substitute(given, true, 0)
    }

    fn substitute(&mut self, given: &Type, settle: bool, levels: u16) -> Type {
        match given {
            Type::Variable(_) | Type::List(_) | Type::Optional(_) | Type::Type(Some(_)) | Type::Map(_) => {}
            plain => return plain.clone(),
        }
        if !self.step(levels) {
            return Type::Error;
        }
        match given {
            Type::Variable(number) => match self.find(*number).cloned() {
                Some(bound) => self.substitute(&bound, settle, levels + 1),
                None if settle => Type::Dyn,
                None => given.clone(),
            },
            Type::List(inner) => Type::List(self.substitute_shared(inner, settle, levels)),
            Type::Optional(inner) => Type::Optional(self.substitute_shared(inner, settle, levels)),
            Type::Type(Some(inner)) => Type::Type(Some(self.substitute_shared(inner, settle, levels))),
            Type::Map(entry) => {
                let key = self.substitute(&entry.0, settle, levels + 1);
                Type::map(key, self.substitute(&entry.1, settle, levels + 1))
            }
            plain => plain.clone(),
        }
    }

    fn substitute_shared(&mut self, inner: &Arc<Type>, settle: bool, levels: u16) -> Arc<Type> {
        match &**inner {
            Type::Variable(_) | Type::List(_) | Type::Optional(_) | Type::Type(Some(_)) | Type::Map(_) => {
                Arc::new(self.substitute(inner, settle, levels + 1))
            }
            _ => Arc::clone(inner),
        }
    }

    /// Whether the types are the same, variables taken as they are.
    pub(crate) fn same(&mut self, one: &Type, other: &Type, levels: u16) -> bool {
        if !self.step(levels) {
            return false;
        }
        match (one, other) {
            (Type::List(one), Type::List(other))
            | (Type::Optional(one), Type::Optional(other))
            | (Type::Type(Some(one)), Type::Type(Some(other))) => {
                Arc::ptr_eq(one, other) || self.same(one, other, levels + 1)
            }
            (Type::Map(one), Type::Map(other)) => {
                Arc::ptr_eq(one, other)
                    || self.same(&one.0, &other.0, levels + 1) && self.same(&one.1, &other.1, levels + 1)
            }
            // No other type has parts.
            _ => {
                !matches!(one, Type::List(_) | Type::Optional(_) | Type::Type(Some(_)) | Type::Map(_))
                    && one == other
            }
        }
    }

    /// The one of two compatible types that says less.
    pub(crate) fn most_general(&mut self, one: &Type, other: &Type) -> Type {
        if self.says_no_more(one, other, 0) { one.clone() } else { other.clone() }
    }

    fn says_no_more(&mut self, one: &Type, other: &Type, levels: u16) -> bool {
        if !self.step(levels) {
            return true;
        }
        match (one, other) {
            (Type::Dyn | Type::Variable(_), _) | (Type::Type(_), Type::Type(_)) => true,
            (_, Type::Dyn | Type::Variable(_)) => false,
            (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => {
                self.says_no_more(one, other, levels + 1)
            }
            (Type::Map(one), Type::Map(other)) => {
                self.says_no_more(&one.0, &other.0, levels + 1)
                    && self.says_no_more(&one.1, &other.1, levels + 1)
            }
            _ => self.same(one, other, levels),
        }
    }
}

enum Fit {
    Good,
    Bad,
    /// The type holds the variable itself.
    Circular,
}

fn is_plain(given: &Type) -> bool {
    matches!(
        given,
        Type::Bool
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::String
            | Type::Bytes
            | Type::Duration
            | Type::Timestamp
    )
}
