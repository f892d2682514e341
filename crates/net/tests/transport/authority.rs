//! A certificate authority for tests, and the ways in which files reach a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sallyport_net::Credentials;
use sallyport_pki::leaf::LeafRequest;
use sallyport_pki::{Algorithm, Authority, Certificate, KeyPair, ServiceName};
use tempfile::TempDir;

const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The name that a leaf for `service` is verified by.
pub fn name(service: &str) -> String {
    ServiceName::new(service, "test", "cluster.local").unwrap().server_name()
}

/// An authority with a key of its own.
pub struct Ca(Authority);

impl Ca {
    pub fn new() -> Self {
        Self(Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), LIFE).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.certificate().to_pem()
    }

    pub fn certificate(&self) -> &Certificate {
        self.0.certificate()
    }

    /// A leaf for a server and client.
    pub fn leaf(&self, service: &str) -> KeyPair {
        let service = ServiceName::new(service, "test", "cluster.local").unwrap();
        self.0.issue(&LeafRequest::for_service(&service).with_client_auth(), SystemTime::now(), LIFE).unwrap()
    }

    /// A directory with a new leaf, trusting this authority.
    pub fn member(&self, service: &str) -> Member {
        Member::new(&self.leaf(service), &self.pem())
    }
}

/// The serial of a pair's leaf.
pub fn serial(pair: &KeyPair) -> String {
    Certificate::from_pem(pair.certificate_pem.as_bytes()).unwrap().serial()
}

/// A process's directory and what it has loaded from it.
pub struct Member {
    pub directory: TempDir,
    pub credentials: Arc<Credentials>,
}

impl Member {
    pub fn new(pair: &KeyPair, bundle: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Layout::Rename.publish(directory.path(), &Set::new(pair, bundle));
        let credentials = Credentials::load(directory.path()).unwrap();
        Self { directory, credentials }
    }

    /// Replaces the files at once, as kubelet would.
    pub fn publish(&self, pair: &KeyPair, bundle: &str) {
        Layout::Rename.publish(self.directory.path(), &Set::new(pair, bundle));
    }
}

/// The three files.
#[derive(Clone)]
pub struct Set {
    pub certificate: String,
    pub key: String,
    pub bundle: String,
}

impl Set {
    pub fn new(pair: &KeyPair, bundle: &str) -> Self {
        Self {
            certificate: pair.certificate_pem.clone(),
            key: pair.key_pem.clone(),
            bundle: bundle.to_owned(),
        }
    }

    fn files(&self) -> [(&'static str, &str); 3] {
        [("tls.crt", &self.certificate), ("tls.key", &self.key), ("ca.crt", &self.bundle)]
    }
}

/// How the files of a directory are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// kubelet: the files are links through `..data`, which is swapped.
    DataSwap,
    /// Each file is written beside and renamed.
    Rename,
    /// Each file is written over.
    Overwrite,
    /// All files are removed and made again.
    Recreate,
}

impl Layout {
    pub fn publish(self, directory: &Path, set: &Set) {
        match self {
            Self::DataSwap => swap(directory, set),
            Self::Rename => {
                for (name, text) in set.files() {
                    let beside = directory.join(format!(".{name}.new"));
                    fs::write(&beside, text).unwrap();
                    fs::rename(beside, directory.join(name)).unwrap();
                }
            }
            Self::Overwrite => {
                for (name, text) in set.files() {
                    fs::write(directory.join(name), text).unwrap();
                }
            }
            Self::Recreate => {
                for (name, _) in set.files() {
                    // The first time there is nothing to remove.
                    let _ = fs::remove_file(directory.join(name));
                }
                for (name, text) in set.files() {
                    fs::write(directory.join(name), text).unwrap();
                }
            }
        }
    }
}

fn swap(directory: &Path, set: &Set) {
    use std::os::unix::fs::symlink;
    let data = directory.join("..data");
    let old: Option<PathBuf> = fs::read_link(&data).ok();
    let number = old.as_ref().map_or(0, |old| {
        old.to_str().and_then(|old| old.rsplit('_').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
    });
    let fresh = format!("..2026_{}", number + 1);
    fs::create_dir(directory.join(&fresh)).unwrap();
    for (name, text) in set.files() {
        fs::write(directory.join(&fresh).join(name), text).unwrap();
    }
    let beside = directory.join("..data_tmp");
    symlink(&fresh, &beside).unwrap();
    fs::rename(&beside, &data).unwrap();
    if let Some(old) = old {
        fs::remove_dir_all(directory.join(old)).unwrap();
    } else {
        for (name, _) in set.files() {
            symlink(Path::new("..data").join(name), directory.join(name)).unwrap();
        }
    }
}
