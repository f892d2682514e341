//! What Go's verifier makes of leaves: it is the API server's own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use sallyport_pki::authority::{AUTHORITY_LIFE, Algorithm, LEAF_LIFE};
use sallyport_pki::names::{Extras, Member, Suite as Names};
use sallyport_pki::{Authority, Bundle, Identity, KeyPair, Stored, files};
use sallyport_tests::release;
use serde_json::json;

use crate::{plane, say};

/// What the bare webhook says to everything.
const ASKED: &str = "the webhook was asked";

/// A webhook that refuses everything and shows what is in `directory`.
async fn bare_webhook(directory: &Path) -> (u16, sallyport_net::Shutdown) {
    let credentials = sallyport_net::Credentials::load(directory).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = axum::Router::new().fallback(async |body: String| {
        let review: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        axum::body::Body::from(
            json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {
                    "uid": review["request"]["uid"], "allowed": false, "status": {"code": 403, "message": ASKED},
                },
            })
            .to_string(),
        )
    });
    let shutdown = sallyport_net::Shutdown::new();
    tokio::spawn(sallyport_net::https::serve(
        listener,
        credentials.https_config().unwrap(),
        router,
        sallyport_net::https::Options::default(),
        sallyport_net::listener::OpenConnections::default(),
        shutdown.clone(),
    ));
    (port, shutdown)
}

/// good ones and others.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_leaves_that_are_not_good_r02() {
    let client = release::client(plane().await.kubeconfig()).await.unwrap();
    let now = SystemTime::now();
    let authority = || Authority::generate(Algorithm::EcdsaP256, now - LEAF_LIFE, AUTHORITY_LIFE).unwrap();
    let (ours, foreign) = (authority(), authority());
    let names = Names::with_prefix("sallyport", "sallyport", "cluster.local").unwrap();
    let loopback = names.leaf(Member::Webhook, &Extras::loopback()).unwrap();
    let other = names.leaf(Member::Webhook, &Extras::default()).unwrap();
    let hour = Duration::from_hours(1);
    let good = |authority: &Authority| authority.issue(&loopback, now, hour).unwrap();
    let rows: [(&str, KeyPair, &str, &str); 6] = [
        ("good", good(&ours), "127.0.0.1", ASKED),
        ("foreign", good(&foreign), "127.0.0.1", "x509: certificate signed by unknown authority"),
        (
            "other-address",
            ours.issue(&other, now, hour).unwrap(),
            "127.0.0.1",
            "x509: cannot validate certificate for 127.0.0.1",
        ),
        ("other-name", ours.issue(&other, now, hour).unwrap(), "localhost", "not localhost"),
        (
            "expired",
            ours.issue(&loopback, now - 2 * hour, hour).unwrap(),
            "127.0.0.1",
            "x509: certificate has expired",
        ),
        (
            "early",
            ours.issue(&loopback, now + 2 * hour, hour).unwrap(),
            "127.0.0.1",
            "x509: certificate has expired or is not yet valid",
        ),
    ];
    let mut trust = Bundle::empty();
    trust.add(ours.certificate().clone());
    for (row, pair, host, wanted) in rows {
        let directory = tempfile::tempdir().unwrap();
        let mut stored = Stored(BTreeMap::new());
        Identity { pair, bundle: trust.clone() }.store(&mut stored);
        files::write(directory.path(), &stored).unwrap();
        let (port, shutdown) = bare_webhook(directory.path()).await;
        let namespace = format!("leaf-{row}");
        let object: Namespace =
            serde_json::from_value(json!({"metadata": {"name": namespace, "labels": {"leaf": row}}}))
                .unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": "leaf.sallyport.test",
                "clientConfig": {"url": format!("https://{host}:{port}/"), "caBundle": trust.to_ca_bundle()},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"leaf": row}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
                }],
            }],
        }))
        .unwrap();
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        configurations.create(&PostParams::default(), &configuration).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "x"}, "spec": {"containers": [{"name": "app", "image": "none"}]},
        }))
        .unwrap();
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        let begun = Instant::now();
        // The API server learns of the configuration by its own watch (C-97).
        let error = loop {
            match pods.create(&parameters, &pod).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) => break status.message,
                Err(error) => panic!("{row}: {error}"),
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{row}: nobody is asked");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        say(&format!("leaf {row}: {error}"));
        assert!(error.contains(wanted), "{row}: {error}");
        configurations.delete(&namespace, &DeleteParams::default()).await.unwrap();
        shutdown.trigger();
    }
}
