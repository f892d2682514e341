//! Injection into objects of others: design §6, R-05 and R-06.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sallyport_pki::{Algorithm, Authority};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, Rotator, eventually};

const ANNOTATION: &str = "sallyport.dev/inject-ca-from";
/// The namespace of those whose Secrets are injected.
const THEIRS: &str = "theirs";

const MUTATING: (&str, &str) = ("mutatingwebhookconfiguration", "theirs");
const VALIDATING: (&str, &str) = ("validatingwebhookconfiguration", "theirs");
const DEFINITION: (&str, &str) = ("crd", "widgets.example.com");
const API_SERVICE: (&str, &str) = ("apiservice", "v1.gadgets.example.com");
const ALL: [(&str, &str); 4] = [MUTATING, VALIDATING, DEFINITION, API_SERVICE];

fn pem() -> String {
    let authority = Authority::generate(Algorithm::EcdsaP256, SystemTime::now(), Duration::from_secs(3600));
    authority.unwrap().certificate().to_pem()
}

fn secret(name: &str, allowed: bool, bundle: &str) -> Value {
    let annotations = if allowed { json!({"sallyport.dev/allow-injection": "true"}) } else { json!({}) };
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": THEIRS, "annotations": annotations},
        "data": {"ca.crt": STANDARD.encode(bundle), "tls.key": STANDARD.encode("nobody's business")},
    })
}

fn entry(name: &str) -> Value {
    json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"service": {"namespace": THEIRS, "name": "hook", "path": "/x"}},
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}],
        "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
    })
}

fn configuration(kind: &str, name: &str, from: &str, entries: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "annotations": {ANNOTATION: from}, "labels": {"whose": "theirs"}},
        "webhooks": entries,
    })
}

fn definition(from: &str) -> Value {
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION.1, "annotations": {ANNOTATION: from}},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"service": {"namespace": THEIRS, "name": "convert", "path": "/convert"}},
                "conversionReviewVersions": ["v1"],
            }},
        },
    })
}

fn api_service(from: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": API_SERVICE.1, "annotations": {ANNOTATION: from}},
        "spec": {
            "group": "gadgets.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": THEIRS, "name": "gadgets"},
        },
    })
}

