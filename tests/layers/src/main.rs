//! Proves that the modules of every crate form layers.
//!
//! Reads the sources of each crate, draws an arrow from file A to file B where the code of A names an item that B
//! defines, and fails on a circle of files, on a directory with too many of them, and on imports out of order.
//!
//! How it counts: `mod` and re-exports (`pub use`) are no arrows, and a name that comes through a re-export leads to
//! the file that defines it, so a facade may list what is below it. Code under `#[cfg(test)]` is left out. Methods
//! are not seen, imports of the traits and types that they belong to are.

mod arrows;
mod circles;
mod imports;
mod modules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::modules::Crate;

/// Most source files in one directory: what a reader takes in at a glance.
const MAX_FILES: usize = 16;

fn main() -> Result<ExitCode> {
    let mut faults = Vec::new();
    let (mut crates, mut files) = (0, 0);
    for root in roots()? {
        let parsed = Crate::read(&root)?;
        files += parsed.modules().len();
        crates += 1;
        faults.extend(circles::describe(&parsed, &arrows::draw(&parsed)));
        for module in parsed.modules() {
            faults.extend(imports::disorder(&module.file)?);
        }
        faults.extend(crowded(root.parent().context("a root file has a directory")?)?);
    }
    ensure!(crates > 10, "only {crates} crates were found: run this in the workspace's root");
    for fault in &faults {
        eprintln!("{fault}");
    }
    println!("layers: {files} modules in {crates} crates, {} faults", faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the root file of every crate of the workspace that is not a test.
fn roots() -> Result<Vec<PathBuf>> {
    let mut folders = vec![PathBuf::from("cli"), PathBuf::from("proto"), PathBuf::from("tests")];
    for group in ["crates", "services"] {
        for entry in std::fs::read_dir(group).with_context(|| format!("failed to list {group}"))? {
            folders.push(entry?.path());
        }
    }
    folders.sort();
    let root = |folder: PathBuf| folder.join("src/lib.rs");
    Ok(folders.into_iter().map(root).filter(|file| file.exists()).collect())
}

/// Returns a fault for each directory below `directory` that holds too many source files.
fn crowded(directory: &Path) -> Result<Vec<String>> {
    let (mut faults, mut files) = (Vec::new(), 0);
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            faults.extend(crowded(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files += 1;
        }
    }
    if files > MAX_FILES {
        faults.push(format!("{} holds {files} files; at most {MAX_FILES}", directory.display()));
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::{Crate, arrows, circles, imports};

    /// Faults of a crate of these files.
    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, source) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, source).unwrap();
        }
        let parsed = Crate::read(&folder.path().join("lib.rs")).unwrap();
        circles::describe(&parsed, &arrows::draw(&parsed))
    }

    #[test]
    fn circles_are_found_however_the_name_is_reached() {
        let lib = "mod a; mod b; pub use b::B;";
        for (a, b) in [
            ("use crate::b::B; pub struct A(B);", "use crate::a::A; pub struct B(Box<A>);"),
            ("use super::b::B; pub struct A(B);", "pub struct B(Box<super::a::A>);"),
            ("use crate::B; pub struct A(B);", "pub struct B; fn f() { let _ = crate::a::A; }"),
            ("use crate::b::*; pub struct A(B);", "pub fn f() { print!(\"{}\", crate::a::N) }"),
            ("use crate::b as other; pub struct A(other::B);", "use crate::{a::{A as C}}; pub struct B(C);"),
        ] {
            let found = faults(&[("lib.rs", lib), ("a.rs", a), ("b.rs", b)]);
            assert_eq!(found.len(), 1, "{a} {b}: {found:?}");
            assert!(found[0].starts_with("a circle of 2 files:"), "{found:?}");
        }
    }

    #[test]
    fn a_facade_and_what_it_lists_are_no_circle_nor_are_tests() {
        let lib = "mod a; mod b; pub use a::{A, C};";
        for (a, b) in [
            ("mod c; pub use c::C; pub struct A;", "use crate::{A, C}; pub struct B(A, C);"),
            (
                "mod c; pub use c::C; pub struct A(crate::b::B);",
                "#[cfg(test)] mod tests { use crate::a::A; } pub struct B;",
            ),
        ] {
            let found = faults(&[("lib.rs", lib), ("a.rs", a), ("a/c.rs", "pub struct C;"), ("b.rs", b)]);
            assert!(found.is_empty(), "{a} {b}: {found:?}");
        }
        let found = faults(&[
            ("lib.rs", lib),
            ("a.rs", "mod c; use c::C; pub struct A(C);"),
            ("a/c.rs", "pub struct C(Box<super::A>);"),
            ("b.rs", ""),
        ]);
        assert_eq!(found.len(), 1, "a child names what is defined above it, which uses the child");
    }

    #[test]
    fn imports_stand_in_three_groups() {
        for (source, wrong) in [
            ("use std::fmt;\nuse serde::Serialize;\nuse crate::a;", 0),
            ("use serde::Serialize;\nuse std::fmt;", 1),
            ("use crate::a;\nuse serde::Serialize;\nuse std::fmt;", 2),
            ("use crate::a;\nfn f() {}\nuse std::fmt;", 0),
            ("mod tests { use super::a; use std::fmt; }", 1),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), source).unwrap();
            assert_eq!(imports::disorder(file.path()).unwrap().len(), wrong, "{source}");
        }
    }
}
