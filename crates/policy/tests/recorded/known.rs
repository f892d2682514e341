//! The list of known differences.

use std::collections::BTreeSet;

use crate::comparison::Difference;

/// Lines of set, kind of difference and reason; `#` begins a comment.
const LIST: &str = include_str!("differences.txt");

pub fn read() -> BTreeSet<(String, Difference)> {
    let lines = LIST.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.splitn(3, char::is_whitespace);
            let (set, kind) = (parts.next().unwrap(), parts.next().expect("a kind of difference"));
            assert!(parts.next().is_some_and(|reason| !reason.trim().is_empty()), "no reason: {line}");
            (set.to_owned(), Difference::parse(kind).unwrap_or_else(|| panic!("unknown kind: {line}")))
        })
        .collect()
}
