//! The one-shot jobs against a real API server, as processes: SYS-3, the certificate jobs of SYS-9, R-01, R-03, R-13.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyUsagePurpose};
use sallyport_pki::{
    Algorithm, Authority, Bundle, Certificate, Identity, KeyPair, LeafRequest, Renewal, ServiceName, check,
};
use sallyport_testkit::Program;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::{Cluster, NAMESPACE, eventually};
use crate::registration::{Front, entry, front};

const HOUR: Duration = Duration::from_secs(3600);

/// What a job said and how it ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    /// The last line on standard output of a job that succeeded. No private key is in what it said.
    pub fn said(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        assert!(!self.stdout.contains("PRIVATE") && !self.stderr.contains("PRIVATE"));
        self.stdout.lines().last().unwrap()
    }

    /// What a job that failed with `code` said.
    pub fn refused(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "nothing was done");
        &self.stderr
    }
}

/// Runs a job with a kubeconfig of the administrator, unless there is another among the arguments.
pub async fn run(cluster: &Cluster, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-cert-rotator"));
    command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    if !arguments.contains(&"--kubeconfig") {
        command.arg("--kubeconfig").arg(cluster.control_plane.kubeconfig());
    }
    let output = tokio::time::timeout(Duration::from_secs(90), command.output()).await.unwrap().unwrap();
    Run {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `create` for the Service `hook`.
async fn create(cluster: &Cluster, secret: &str, more: &[&str]) -> Run {
    let arguments = ["create", "--service", "hook", "--namespace", NAMESPACE, "--secret", secret];
    run(cluster, &[&arguments, more].concat()).await
}

/// `patch` with the Secret `hook-tls`.
async fn patch(cluster: &Cluster, more: &[&str]) -> Run {
    let arguments = ["patch", "--namespace", NAMESPACE, "--secret", "hook-tls"];
    run(cluster, &[&arguments, more].concat()).await
}

fn wanted(service: &str) -> LeafRequest {
    LeafRequest::for_service(&ServiceName::new(service, NAMESPACE, "cluster.local").unwrap())
}

fn good(identity: &Identity, wanted: &LeafRequest) {
    check::leaf(&identity.pair, &identity.bundle, wanted, SystemTime::now(), Renewal::TwoThirds).unwrap();
}

async fn version(cluster: &Cluster, kind: &str, name: &str) -> String {
    cluster.get(kind, name).await.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Makes a Secret that somebody else filled.
async fn store(cluster: &Cluster, name: &str, kind: &str, data: &[(&str, &str)], annotation: Option<&str>) {
    let data: BTreeMap<&str, String> = data.iter().map(|(key, text)| (*key, STANDARD.encode(text))).collect();
    let annotations = annotation.map(|name| json!({"sallyport.dev/issued-for": name}));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "data": data,
    });
    cluster.apply(&secret).await;
}

/// A pair that is good for `hours` from `past` hours ago on.
fn pair(past: u32, hours: u32) -> (KeyPair, String) {
    let then = SystemTime::now() - HOUR * past;
    let authority = Authority::generate(Algorithm::EcdsaP256, then, HOUR * hours).unwrap();
    let pair = authority.issue(&wanted("hook"), then, HOUR * hours).unwrap();
    (pair, authority.key_pair().certificate_pem)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_made_kept_and_mended_r01_r03_sys3() {
    let cluster = Cluster::start().await;

    // Made, with everything that a server needs.
    let more = ["--host", "hook.example,127.0.0.1"];
    let made = create(&cluster, "hook-tls", &more).await;
    assert!(
        made.said()
            .starts_with("stored a new certificate for hook.suite.svc in secret suite/hook-tls, valid")
    );
    let first = cluster.identity("hook-tls").await.unwrap();
    let leaf = Certificate::from_pem(first.pair.certificate_pem.as_bytes()).unwrap();
    assert!(leaf.dns_names().contains("hook.suite.svc") && leaf.dns_names().contains("hook.example"));
    assert!(leaf.addresses().contains(&"127.0.0.1".parse().unwrap()));
    let years = leaf.not_after().duration_since(SystemTime::now()).unwrap().as_secs() / 86_400;
    assert_eq!(years, 3649, "ten years");
    assert_eq!(first.bundle.certificates().len(), 1);
    let secret = cluster.get("secret", "hook-tls").await.unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert!(!secret.to_string().contains("ca.key"), "the authority's key is forgotten");

    // Kept.
    let before = version(&cluster, "secret", "hook-tls").await;
    let again = create(&cluster, "hook-tls", &more).await;
    assert!(again.said().starts_with("nothing to do: secret suite/hook-tls holds a good certificate"));
    assert_eq!(version(&cluster, "secret", "hook-tls").await, before);

    // Other names: replaced, and whoever serves the former one stays trusted.
    create(&cluster, "hook-tls", &[]).await.said();
    let second = cluster.identity("hook-tls").await.unwrap();
    good(&second, &wanted("hook"));
    let chain = Certificate::all_from_pem(first.pair.certificate_pem.as_bytes()).unwrap();
    assert!(check::verifies(&chain, &second.bundle, SystemTime::now()));
    assert_eq!(second.bundle.certificates().len(), 2);

    // Damage of every kind is mended, since the Secret is known to be ours.
    let (other, authority) = pair(0, 1);
    let (old, old_authority) = pair(8, 10);
    let rows: [(&str, Value); 7] = [
        ("no key", json!({"tls.key": ""})),
        ("no certificate", json!({"tls.crt": STANDARD.encode("rubbish")})),
        ("another key", json!({"tls.key": STANDARD.encode(&other.key_pem)})),
        ("no authority", json!({"ca.crt": null})),
        ("another authority", json!({"ca.crt": STANDARD.encode(&authority)})),
        ("rubbish for an authority", json!({"ca.crt": STANDARD.encode("rubbish")})),
        (
            "due",
            json!({"tls.crt": STANDARD.encode(&old.certificate_pem), "tls.key": STANDARD.encode(&old.key_pem), "ca.crt": STANDARD.encode(&old_authority)}),
        ),
    ];
    for (what, data) in rows {
        let damage = json!({ "data": data }).to_string();
        cluster
            .kubectl(&["patch", "secret", "hook-tls", "-n", NAMESPACE, "--type=merge", "-p", &damage], None)
            .await;
        let mended = create(&cluster, "hook-tls", &[]).await;
        assert!(mended.said().starts_with("stored a new certificate"), "{what}: {mended:?}");
        let identity = cluster.identity("hook-tls").await.unwrap();
        good(&identity, &wanted("hook"));
        assert!(identity.bundle.certificates().len() <= 8, "{what}");
    }

    // made empty before, with a key of somebody's: filled, and that key stays.
    store(&cluster, "made-before", "Opaque", &[("mine", "kept"), ("tls.key", "")], None).await;
    create(&cluster, "made-before", &[]).await.said();
    let secret = cluster.get("secret", "made-before").await.unwrap();
    assert_eq!((&secret["type"], &secret["data"]["mine"]), (&json!("Opaque"), &json!("a2VwdA==")));
    good(&cluster.identity("made-before").await.unwrap(), &wanted("hook"));

    // Other key names, as kube-webhook-certgen has them.
    let keys = ["--ca-key", "ca", "--cert-key", "cert", "--key-key", "key"];
    create(&cluster, "keys", &keys).await.said();
    let secret = cluster.get("secret", "keys").await.unwrap();
    assert_eq!(secret["type"], "Opaque");
    let names: Vec<_> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["ca", "cert", "key"]);
    assert!(create(&cluster, "keys", &keys).await.said().starts_with("nothing to do"));

    // A name that no common name has room for, and the other kind of key.
    let long = "s".repeat(63);
    let arguments = ["create", "--service", &long, "--namespace", NAMESPACE, "--secret", "long"];
    run(&cluster, &[&arguments[..], &["--key-algorithm", "rsa-2048"]].concat()).await.said();
    let identity = cluster.identity("long").await.unwrap();
    good(&identity, &wanted(&long));
    let leaf = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()).unwrap();
    assert_eq!(leaf.subject(), "");

    // What will not come is waited for, but not for ever.
    let arguments =
        ["create", "--service", "hook", "--namespace", "nowhere", "--secret", "x", "--timeout", "5s"];
    let begun = Instant::now();
    let gone = run(&cluster, &arguments).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    let said = gone.refused(1);
    assert!(said.contains("giving up after 5 seconds") && said.contains("\"nowhere\" not found"), "{said}");
}

