//! The messages of faults that several parts of the check tell of.

use crate::check::cel_type::Type;
use crate::syntax::{Fault, FaultKind};

pub(super) fn mismatch(node: usize, expected: &Type, found: &Type) -> Fault {
    let (expected, found) = (expected.message_text(), found.message_text());
    Fault { node, message: format!("expected type '{expected}' but found '{found}'"), kind: FaultKind::Node }
}

pub(super) fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

pub(super) fn undefined(field: &str) -> String {
    format!("undefined field '{field}'")
}

pub(super) fn unresolved(name: &str) -> String {
    format!("unexpected failed resolution of '{name}'")
}
