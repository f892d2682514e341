//! The cluster's own signer: kube-controller-manager with nothing but the controller that signs (R-12, SYS-3).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair as Key};
use sallyport_pki::names::{Member, Suite};
use sallyport_pki::{Algorithm, Authority, Bundle, KeyPair, Renewal, check};
use sallyport_testkit::{Process, Program};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{Cluster, NAMESPACE, PATIENCE, eventually};
use crate::job::run;
use crate::programs::programs;

/// The signer that issues serving certificates, to nodes by its rules.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// A controller manager that signs approved requests with an authority of its own.
pub struct ControllerManager {
    pub authority: Authority,
    pub process: Process,
    _directory: TempDir,
}

impl ControllerManager {
    pub async fn start(cluster: &Cluster) -> Self {
        let program = programs("all").await.join("kube-controller-manager");
        let authority =
            Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), Duration::from_secs(24 * 3600))
                .unwrap();
        let (pair, directory) = (authority.key_pair(), tempfile::tempdir().unwrap());
        let (certificate, key) = (directory.path().join("ca.crt"), directory.path().join("ca.key"));
        std::fs::write(&certificate, pair.certificate_pem).unwrap();
        std::fs::write(&key, pair.key_pem).unwrap();
        let process = Program::new(program)
            .arg(format!("--kubeconfig={}", cluster.control_plane.kubeconfig().display()))
            .arg("--controllers=certificatesigningrequest-signing-controller")
            .arg(format!("--cluster-signing-cert-file={}", certificate.display()))
            .arg(format!("--cluster-signing-key-file={}", key.display()))
            // It serves nothing and has no other to agree with.
            .args(["--leader-elect=false", "--secure-port=0"])
            .start()
            .unwrap();
        Self { authority, process, _directory: directory }
    }
}

type Subject<'a> = &'a [(DnType, &'a str)];

/// Asks for a certificate, and approves of it. Returns the key.
async fn request(cluster: &Cluster, name: &str, subject: Subject<'_>, usages: &[&str]) -> String {
    let mut params = CertificateParams::new([format!("sallyport-mutator.{NAMESPACE}.svc")]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for (type_, value) in subject {
        params.distinguished_name.push(type_.clone(), *value);
    }
    let key = Key::generate().unwrap();
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(request), "signerName": KUBELET_SERVING, "usages": usages,
            "expirationSeconds": 3600,
        },
    });
    cluster.apply(&object).await;
    cluster.kubectl(&["certificate", "approve", name], None).await;
    key.serialize_pem()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds kube-controller-manager, minutes"]
async fn the_clusters_own_signer_signs_for_a_service_r12_sys3() {
    let cluster = Cluster::start().await;
    let mut manager = ControllerManager::start(&cluster).await;
    let (server, node) = (["digital signature", "server auth"], (DnType::CommonName, "system:node:mutator"));
    let nodes = (DnType::OrganizationName, "system:nodes");

    // What it signs is a certificate that can be brought.
    let key_pem = request(&cluster, "good", &[node.clone(), nodes.clone()], &server).await;
    let csr = async |name: &str| cluster.get("certificatesigningrequest", name).await.unwrap();
    let signed = manager.process.wait_until("it had signed", PATIENCE, async || {
        csr("good").await["status"]["certificate"].as_str().map(str::to_owned)
    });
    let certificate_pem = String::from_utf8(STANDARD.decode(signed.await.unwrap()).unwrap()).unwrap();
    let pair = KeyPair { certificate_pem, key_pem };
    let mut bundle = Bundle::empty();
    bundle.add(manager.authority.certificate().clone());
    let wanted = Suite::with_prefix("sallyport", NAMESPACE, "cluster.local").unwrap();
    let wanted = wanted.brought_leaf(Member::Mutator);
    check::leaf(&pair, &bundle, &wanted, SystemTime::now(), Renewal::Never).unwrap();

    // The job asks, approves, and stores what it is given.
    let authority = manager.authority.key_pair().certificate_pem;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority).unwrap();
    let flags =
        ["create", "--service", "sallyport-mutator", "--namespace", NAMESPACE, "--secret", "issued-mutator"];
    let by = ["--signer", KUBELET_SERVING, "--approve", "--signer-ca-file", file.path().to_str().unwrap()];
    let subject = ["--subject-organization", "system:nodes", "--common-name", "system:node:mutator"];
    let done = run(&cluster, &[&flags[..], &by, &subject].concat()).await;
    assert!(!done.said().is_empty());
    let identity = cluster.identity("issued-mutator").await.unwrap();
    check::leaf(&identity.pair, &bundle, &wanted, SystemTime::now(), Renewal::Never).unwrap();

    // By its rules: another subject, or the use that the webhook needs besides, and it fails for good.
    let client = ["digital signature", "server auth", "client auth"];
    let rows: [(&str, Subject<'_>, &[&str]); 2] =
        [("no-node", &[(DnType::CommonName, "mutator")], &server), ("client", &[node, nodes], &client)];
    for (name, subject, usages) in rows {
        request(&cluster, name, subject, usages).await;
        let failed = eventually("a failure", async || {
            let csr = csr(name).await;
            let conditions = csr["status"]["conditions"].as_array()?.clone();
            conditions.into_iter().find(|condition| condition["type"] == "Failed")
        })
        .await;
        assert_eq!(failed["reason"], "SignerValidationFailure", "{name}");
        assert_eq!(csr(name).await["status"]["certificate"], Value::Null, "{name}");
    }
}
