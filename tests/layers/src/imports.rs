//! The order of imports: the standard library, then other crates, then this one.

use std::path::Path;

use anyhow::{Context, Result};
use syn::visit::Visit;
use syn::{Item, UseTree};

/// Returns a fault for each import of the file, or of a module in it, that stands below one of a later group.
pub fn disorder(file: &Path) -> Result<Vec<String>> {
    let source =
        std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    let parsed = syn::parse_file(&source).with_context(|| format!("failed to parse {}", file.display()))?;
    let mut reader = Reader::default();
    reader.check(&parsed.items);
    reader.visit_file(&parsed);
    let place =
        |name: String| format!("{}: `use {name}` stands below imports of a later group", file.display());
    Ok(reader.faults.into_iter().map(place).collect())
}

#[derive(Default)]
struct Reader {
    faults: Vec<String>,
}

impl Reader {
    fn check(&mut self, items: &[Item]) {
        let mut latest = Group::Standard;
        for item in items {
            let Item::Use(item) = item else {
                latest = Group::Standard;
                continue;
            };
            let name = first(&item.tree);
            let group = Group::of(&name);
            if group < latest {
                self.faults.push(name);
            }
            latest = group.max(latest);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if let Some((_, items)) = &module.content {
            self.check(items);
        }
        syn::visit::visit_item_mod(self, module);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Standard,
    Other,
    Own,
}

impl Group {
    fn of(name: &str) -> Self {
        match name {
            "std" | "core" | "alloc" => Self::Standard,
            "crate" | "super" | "self" => Self::Own,
            _ => Self::Other,
        }
    }
}

/// Returns the first segment of an import.
fn first(tree: &UseTree) -> String {
    match tree {
        UseTree::Path(path) => path.ident.to_string(),
        UseTree::Name(name) => name.ident.to_string(),
        UseTree::Rename(rename) => rename.ident.to_string(),
        UseTree::Glob(_) => "*".to_owned(),
        UseTree::Group(group) => group.items.first().map(first).unwrap_or_default(),
    }
}
