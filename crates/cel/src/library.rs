//! The libraries: from a name and a number of arguments to the function that runs.

pub(crate) mod conversions;
mod format;
mod function;
mod kubernetes;
pub(crate) mod lists;
pub(crate) mod optionals;
pub(crate) mod regexes;
mod sets;
mod standard;
mod strings;
mod temporal;

pub(crate) use function::{Function, MAX_ARGUMENTS};
pub(crate) use regexes::PatternUse;

/// The libraries of the environment. A new library is one more line here.
const LIBRARIES: &[&[Function]] = &[
    standard::FUNCTIONS,
    conversions::FUNCTIONS,
    temporal::FUNCTIONS,
    strings::FUNCTIONS,
    format::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    regexes::FUNCTIONS,
    optionals::FUNCTIONS,
    kubernetes::quantities::FUNCTIONS,
    kubernetes::versions::FUNCTIONS,
    kubernetes::orders::FUNCTIONS,
    kubernetes::urls::FUNCTIONS,
    kubernetes::addresses::FUNCTIONS,
    kubernetes::networks::FUNCTIONS,
    kubernetes::named_formats::FUNCTIONS,
    kubernetes::patches::FUNCTIONS,
    kubernetes::authorizer::FUNCTIONS,
];

/// What a call of `name` with `arity` arguments (receiver counted) means, or what to tell the user.
pub(crate) fn find_function(name: &str, member: bool, arity: usize) -> Result<&'static Function, String> {
    let mut known = false;
    for function in LIBRARIES.iter().copied().flatten().filter(|function| function.name == name) {
        if function.takes(member) && function.arity == arity {
            return Ok(function);
        }
        known = true;
    }
    Err(if known {
        let arguments = if member { arity.saturating_sub(1) } else { arity };
        let way = if member { "a receiver and " } else { "" };
        format!("found no matching overload for '{name}' applied to {way}{arguments} argument(s)")
    } else {
        format!("undeclared reference to '{name}'")
    })
}

/// Every function of every library.
#[cfg(test)]
pub(crate) fn functions() -> impl Iterator<Item = &'static Function> {
    LIBRARIES.iter().copied().flatten()
}

/// Whether any library has a function of this name, such as `sets.contains`.
pub(crate) fn has_function(name: &str) -> bool {
    LIBRARIES.iter().copied().flatten().any(|function| function.name == name)
}
