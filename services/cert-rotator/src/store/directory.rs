//! One directory a service, for use without a cluster: `ca/`, `webhook/`, `mutator/`, `validator/`.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use sallyport_pki::files;

use super::entry::{Content, Entry, Saved, Slot, StoreError};

/// File that a writer holds locked, so that of two rotators on one directory the second sees the first's work.
const LOCK: &str = ".lock";

/// Directories below one root.
#[derive(Debug, Clone)]
pub struct DirectoryStore {
    root: PathBuf,
}

impl DirectoryStore {
    /// A store below `root`, which is made at the first write.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) async fn load(&self, slot: Slot) -> Result<Entry, StoreError> {
        let directory = self.root.join(slot.word());
        blocking(move || Ok(Entry { stored: files::read(&directory)?, ..Entry::default() })).await
    }

    pub(super) async fn save(
        &self,
        slot: Slot,
        entry: &Entry,
        content: &Content,
    ) -> Result<Saved, StoreError> {
        let (root, entry, content) = (self.root.clone(), entry.clone(), content.clone());
        blocking(move || {
            let directory = root.join(slot.word());
            files::create(&root, 0o755)?;
            // Released when the file is closed.
            let _lock = lock(&root)?;
            let mut stored = files::read(&directory)?;
            if stored != entry.stored {
                return Ok(Saved::Overtaken);
            }
            if slot == Slot::Authority {
                files::create(&directory, 0o700)?;
            }
            content.store(&mut stored);
            files::write(&directory, &stored)?;
            Ok(Saved::Done)
        })
        .await
    }
}

fn lock(root: &Path) -> Result<File, StoreError> {
    let path = root.join(LOCK);
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    open.and_then(|file| file.lock().map(|()| file))
        .map_err(|source| StoreError::Lock { path: path.display().to_string(), source })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Unfinished)?
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use sallyport_pki::names::Member;
    use sallyport_pki::{Bundle, Identity, KeyPair, Stored};

    use super::*;

    fn identity(text: &str) -> Identity {
        Identity {
            pair: KeyPair { certificate_pem: text.into(), key_pem: text.into() },
            bundle: Bundle::empty(),
        }
    }

    fn content(text: &str) -> Content {
        Content::of(identity(text))
    }

    #[tokio::test]
    async fn what_is_saved_is_loaded_and_unknown_keys_are_kept_r01() {
        let dir = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(dir.path().join("certificates"));
        let slot = Slot::Member(Member::Webhook);
        let empty = store.load(slot).await.unwrap();
        assert_eq!(empty.stored, Stored::default());
        assert_eq!(store.save(slot, &empty, &content("1")).await.unwrap(), Saved::Done);
        fs::write(dir.path().join("certificates/webhook/mine"), "kept").unwrap();
        let first = store.load(slot).await.unwrap();
        assert_eq!(first.identity(), identity("1"));
        assert_eq!(store.save(slot, &first, &content("2")).await.unwrap(), Saved::Done);
        let second = store.load(slot).await.unwrap();
        assert_eq!(second.identity(), identity("2"));
        assert_eq!(second.stored.0["mine"], b"kept");
    }

    #[tokio::test]
    async fn the_second_of_two_writers_is_told_r01() {
        let dir = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(dir.path().to_owned());
        let read = store.load(Slot::Authority).await.unwrap();
        assert_eq!(store.save(Slot::Authority, &read, &content("1")).await.unwrap(), Saved::Done);
        assert_eq!(store.save(Slot::Authority, &read, &content("2")).await.unwrap(), Saved::Overtaken);
        assert_eq!(store.load(Slot::Authority).await.unwrap().identity(), identity("1"));
    }

    #[tokio::test]
    async fn the_authoritys_directory_is_the_owners_alone_r09() {
        let dir = tempfile::tempdir().unwrap();
        let store = DirectoryStore::new(dir.path().to_owned());
        let read = store.load(Slot::Authority).await.unwrap();
        store.save(Slot::Authority, &read, &content("1")).await.unwrap();
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("ca"), 0o700);
        assert_eq!(mode("ca/tls.key"), 0o600);
    }
}
