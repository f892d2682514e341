//! Certificates from a signer of the cluster, certificates.k8s.io/v1: SYS-3. An API server alone has no signer, so the
//! tests are it.

use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rcgen::{CertificateSigningRequestParams, ExtendedKeyUsagePurpose, Issuer};
use sallyport_pki::{Algorithm, Authority, Certificate, KeyPair, LeafRequest, Renewal, ServiceName, check};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, eventually};
use crate::job::{Run, run};

const SIGNER: &str = "example.com/webhooks";
const REQUEST: &str = "hook.suite";

/// A signer of the cluster.
pub struct Signer<'a> {
    cluster: &'a Cluster,
    authority: KeyPair,
    directory: tempfile::TempDir,
}

impl<'a> Signer<'a> {
    pub fn new(cluster: &'a Cluster) -> Self {
        let authority =
            Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), Duration::from_secs(24 * 3600))
                .unwrap();
        let (authority, directory) = (authority.key_pair(), tempfile::tempdir().unwrap());
        std::fs::write(directory.path().join("ca.crt"), &authority.certificate_pem).unwrap();
        Self { cluster, authority, directory }
    }

    /// The file with its authority.
    pub fn file(&self) -> String {
        self.directory.path().join("ca.crt").to_str().unwrap().to_owned()
    }

    fn api(&self) -> Api<CertificateSigningRequest> {
        Api::all(self.cluster.client.clone())
    }

    /// The first request of the name that is as it should be.
    pub async fn request(
        &self,
        name: &str,
        is_it: impl Fn(&CertificateSigningRequest) -> bool,
    ) -> CertificateSigningRequest {
        eventually("a request", async || self.api().get_opt(name).await.unwrap().filter(&is_it)).await
    }

    /// Signs a request: the names that it asks for, and what a server may do.
    pub async fn sign(&self, request: &CertificateSigningRequest) {
        let name = request.metadata.name.as_ref().unwrap();
        let pem = String::from_utf8(request.spec.request.0.clone()).unwrap();
        let mut params = CertificateSigningRequestParams::from_pem(&pem).unwrap();
        params.params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let key = rcgen::KeyPair::from_pem(&self.authority.key_pem).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&self.authority.certificate_pem, key).unwrap();
        self.give(name, &params.signed_by(&issuer).unwrap().pem()).await;
    }

    /// Gives a certificate, whatever it is.
    pub async fn give(&self, name: &str, pem: &str) {
        let status = json!({"status": {"certificate": ByteString(pem.as_bytes().to_vec())}});
        self.api().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Says that it will not, or what else there is to say.
    async fn say(&self, name: &str, condition: &str) {
        let status = json!({"status": {"conditions": [
            {"type": condition, "status": "True", "reason": "HouseRule", "message": "not on a Sunday"},
        ]}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(status));
        if condition == "Failed" {
            self.api().patch_status(name, &params, &patch).await.unwrap();
        } else {
            self.api().patch_approval(name, &params, &patch).await.unwrap();
        }
    }
}

fn is_approved(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| conditions.iter().any(|condition| condition.type_ == "Approved"))
}

fn any(_: &CertificateSigningRequest) -> bool {
    true
}

fn wanted() -> LeafRequest {
    LeafRequest::for_service(&ServiceName::new("hook", NAMESPACE, "cluster.local").unwrap())
}

async fn create(signer: &Signer<'_>, more: &[&str]) -> Run {
    let file = signer.file();
    let arguments = [
        "create",
        "--service",
        "hook",
        "--namespace",
        NAMESPACE,
        "--secret",
        "hook-tls",
        "--signer",
        SIGNER,
        "--signer-ca-file",
        &file,
    ];
    run(signer.cluster, &[&arguments, more].concat()).await
}

