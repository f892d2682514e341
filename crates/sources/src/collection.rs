//! Policies from several places, read once: for those who try them.

use std::path::Path;
use std::sync::Arc;

use crate::directory::{
    Contents, Directory, MAX_FILE, MAX_FILES, MAX_TOTAL, SourceError, interpret, read_file, whole,
};
use crate::snapshot::{Problem, Scope, Snapshot};

/// Directories, files and texts that are read as one source.
#[derive(Clone, Default)]
pub struct Collection {
    contents: Contents,
    bytes: usize,
}

impl Collection {
    /// Adds a file, or what a [`Directory`] holds. `name` is what problems call it.
    ///
    /// # Errors
    /// When a directory cannot be read; of a file, that is a problem of the snapshot.
    pub fn add(&mut self, name: &str, path: &Path) -> Result<(), SourceError> {
        if !path.is_dir() {
            match read_file(path, MAX_FILE) {
                Ok(bytes) => self.add_text(name, bytes),
                Err(message) => self.contents.problems.push(whole(name.into(), Scope::File, message)),
            }
            return Ok(());
        }
        let name = name.trim_end_matches('/');
        let within = |file: &str| -> Arc<str> { format!("{name}/{file}").into() };
        let contents = Directory::new(path).read()?;
        for problem in contents.problems {
            self.contents.problems.push(Problem { file: within(&problem.file), ..problem });
        }
        for (file, bytes) in contents.files {
            self.add_text(&within(&file), bytes);
        }
        Ok(())
    }

    /// Adds the text of a file.
    pub fn add_text(&mut self, name: &str, text: Vec<u8>) {
        if self.contents.files.len() >= MAX_FILES || self.bytes + text.len() > MAX_TOTAL {
            let message = format!("not read: there are more than {MAX_FILES} files or {MAX_TOTAL} bytes");
            self.contents.problems.push(whole(name.into(), Scope::File, message));
            return;
        }
        self.bytes += text.len();
        self.contents.files.push((name.into(), text));
    }

    /// What all of it holds.
    pub fn load(self) -> Snapshot {
        interpret(self.contents, None)
    }
}
