//! Directories of certificates: replaced as a whole, keys readable by the owner alone.
//!
//! A set of files is written the way a kubelet writes a Secret volume: into a new hidden directory, then a
//! symbolic link `..data` is renamed over the old one. A reader sees the old pair or the new one, never a half
//! of each, and what the suite does with a mounted Secret it does with such a directory.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::certificate::MAX_PEM;
use crate::stored::Stored;

/// The link that readers go through.
const DATA: &str = "..data";

/// A failed operation on a file.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {}", path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

/// Keys are for the owner, certificates for everyone.
fn mode(name: &str) -> u32 {
    if Path::new(name).extension().is_some_and(|extension| extension == "key") { 0o600 } else { 0o644 }
}

/// Reads the files of a directory; what is absent reads as empty. Hidden entries, directories and files larger
/// than a Secret could be are passed over.
pub fn read(directory: &Path) -> Result<Stored, FileError> {
    let mut stored = BTreeMap::new();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
        Err(error) => return Err(failed("list", directory)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed("list", directory))?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') || !path.is_file() {
            continue;
        }
        let limit = MAX_PEM as u64 + 1;
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(failed("open", &path))?;
        file.take(limit).read_to_end(&mut bytes).map_err(failed("read", &path))?;
        if bytes.len() <= MAX_PEM {
            stored.insert(name, bytes);
        }
    }
    Ok(Stored(stored))
}

/// Replaces the files of a directory in one step and makes the directory if need be. Files that are there but
/// not in `stored` stay as they are.
pub fn write(directory: &Path, stored: &Stored) -> Result<(), FileError> {
    create(directory, 0o755)?;
    let unique = unique(directory)?;
    let fresh = directory.join(format!("..{unique}"));
    create(&fresh, 0o755)?;
    for (name, bytes) in &stored.0 {
        create_file(&fresh.join(name), bytes, mode(name))?;
    }
    let link = directory.join(DATA);
    let former = fs::read_link(&link).ok();
    // What only the former set has moves along, so that its links go on resolving.
    if let Some(former) = &former {
        let kept = read(&directory.join(former))?;
        for (name, bytes) in kept.0.iter().filter(|(name, _)| !stored.0.contains_key(*name)) {
            create_file(&fresh.join(name), bytes, mode(name))?;
        }
    }
    replace_link(directory, &unique, &fresh, DATA, Path::new(&format!("..{unique}")))?;
    for name in stored.0.keys() {
        let target = Path::new(DATA).join(name);
        if fs::read_link(directory.join(name)).ok().as_deref() != Some(&target) {
            replace_link(directory, &unique, &fresh, name, &target)?;
        }
    }
    if let Some(former) = former.filter(|former| is_own(former)) {
        // A reader may still be inside; the files live until it has closed them.
        let former = directory.join(former);
        fs::remove_dir_all(&former).map_err(failed("remove", &former))?;
    }
    Ok(())
}

/// Writes one plain file through a temporary one, readable by the owner alone if it is a key.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let temporary = directory.join(format!(".{name}.{}", unique(directory)?));
    create_file(&temporary, bytes, mode(name))?;
    fs::rename(&temporary, path).map_err(failed("replace", path))
}

/// Makes a directory, with those above it, unless it is there.
pub fn create(directory: &Path, mode: u32) -> Result<(), FileError> {
    DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(failed("create", directory))
}

fn replace_link(
    directory: &Path,
    unique: &str,
    fresh: &Path,
    name: &str,
    target: &Path,
) -> Result<(), FileError> {
    // Made inside the new directory's name space, so that two writers never share a temporary name.
    let temporary = directory.join(format!("..link-{unique}"));
    let path = directory.join(name);
    let done = symlink(target, &temporary).and_then(|()| fs::rename(&temporary, &path));
    done.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        // Unless a link already leads there, nobody needs the new files.
        if name == DATA {
            let _ = fs::remove_dir_all(fresh);
        }
        failed("replace", &path)(error)
    })
}

/// Whether a link's target is a directory that [`write`] made: never remove anything else.
fn is_own(target: &Path) -> bool {
    target.components().count() == 1
        && target.to_str().is_some_and(|name| name.starts_with("..") && name.len() > 2)
}

fn create_file(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(failed("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed("write", path))
}

fn unique(directory: &Path) -> Result<String, FileError> {
    let mut bytes = [0_u8; 8];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| failed("choose a temporary name in", directory)(io::Error::other("no random bytes")))?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn stored(pairs: &[(&str, &str)]) -> Stored {
        Stored(pairs.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect())
    }

    #[test]
    fn what_is_written_is_read_back_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("webhook");
        assert_eq!(read(&dir).unwrap(), Stored::default());
        write(&dir, &stored(&[("tls.crt", "1"), ("tls.key", "1")])).unwrap();
        let before = fs::read_link(dir.join(DATA)).unwrap();
        write(&dir, &stored(&[("tls.crt", "2"), ("tls.key", "2")])).unwrap();
        assert_ne!(fs::read_link(dir.join(DATA)).unwrap(), before);
        assert!(!dir.join(before).exists(), "the former set is removed");
        assert_eq!(read(&dir).unwrap(), stored(&[("tls.crt", "2"), ("tls.key", "2")]));
        assert_eq!(fs::read_link(dir.join("tls.key")).unwrap(), Path::new("..data/tls.key"));
    }

    #[test]
    fn unknown_files_are_kept_r01() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        write(dir.path(), &stored(&[("tls.crt", "1"), ("extra", "e")])).unwrap();
        write(dir.path(), &stored(&[("tls.crt", "2")])).unwrap();
        assert_eq!(
            read(dir.path()).unwrap(),
            stored(&[("tls.crt", "2"), ("extra", "e"), ("notes.txt", "mine")])
        );
    }

    #[test]
    fn a_plain_pair_becomes_a_linked_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tls.crt"), "plain").unwrap();
        write(dir.path(), &stored(&[("tls.crt", "1")])).unwrap();
        assert_eq!(read(dir.path()).unwrap(), stored(&[("tls.crt", "1")]));
    }

    #[test]
    fn keys_are_the_owners_alone_r09() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &stored(&[("tls.crt", "1"), ("tls.key", "1")])).unwrap();
        write_file(&dir.path().join("ca.key"), b"k").unwrap();
        write_file(&dir.path().join("ca.crt"), b"c").unwrap();
        let mode = |name| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("tls.key"), mode("ca.key")), (0o600, 0o600));
        // The process may be set to give less, never more.
        assert_eq!((mode("tls.crt") | mode("ca.crt")) & !0o644, 0);
    }

    #[test]
    fn nothing_temporary_is_left() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &stored(&[("tls.crt", "1")])).unwrap();
        write(dir.path(), &stored(&[("tls.crt", "2")])).unwrap();
        write_file(&dir.path().join("ca.crt"), b"c").unwrap();
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let own = names.iter().filter(|n| n.starts_with("..") && *n != DATA).count();
        assert_eq!((own, names.len()), (1, 4), "{names:?}");
    }

    #[test]
    fn errors_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let text = write(&file.join("sub"), &stored(&[("tls.crt", "1")])).unwrap_err().to_string();
        assert!(text.starts_with("failed to create") && text.contains("file/sub"), "{text}");
    }
}
