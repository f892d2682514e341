//! What is in use out there: which bundle and which leaf each process has loaded.
//!
//! A TLS probe shows the leaf of a process and never which bundle it trusts, so every process shows both on its
//! admin port. Every pod is asked, ready or not, terminating ones included: all of them still make and take calls.
//! One that does not answer is unknown, and what is unknown is waited for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client};
use sallyport_leadership::{AccessError, Verb, call};
use sallyport_pki::names::Member;
use serde::Deserialize;
use tokio::net::TcpStream;

use crate::registration::pod_port;
use crate::state::Phase;

/// The label that says which service a pod is of.
const COMPONENT: &str = "app.kubernetes.io/component";
/// The name of the admin port of a pod.
const ADMIN: &str = "admin";
/// Where a process shows its certificate and its bundle; `sallyport-telemetry` serves it.
const PAGE: &str = "/tls";
/// The longest page, in bytes.
const MAX_PAGE: usize = 16 << 10;
/// How long one process may take to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(3);
/// How many processes are asked at a time.
const CONCURRENCY: usize = 16;
/// The most pods of a suite that are read; with more, nothing is confirmed.
const MAX_PODS: u32 = 2000;

/// Where the processes are.
#[derive(Clone)]
pub struct Pods {
    /// The cluster.
    pub client: Client,
    /// The suite's namespace.
    pub namespace: String,
    /// A label selector of the suite's pods, which are told apart by `app.kubernetes.io/component`.
    pub selector: String,
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pods").field("selector", &self.selector).finish_non_exhaustive()
    }
}

/// What has to be in use before a phase is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected<'a> {
    pub(crate) phase: Phase,
    /// The fingerprint of the bundle.
    pub(crate) bundle: String,
    pub(crate) serials: &'a BTreeMap<Member, String>,
}

/// Looks at what is in use.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// `None` where there are no pods to ask: a suite that reads directories.
    pods: Option<Pods>,
    /// How long what is stored is waited upon where nobody can look: API servers hear of a stored bundle by their own
    /// watches, and a pod that starts may mount what was stored a moment before.
    propagation: Duration,
    /// What is waited for, and since when it has been stored.
    stored: Option<(String, Instant)>,
}

impl Deployment {
    pub(crate) fn new(pods: Option<Pods>, propagation: Duration) -> Self {
        Self { pods, propagation, stored: None }
    }

    /// Forgets what was waited for: something that has to be stored is not.
    pub(crate) fn unsettled(&mut self) {
        self.stored = None;
    }

    /// Why the phase is not complete, or `None` if it is. Everything that is expected has to be stored already.
    pub(crate) async fn lacks(&mut self, expected: &Expected<'_>) -> Result<Option<String>, AccessError> {
        let key = format!("{:?} {} {:?}", expected.phase, expected.bundle, expected.serials);
        let since = match &self.stored {
            Some((known, since)) if *known == key => *since,
            _ => {
                let now = Instant::now();
                self.stored = Some((key, now));
                now
            }
        };
        if since.elapsed() < self.propagation {
            return Ok(Some("what was stored may not have reached everybody yet".to_owned()));
        }
        let Some(pods) = &self.pods else { return Ok(None) };
        let api: Api<Pod> = Api::namespaced(pods.client.clone(), &pods.namespace);
        let selected = ListParams::default().labels(&pods.selector).limit(MAX_PODS);
        let list = call(Verb::List, "pods", &pods.selector, api.list(&selected)).await?;
        if list.metadata.continue_.is_some_and(|token| !token.is_empty()) {
            return Ok(Some(format!("there are more than {MAX_PODS} pods")));
        }
        let processes: Vec<Process> = list.items.iter().filter_map(Process::of).collect();
        let mut asked = futures::stream::iter(processes)
            .map(|process| async move {
                process.lacks(expected).await.map(|why| format!("pod {}: {why}", process.pod))
            })
            .buffer_unordered(CONCURRENCY);
        while let Some(lack) = asked.next().await {
            if lack.is_some() {
                return Ok(lack);
            }
        }
        Ok(None)
    }
}

/// A process that may make or take calls.
struct Process {
    pod: String,
    member: Member,
    /// `None` while the pod has no address, or no admin port.
    address: Option<(String, u16)>,
}

/// What a process shows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    serial: String,
    bundle_sha256: String,
}

impl Page {
    /// Why what a member shows is not what is expected, or `None` if it is.
    fn lacks(&self, member: Member, expected: &Expected<'_>) -> Option<&'static str> {
        if self.bundle_sha256 != expected.bundle {
            return Some("it has another trust bundle");
        }
        // Services write whole bytes, so that the serial of an external certificate may begin with a zero.
        let serial = self.serial.trim_start_matches('0');
        let wanted = expected.serials.get(&member).map(String::as_str);
        if expected.phase == Phase::Switched && wanted != Some(serial) {
            return Some("it serves another certificate");
        }
        None
    }
}

impl Process {
    /// The process of a pod; `None` if it can have nothing loaded: not one of a service, ended, or not yet on a node.
    fn of(pod: &Pod) -> Option<Self> {
        let component = pod.metadata.labels.as_ref()?.get(COMPONENT)?;
        let member = Member::ALL.into_iter().find(|member| member.word() == component)?;
        let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
        let phase = status.and_then(|status| status.phase.as_deref());
        if spec.node_name.is_none() || matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let port = pod_port(pod, &IntOrString::String(ADMIN.to_owned()));
        let address = status.and_then(|status| status.pod_ip.clone());
        Some(Self { pod: pod.metadata.name.clone().unwrap_or_default(), member, address: address.zip(port) })
    }