/// The `caBundle` fields of an object, absent ones too.
fn fields(object: &mut Value) -> Vec<&mut Value> {
    match object["kind"].as_str().unwrap() {
        "CustomResourceDefinition" => {
            vec![&mut object["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]]
        }
        "APIService" => vec![&mut object["spec"]["caBundle"]],
        _ => {
            let entries = object["webhooks"].as_array_mut().unwrap();
            entries.iter_mut().map(|entry| &mut entry["clientConfig"]["caBundle"]).collect()
        }
    }
}

fn bundles(object: &Value) -> Vec<String> {
    let decode = |field: &mut Value| {
        String::from_utf8(STANDARD.decode(field.as_str().unwrap_or_default()).unwrap()).unwrap()
    };
    fields(&mut object.clone()).into_iter().map(decode).collect()
}

/// The object without what a server keeps about it and without its bundles.
fn rest(object: &Value) -> Value {
    let mut rest = object.clone();
    for field in fields(&mut rest) {
        *field = Value::Null;
    }
    for key in ["managedFields", "resourceVersion", "generation"] {
        rest["metadata"][key] = Value::Null;
    }
    rest["status"] = Value::Null;
    rest
}

/// What a manager owns.
fn owned(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let of = |entry: &&Value| entry["manager"] == manager && entry["subresource"].is_null();
    entries.iter().find(of).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

struct World {
    cluster: Cluster,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        cluster.kubectl(&["create", "namespace", THEIRS], None).await;
        Self { cluster }
    }

    /// Applies on the server's side, as Helm and Flux do.
    async fn own(&self, object: &Value) {
        let arguments = ["apply", "--server-side", "--field-manager=owner", "-f", "-"];
        self.cluster.kubectl(&arguments, Some(&object.to_string())).await;
    }

    async fn get(&self, (kind, name): (&str, &str)) -> Value {
        self.cluster.get(kind, name).await.unwrap_or_else(|| panic!("{kind}/{name}"))
    }

    async fn version(&self, target: (&str, &str)) -> String {
        self.get(target).await["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    /// Waits until every `caBundle` of an object is this one. Returns the object and how long it took.
    async fn injected(&self, target: (&str, &str), bundle: &str) -> (Value, Duration) {
        let begun = Instant::now();
        let object = eventually(&format!("the bundle in {target:?}"), async || {
            let object = self.cluster.get(target.0, target.1).await?;
            bundles(&object).iter().all(|there| there == bundle).then_some(object)
        })
        .await;
        (object, begun.elapsed())
    }

    /// Merges into an object, as a person would who edits it.
    async fn edit(&self, (kind, name): (&str, &str), patch: &Value) {
        let patch = patch.to_string();
        self.cluster
            .kubectl(&["patch", kind, name, "--type=merge", "--field-manager=editor", "-p", &patch], None)
            .await;
    }

    async fn rotator(&self, targets: &[(&str, &str)], secrets: &str, overlap: &str) -> Rotator {
        let targets: Vec<String> = targets.iter().map(|(kind, name)| format!("{kind}/{name}")).collect();
        let targets = targets.join(",");
        let flags = ["--inject-into", &targets, "--inject-from", secrets, "--inject-overlap", overlap];
        self.cluster.rotator(&flags).await
    }

    /// Notes of Events of a reason, by the object that they are related to.
    async fn events(&self, reason: &str) -> BTreeMap<String, String> {
        let arguments = ["get", "events.events.k8s.io", "-n", NAMESPACE, "-o", "json"];
        let events: Value = serde_json::from_str(&self.cluster.kubectl(&arguments, None).await).unwrap();
        let events = events["items"].as_array().unwrap().iter().filter(|event| event["reason"] == reason);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events.map(|event| (text(&event["related"]["name"]), text(&event["note"]))).collect()
    }
}

/// The value of a metric with this label.
fn metric(rotator: &Rotator, name: &str, label: &str) -> Option<f64> {
    let families = rotator.registry.gather();
    let family = families.iter().find(|family| family.name() == name)?;
    let metric = family.get_metric().iter().find(|metric| metric.get_label()[0].value() == label)?;
    Some(metric.get_gauge().get_value() + metric.get_counter().get_value())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_kept_and_nothing_but_the_bundle_is_written_r05() {
    let world = World::start().await;
    let [first, foreign] = [pem(), pem()];
    world.cluster.apply(&secret("ca", true, &first)).await;
    let mut with_another = entry("z");
    with_another["clientConfig"]["caBundle"] = json!(STANDARD.encode(&foreign));
    let mutating =
        |entries: &[Value]| configuration("MutatingWebhookConfiguration", MUTATING.1, "theirs/ca", entries);
    world.own(&mutating(&[entry("x"), entry("y"), with_another])).await;
    let entries = [entry("x"), entry("y")];
    world.own(&configuration("ValidatingWebhookConfiguration", VALIDATING.1, "theirs/ca", &entries)).await;
    world.own(&definition("theirs/ca")).await;
    world.own(&api_service("theirs/ca")).await;
    let mut before = BTreeMap::new();
    for target in ALL {
        before.insert(target, world.get(target).await);
    }

    let rotator = world.rotator(&ALL, "theirs/ca", "1h").await;
    for target in ALL {
        let (object, _) = world.injected(target, &first).await;
        assert_eq!(rest(&object), rest(&before[&target]), "{target:?}: only bundles differ");
    }
    // What it owns is the bundles and nothing else; what others own is what they owned, but for the foreign bundle.
    let client = json!({"f:clientConfig": {"f:caBundle": {}}});
    let of_entries = |names: &[&str]| {
        let entry = |name: &&str| (format!("k:{{\"name\":\"{name}.example.com\"}}"), client.clone());
        json!({"f:webhooks": names.iter().map(entry).collect::<serde_json::Map<_, _>>()})
    };
    let bundles_alone = [
        (MUTATING, of_entries(&["x", "y", "z"])),
        (VALIDATING, of_entries(&["x", "y"])),
        (DEFINITION, json!({"f:spec": {"f:conversion": {"f:webhook": client}}})),
        (API_SERVICE, json!({"f:spec": {"f:caBundle": {}}})),
    ];
    for (target, wanted) in &bundles_alone {
        eventually(&format!("{target:?}: no more than bundles"), async || {
            (owned(&world.get(*target).await, "sallyport-ca-injection") == *wanted).then_some(())
        })
        .await;
        let mut theirs = owned(&before[target], "owner");
        if let Some(client) = theirs.pointer_mut("/f:webhooks/k:{\"name\":\"z.example.com\"}/f:clientConfig")
        {
            client.as_object_mut().unwrap().remove("f:caBundle");
        }
        assert_eq!(owned(&world.get(*target).await, "owner"), theirs, "{target:?}");
    }

    // nothing is written while nothing differs, however often something wakes it.
    let mut versions = BTreeMap::new();
    for target in ALL {
        versions.insert(target, world.version(target).await);
    }
    let writes = rotator.metric("sallyport_injection_writes_total");
    let begun = Instant::now();
    let mut touched = 0;
    while begun.elapsed() < Duration::from_secs(11) {
        touched += 1;
        let label = format!("touched={touched}");
        world.cluster.kubectl(&["label", "secret", "ca", "-n", THEIRS, "--overwrite", &label], None).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    for target in ALL {
        assert_eq!(world.version(target).await, versions[&target], "{target:?}: a write");
        let label = format!("{}/{}", target.0, target.1);
        assert_eq!(metric(&rotator, "sallyport_ca_bundle_in_sync", &label), Some(1.0), "{label}");
        assert_eq!(metric(&rotator, "sallyport_injection_errors_total", &label), Some(0.0), "{label}");
    }
    assert!((rotator.metric("sallyport_injection_writes_total") - writes).abs() < 0.5);
    // Another rotator finds everything as it is to be.
    rotator.stop().await;
    let rotator = world.rotator(&ALL, "theirs/ca", "1h").await;
    eventually("in sync", async || (rotator.metric("sallyport_ca_bundle_in_sync") > 3.5).then_some(())).await;
    for target in ALL {
        assert_eq!(world.version(target).await, versions[&target], "{target:?}: a write");
    }

    // Their owner may apply again, with an entry less and one more.
    world.own(&mutating(&[entry("x"), entry("w")])).await;
    let (object, took) = world.injected(MUTATING, &first).await;
    assert_eq!(object["webhooks"].as_array().unwrap().len(), 2, "an entry is kept for nobody's sake");
    assert!(took < Duration::from_secs(10), "{took:?}");

    // drift and recreation are repaired within seconds, and nothing of the foreign authority stays.
    let drift = json!(STANDARD.encode(format!("{first}{foreign}")));
    world
        .edit(
            DEFINITION,
            &json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": drift}}}}}),
        )
        .await;
    world.edit(API_SERVICE, &json!({"spec": {"caBundle": drift}})).await;
    for target in [DEFINITION, API_SERVICE] {
        let (object, took) = world.injected(target, &first).await;
        assert!(took < Duration::from_secs(5), "{target:?}: repaired after {took:?}");
        assert_eq!(rest(&object), rest(&before[&target]), "{target:?}");
    }
    let (kind, name) = VALIDATING;
    world.cluster.kubectl(&["delete", kind, name], None).await;
    world.own(&configuration("ValidatingWebhookConfiguration", name, "theirs/ca", &entries)).await;
    let (object, took) = world.injected(VALIDATING, &first).await;
    assert!(took < Duration::from_secs(5), "made again: injected after {took:?}");
    assert_ne!(object["metadata"]["uid"], before[&VALIDATING]["metadata"]["uid"]);
    rotator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn former_authorities_stay_for_the_overlap_r04() {
    let world = World::start().await;
    let [first, second] = [pem(), pem()];
    world.cluster.apply(&secret("ca", true, &first)).await;
    // The first bundle was put there by somebody else, who was right: it is taken over.
    let mut entries = [entry("x"), entry("y")];
    for entry in &mut entries {
        entry["clientConfig"]["caBundle"] = json!(STANDARD.encode(&first));
    }
    let configuration = configuration("MutatingWebhookConfiguration", MUTATING.1, "theirs/ca", &entries);
    world.cluster.apply(&configuration).await;
    world.own(&definition("theirs/ca")).await;
    let (targets, overlap) = ([MUTATING, DEFINITION], Duration::from_secs(8));
    let rotator = world.rotator(&targets, "theirs/ca", "8s").await;
    for target in targets {
        eventually("taken over", async || {
            (owned(&world.get(target).await, "sallyport-ca-injection") != Value::Null).then_some(())
        })
        .await;
        world.injected(target, &first).await;
    }
    // Longer than the overlap, so that it is seen to begin with the other authority.
    tokio::time::sleep(overlap + Duration::from_secs(1)).await;

    world.cluster.apply(&secret("ca", true, &second)).await;
    let both = format!("{second}{first}");
    let begun = Instant::now();
    for target in targets {
        world.injected(target, &both).await;
    }
    // Whoever goes on knows by the objects alone.
    rotator.stop().await;
    let rotator = world.rotator(&targets, "theirs/ca", "8s").await;
    while begun.elapsed() + Duration::from_secs(2) < overlap {
        for target in targets {
            let there = bundles(&world.get(target).await);
            assert!(there.iter().all(|there| *there == both), "gone after {:?}", begun.elapsed());
        }
    }
    for target in targets {
        world.injected(target, &second).await;
        let label = format!("{}/{}", target.0, target.1);
        // The first authority leaves in one write; after it, an entry's name is given up in another.
        let writes = if target == MUTATING { 2.0 } else { 1.0 };
        eventually(&format!("{label}: {writes} writes"), async || {
            (metric(&rotator, "sallyport_injection_writes_total", &label) == Some(writes)).then_some(())
        })
        .await;
    }
    let took = begun.elapsed();
    assert!(took < overlap + Duration::from_secs(5), "gone only after {took:?}");
    rotator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_injected_unless_all_three_agree() {
    let world = World::start().await;
    let bundle = pem();
    for secret in [
        secret("ca", true, &bundle),
        secret("unwilling", false, &bundle),
        secret("unnamed", true, &bundle),
        secret("empty", true, ""),
        secret("broken", true, "hello"),
    ] {
        world.cluster.apply(&secret).await;
    }
    let rows = [
        ("silent", None),
        ("vague", Some(("just-a-name", "does not name a Secret"))),
        ("unnamed", Some(("theirs/unnamed", "theirs/unnamed is not among those of --inject-from"))),
        ("unwilling", Some(("theirs/unwilling", "sallyport.dev/allow-injection"))),
        ("absent", Some(("theirs/absent", "theirs/absent does not exist"))),
        ("empty", Some(("theirs/empty", "it is empty"))),
        ("broken", Some(("theirs/broken", "it is not PEM"))),
        ("registered", Some(("theirs/ca", "a cert-rotator registered the object"))),
    ];
    let kind = "validatingwebhookconfiguration";
    for (name, row) in &rows {
        let from = row.map_or("none", |(from, _)| from);
        let mut object = configuration("ValidatingWebhookConfiguration", name, from, &[entry("x")]);
        if row.is_none() {
            object["metadata"]["annotations"] = json!({});
        }
        let manager = if *name == "registered" { "sallyport-cert-rotator" } else { "owner" };
        let manager = format!("--field-manager={manager}");
        world
            .cluster
            .kubectl(&["apply", "--server-side", &manager, "-f", "-"], Some(&object.to_string()))
            .await;
    }
    // Agreed to by all three, but not named by a flag.
    let unasked = configuration("ValidatingWebhookConfiguration", "unasked", "theirs/ca", &[entry("x")]);
    world.own(&unasked).await;
    // The API server refuses this one: a bundle and no verification contradict each other.
    let mut refusing = api_service("theirs/ca");
    refusing["spec"]["insecureSkipTLSVerify"] = json!(true);
    world.own(&refusing).await;
    world.own(&definition("theirs/ca")).await;
    let mut versions = BTreeMap::new();
    for name in rows.iter().map(|(name, _)| *name).chain(["unasked"]) {
        versions.insert(name, world.version((kind, name)).await);
    }

    let mut targets: Vec<(&str, &str)> = rows.iter().map(|(name, _)| (kind, *name)).collect();
    targets.extend([API_SERVICE, DEFINITION, ("crd", "absent.example.com")]);
    let secrets = "theirs/ca,theirs/unwilling,theirs/absent,theirs/empty,theirs/broken";
    let rotator = world.rotator(&targets, secrets, "1h").await;
    world.injected(DEFINITION, &bundle).await;
    for (name, row) in &rows {
        let Some((_, wanted)) = row else { continue };
        let note = eventually(&format!("an Event about {name}"), async || {
            world.events("CABundleNotInjected").await.remove(*name)
        })
        .await;
        assert!(note.contains(wanted), "{note}");
        let label = format!("{kind}/{name}");
        assert!(metric(&rotator, "sallyport_injection_errors_total", &label) > Some(0.0), "{label}");
        assert_eq!(metric(&rotator, "sallyport_ca_bundle_in_sync", &label), Some(0.0), "{label}");
    }
    let note = eventually("an Event about the refusal", async || {
        world.events("CABundleNotInjected").await.remove(API_SERVICE.1)
    })
    .await;
    assert!(note.contains("refused to patch apiservices"), "{note}");
    let failed = || metric(&rotator, "sallyport_rotator_failures_total", "injection").unwrap();
    assert!(failed() > 0.0);
    for task in ["certificates", "registration"] {
        assert_eq!(metric(&rotator, "sallyport_rotator_failures_total", task), Some(0.0), "{task}");
    }
    eventually("readiness", async || rotator.readiness.ready().then_some(())).await;
    for (name, version) in &versions {
        assert_eq!(&world.version((kind, name)).await, version, "{name}: a write");
    }
    let silent = format!("{kind}/silent");
    assert_eq!(
        metric(&rotator, "sallyport_ca_bundle_in_sync", &silent),
        None,
        "who does not ask is no trouble"
    );

    // Agreement comes late, from each of them.
    let allow = ["annotate", "secret", "unwilling", "-n", THEIRS, "sallyport.dev/allow-injection=true"];
    world.cluster.kubectl(&allow, None).await;
    let annotation = format!("{ANNOTATION}=theirs/ca");
    world.cluster.kubectl(&["annotate", kind, "silent", &annotation], None).await;
    world.cluster.apply(&secret("absent", true, &bundle)).await;
    world.edit(API_SERVICE, &json!({"spec": {"insecureSkipTLSVerify": null}})).await;
    for target in [(kind, "unwilling"), (kind, "silent"), (kind, "absent"), API_SERVICE] {
        world.injected(target, &bundle).await;
    }
    // It is taken back: what is there stays, and is kept no more.
    world.cluster.kubectl(&["annotate", kind, "silent", &format!("{ANNOTATION}-")], None).await;
    eventually("forgotten", async || {
        metric(&rotator, "sallyport_ca_bundle_in_sync", &silent).is_none().then_some(())
    })
    .await;
    assert_eq!(bundles(&world.get((kind, "silent")).await), [bundle]);
    rotator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fighting_writer_meets_back_off_r05() {
    let world = Arc::new(World::start().await);
    let [bundle, other] = [pem(), pem()];
    world.cluster.apply(&secret("ca", true, &bundle)).await;
    world.own(&api_service("theirs/ca")).await;
    let rotator = world.rotator(&[API_SERVICE], "theirs/ca", "1h").await;
    world.injected(API_SERVICE, &bundle).await;

    // Overwrites at once, always.
    let (stop, undone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let fighter = tokio::spawn({
        let (world, stop, undone) = (Arc::clone(&world), Arc::clone(&stop), Arc::clone(&undone));
        async move {
            let theirs = json!({"spec": {"caBundle": STANDARD.encode(&other)}});
            while !stop.load(Ordering::SeqCst) {
                if bundles(&world.get(API_SERVICE).await) != [other.as_str()] {
                    world.edit(API_SERVICE, &theirs).await;
                    undone.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    let label = format!("{}/{}", API_SERVICE.0, API_SERVICE.1);
    let note = eventually("an Event about the fight", async || {
        world.events("CABundleContested").await.remove(API_SERVICE.1)
    })
    .await;
    assert!(note.contains(&label), "{note}");
    eventually("a wait of seconds", async || {
        let wait = metric(&rotator, "sallyport_registration_backoff_seconds", &label);
        (wait > Some(2.0)).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    // Repairs at 0, 2, 6 and 14 s, and the write before the fight.
    let writes = metric(&rotator, "sallyport_injection_writes_total", &label).unwrap();
    assert!((3.0..8.0).contains(&writes), "{writes} writes");
    assert!(undone.load(Ordering::SeqCst) >= 2);
    eventually("not in sync", async || {
        (metric(&rotator, "sallyport_ca_bundle_in_sync", &label) == Some(0.0)).then_some(())
    })
    .await;

    // Who gives up has lost.
    stop.store(true, Ordering::SeqCst);
    fighter.await.unwrap();
    world.injected(API_SERVICE, &bundle).await;
    rotator.stop().await;
}
