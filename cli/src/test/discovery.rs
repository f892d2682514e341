//! Suites, found by their names.

use std::path::{Path, PathBuf};

/// Names of suites.
const NAMES: [&str; 2] = ["suite.yaml", "suite.yml"];
/// Deepest directory below a path.
const MAX_LEVEL: usize = 16;
/// Most entries of all directories.
const MAX_ENTRIES: usize = 200_000;

/// The suites at or below the paths, in the order of the paths and then of their names, each once.
pub(crate) fn suites(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut search = Search { found: Vec::new(), entries: 0 };
    for path in paths {
        let before = search.found.len();
        if path.is_dir() {
            search.directory(path, 0)?;
            if search.found.len() == before {
                return Err(format!("there is no suite.yaml in {} or below it", path.display()));
            }
        } else if path.exists() {
            search.found.push(path.clone());
        } else {
            return Err(format!("{} does not exist", path.display()));
        }
    }
    let mut once = Vec::new();
    for path in search.found {
        if !once.contains(&path) {
            once.push(path);
        }
    }
    Ok(once)
}

struct Search {
    found: Vec<PathBuf>,
    entries: usize,
}

impl Search {
    /// Links to directories are not followed, hidden directories passed over.
    fn directory(&mut self, path: &Path, level: usize) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("failed to read {}: {error}", path.display());
        let mut directories = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(format!("there are more than {MAX_ENTRIES} files to look through"));
            }
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            if entry.file_type().map_err(failed)?.is_dir() {
                directories.push(entry.path());
            } else if NAMES.contains(&name) {
                self.found.push(entry.path());
            }
        }
        if !directories.is_empty() && level == MAX_LEVEL {
            return Err(format!("directories below {} are too deep", path.display()));
        }
        directories.sort();
        directories.iter().try_for_each(|directory| self.directory(directory, level + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::suites;
    use std::fs;
    use tempfile::TempDir;

    #[test]
    fn suites_are_found_below_directories_once_and_in_order() {
        let directory = TempDir::new().unwrap();
        let root = directory.path();
        for folder in ["b/fixtures", "a/deep", ".git", "none"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in
            ["b/suite.yaml", "a/deep/suite.yml", "a/suite.yaml", ".git/suite.yaml", "a/policy.yaml", "x.yaml"]
        {
            fs::write(root.join(file), "").unwrap();
        }
        let found = |paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| root.join(path)).collect();
            let found = suites(&paths)?;
            let relative = |path: &std::path::PathBuf| {
                path.strip_prefix(root).unwrap().to_str().unwrap().trim_start_matches("./").to_owned()
            };
            Ok::<Vec<String>, String>(found.iter().map(relative).collect())
        };
        assert_eq!(found(&[""]).unwrap(), ["a/suite.yaml", "a/deep/suite.yml", "b/suite.yaml"]);
        assert_eq!(found(&["x.yaml", "b", "b/suite.yaml"]).unwrap(), ["x.yaml", "b/suite.yaml"]);
        assert!(found(&["a", "none"]).unwrap_err().contains("no suite.yaml"));
        assert!(found(&["nothing"]).unwrap_err().contains("does not exist"));
    }
}
