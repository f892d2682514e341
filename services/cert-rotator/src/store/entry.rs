//! What is stored in one place, and what is written there.

use std::fmt;

use sallyport_leadership::AccessError;
use sallyport_pki::files::FileError;
use sallyport_pki::names::{AUTHORITY, Member};
use sallyport_pki::{Identity, KeyPair, Stored};

/// A place in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// The authority, with its private key. No service mounts it.
    Authority,
    /// What one member is given.
    Member(Member),
}

impl Slot {
    /// All places.
    pub const ALL: [Self; 4] = [
        Self::Authority,
        Self::Member(Member::Webhook),
        Self::Member(Member::Mutator),
        Self::Member(Member::Validator),
    ];

    /// The word for the place: its directory, its metric label.
    pub fn word(self) -> &'static str {
        match self {
            Self::Authority => AUTHORITY,
            Self::Member(member) => member.word(),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What was read from one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The keys there.
    pub stored: Stored,
    /// The version that was read; `None` when there is nothing yet.
    pub(super) version: Option<String>,
    /// The request for another authority that was not begun, as it was written.
    pub(super) request: Option<String>,
    /// Why rotations and renewals are held, if somebody asked for that.
    pub(super) freeze: Option<String>,
}

impl Entry {
    /// The certificate, key and bundle there.
    pub fn identity(&self) -> Identity {
        Identity::from_stored(&self.stored)
    }

    /// Whether somebody asked for another authority, and it was not begun.
    pub fn is_asked_for(&self) -> bool {
        self.request.is_some()
    }

    /// Why rotations and renewals are held, if somebody asked for that.
    pub fn freeze(&self) -> Option<&str> {
        self.freeze.as_deref()
    }
}

/// What is written into a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The certificate, key and bundle.
    pub identity: Identity,
    /// The authority that is to follow, beside the authority.
    pub successor: Option<KeyPair>,
}

impl Content {
    /// What a place holds that is no authority's.
    pub fn of(identity: Identity) -> Self {
        Self { identity, successor: None }
    }

    /// Writes it over what is stored, and leaves every other key alone.
    pub(super) fn store(&self, stored: &mut Stored) {
        self.identity.store(stored);
        stored.set_successor(self.successor.as_ref());
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is stored.
    Done,
    /// Somebody else wrote since it was read. Nothing was stored: read again.
    Overtaken,
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server refused or failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The owner of what is to be made is not there: the release is being removed, or not yet whole.
    #[error("the ServiceAccount {0:?} that is to own the Secrets does not exist")]
    OwnerAbsent(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory could not be locked.
    #[error("failed to lock the certificate directory {path}")]
    Lock {
        /// The lock file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A write to the directory was cut off.
    #[error("the write to the certificate directory did not finish")]
    Unfinished,
}
