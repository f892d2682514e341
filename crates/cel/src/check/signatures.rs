//! The functions' signatures, read once from the table of `declarations`.
//!
//! A signature is written as messages show it: `string.(int) -> string` for a member of strings, `(list(A)) -> int`
//! for a function. Single capital letters are type parameters.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::check::cel_type::Type;
use crate::check::declarations::TABLE;
use crate::check::type_names::named;

/// One way to call a function. Type parameters are variables numbered from 0.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) member: bool,
    /// The receiver first.
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) parameters: u32,
}

static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut overloads: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for (names, signatures) in TABLE {
        for name in names.split(' ') {
            let read = signatures.split(';').filter_map(|signature| Reader::new(signature).overload());
            overloads.entry(name).or_default().extend(read);
        }
    }
    overloads
});

/// The overloads of a function in their order, nothing for a name that no library has.
pub(crate) fn overloads(name: &str) -> Option<&'static [Overload]> {
    OVERLOADS.get(name).map(Vec::as_slice)
}

struct Reader {
    rest: &'static str,
    parameters: Vec<&'static str>,
}

impl Reader {
    fn new(text: &'static str) -> Self {
        Self { rest: text.trim(), parameters: Vec::new() }
    }

    fn takes(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// `[TYPE.](TYPE, …) -> TYPE`
    fn overload(mut self) -> Option<Overload> {
        let mut arguments = Vec::new();
        let member = !self.rest.starts_with('(');
        if member {
            arguments.push(self.cel_type()?);
            self.takes(".").then_some(())?;
        }
        self.takes("(").then_some(())?;
        while !self.takes(")") {
            arguments.push(self.cel_type()?);
            self.takes(",");
        }
        self.takes("->").then_some(())?;
        let result = self.cel_type()?;
        let parameters = u32::try_from(self.parameters.len()).ok()?;
        self.rest.is_empty().then_some(Overload { member, arguments, result, parameters })
    }

    fn cel_type(&mut self) -> Option<Type> {
        let letters = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let end = self.rest.find(letters).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        let dot = usize::from(name.ends_with('.'));
        let name = name.get(..name.len() - dot)?;
        self.rest = if dot == 1 { self.rest.get(end - 1..)? } else { rest };
        let found = match name {
            "dyn" => Type::Dyn,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "list" => Type::list(self.parameter()?),
            "optional" => Type::optional(self.parameter()?),
            "type" => Type::Type(Some(Arc::new(self.parameter()?))),
            "map" => {
                self.takes("(").then_some(())?;
                let key = self.cel_type()?;
                self.takes(",").then_some(())?;
                let value = self.cel_type()?;
                self.takes(")").then_some(())?;
                Type::map(key, value)
            }
            _ if name.len() == 1 => self.variable(name),
            _ => named(name)?,
        };
        self.rest = self.rest.trim_start();
        Some(found)
    }

    fn parameter(&mut self) -> Option<Type> {
        self.takes("(").then_some(())?;
        let found = self.cel_type()?;
        self.takes(")").then_some(found)
    }

    fn variable(&mut self, name: &'static str) -> Type {
        let known = self.parameters.iter().position(|parameter| *parameter == name);
        let number = known.unwrap_or_else(|| {
            self.parameters.push(name);
            self.parameters.len() - 1
        });
        Type::Variable(u32::try_from(number).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signature that cannot be read would be a function that nobody can call.
    #[test]
    fn every_signature_of_the_table_is_read() {
        for (names, signatures) in TABLE {
            for signature in signatures.split(';') {
                assert!(Reader::new(signature).overload().is_some(), "{names}: {signature}");
            }
        }
    }

    #[test]
    fn no_name_is_in_two_rows() {
        let names: Vec<&str> = TABLE.iter().flat_map(|(names, _)| names.split(' ')).collect();
        assert_eq!(names.len(), OVERLOADS.len());
    }

    /// Whatever the evaluator can do may be called, and operators are the only others that are declared.
    #[test]
    fn every_function_of_the_evaluator_is_declared() {
        for function in crate::library::functions() {
            let declared = overloads(function.name).unwrap_or_default();
            assert!(
                declared.iter().any(|overload| overload.arguments.len() == function.arity),
                "{} with {} arguments",
                function.name,
                function.arity
            );
        }
    }
}
