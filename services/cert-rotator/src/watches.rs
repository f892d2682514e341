//! Watches that wake the rotator: one an object, by name, so that no right beyond that name is needed.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::TryStreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use sallyport_error_chain::format_chain;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::debug;

use crate::injection;
use crate::registration::description::Kind;

/// How long a watch lasts before it is begun anew, in seconds: also how long a dead connection may go unseen.
const WATCH_SECONDS: u32 = 60;

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    /// A Secret in the suite's namespace.
    Secret(String),
    /// A `ConfigMap` there.
    ConfigMap(String),
    /// A described object.
    Described(Kind, String),
    /// A Secret in the namespace that comes first.
    SecretOf(String, String),
    /// An object of others.
    Injected(injection::Kind, String),
}

/// Running watches. They end with it.
pub(crate) struct Watches {
    client: Client,
    namespace: String,
    wake: Arc<Notify>,
    running: BTreeMap<Watched, JoinHandle<()>>,
}

impl Watches {
    pub(crate) fn new(client: Client, namespace: &str, wake: Arc<Notify>) -> Self {
        Self { client, namespace: namespace.to_owned(), wake, running: BTreeMap::new() }
    }

    /// Watches exactly `wanted` from now on.
    pub(crate) fn keep(&mut self, wanted: impl IntoIterator<Item = Watched>) {
        let mut former = std::mem::take(&mut self.running);
        for watched in wanted {
            let task = former.remove(&watched).unwrap_or_else(|| self.start(&watched));
            self.running.insert(watched, task);
        }
        for task in former.into_values() {
            task.abort();
        }
    }

    /// Whether nothing is watched yet.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    fn start(&self, watched: &Watched) -> JoinHandle<()> {
        let (client, namespace, wake) = (self.client.clone(), &self.namespace, Arc::clone(&self.wake));
        match watched {
            Watched::Secret(name) => {
                spawn(Api::<PartialObjectMeta<Secret>>::namespaced(client, namespace), name, wake)
            }
            Watched::ConfigMap(name) => {
                spawn(Api::<PartialObjectMeta<ConfigMap>>::namespaced(client, namespace), name, wake)
            }
            Watched::Described(Kind::Service, name) => {
                spawn(Api::<PartialObjectMeta<Service>>::namespaced(client, namespace), name, wake)
            }
            Watched::Described(Kind::Mutating, name) | Watched::Injected(injection::Kind::Mutating, name) => {
                spawn(Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(client), name, wake)
            }
            Watched::Described(Kind::Validating, name)
            | Watched::Injected(injection::Kind::Validating, name) => {
                spawn(Api::<PartialObjectMeta<ValidatingWebhookConfiguration>>::all(client), name, wake)
            }
            Watched::SecretOf(namespace, name) => {
                spawn(Api::<PartialObjectMeta<Secret>>::namespaced(client, namespace), name, wake)
            }
            Watched::Injected(injection::Kind::Definition, name) => {
                spawn(Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client), name, wake)
            }
            Watched::Injected(injection::Kind::ApiService, name) => {
                spawn(Api::<PartialObjectMeta<APIService>>::all(client), name, wake)
            }
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for task in self.running.values() {
            task.abort();
        }
    }
}

fn spawn<K>(api: Api<K>, name: &str, wake: Arc<Notify>) -> JoinHandle<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
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
