//! A webhook that lets everything in and keeps what it was asked: the reviews that an API server makes of
//! requests, after its mutating policies and after its validating ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use sallyport_net::https::{self, Options};
use sallyport_net::listener::OpenConnections;
use sallyport_net::{Credentials, Shutdown};
use sallyport_pki::names::Extras;
use sallyport_pki::{Algorithm, Authority, Bundle, LeafRequest, ServiceName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

const LIFE: Duration = Duration::from_secs(24 * 60 * 60);
const MUTATING: &str = "/mutate";
const VALIDATING: &str = "/validate";

/// What one request led to.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The review after mutating policies, before webhooks.
    pub mutating: Option<Value>,
    /// The review after defaulting and validating policies.
    pub validating: Option<Value>,
}

/// The webhook.
pub struct Recorder {
    url: String,
    bundle: String,
    /// By the uid of the user who asked.
    seen: Arc<Mutex<HashMap<String, Recorded>>>,
    shutdown: Shutdown,
    _directory: TempDir,
}

impl Recorder {
    /// Serves on loopback.
    ///
    /// # Panics
    /// When it cannot.
    pub async fn start() -> Self {
        let directory = TempDir::with_prefix("sallyport-recorder-").unwrap();
        let authority = Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), LIFE).unwrap();
        let service = ServiceName::new("recorder", "test", "cluster.local").unwrap();
        let leaf = LeafRequest::for_service(&service).with_extras(&Extras::loopback()).unwrap();
        let leaf = authority.issue(&leaf, SystemTime::now(), LIFE).unwrap();
        let authority = authority.certificate().to_pem();
        for (name, text) in
            [("tls.crt", &leaf.certificate_pem), ("tls.key", &leaf.key_pem), ("ca.crt", &authority)]
        {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let credentials = Credentials::load(directory.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<HashMap<String, Recorded>>> = Arc::default();
        let record = seen.clone();
        let router = Router::new().fallback(move |uri: Uri, body: Bytes| {
            let record = record.clone();
            async move { ([(CONTENT_TYPE, "application/json")], answer(&record, uri.path(), &body)) }
        });
        let shutdown = Shutdown::new();
        tokio::spawn(https::serve(
            listener,
            credentials.https_config().unwrap(),
            router,
            Options { drain_least: Duration::ZERO, drain_most: Duration::ZERO, ..Options::default() },
            OpenConnections::default(),
            shutdown.clone(),
        ));
        let bundle = Bundle::from_pem(authority.as_bytes()).unwrap().to_ca_bundle();
        Self { url, bundle, seen, shutdown, _directory: directory }
    }

    /// The path and the object by which an API server is told to ask it, twice, about everything that people do.
    pub fn registrations(&self) -> [(&'static str, Value); 2] {
        let registration = |kind: &str, path: &str| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "recorder"},
            "webhooks": [{
                "name": "recorder.sallyport.test",
                "clientConfig": {"url": format!("{}{path}", self.url), "caBundle": self.bundle},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "matchPolicy": "Exact",
                "matchConditions": [{"name": "people",
                    "expression": "!request.userInfo.username.startsWith('system:')"}],
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
            }]})
        };
        [
            (
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
                registration("MutatingWebhookConfiguration", MUTATING),
            ),
            (
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
                registration("ValidatingWebhookConfiguration", VALIDATING),
            ),
        ]
    }

    /// What it was last asked because of a user with this uid; forgets it.
    pub fn take(&self, uid: &str) -> Recorded {
        self.seen.lock().remove(uid).unwrap_or_default()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

fn answer(record: &Mutex<HashMap<String, Recorded>>, path: &str, body: &[u8]) -> String {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    let response = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true}});
    let uid = review["request"]["userInfo"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut seen = record.lock();
    let seen = seen.entry(uid).or_default();
    match path {
        MUTATING => seen.mutating = Some(review),
        _ => seen.validating = Some(review),
    }
    response.to_string()
}
