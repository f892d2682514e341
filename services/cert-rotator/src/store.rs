//! Where certificates are stored: Secrets of the cluster, or directories.
//!
//! Both forms hold the same keys, and both write only over what was read: a writer that was overtaken is told
//! so and reads again. Keys that are not ours are kept.

mod cluster;
mod directory;
mod entry;

use std::collections::BTreeMap;

pub use self::cluster::{ClusterStore, SecretNames};
pub use self::directory::DirectoryStore;
pub use self::entry::{Content, Entry, Saved, Slot, StoreError};

/// A store in one of its two forms.
#[derive(Debug, Clone)]
pub enum Store {
    /// Secrets.
    Cluster(Box<ClusterStore>),
    /// Directories.
    Directory(DirectoryStore),
}

impl Store {
    /// Reads every place.
    pub async fn load(&self) -> Result<BTreeMap<Slot, Entry>, StoreError> {
        let mut entries = BTreeMap::new();
        for slot in Slot::ALL {
            let entry = match self {
                Self::Cluster(store) => store.load(slot).await?,
                Self::Directory(store) => store.load(slot).await?,
            };
            entries.insert(slot, entry);
        }
        Ok(entries)
    }

    /// Writes `content` into a place over the `entry` that was read there. A successor that is new answers the
    /// request for it.
    pub async fn save(&self, slot: Slot, entry: &Entry, content: &Content) -> Result<Saved, StoreError> {
        match self {
            Self::Cluster(store) => store.save(slot, entry, content).await,
            Self::Directory(store) => store.save(slot, entry, content).await,
        }
    }
}
