//! Mounts Secrets into directories as kubelet does, as late as it is told to.
//!
//! Each mount is a delay line: what a Secret held is mounted, in order, the mount's own delay after it was stored.
//! That is the worst that a kubelet does which looks that seldom. A mount is a new directory with a time stamp for
//! its name, taken into use by renaming a link to it over `..data`.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use sallyport_pki::{Bundle, Certificate, Identity, Stored};
use tokio::task::JoinHandle;

/// How often Secrets are read.
const POLL: Duration = Duration::from_millis(100);
/// How long a first mount may take, besides its delay.
const FIRST: Duration = Duration::from_secs(60);

/// A Secret in the directory of a pod.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The pod.
    pub pod: String,
    /// The Secret.
    pub secret: String,
    /// The directory.
    pub directory: PathBuf,
    /// How long after a change it is mounted.
    pub delay: Duration,
}

/// What a Secret held from some moment on, or a pod had mounted.
#[derive(Debug, Clone)]
pub struct Seen {
    /// When it was seen.
    pub at: Instant,
    /// The name of the Secret, for what was stored; of the pod, for what was mounted.
    pub name: String,
    /// Whether it was mounted; stored otherwise.
    pub is_mounted: bool,
    /// The serial number of the certificate.
    pub serial: String,
    /// The trust bundle.
    pub bundle: Bundle,
}

/// A running imitation; it ends with this value.
#[derive(Debug)]
pub struct Kubelet {
    seen: Arc<Mutex<Vec<Seen>>>,
    mounts: Vec<Mount>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Keeps `mounts` of Secrets in `namespace`.
    pub fn start(client: Client, namespace: &str, mounts: Vec<Mount>) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let secrets = Api::namespaced(client, namespace);
        let task = tokio::spawn(keep(secrets, mounts.clone(), seen.clone()));
        Self { seen, mounts, task }
    }

    /// Waits until everything is mounted once.
    pub async fn mounted(&self) -> Result<()> {
        let slowest = self.mounts.iter().map(|mount| mount.delay).max().unwrap_or_default();
        let begun = Instant::now();
        while !self.mounts.iter().all(|mount| mount.directory.join("tls.crt").exists()) {
            ensure!(begun.elapsed() < FIRST + slowest, "the Secrets were not there to be mounted");
            ensure!(!self.task.is_finished(), "the mounts have failed");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Everything that was stored and mounted, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The bundle of this fingerprint, if any pod was ever given it.
    pub fn bundle(&self, fingerprint: &str) -> Option<Bundle> {
        let seen = self.seen.lock();
        seen.iter().map(|seen| &seen.bundle).find(|bundle| bundle.fingerprint() == fingerprint).cloned()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(secrets: Api<Secret>, mounts: Vec<Mount>, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut known: BTreeMap<String, Stored> = BTreeMap::new();
    let mut waiting: Vec<VecDeque<(Instant, Stored)>> = vec![VecDeque::new(); mounts.len()];
    loop {
        // An API server that is away changes nothing for those who have mounted.
        for secret in secrets.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let name = secret.metadata.name.unwrap_or_default();
            let data = secret.data.unwrap_or_default();
            let stored = Stored(data.into_iter().map(|(key, ByteString(bytes))| (key, bytes)).collect());
            if known.get(&name) == Some(&stored) {
                continue;
            }
            note(&seen, &name, false, &stored);
            for (mount, waiting) in mounts.iter().zip(&mut waiting) {
                if mount.secret == name {
                    waiting.push_back((Instant::now() + mount.delay, stored.clone()));
                }
            }
            known.insert(name, stored);
        }
        for (pod, waiting) in mounts.iter().zip(&mut waiting) {
            while waiting.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                let Some((_, stored)) = waiting.pop_front() else { break };
                // Bundles are known before anybody can say that they have loaded one.
                note(&seen, &pod.pod, true, &stored);
                mount(&pod.directory, &stored).expect("mounting a Secret");
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

fn note(seen: &Mutex<Vec<Seen>>, name: &str, is_mounted: bool, stored: &Stored) {
    let identity = Identity::from_stored(stored);
    let certificate = Certificate::from_pem(identity.pair.certificate_pem.as_bytes());
    seen.lock().push(Seen {
        at: Instant::now(),
        name: name.to_owned(),
        is_mounted,
        serial: certificate.map(|certificate| certificate.serial()).unwrap_or_default(),
        bundle: identity.bundle,
    });
}

/// Replaces what is mounted, in kubelet's own steps.
fn mount(directory: &Path, stored: &Stored) -> Result<()> {
    fs::create_dir_all(directory)?;
    let stamp = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let fresh = format!("..{}.{:09}", stamp.as_secs(), stamp.subsec_nanos());
    fs::create_dir(directory.join(&fresh))?;
    for (name, bytes) in &stored.0 {
        fs::write(directory.join(&fresh).join(name), bytes)?;
    }
    let data = directory.join("..data");
    let former = fs::read_link(&data).ok();
    let link = directory.join("..data_tmp");
    symlink(&fresh, &link)?;
    fs::rename(&link, &data).context("swapping ..data")?;
    for name in stored.0.keys() {
        let file = directory.join(name);
        if fs::symlink_metadata(&file).is_err() {
            symlink(Path::new("..data").join(name), &file)?;
        }
    }
    if let Some(former) = former {
        fs::remove_dir_all(directory.join(former))?;
    }
    Ok(())
}
