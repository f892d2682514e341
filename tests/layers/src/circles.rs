//! Files that name each other in a loop.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::arrows::Arrows;
use crate::modules::{Crate, Id};

/// Most arrows of a circle that are told.
const MAX_TOLD: usize = 12;

/// Returns a description of every circle.
pub fn describe(of: &Crate, arrows: &Arrows) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for id in 0..of.modules().len() {
        let circle: BTreeSet<Id> =
            reached(arrows, id).into_iter().filter(|other| reached(arrows, *other).contains(&id)).collect();
        if circle.len() > 1 && seen.is_disjoint(&circle) {
            faults.push(describe_one(of, arrows, &circle));
            seen.extend(circle);
        }
    }
    faults
}

/// Returns every module that the arrows lead to from `id`.
fn reached(arrows: &Arrows, id: Id) -> BTreeSet<Id> {
    let mut reached = BTreeSet::new();
    let mut open = vec![id];
    while let Some(at) = open.pop() {
        for next in arrows.get(&at).into_iter().flatten().map(|(next, _)| *next) {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

fn describe_one(of: &Crate, arrows: &Arrows, circle: &BTreeSet<Id>) -> String {
    let file =
        |id: &Id| of.modules().get(*id).map(|module| module.file.display().to_string()).unwrap_or_default();
    let mut text = format!("a circle of {} files:", circle.len());
    let inside = circle.iter().flat_map(|from| {
        let targets = arrows.get(from).into_iter().flatten();
        targets.filter(|(to, _)| circle.contains(to)).map(move |(to, names)| (from, to, names))
    });
    let inside: Vec<_> = inside.collect();
    for (from, to, names) in inside.iter().take(MAX_TOLD) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let _ = write!(text, "\n  {} names {} of {}", file(from), names.join(", "), file(to));
    }
    if inside.len() > MAX_TOLD {
        let _ = write!(text, "\n  and {} more", inside.len() - MAX_TOLD);
    }
    text
}
