//! The modules of a crate: their files, the names that each imports, and the paths that its code uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree, Visibility};

/// Position of a module in its crate.
pub type Id = usize;

/// A crate's modules; the first is its root.
pub struct Crate {
    modules: Vec<Module>,
}

/// A module that is a file of its own. What stands in a `mod name { … }` belongs to the file around it.
pub struct Module {
    /// Where it stands.
    pub file: PathBuf,
    /// The module that declares it.
    pub parent: Option<Id>,
    /// The modules that it declares.
    pub children: BTreeMap<String, Id>,
    /// Name in this module, and the path that it stands for.
    pub imports: BTreeMap<String, Vec<String>>,
    /// Paths of `use …::*`.
    pub globs: Vec<Vec<String>>,
    /// Every path that the code names, private imports included.
    pub paths: Vec<Vec<String>>,
}

impl Crate {
    /// Reads a crate from its root file.
    pub fn read(root: &Path) -> Result<Self> {
        let mut found = Self { modules: Vec::new() };
        let folder = root.parent().context("a root file has a directory")?;
        found.add(root, folder, None)?;
        Ok(found)
    }

    /// Returns every module.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Adds the module in `file`, whose children stand in `folder`.
    fn add(&mut self, file: &Path, folder: &Path, parent: Option<Id>) -> Result<Id> {
        let source =
            std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        let parsed =
            syn::parse_file(&source).with_context(|| format!("failed to parse {}", file.display()))?;
        let mut reader = Reader::default();
        reader.visit_file(&parsed);
        let id = self.modules.len();
        self.modules.push(Module {
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            imports: reader.imports,
            globs: reader.globs,
            paths: reader.paths,
        });
        for name in reader.children {
            let child = self.add(&folder.join(format!("{name}.rs")), &folder.join(&name), Some(id))?;
            if let Some(module) = self.modules.get_mut(id) {
                module.children.insert(name, child);
            }
        }
        Ok(id)
    }
}

#[derive(Default)]
struct Reader {
    children: Vec<String>,
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: Vec<Vec<String>>,
}

impl Reader {
    fn import(&mut self, prefix: &[String], tree: &UseTree, private: bool) {
        let joined = |name: String| {
            let mut path = prefix.to_vec();
            if name != "self" || path.is_empty() {
                path.push(name);
            }
            path
        };
        match tree {
            UseTree::Path(path) => self.import(&joined(path.ident.to_string()), &path.tree, private),
            UseTree::Name(name) => {
                let path = joined(name.ident.to_string());
                let bound = path.last().cloned().unwrap_or_default();
                self.bind(bound, path, private);
            }
            UseTree::Rename(rename) => {
                self.bind(rename.rename.to_string(), joined(rename.ident.to_string()), private);
            }
            UseTree::Glob(_) => {
                if private {
                    self.paths.push(joined("*".to_owned()));
                }
                self.globs.push(prefix.to_vec());
            }
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(prefix, item, private)),
        }
    }

    fn bind(&mut self, name: String, path: Vec<String>, private: bool) {
        if private {
            self.paths.push(path.clone());
        }
        self.imports.insert(name, path);
    }

    /// Paths in the tokens of a macro call, which no parser knows the meaning of.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons = if punct.spacing() == Spacing::Joint { 1 } else { colons + 1 };
                }
                TokenTree::Group(group) => {
                    self.paths.push(std::mem::take(&mut path));
                    self.scan(group.stream());
                    colons = 0;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.paths.push(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.paths.push(path);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(for_tests) {
            return;
        }
        match item {
            Item::Mod(module) if module.content.is_none() => self.children.push(module.ident.to_string()),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&[], &item.tree, matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether the attribute keeps an item out of everything but tests.
fn for_tests(attribute: &Attribute) -> bool {
    let plain = |tokens: &TokenStream| tokens.to_string() == "test";
    attribute.path().is_ident("test")
        || attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| plain(&list.tokens))
}