    async fn lacks(&self, expected: &Expected<'_>) -> Option<String> {
        let Some((host, port)) = &self.address else { return Some("it has no address yet".to_owned()) };
        let page = match tokio::time::timeout(ASK_TIMEOUT, page(host, *port)).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return Some(format!("it does not say what it has loaded: {error}")),
            Err(_) => return Some(format!("no answer within {} s", ASK_TIMEOUT.as_secs())),
        };
        page.lacks(self.member, expected).map(str::to_owned)
    }
}

async fn page(host: &str, port: u16) -> Result<Page, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect((host, port)).await?;
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let serving = tokio::spawn(connection);
    let request = hyper::Request::get(PAGE).header("host", host).body(Empty::<Bytes>::new())?;
    let response = client.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_PAGE).collect().await?.to_bytes();
    serving.abort();
    if !status.is_success() {
        return Err(format!("status {status}").into());
    }
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use sallyport_net::Credentials;
    use sallyport_pki::names::Suite;
    use sallyport_pki::{Authority, Certificate, Identity, Stored, authority, files};
    use sallyport_telemetry::certificate;
    use serde_json::json;

    use super::*;

    /// What a service shows of itself is what is known of the Secret that it has mounted.
    #[test]
    fn the_page_of_a_service_is_understood() {
        let now = SystemTime::now();
        let authority =
            Authority::generate(authority::Algorithm::EcdsaP256, now, authority::AUTHORITY_LIFE).unwrap();
        let suite = Suite::with_prefix("sallyport", "prod", "cluster.local").unwrap();
        let leaf = suite.leaf(Member::Mutator, &sallyport_pki::names::Extras::default()).unwrap();
        let mut bundle = sallyport_pki::Bundle::empty();
        bundle.add(authority.certificate().clone());
        let identity = Identity { pair: authority.issue(&leaf, now, authority::LEAF_LIFE).unwrap(), bundle };
        let directory = tempfile::tempdir().unwrap();
        let mut stored = Stored::default();
        identity.store(&mut stored);
        files::write(directory.path(), &stored).unwrap();

        assert_eq!(PAGE, certificate::PAGE);
        let credentials = Credentials::load(directory.path()).unwrap();
        let page: Page = serde_json::from_str(&certificate::page(credentials)()).unwrap();
        let certificate = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()).unwrap();
        assert_eq!((page.serial, page.bundle_sha256), (certificate.serial(), identity.bundle.fingerprint()));
    }

    #[test]
    fn a_page_is_held_to_bundle_and_serial() {
        let serials = BTreeMap::from([(Member::Mutator, "a1".to_owned())]);
        for (phase, serial, bundle, wanted) in [
            (Phase::Switched, "a1", "b", None),
            // As a service writes the serial of an external certificate whose first digit is zero.
            (Phase::Switched, "0a1", "b", None),
            (Phase::Switched, "a10", "b", Some("it serves another certificate")),
            (Phase::Published, "a10", "b", None),
            (Phase::Published, "a1", "c", Some("it has another trust bundle")),
        ] {
            let page = Page { serial: serial.to_owned(), bundle_sha256: bundle.to_owned() };
            let expected = Expected { phase, bundle: "b".to_owned(), serials: &serials };
            assert_eq!(page.lacks(Member::Mutator, &expected), wanted, "{phase:?} {serial} {bundle}");
        }
    }

    /// Which pods are waited for, and where they are asked.
    #[test]
    fn pods_that_can_have_something_loaded_are_asked() {
        let pod = |label: &str, node: Option<&str>, phase: &str, address: Option<&str>| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "labels": {COMPONENT: label}},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "c", "ports": [{"name": "admin", "containerPort": 9090}]}],
                },
                "status": {"phase": phase, "podIP": address},
            }))
            .unwrap()
        };
        let asked = Some(Some(("10.0.0.1".to_owned(), 9090)));
        for (pod, wanted) in [
            (pod("mutator", Some("n"), "Running", Some("10.0.0.1")), asked),
            (pod("mutator", Some("n"), "Pending", None), Some(None)),
            (pod("mutator", None, "Pending", None), None),
            (pod("mutator", Some("n"), "Succeeded", Some("10.0.0.1")), None),
            (pod("mutator", Some("n"), "Failed", Some("10.0.0.1")), None),
            (pod("test", Some("n"), "Running", Some("10.0.0.1")), None),
        ] {
            assert_eq!(Process::of(&pod).map(|process| process.address), wanted, "{pod:?}");
        }
    }
}
