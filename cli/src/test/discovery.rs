//! Suites, found by their names.

use std::io;
use std::path::{Path, PathBuf};

/// Names of suites.
const NAMES: [&str; 2] = ["suite.yaml", "suite.yml"];
/// Deepest directory below a path.
const MAX_LEVEL: usize = 16;
/// Most entries of all directories.
const MAX_ENTRIES: usize = 200_000;

/// Why there are no suites to run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    /// A path leads nowhere.
    #[error("{} does not exist", .0.display())]
    Absent(PathBuf),
    /// A directory has no suite.
    #[error("there is no suite.yaml in {} or below it", .0.display())]
    NoSuite(PathBuf),
    /// A directory cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The directories have too many entries.
    #[error("there are more than {MAX_ENTRIES} files to look through")]
    TooMany,
    /// Directories are nested too deep.
    #[error("directories below {} are too deep", .0.display())]
    TooDeep(PathBuf),
}

/// Finds the suites at or below the paths, in the order of the paths and then of their names, each once.
pub(crate) fn find_suites(paths: &[PathBuf]) -> Result<Vec<PathBuf>, DiscoveryError> {
    let mut search = Search { found: Vec::new(), entries: 0 };
    for path in paths {
        let before = search.found.len();
        if path.is_dir() {
            search.search_directory(path, 0)?;
            if search.found.len() == before {
                return Err(DiscoveryError::NoSuite(path.clone()));
            }
        } else if path.exists() {
            search.found.push(path.clone());
        } else {
            return Err(DiscoveryError::Absent(path.clone()));
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
    fn search_directory(&mut self, path: &Path, level: usize) -> Result<(), DiscoveryError> {
        let failed = |source| DiscoveryError::Read { path: path.to_owned(), source };
        let mut directories = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(DiscoveryError::TooMany);
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
            return Err(DiscoveryError::TooDeep(path.to_owned()));
        }
        directories.sort();
        directories.iter().try_for_each(|directory| self.search_directory(directory, level + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::{DiscoveryError, find_suites};

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
            let found = find_suites(&paths)?;
            let relative = |path: &std::path::PathBuf| {
                path.strip_prefix(root).unwrap().to_str().unwrap().trim_start_matches("./").to_owned()
            };
            Ok::<Vec<String>, DiscoveryError>(found.iter().map(relative).collect())
        };
        assert_eq!(found(&[""]).unwrap(), ["a/suite.yaml", "a/deep/suite.yml", "b/suite.yaml"]);
        assert_eq!(found(&["x.yaml", "b", "b/suite.yaml"]).unwrap(), ["x.yaml", "b/suite.yaml"]);
        assert!(found(&["a", "none"]).unwrap_err().to_string().contains("no suite.yaml"));
        assert!(found(&["nothing"]).unwrap_err().to_string().contains("does not exist"));
    }
}
