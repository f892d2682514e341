//! docs/webhooks-of-your-own.md does what it says: its objects are accepted, and its rights are enough and no more.

use std::path::Path;

use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE};
use crate::job::run;
use crate::registration::entry;
use crate::signer::Signer;

/// The YAML documents of each fenced block.
fn blocks() -> Vec<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/webhooks-of-your-own.md");
    let text = std::fs::read_to_string(path).unwrap();
    let fenced = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    fenced
        .map(|block| {
            block.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
        })
        .collect()
}

/// A kubeconfig for the `ServiceAccount` of the manual.
async fn account(cluster: &Cluster, directory: &Path) -> String {
    let token = cluster.kubectl(&["create", "token", "hook-certificates", "-n", "prod"], None).await;
    let path = directory.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "job",
        "clusters": [{"name": "test", "cluster": {
            "server": cluster.control_plane.url(),
            "certificate-authority": cluster.control_plane.ca_file(),
        }}],
        "users": [{"name": "job", "user": {"token": token.trim()}}],
        "contexts": [{"name": "job", "context": {"cluster": "test", "user": "job"}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn replaced(document: &Value, from: &str, to: &str) -> Value {
    serde_json::from_str(&document.to_string().replace(from, to)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_the_manual_has_the_rights_it_needs_r13() {
    let cluster = Cluster::start().await;
    cluster.kubectl(&["create", "namespace", "prod"], None).await;
    let blocks = blocks();
    let [job_block, signer_block] = blocks.as_slice() else { panic!("two blocks, not {}", blocks.len()) };

    // Without the rights: what is missing is named, at once.
    let directory = tempfile::tempdir().unwrap();
    let (jobs, rights): (Vec<_>, Vec<_>) = job_block.iter().partition(|document| document["kind"] == "Job");
    let accounts = rights.iter().filter(|document| document["kind"] == "ServiceAccount");
    for account in accounts {
        cluster.apply(account).await;
    }
    let kubeconfig = account(&cluster, directory.path()).await;
    let [job] = jobs.as_slice() else { panic!("one Job") };
    let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments: Vec<&str> =
        arguments.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let by_account = [&arguments[..], &["--kubeconfig", &kubeconfig]].concat();
    let forbidden = run(&cluster, &by_account).await;
    let said = forbidden.refused(1);
    assert!(said.contains("the ServiceAccount needs the verb get on secrets"), "{said}");

    for document in &rights {
        cluster.apply(document).await;
    }
    let applied = cluster.kubectl(&["apply", "--dry-run=server", "-f", "-"], Some(&job.to_string())).await;
    assert!(applied.contains("job.batch/hook-certificates created (server dry run)"), "{applied}");

    // With them: the very arguments of the Job, twice, and a renewal.
    let at = json!({"service": {"name": "hook", "namespace": "prod"}});
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "hook"}, "webhooks": [entry("a.hook.example", &at)],
        });
        cluster.apply(&configuration).await;
    }
    assert!(run(&cluster, &by_account).await.said().contains("; patched "));
    assert!(run(&cluster, &by_account).await.said().starts_with("nothing to do: "));
    let renewal = [&by_account[..], &["--host", "hook.example", "--timeout", "30s"]].concat();
    assert!(run(&cluster, &renewal).await.said().contains("stored a new certificate"));

    // No more than they need: not other Secrets, not other configurations.
    for (verb, resource, wanted) in [
        ("get", "secrets/hook-tls", true),
        ("get", "secrets/other", false),
        ("list", "secrets", false),
        ("delete", "secrets/hook-tls", false),
        ("patch", "validatingwebhookconfigurations/other", false),
        ("create", "validatingwebhookconfigurations", false),
    ] {
        let ask = [
            "auth",
            "can-i",
            verb,
            resource,
            "-n",
            "prod",
            "--as=system:serviceaccount:prod:hook-certificates",
        ];
        let answer = cluster.control_plane.kubectl(&ask, None).await.unwrap();
        assert_eq!(answer.success, wanted, "{verb} {resource}: {answer:?}");
    }

    // The rights for a signer, here with one that the test can be.
    for document in signer_block {
        cluster.apply(&replaced(document, "kubernetes.io/kubelet-serving", "example.com/webhooks")).await;
    }
    let signer = Signer::new(&cluster);
    let file = signer.file();
    let arguments = [
        "create",
        "--service",
        "hook",
        "--namespace",
        "prod",
        "--secret",
        "hook-tls",
        "--host",
        "signed.example",
        "--signer",
        "example.com/webhooks",
        "--signer-ca-file",
        &file,
        "--approve",
        "--kubeconfig",
        &kubeconfig,
    ];
    let (done, ()) = tokio::join!(run(&cluster, &arguments), async {
        let request = signer.request("hook.prod", |request| {
            request.status.as_ref().is_some_and(|status| status.conditions.is_some())
        });
        signer.sign(&request.await).await;
    });
    assert!(done.said().starts_with("stored a new certificate"), "{done:?}");
    assert_ne!(NAMESPACE, "prod", "the manual's own namespace");
}
