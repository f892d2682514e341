//! Connections to the API server.

use std::path::{Path, PathBuf};

use kube::Client;
use kube::config::{Config, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig could not be read.
    #[error("failed to read --kubeconfig {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The kubeconfig names no cluster that can be used.
    #[error("failed to use --kubeconfig {}", path.display())]
    Use {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The environment names no API server.
    #[error(
        "failed to find an API server; inside a cluster a ServiceAccount is needed, outside --kubeconfig"
    )]
    NotFound(#[source] Box<InferConfigError>),
    /// No client could be made.
    #[error("failed to make a client of the API server")]
    Client(#[source] Box<kube::Error>),
}

/// A client of the API server: of `kubeconfig` if one is given, else as the environment says. It does not retry by
/// itself, because every call of a controller is bounded and repeated in the next round.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    client(cluster(kubeconfig).await?)
}

/// Where the API server is, and how to speak to it.
pub async fn cluster(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .map_err(|source| ConnectError::Read { path: path.to_owned(), source: Box::new(source) })?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|source| ConnectError::Use { path: path.to_owned(), source: Box::new(source) })?
        }
        None => Config::infer().await.map_err(|source| ConnectError::NotFound(Box::new(source)))?,
    };
    config.default_retry = false;
    Ok(config)
}

/// A client of that API server.
pub fn client(cluster: Config) -> Result<Client, ConnectError> {
    Client::try_from(cluster).map_err(|source| ConnectError::Client(Box::new(source)))
}
