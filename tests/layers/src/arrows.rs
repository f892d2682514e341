//! Which file names what another one defines.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Crate, Id};

/// For each module those whose items it names, and by which names.
pub type Arrows = BTreeMap<Id, BTreeMap<Id, BTreeSet<String>>>;

/// Most re-exports that one name is followed through.
const MAX_HOPS: usize = 16;

/// Draws the arrows of a crate.
pub fn draw(of: &Crate) -> Arrows {
    let mut arrows = Arrows::new();
    for (from, module) in of.modules().iter().enumerate() {
        for path in &module.paths {
            if let Some((to, name)) = resolve(of, from, path, MAX_HOPS)
                && to != from
            {
                arrows.entry(from).or_default().entry(to).or_default().insert(name);
            }
        }
    }
    arrows
}

/// Returns the module that defines what `path` names, seen from `from`, and the name; `None` for what is no item of
/// this crate, and for a module itself.
fn resolve(of: &Crate, from: Id, path: &[String], hops: usize) -> Option<(Id, String)> {
    let (first, mut rest) = path.split_first()?;
    let module = of.modules().get(from)?;
    let mut at = match first.as_str() {
        "crate" => 0,
        "self" => from,
        "super" => module.parent?,
        // A name without a prefix: an import, a child, or something that is no concern of ours.
        name => {
            if !module.imports.contains_key(name) && !module.children.contains_key(name) {
                return None;
            }
            rest = path;
            from
        }
    };
    loop {
        let (name, further) = rest.split_first()?;
        let here = of.modules().get(at)?;
        if name == "super" {
            at = here.parent?;
        } else if let Some(child) = here.children.get(name) {
            at = *child;
        } else if let Some(import) = here.imports.get(name).filter(|import| import.as_slice() != path) {
            let whole: Vec<String> = import.iter().chain(further).cloned().collect();
            return resolve(of, at, &whole, hops.checked_sub(1)?);
        } else {
            let through = |glob: &Vec<String>| through_glob(of, at, glob, rest, hops);
            return here.globs.iter().find_map(through).or_else(|| Some((at, name.clone())));
        }
        rest = further;
    }
}

/// Follows a name through `use glob::*`, if that leads to a module with a child or an import of this name.
fn through_glob(of: &Crate, at: Id, glob: &[String], rest: &[String], hops: usize) -> Option<(Id, String)> {
    let name = rest.first()?;
    let probe: Vec<String> = glob.iter().chain(rest).cloned().collect();
    let (to, found) = resolve(of, at, &probe, hops.checked_sub(1)?)?;
    let module = of.modules().get(to)?;
    (to != at && (found != *name || module.imports.contains_key(name))).then_some((to, found))
}