async fn no_request_is_left(cluster: &Cluster) {
    assert_eq!(cluster.get("csr", REQUEST).await, None, "the request is deleted afterwards");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_of_the_cluster_signs_sys3() {
    let cluster = Cluster::start().await;
    let signer = Signer::new(&cluster);

    // Approved by the job, with a subject for a signer that insists; one that was left behind is replaced.
    let left = KeyPair::clone(&signer.authority);
    let stale = sallyport_pki::SigningRequest::generate(
        Algorithm::EcdsaP256,
        &wanted(),
        &sallyport_pki::request::Subject::default(),
    );
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": REQUEST},
        "spec": {
            "request": ByteString(stale.unwrap().request_pem.into_bytes()),
            "signerName": SIGNER, "usages": ["server auth"],
        },
    });
    cluster.apply(&object).await;
    let uid = cluster.get("csr", REQUEST).await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let subject =
        ["--approve", "--subject-organization", "system:nodes", "--common-name", "system:node:hook"];
    let flags = [&subject[..], &["--life", "1h"]].concat();
    let (done, ()) = tokio::join!(create(&signer, &flags), async {
        let request = signer.request(REQUEST, is_approved).await;
        assert_ne!(request.metadata.uid.as_deref(), Some(uid.as_str()));
        assert_eq!(request.spec.signer_name, SIGNER);
        assert_eq!(request.spec.expiration_seconds, Some(3600));
        assert_eq!(request.spec.usages.as_deref().unwrap(), ["digital signature", "server auth"]);
        signer.sign(&request).await;
    });
    assert!(done.said().starts_with("stored a new certificate for hook.suite.svc"), "{done:?}");
    let first = cluster.identity("hook-tls").await.unwrap();
    assert_eq!(first.bundle.to_pem(), left.certificate_pem);
    check::leaf(&first.pair, &first.bundle, &wanted(), SystemTime::now(), Renewal::Never).unwrap();
    let leaf = Certificate::from_pem(first.pair.certificate_pem.as_bytes()).unwrap();
    assert_eq!(leaf.subject(), "O=system:nodes, CN=system:node:hook");
    no_request_is_left(&cluster).await;

    // Good: nobody is asked.
    let again = create(&signer, &[]).await;
    assert!(again.said().starts_with("nothing to do"), "{again:?}");

    // Approved by somebody else; RSA keys ask for one use more.
    let (done, ()) =
        tokio::join!(create(&signer, &["--host", "hook.example", "--key-algorithm", "rsa-2048"]), async {
            let request = signer.request(REQUEST, any).await;
            assert!(!is_approved(&request));
            assert_eq!(request.spec.usages.as_deref().unwrap().len(), 3);
            cluster.kubectl(&["certificate", "approve", REQUEST], None).await;
            signer.sign(&signer.request(REQUEST, is_approved).await).await;
        });
    done.said();
    assert_ne!(cluster.identity("hook-tls").await.unwrap().pair, first.pair);
    no_request_is_left(&cluster).await;

    // Another signer: its authority comes to the former one.
    let other = Signer::new(&cluster);
    let before = cluster.identity("hook-tls").await.unwrap();
    let done = create(&other, &["--host", "hook.example"]).await;
    assert!(done.said().starts_with("added authorities"), "{done:?}");
    let after = cluster.identity("hook-tls").await.unwrap();
    assert_eq!((&after.pair, after.bundle.certificates().len()), (&before.pair, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_signer_refuses_or_gets_wrong_is_told_sys3_r13() {
    let cluster = Cluster::start().await;
    let signer = Signer::new(&cluster);
    for (condition, word) in [("Denied", "denied"), ("Failed", "failed")] {
        let (done, ()) = tokio::join!(create(&signer, &[]), async {
            signer.request(REQUEST, any).await;
            signer.say(REQUEST, condition).await;
        });
        let said = done.refused(1);
        assert!(said.contains(&format!("is {word}: HouseRule: not on a Sunday")), "{said}");
        no_request_is_left(&cluster).await;
    }

    // Nobody approves; approved, and nobody signs.
    for (more, hint) in [
        (&[][..], "kubectl certificate approve hook.suite"),
        (&["--approve"], "signed by example.com/webhooks"),
    ] {
        let never = create(&signer, &[more, &["--timeout", "5s"]].concat()).await;
        let said = never.refused(1);
        assert!(said.contains("giving up after 5 seconds") && said.contains(hint), "{said}");
        no_request_is_left(&cluster).await;
    }

    // Certificates that would do harm: for other names, of another key, of another authority, expired.
    let now = SystemTime::now();
    let issue = |service: &str, by: &KeyPair| {
        let service = ServiceName::new(service, NAMESPACE, "cluster.local").unwrap();
        let authority = Authority::from_pem(by).unwrap();
        authority
            .issue(&LeafRequest::for_service(&service), now, Duration::from_secs(3600))
            .unwrap()
            .certificate_pem
    };
    let other = Signer::new(&cluster);
    let of_another_key = issue("hook", &signer.authority);
    let (done, ()) = tokio::join!(create(&signer, &["--approve"]), async {
        signer.request(REQUEST, is_approved).await;
        signer.give(REQUEST, &of_another_key).await;
    });
    let said = done.refused(1);
    assert!(said.contains("the certificate that example.com/webhooks signed is not good"), "{said}");
    assert!(said.contains("the private key does not belong to the certificate"), "{said}");
    let (done, ()) = tokio::join!(create(&signer, &["--approve"]), async {
        other.sign(&other.request(REQUEST, is_approved).await).await;
    });
    assert!(done.refused(1).contains("the chain does not verify"), "{done:?}");
    let (done, ()) = tokio::join!(create(&signer, &["--approve"]), async {
        let mut request = signer.request(REQUEST, is_approved).await;
        let pem = String::from_utf8(request.spec.request.0.clone()).unwrap();
        let mut params = CertificateSigningRequestParams::from_pem(&pem).unwrap();
        params.params.subject_alt_names.truncate(1);
        params.params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let key = rcgen::KeyPair::from_pem(&signer.authority.key_pem).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&signer.authority.certificate_pem, key).unwrap();
        let pem = params.signed_by(&issuer).unwrap().pem();
        signer.give(&request.metadata.name.take().unwrap(), &pem).await;
    });
    assert!(done.refused(1).contains("the names differ: missing"), "{done:?}");
    assert_eq!(cluster.get("secret", "hook-tls").await, None, "nothing of it was stored");
    no_request_is_left(&cluster).await;

    // Without a file the authorities are those of the API server, and this signer is none of them.
    let bare = [
        "create",
        "--service",
        "hook",
        "--namespace",
        NAMESPACE,
        "--secret",
        "hook-tls",
        "--signer",
        SIGNER,
        "--approve",
    ];
    let (done, ()) = tokio::join!(run(&cluster, &bare), async {
        signer.sign(&signer.request(REQUEST, is_approved).await).await;
    });
    assert!(done.refused(1).contains("the chain does not verify"), "{done:?}");

    // Authorities that cannot be read.
    let missing = ["--signer-ca-file", "nowhere.crt"];
    let arguments =
        ["create", "--service", "hook", "--namespace", NAMESPACE, "--secret", "x", "--signer", SIGNER];
    let said = run(&cluster, &[&arguments[..], &missing].concat()).await;
    assert!(said.refused(1).contains("--signer-ca-file nowhere.crt"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_at_once_have_one_certificate_signed_r01() {
    let cluster = Cluster::start().await;
    let signer = Signer::new(&cluster);
    let done = std::sync::atomic::AtomicBool::new(false);
    let signing = async {
        let mut seen = std::collections::BTreeSet::new();
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            let there = signer.api().get_opt(REQUEST).await.unwrap().filter(is_approved);
            if let Some(there) = there
                && seen.insert(there.metadata.uid.clone())
            {
                // It may be replaced in this very moment.
                let pem = String::from_utf8(there.spec.request.0.clone()).unwrap();
                let mut params = CertificateSigningRequestParams::from_pem(&pem).unwrap();
                params.params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
                let key = rcgen::KeyPair::from_pem(&signer.authority.key_pem).unwrap();
                let issuer = Issuer::from_ca_cert_pem(&signer.authority.certificate_pem, key).unwrap();
                let pem = params.signed_by(&issuer).unwrap().pem();
                let status: Value = json!({
                    "metadata": {"uid": there.metadata.uid},
                    "status": {"certificate": ByteString(pem.into_bytes())},
                });
                let _ =
                    signer.api().patch_status(REQUEST, &PatchParams::default(), &Patch::Merge(status)).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (runs, ()) = tokio::join!(
        async {
            let runs = tokio::join!(create(&signer, &["--approve"]), create(&signer, &["--approve"]));
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            runs
        },
        signing
    );
    let runs = [runs.0, runs.1];
    let made = runs.iter().filter(|run| run.said().starts_with("stored")).count();
    assert_eq!(made, 1, "{runs:?}");
    let identity = cluster.identity("hook-tls").await.unwrap();
    check::leaf(&identity.pair, &identity.bundle, &wanted(), SystemTime::now(), Renewal::Never).unwrap();
    no_request_is_left(&cluster).await;
}