/// A certificate for a few names only, with its authority: what kube-webhook-certgen leaves.
fn foreign(names: &[&str]) -> (KeyPair, String) {
    let authority = Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), HOUR).unwrap().key_pair();
    let key = rcgen::KeyPair::from_pem(&authority.key_pem).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate_pem, key).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.key_usages.push(KeyUsagePurpose::DigitalSignature);
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate_pem = params.signed_by(&key, &issuer).unwrap().pem();
    (KeyPair { certificate_pem, key_pem: key.serialize_pem() }, authority.certificate_pem)
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_others_are_kept_or_an_error_r01_sys9() {
    let cluster = Cluster::start().await;
    let (own, authority) = foreign(&["hook", "hook.suite.svc"]);
    let (old, old_authority) = pair(8, 10);
    let (elsewhere, elsewhere_authority) = foreign(&["other.suite.svc"]);
    let tls = "kubernetes.io/tls";
    let of = |pair: &KeyPair, authority: &str| {
        vec![
            ("tls.crt", pair.certificate_pem.clone()),
            ("tls.key", pair.key_pem.clone()),
            ("ca.crt", authority.to_owned()),
        ]
    };
    // What does its job is kept, and nothing is written.
    for (name, content) in [("good", of(&own, &authority)), ("due", of(&old, &old_authority))] {
        let content: Vec<(&str, &str)> = content.iter().map(|(key, text)| (*key, text.as_str())).collect();
        store(&cluster, name, tls, &content, None).await;
        let before = version(&cluster, "secret", name).await;
        let kept = create(&cluster, name, &[]).await;
        assert!(kept.said().starts_with("nothing to do"), "{kept:?}");
        assert_eq!(kept.stderr.contains("left as it is"), name == "due", "{kept:?}");
        assert_eq!(version(&cluster, "secret", name).await, before);
    }
    // What does not is an error, and nothing is written either, unless that is asked for.
    let unreadable = vec![("tls.crt", String::new()), ("tls.key", "\u{1}\u{2}".to_owned())];
    let rows = [
        ("no-authority", of(&own, ""), "no authority to verify against"),
        ("other-name", of(&elsewhere, &elsewhere_authority), "hook.suite.svc"),
        ("other-authority", of(&own, &elsewhere_authority), "does not verify"),
        ("unreadable", unreadable, "cannot be"),
    ];
    for (name, content, reason) in rows {
        let content: Vec<(&str, &str)> = content.iter().map(|(key, text)| (*key, text.as_str())).collect();
        store(&cluster, name, tls, &content, None).await;
        let before = version(&cluster, "secret", name).await;
        let refused = create(&cluster, name, &[]).await;
        let said = refused.refused(1);
        assert!(said.contains(&format!("secret suite/{name} holds a private key")), "{said}");
        assert!(said.contains(reason) && said.contains("--replace"), "{name}: {said}");
        assert_eq!(version(&cluster, "secret", name).await, before);
        create(&cluster, name, &["--replace"]).await.said();
        good(&cluster.identity(name).await.unwrap(), &wanted("hook"));
    }

    // More authorities beside a good key of others make it nobody else's.
    let authority = Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), HOUR).unwrap();
    let (signing, leaf) =
        (authority.key_pair(), authority.issue(&wanted("hook"), SystemTime::now(), HOUR).unwrap());
    let content = [("tls.crt", signing.certificate_pem.as_str()), ("tls.key", signing.key_pem.as_str())];
    store(&cluster, "house-ca", tls, &content, None).await;
    let content = [("tls.crt", leaf.certificate_pem.as_str()), ("tls.key", leaf.key_pem.as_str())];
    store(&cluster, "bare", tls, &content, None).await;
    let done = create(&cluster, "bare", &["--ca-secret", "house-ca"]).await;
    assert!(done.said().starts_with("added authorities to secret suite/bare"), "{done:?}");
    let identity = cluster.identity("bare").await.unwrap();
    assert_eq!((identity.pair, identity.bundle.to_pem()), (leaf, signing.certificate_pem));
    let refused = create(&cluster, "bare", &["--host", "hook.example"]).await;
    assert!(refused.refused(1).contains("--replace"), "{refused:?}");

    // Secrets of a type that is for something else, and those that cannot be changed.
    store(&cluster, "typed", "example.com/other", &[("a", "b")], None).await;
    let said = create(&cluster, "typed", &[]).await;
    assert!(said.refused(1).contains("of the type \"example.com/other\""), "{said:?}");
    let fixed = json!({
        "apiVersion": "v1", "kind": "Secret", "immutable": true,
        "metadata": {"name": "fixed", "namespace": NAMESPACE},
    });
    cluster.apply(&fixed).await;
    let said = create(&cluster, "fixed", &[]).await;
    assert!(said.refused(1).contains("secret suite/fixed is immutable"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_at_once_make_one_certificate_r01() {
    let cluster = Cluster::start().await;
    for secret in ["first", "second", "third"] {
        let job = || create(&cluster, secret, &["--ca-secret", "race-ca"]);
        let (a, b, c) = tokio::join!(job(), job(), job());
        let runs = [a, b, c];
        let made = runs.iter().filter(|run| run.said().starts_with("stored")).count();
        assert_eq!(made, 1, "{runs:?}");
        good(&cluster.identity(secret).await.unwrap(), &wanted("hook"));
    }
    let authority = cluster.identity("race-ca").await.unwrap();
    for secret in ["first", "second", "third"] {
        assert_eq!(cluster.identity(secret).await.unwrap().bundle, authority.bundle, "one authority for all");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_is_kept_signs_again() {
    let cluster = Cluster::start().await;
    let kept = ["--ca-secret", "hook-ca", "--life", "90d"];
    create(&cluster, "hook-tls", &kept).await.said();
    let first = cluster.identity("hook-tls").await.unwrap();
    create(&cluster, "hook-tls", &[&kept[..], &["--host", "hook.example"]].concat()).await.said();
    let second = cluster.identity("hook-tls").await.unwrap();
    assert_ne!(first.pair, second.pair);
    assert_eq!(first.bundle, second.bundle, "every caBundle stays right");

    // A damaged authority: another one, beside the former.
    let damage = json!({"data": {"tls.key": STANDARD.encode("rubbish")}}).to_string();
    cluster
        .kubectl(&["patch", "secret", "hook-ca", "-n", NAMESPACE, "--type=merge", "-p", &damage], None)
        .await;
    let said = create(&cluster, "hook-tls", &[&kept[..], &["--host", "hook.example"]].concat()).await;
    assert!(said.said().starts_with("added authorities to secret suite/hook-tls"), "{said:?}");
    let third = cluster.identity("hook-tls").await.unwrap();
    assert_eq!(third.pair, second.pair, "the certificate is still good");
    assert_eq!(third.bundle.certificates().len(), 2);

    // An authority of the house is used as it is; one that cannot be used is not touched.
    let house = Authority::generate(Algorithm::Rsa2048, SystemTime::now(), HOUR).unwrap();
    let pair = house.key_pair();
    let content = [("tls.crt", pair.certificate_pem.as_str()), ("tls.key", pair.key_pem.as_str())];
    store(&cluster, "house-ca", "kubernetes.io/tls", &content, None).await;
    create(&cluster, "by-house", &["--ca-secret", "house-ca"]).await.said();
    let identity = cluster.identity("by-house").await.unwrap();
    assert_eq!(identity.bundle.to_pem(), pair.certificate_pem);
    good(&identity, &wanted("hook"));
    let (leaf, _) = foreign(&["hook.suite.svc"]);
    let content = [("tls.crt", leaf.certificate_pem.as_str()), ("tls.key", leaf.key_pem.as_str())];
    store(&cluster, "no-ca", "kubernetes.io/tls", &content, None).await;
    let said = create(&cluster, "by-nobody", &["--ca-secret", "no-ca"]).await;
    assert!(said.refused(1).contains("wrong kind"), "{said:?}");
}

fn configuration(kind: &str, name: &str, entries: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": entries,
    })
}

fn at_service() -> Value {
    json!({"service": {"name": "hook", "namespace": NAMESPACE, "path": "/"}})
}

/// The `caBundle` of every entry, and the object without them and without what every write changes.
fn parted(mut object: Value) -> (Vec<Value>, Value) {
    let mut bundles = Vec::new();
    for entry in object["webhooks"].as_array_mut().unwrap() {
        bundles.push(entry["clientConfig"]["caBundle"].take());
        entry["clientConfig"].as_object_mut().unwrap().remove("caBundle");
    }
    for field in ["resourceVersion", "generation", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    (bundles, object)
}

const MUTATING: &str = "mutatingwebhookconfiguration";
const VALIDATING: &str = "validatingwebhookconfiguration";

#[tokio::test(flavor = "multi_thread")]
async fn patch_brings_the_authorities_into_all_entries_r05_sys3_sys9() {
    let cluster = Cluster::start().await;

    // What cannot be is told, in time.
    let quick = ["--timeout", "5s"];
    let nothing = patch(&cluster, &[]).await;
    assert!(nothing.refused(2).contains("--webhook"), "nothing to patch: {nothing:?}");
    let policy = patch(&cluster, &["--webhook", "hook", "--failure-policy", "Never"]).await;
    assert!(policy.refused(2).contains("--failure-policy"), "{policy:?}");
    let keys = patch(&cluster, &["--webhook", "hook", "--ca-key", "tls.crt"]).await;
    assert!(keys.refused(2).contains("--ca-key"), "{keys:?}");
    let no_secret = patch(&cluster, &[&["--webhook", "hook"][..], &quick].concat()).await;
    let said = no_secret.refused(1);
    assert!(
        said.contains("giving up after 5 seconds") && said.contains("secret suite/hook-tls does not exist")
    );
    store(&cluster, "hook-tls", "Opaque", &[("ca.crt", "rubbish")], None).await;
    let no_authority = patch(&cluster, &["--webhook", "hook"]).await;
    assert!(no_authority.refused(1).contains("no certificate of an authority under \"ca.crt\""));
    cluster.kubectl(&["delete", "secret", "hook-tls", "-n", NAMESPACE], None).await;
    create(&cluster, "hook-tls", &[]).await.said();
    let bundle = json!(cluster.identity("hook-tls").await.unwrap().bundle.to_ca_bundle());
    let entries = |policy: &str| -> Vec<Value> {
        let entry = |name: &str| {
            let mut entry = entry(name, &at_service());
            entry["failurePolicy"] = json!(policy);
            entry
        };
        ["a.hook.example", "b.hook.example", "c.hook.example"].map(entry).into()
    };
    cluster.apply(&configuration("ValidatingWebhookConfiguration", "hook", &entries("Fail"))).await;
    let one_only = patch(&cluster, &[&["--webhook", "hook"][..], &quick].concat()).await;
    assert_eq!(one_only.code, 1);
    assert!(one_only.stderr.contains("mutatingwebhookconfigurations/hook does not exist"), "{one_only:?}");

    // What comes late is waited for.
    let late = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cluster.apply(&configuration("MutatingWebhookConfiguration", "hook", &entries("Ignore"))).await;
    };
    let (done, ()) = tokio::join!(patch(&cluster, &["--webhook", "hook"]), late);
    let said = done.said();
    assert!(said.starts_with("patched ") && said.contains("mutatingwebhookconfigurations/hook (3 entries)"));
    assert!(said.contains("validatingwebhookconfigurations/hook (3 entries)"), "{said}");
    for kind in [MUTATING, VALIDATING] {
        let (bundles, rest) = parted(cluster.get(kind, "hook").await.unwrap());
        assert_eq!(bundles, vec![bundle.clone(); 3]);
        assert_eq!(rest["webhooks"][1]["name"], "b.hook.example");
    }

    // Again: nothing is written. One entry astray: only what differs, and nothing else in the object.
    let versions =
        async || (version(&cluster, MUTATING, "hook").await, version(&cluster, VALIDATING, "hook").await);
    let before = versions().await;
    let again = patch(&cluster, &["--webhook", "hook"]).await;
    assert!(again.said().starts_with("nothing to do: "), "{again:?}");
    assert_eq!(versions().await, before);
    let other = Bundle::from_pem(pair(0, 1).1.as_bytes()).unwrap().to_ca_bundle();
    let stray = json!([
        {"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other},
        {"op": "remove", "path": "/webhooks/2/clientConfig/caBundle"},
        {"op": "add", "path": "/metadata/labels", "value": {"theirs": "stays"}},
    ]);
    cluster.kubectl(&["patch", MUTATING, "hook", "--type=json", "-p", &stray.to_string()], None).await;
    let (_, rest) = parted(cluster.get(MUTATING, "hook").await.unwrap());
    let mended = patch(&cluster, &["--mutating", "hook", "--validating", "hook"]).await;
    assert!(mended.said().contains("mutatingwebhookconfigurations/hook (2 entries)"), "{mended:?}");
    assert!(!mended.said().contains("validating"), "{mended:?}");
    assert_eq!(parted(cluster.get(MUTATING, "hook").await.unwrap()), (vec![bundle.clone(); 3], rest));

    // The failurePolicy follows if asked, both ways.
    let policies = async |kind| -> Vec<Value> {
        let object = cluster.get(kind, "hook").await.unwrap();
        object["webhooks"].as_array().unwrap().iter().map(|entry| entry["failurePolicy"].clone()).collect()
    };
    for policy in ["Fail", "Ignore"] {
        let done = patch(&cluster, &["--webhook", "hook", "--failure-policy", policy]).await;
        assert!(done.said().starts_with("patched "));
        for kind in [MUTATING, VALIDATING] {
            assert_eq!(policies(kind).await, vec![json!(policy); 3], "{kind}");
        }
        let again = patch(&cluster, &["--webhook", "hook", "--failure-policy", policy]).await;
        assert!(again.said().starts_with("nothing to do: "));
    }

    // Aggregated APIs and conversions.
    let aggregated = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.hook.example"},
        "spec": {
            "group": "hook.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"name": "hook", "namespace": NAMESPACE},
        },
    });
    let version_of = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        })
    };
    let resource = |plural: &str, conversion: &Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.hook.example")},
            "spec": {
                "group": "hook.example", "scope": "Namespaced",
                "names": {"plural": plural, "singular": &plural[..3], "kind": plural, "listKind": format!("{plural}List")},
                "versions": [version_of("v1", true), version_of("v2", false)],
                "conversion": conversion,
            },
        })
    };
    let converted = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": at_service(), "conversionReviewVersions": ["v1"]},
    });
    cluster.apply(&aggregated).await;
    cluster.apply(&resource("things", &converted)).await;
    cluster.apply(&resource("plains", &json!({"strategy": "None"}))).await;
    let more = ["--apiservice", "v1.hook.example", "--crd", "things.hook.example"];
    let done = patch(&cluster, &more).await;
    assert!(
        done.said().contains("apiservices/v1.hook.example, customresourcedefinitions/things.hook.example")
    );
    let spec = cluster.get("apiservice", "v1.hook.example").await.unwrap()["spec"].take();
    assert_eq!((&spec["caBundle"], &spec["insecureSkipTLSVerify"]), (&bundle, &Value::Null));
    let object = cluster.get("crd", "things.hook.example").await.unwrap();
    assert_eq!(object["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], bundle);
    let again = patch(&cluster, &more).await;
    assert!(again.said().starts_with("nothing to do: "), "{again:?}");
    let plain = patch(&cluster, &["--crd", "plains.hook.example"]).await;
    assert!(plain.refused(1).contains("not converted by a webhook"), "{plain:?}");
    let local = patch(&cluster, &["--apiservice", "v1."]).await;
    assert!(local.refused(2).contains("--apiservice"), "{local:?}");
    let local = patch(&cluster, &["--apiservice", "v1.apps"]).await;
    assert!(local.refused(1).contains("the API server serves it itself"), "{local:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_others_are_neither_lost_nor_brought_back_r05() {
    let cluster = Cluster::start().await;
    create(&cluster, "hook-tls", &[]).await.said();
    let bundle = json!(cluster.identity("hook-tls").await.unwrap().bundle.to_ca_bundle());
    let named = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| entry(&format!("{name}.hook.example"), &at_service())).collect()
    };
    cluster.apply(&configuration("MutatingWebhookConfiguration", "hook", &named(&["a"]))).await;
    let group = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration");
    let resource = ApiResource::from_gvk_with_plural(&group, "mutatingwebhookconfigurations");
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let write = async |names: &[&str]| {
        let change = Patch::Merge(json!({ "webhooks": named(names) }));
        api.patch("hook", &PatchParams::default(), &change).await.unwrap();
    };

    // Somebody else adds and removes entries all the while.
    let (done, finished) = (std::sync::atomic::AtomicBool::new(false), async || {
        for _ in 0..6 {
            patch(&cluster, &["--mutating", "hook"]).await.said();
        }
    });
    let busy = async {
        let mut turn = 0_usize;
        while !done.load(Ordering::SeqCst) {
            let sets: [&[&str]; 3] = [&["a", "b"], &["b"], &["b", "c", "a"]];
            write(sets[turn % sets.len()]).await;
            turn += 1;
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        turn
    };
    let (turns, ()) = tokio::join!(busy, async {
        finished().await;
        done.store(true, Ordering::SeqCst);
    });
    assert!(turns > 6, "they met");
    write(&["c", "a"]).await;
    patch(&cluster, &["--mutating", "hook"]).await.said();
    let (bundles, rest) = parted(cluster.get(MUTATING, "hook").await.unwrap());
    let order: Vec<_> = rest["webhooks"].as_array().unwrap().iter().map(|entry| &entry["name"]).collect();
    assert_eq!(order, ["c.hook.example", "a.hook.example"]);
    assert_eq!(bundles, vec![bundle; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_reach_the_webhook_before_through_and_after_a_renewal_sys3() {
    let cluster = Cluster::start().await;
    let bootstrap = [
        "bootstrap",
        "--service",
        "hook",
        "--namespace",
        NAMESPACE,
        "--secret",
        "hook-tls",
        "--mutating",
        "hook",
        "--timeout",
        "30s",
        "--host",
        "127.0.0.1",
    ];
    // The configuration is there first, with an address that is not known yet.
    let at = |front: &Front| json!({"url": format!("https://{}/", front.address)});
    let closed = json!({"url": "https://127.0.0.1:1/"});
    cluster
        .apply(&configuration("MutatingWebhookConfiguration", "hook", &[entry("a.hook.example", &closed)]))
        .await;
    let said = run(&cluster, &bootstrap).await;
    assert!(
        said.said().contains("stored a new certificate") && said.said().contains("; patched "),
        "{said:?}"
    );
    let first = cluster.identity("hook-tls").await.unwrap();
    let old = front(&first).await;
    let point = async |front: &Front| {
        let change =
            json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": at(front)["url"]}]);
        cluster.kubectl(&["patch", MUTATING, "hook", "--type=json", "-p", &change.to_string()], None).await;
    };
    let reviewed = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "reviewed-", "namespace": NAMESPACE, "labels": {"reviewed": "yes"}},
    })
    .to_string();
    let dry = ["create", "--dry-run=server", "-f", "-"];
    let review = async || cluster.control_plane.kubectl(&dry, Some(&reviewed)).await.unwrap();
    // Closed and Fail: what is not reviewed is refused, so that a success means a review.
    assert!(!review().await.success);
    point(&old).await;
    eventually("a review", async || review().await.success.then_some(())).await;

    // A renewal: the former certificate is served throughout, and no review fails. The new authority is trusted
    // before the new certificate is stored.
    let renewal = [&bootstrap[..], &["--host", "hook.example"]].concat();
    let done = std::sync::atomic::AtomicBool::new(false);
    let reviews = async {
        let (mut count, mut trusted_first) = (0, false);
        while !done.load(Ordering::SeqCst) {
            let answer = review().await;
            assert!(answer.success, "{answer:?}");
            count += 1;
            let now = cluster.identity("hook-tls").await.unwrap();
            trusted_first |= now.pair == first.pair && now.bundle.certificates().len() == 2;
        }
        (count, trusted_first)
    };
    let ((count, trusted_first), ()) = tokio::join!(reviews, async {
        run(&cluster, &renewal).await.said();
        done.store(true, Ordering::SeqCst);
    });
    assert!(count > 2 && trusted_first, "{count} reviews");
    assert!(old.reviews.load(Ordering::SeqCst) > count);
    let second = cluster.identity("hook-tls").await.unwrap();
    assert_ne!(second.pair, first.pair);
    let new = front(&second).await;
    point(&new).await;
    eventually("a review of the new front", async || {
        review().await.success.then_some(())?;
        (new.reviews.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;

    let again = run(&cluster, &renewal).await;
    assert!(
        again.said().starts_with("nothing to do: secret suite/hook-tls holds a good certificate"),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_is_waited_for_r13() {
    let mut cluster = Cluster::start().await;
    cluster.control_plane.api_server().suspend().unwrap();
    let begun = Instant::now();
    let away = create(&cluster, "hook-tls", &["--timeout", "3s"]).await;
    assert!(away.refused(1).contains("giving up after 3 seconds"), "{away:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "bounded");

    let kubeconfig = cluster.control_plane.kubeconfig().to_str().unwrap().to_owned();
    let waiting = Command::new(env!("CARGO_BIN_EXE_sallyport-cert-rotator"))
        .arg("create")
        .env_clear()
        // Every flag is in the environment as well.
        .envs([("SALLYPORT_SERVICE", "hook"), ("SALLYPORT_NAMESPACE", NAMESPACE)])
        .envs([("SALLYPORT_SECRET", "hook-tls"), ("SALLYPORT_KUBECONFIG", &kubeconfig)])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.control_plane.api_server().resume().unwrap();
    let output =
        tokio::time::timeout(Duration::from_secs(60), waiting.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("stored a new certificate"));

    // A signal ends a wait at once.
    let mut waiting = Program::new(env!("CARGO_BIN_EXE_sallyport-cert-rotator"))
        .args(["patch", "--namespace", NAMESPACE, "--secret", "hook-tls", "--webhook", "never"])
        .args(["--kubeconfig", &kubeconfig, "--timeout", "10m"])
        .start()
        .unwrap();
    waiting
        .wait_log("a wait", Duration::from_secs(30), |line| line.contains("trying again").then_some(()))
        .await
        .unwrap();
    waiting.terminate().unwrap();
    assert_eq!(waiting.wait_exit(Duration::from_secs(10)).await.unwrap().code(), Some(1));
}
