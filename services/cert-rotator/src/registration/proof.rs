//! Proving the front: what it serves is what the API server will accept.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use sallyport_leadership::{AccessError, Verb, call};
use sallyport_pki::{Bundle, Defect, check};
use sallyport_registration::{ServicePort, Target};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one connection and handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many fronts are asked at a time.
const CONCURRENCY: usize = 16;
/// The most pods that are read of a Service.
const MAX_PODS: u32 = 500;

/// Why the front is not proven.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// The API server refused or failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// There is no such Service.
    #[error("{0} does not exist")]
    NoService(Target),
    /// The Service does not select pods or has no such port.
    #[error("{0} has no selector or no such port")]
    NotRoutable(Target),
    /// No pod is ready.
    #[error("{0} has no ready pod")]
    NoneReady(Target),
    /// A front could not be reached.
    #[error("failed to connect to {address}")]
    Connect {
        /// Host and port.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A front did not answer in time.
    #[error("giving up on {address} after {} seconds", HANDSHAKE_TIMEOUT.as_secs())]
    TimedOut {
        /// Host and port.
        address: String,
    },
    /// A front serves a certificate that the API server would refuse.
    #[error("the certificate that {address} serves is not good for {server_name}")]
    Certificate {
        /// Host and port.
        address: String,
        /// The name the API server would verify.
        server_name: String,
        /// Why.
        #[source]
        source: Defect,
    },
    /// The handshake cannot be prepared.
    #[error("{what:?} cannot be verified")]
    Unverifiable {
        /// A name or the bundle.
        what: String,
    },
}

/// Proves every target: each has at least one ready front, and every ready one serves a certificate that
/// verifies against `bundle`.
pub async fn prove(
    client: &Client,
    targets: &BTreeSet<Target>,
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), Unproven> {
    let connector = connector(bundle)?;
    for target in targets {
        let (fronts, server_name) = match target {
            Target::Url { host, port } => (vec![(host.clone(), *port)], host.clone()),
            Target::Service(service) => {
                let name = format!("{}.{}.svc", service.name, service.namespace);
                (endpoints(client, service).await?, name)
            }
        };
        let mut asked = futures::stream::iter(fronts)
            .map(|(host, port)| handshake(&connector, host, port, &server_name, bundle, now))
            .buffer_unordered(CONCURRENCY);
        while let Some(result) = asked.next().await {
            result?;
        }
    }
    Ok(())
}

/// A client that verifies against the bundle and nothing else.
fn connector(bundle: &Bundle) -> Result<TlsConnector, Unproven> {
    let unverifiable = || Unproven::Unverifiable { what: "the trust bundle".to_owned() };
    let mut roots = RootCertStore::empty();
    for certificate in bundle.certificates() {
        roots.add(certificate.der().clone()).map_err(|_| unverifiable())?;
    }
    // The provider is named, so that nothing depends on a default of the process.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| unverifiable())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn handshake(
    connector: &TlsConnector,
    host: String,
    port: u16,
    server_name: &str,
    bundle: &Bundle,
    now: SystemTime,
) -> Result<(), Unproven> {
    let address = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => format!("[{host}]:{port}"),
        _ => format!("{host}:{port}"),
    };
    let name = ServerName::try_from(server_name.to_owned())
        .map_err(|_| Unproven::Unverifiable { what: server_name.to_owned() })?;
    let connect = async {
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        connector.connect(name, stream).await
    };
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, connect).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(source)) => return Err(Unproven::Connect { address, source }),
        Err(_) => return Err(Unproven::TimedOut { address }),
    };
    // The handshake has verified the chain and the key; what Go judges beyond that is judged here.
    let (_, connection) = stream.get_ref();
    let chain: Vec<_> = connection
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|der| der.clone().into_owned())
        .collect();
    check::presented(&chain, bundle, server_name, now).map(|_| ()).map_err(|source| Unproven::Certificate {
        address,
        server_name: server_name.to_owned(),
        source,
    })
}

/// Addresses of every ready pod behind a Service.
async fn endpoints(client: &Client, service: &ServicePort) -> Result<Vec<(String, u16)>, Unproven> {
    let ServicePort { namespace, name, port } = service;
    let target = Target::Service(service.clone());
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = call(Verb::Get, "services", name, services.get_opt(name)).await?;
    let service = service.ok_or_else(|| Unproven::NoService(target.clone()))?;
    let (selector, target_port) =
        route(&service, *port).ok_or_else(|| Unproven::NotRoutable(target.clone()))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(&selector).limit(MAX_PODS);
    let pods = call(Verb::List, "pods", &selector, pods.list(&selected)).await?;
    let ready: Vec<&Pod> = pods.items.iter().filter(|pod| is_ready(pod)).collect();
    if ready.is_empty() {
        return Err(Unproven::NoneReady(target.clone()));
    }
    ready
        .into_iter()
        .map(|pod| {
            let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
            let port = pod_port(pod, &target_port);
            address.zip(port).ok_or_else(|| Unproven::NotRoutable(target.clone()))
        })
        .collect()
}

/// The label selector of a Service, and where its `port` leads.
fn route(service: &Service, port: u16) -> Option<(String, IntOrString)> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    let selector = selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let found = spec.ports.as_ref()?.iter().find(|candidate| candidate.port == i32::from(port))?;
    Some((selector, found.target_port.clone().unwrap_or(IntOrString::Int(found.port))))
}

/// The port of a pod that a number or the name of a container's port stands for.
pub(crate) fn pod_port(pod: &Pod, target: &IntOrString) -> Option<u16> {
    let number = match target {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let containers = &pod.spec.as_ref()?.containers;
            let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
            ports.find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    u16::try_from(number).ok()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(value: &serde_json::Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "front"}, "spec": value})).unwrap()
    }

    #[test]
    fn a_services_port_leads_to_a_port_of_its_pods() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "https", "containerPort": 8443}]}]},
        }))
        .unwrap();
        let rows = [
            (json!({"selector": {"a": "b"}, "ports": [{"port": 443, "targetPort": 9443}]}), Some(9443)),
            (json!({"selector": {"a": "b"}, "ports": [{"port": 443, "targetPort": "https"}]}), Some(8443)),
            (json!({"selector": {"a": "b"}, "ports": [{"port": 443}]}), Some(443)),
            (json!({"selector": {"a": "b"}, "ports": [{"port": 443, "targetPort": "http"}]}), None),
            (json!({"selector": {"a": "b"}, "ports": [{"port": 80}]}), None),
            (json!({"ports": [{"port": 443}]}), None),
        ];
        for (spec, wanted) in rows {
            let routed = route(&service(&spec), 443).and_then(|(_, port)| pod_port(&pod, &port));
            assert_eq!(routed, wanted, "{spec}");
        }
    }

    #[test]
    fn ready_is_the_condition_of_that_name() {
        for (conditions, wanted) in [
            (json!([]), false),
            (json!([{"type": "Ready", "status": "False"}]), false),
            (json!([{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]), true),
        ] {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}}))
                    .unwrap();
            assert_eq!(is_ready(&pod), wanted, "{conditions}");
        }
    }
}
