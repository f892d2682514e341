//! Why a JSON patch does not apply.

/// Why an operation does not apply.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// A failed `test`: the patch does nothing.
    TestFailed,
    /// There is no such operation.
    UnknownOperation,
    /// A `move` or a `copy` without `from`.
    NoFrom,
    /// A `move` of a value into itself.
    IntoItself,
    /// A `replace` of the whole object by something that is neither object nor list.
    NotAContainer,
    /// What `from` names is missing.
    From(Missing),
    /// What `path` names is missing.
    Path(Missing),
}

/// What a path leads to is missing.
#[derive(Debug, PartialEq)]
pub(super) enum Missing {
    /// There is no object and no list that could hold it.
    Holder,
    /// A list holds it, and this is no index.
    NotAnIndex(String),
    /// A list holds it, which is shorter.
    OutOfRange(i64),
    /// An object holds it, which has no such key.
    Key(String),
}
