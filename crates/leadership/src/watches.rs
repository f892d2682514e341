//! Watches that wake a controller: one per object, by name, so that no right beyond that name is needed.

use std::collections::HashMap;
use std::sync::Arc;

use futures::TryStreamExt as _;
use kube::api::ApiResource;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use sallyport_error_chain::format_chain;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::debug;

/// How long a watch lasts before it is begun anew, in seconds: also how long a dead connection may go unseen.
const WATCH_SECONDS: u32 = 60;

/// What is watched: one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Watched {
    resource: ApiResource,
    namespace: Option<String>,
    name: String,
}

impl Watched {
    /// The object `name` of `resource`, in `namespace` unless the resource has none.
    pub fn new(resource: ApiResource, namespace: Option<&str>, name: &str) -> Self {
        Self { resource, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    /// The object `name` of the kind `K` in `namespace`.
    pub fn namespaced<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Self {
        Self::new(ApiResource::erase::<K>(&()), Some(namespace), name)
    }

    fn api(&self, client: Client) -> Api<PartialObjectMeta> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }
}

/// Running watches. They end with it.
pub struct Watches {
    client: Client,
    wake: Arc<Notify>,
    running: HashMap<Watched, JoinHandle<()>>,
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").field("running", &self.running.keys()).finish_non_exhaustive()
    }
}

impl Watches {
    /// Watches nothing yet; every event notifies `wake`.
    pub fn new(client: Client, wake: Arc<Notify>) -> Self {
        Self { client, wake, running: HashMap::new() }
    }

    /// Watches exactly `wanted` from now on.
    pub fn keep(&mut self, wanted: impl IntoIterator<Item = Watched>) {
        let mut former = std::mem::take(&mut self.running);
        for watched in wanted {
            if self.running.contains_key(&watched) {
                continue;
            }
            let task = former.remove(&watched).unwrap_or_else(|| self.start(&watched));
            self.running.insert(watched, task);
        }
        for task in former.into_values() {
            task.abort();
        }
    }

    /// Whether nothing is watched yet.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    fn start(&self, watched: &Watched) -> JoinHandle<()> {
        spawn(watched.api(self.client.clone()), &watched.name, Arc::clone(&self.wake))
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.running.values() {
            task.abort();
        }
    }
}

fn spawn(api: Api<PartialObjectMeta>, name: &str, wake: Arc<Notify>) -> JoinHandle<()> {
    let config = watcher::Config::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS)
        .any_semantic();
    let name = name.to_owned();
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, config).default_backoff());
        loop {
            match events.try_next().await {
                Ok(Some(_)) => wake.notify_one(),
                Ok(None) => return,
                // The stream waits and begins anew; rounds go on without it meanwhile.
                Err(error) => debug!(name, error = format_chain(&error), "the watch was interrupted"),
            }
        }
    })
}
