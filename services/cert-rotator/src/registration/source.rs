//! Where the description of the registration comes from.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use sallyport_leadership::{AccessError, Verb, call};
use sallyport_registration::{Description, DescriptionError};

/// Where the description is read from, each time anew.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// A `ConfigMap` of this name in the rotator's namespace; all its keys in their order are read as YAML
    /// documents.
    ConfigMap(String),
    /// A file of YAML documents.
    File(PathBuf),
    /// A text of YAML documents, for callers in the same process.
    Text(String),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ConfigMap(name) => f.debug_tuple("ConfigMap").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text"),
        }
    }
}

/// Why there is no description.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The `ConfigMap` could not be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The `ConfigMap` is not there.
    #[error("the ConfigMap {0:?} with the registration does not exist")]
    Absent(String),
    /// The file could not be read.
    #[error("failed to read the registration from {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was read is not a description.
    #[error(transparent)]
    Description(#[from] DescriptionError),
}

impl Source {
    /// Reads and parses the description. Objects without a namespace that need one are in `namespace`.
    pub async fn read(&self, client: &Client, namespace: &str) -> Result<Description, SourceError> {
        let text = match self {
            Self::ConfigMap(name) => {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                let map = call(Verb::Get, "configmaps", name, api.get_opt(name)).await?;
                let map = map.ok_or_else(|| SourceError::Absent(name.clone()))?;
                let parts: BTreeMap<String, String> = map.data.unwrap_or_default();
                parts.into_values().collect::<Vec<_>>().join("\n---\n")
            }
            Self::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking({
                    let path = path.clone();
                    move || read_bounded(&path)
                });
                let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                read.map_err(|source| SourceError::File { path, source })?
            }
            Self::Text(text) => text.clone(),
        };
        Ok(Description::parse(&text, namespace)?)
    }
}

/// Reads at most one byte more than is allowed, so that more is seen as too much.
fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(Description::MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
