//! Promotion from Ignore to Fail: only after an API server has really refused the probe, and never back.
//!
//! The front is the test's own and plays webhook, mutator and validator: it allows, refuses, fails or hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, Rotator, eventually};
use crate::registration::{Answer, Front, bundles, configuration, front_with};

const MUTATING: &str = "mutatingwebhookconfiguration";
const VALIDATING: &str = "validatingwebhookconfiguration";

/// How a front treats probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// As one without the policies for it.
    Allow,
    /// HTTP status 500.
    Fail,
    /// No answer.
    Hang,
    /// As one whose mutator is away.
    Refuse,
    /// As it should be.
    MarkAndRefuse,
}

/// How the front is to behave now, and how often it did so.
#[derive(Clone)]
struct Conduct(Arc<(Mutex<Manner>, AtomicUsize)>);

impl Conduct {
    fn new(manner: Manner) -> Self {
        Self(Arc::new((Mutex::new(manner), AtomicUsize::new(0))))
    }

    fn set(&self, manner: Manner) {
        *self.0.0.lock() = manner;
        self.0.1.store(0, Ordering::SeqCst);
    }

    /// How many probes came since the manner was set.
    fn probes(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }

    /// Waits until the manner has been judged: a probe came after one that had it.
    async fn judged(&self) {
        eventually("two probes", async || (self.probes() >= 2).then_some(())).await;
    }

    /// Probes are counted at the door at `counted`.
    fn answer(&self, counted: &'static str) -> Answer {
        let state = Arc::clone(&self.0);
        Arc::new(move |path, review| {
            let metadata = &review["request"]["object"]["metadata"];
            let probe = metadata["labels"]["sallyport.dev/probe"].as_str().unwrap_or_default();
            assert_eq!(review["request"]["dryRun"], true, "nothing else is sent here");
            let manner = *state.0.lock();
            if path.starts_with(counted) {
                state.1.fetch_add(1, Ordering::SeqCst);
            }
            let allowed = json!({"allowed": true});
            let is_mutate = path.starts_with("/mutate");
            let response = match manner {
                Manner::Hang => return None,
                Manner::Fail => return Some((500, allowed)),
                Manner::Allow => allowed,
                Manner::Refuse if is_mutate => allowed,
                Manner::MarkAndRefuse if is_mutate => {
                    let mark = json!({"sallyport.dev/probed": probe});
                    let patch = json!([{"op": "add", "path": "/metadata/annotations", "value": mark}]);
                    let patch = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
                    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
                }
                Manner::Refuse | Manner::MarkAndRefuse => {
                    let is_marked = metadata["annotations"]["sallyport.dev/probed"] == probe;
                    let marked = if is_marked { "marked" } else { "not marked" };
                    let message =
                        format!("probe {probe} is refused and was {marked} (policy sallyport-probe)");
                    json!({"allowed": false, "status": {"code": 422, "message": message}})
                }
            };
            Some((200, response))
        })
    }
}

fn entry(front: &Front, side: &str, name: &str, failure_policy: &str, label: &str) -> Value {
    json!({
        "name": format!("{name}.{side}.sallyport.dev"),
        "clientConfig": {"url": format!("https://{}/{side}/fail", front.address)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
        "timeoutSeconds": 1,
        "failurePolicy": failure_policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
    })
}

/// A configuration of one side: entries with failurePolicy Fail of these names, and the probe's.
fn described(front: &Front, side: &str, names: &[&str]) -> Value {
    let kind = match side {
        "mutate" => "MutatingWebhookConfiguration",
        _ => "ValidatingWebhookConfiguration",
    };
    let ordinary = names.iter().map(|name| entry(front, side, name, "Fail", "ordinary"));
    let probe = entry(front, side, "probe", "Ignore", "sallyport.dev/probe");
    configuration(kind, &ordinary.chain([probe]).collect::<Vec<_>>())
}

/// The live failurePolicies, in the order of the description; none if there is no such object.
async fn policies(cluster: &Cluster, kind: &str) -> String {
    let Some(live) = cluster.get(kind, "sallyport").await else { return String::new() };
    let entries = live["webhooks"].as_array().unwrap();
    entries.iter().map(|entry| entry["failurePolicy"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

async fn becomes(cluster: &Cluster, kind: &str, wanted: &str) {
    let what = format!("{kind}: {wanted}");
    eventually(&what, async || (policies(cluster, kind).await == wanted).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_comes_into_force_after_a_real_refusal_and_stays_r07() {
    let cluster = Cluster::start().await;
    let flags = ["--registration-configmap", "registration", "--promote", "--propagation", "3s"];
    let rotator = cluster.rotator(&flags).await;
    let identity = eventually("the front's certificate", || cluster.identity("sallyport-webhook-tls")).await;
    let conduct = Conduct::new(Manner::Allow);
    let front = front_with(&identity, conduct.answer("/validate")).await;
    let validating = described(&front, "validate", &["fail"]);
    cluster.describe(&[described(&front, "mutate", &["fail"]), validating.clone()]).await;

    // Whatever the front does but refuse is no proof: the API server goes on as if nothing were there.
    for kind in [MUTATING, VALIDATING] {
        becomes(&cluster, kind, "Ignore Ignore").await;
    }
    conduct.judged().await;
    let promoted = |rotator: &Rotator| rotator.metric("sallyport_registration_promoted");
    assert!(promoted(&rotator) < 0.5);
    let faults = cluster.faults(&flags).await;
    assert!(faults.contains("has entries that are not promoted to Fail"), "{faults}");
    rotator.stop().await;
    for manner in [Manner::Allow, Manner::Fail, Manner::Hang] {
        conduct.set(manner);
        let before = cluster.versions().await;
        let rotator = cluster.rotator(&flags).await;
        conduct.judged().await;
        assert_eq!(cluster.versions().await, before, "{manner:?}: no proof, and nothing to write");
        rotator.stop().await;
    }

    // Only what was proven is promoted: the refusal says that the mutator has not marked the probe.
    conduct.set(Manner::Refuse);
    let rotator = cluster.rotator(&flags).await;
    becomes(&cluster, VALIDATING, "Fail Ignore").await;
    conduct.judged().await;
    assert_eq!(policies(&cluster, MUTATING).await, "Ignore Ignore", "the mutator is away");
    conduct.set(Manner::MarkAndRefuse);
    becomes(&cluster, MUTATING, "Fail Ignore").await;
    eventually("both promoted", async || (promoted(&rotator) > 1.5).then_some(())).await;
    assert_eq!(cluster.faults(&flags).await, "", "the check of a cluster where all is well");
    rotator.stop().await;

    // A restart while the proof would fail: nothing is asked, nothing is written, Fail stays.
    conduct.set(Manner::Allow);
    let before = cluster.versions().await;
    let rotator = cluster.rotator(&flags).await;
    eventually("both in sync", async || (rotator.metric("sallyport_ca_bundle_in_sync") > 1.5).then_some(()))
        .await;
    assert!(promoted(&rotator) > 1.5);
    assert_eq!(cluster.versions().await, before);
    assert!(rotator.metric("sallyport_registration_writes_total") < 0.5);
    assert_eq!(conduct.probes(), 0, "what is promoted is not proven again");

    // Neither does a lost bundle, drift, or an entry that is described anew take Fail back.
    let patch = async |kind: &str, edit: Value| {
        let edit = edit.to_string();
        cluster.kubectl(&["patch", kind, "sallyport", "--type=json", "-p", &edit], None).await;
    };
    patch(VALIDATING, json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}])).await;
    patch(MUTATING, json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 9}])).await;
    eventually("the repairs", async || {
        let mutating = cluster.get(MUTATING, "sallyport").await?;
        let validating = cluster.get(VALIDATING, "sallyport").await?;
        let is_repaired = bundles(&validating).iter().all(|bundle| !bundle.is_empty())
            && mutating["webhooks"][0]["timeoutSeconds"] == 1;
        is_repaired.then_some(())
    })
    .await;
    for kind in [MUTATING, VALIDATING] {
        assert_eq!(policies(&cluster, kind).await, "Fail Ignore", "{kind}: repaired as it was");
    }
    let two = described(&front, "mutate", &["fail", "second"]);
    cluster.describe(&[two.clone(), validating.clone()]).await;
    becomes(&cluster, MUTATING, "Fail Ignore Ignore").await;
    conduct.judged().await;
    assert_eq!(
        policies(&cluster, MUTATING).await,
        "Fail Ignore Ignore",
        "an entry of its own is not proven yet"
    );
    conduct.set(Manner::MarkAndRefuse);
    becomes(&cluster, MUTATING, "Fail Fail Ignore").await;

    // Somebody else's Ignore is proven again before it is repaired; what is made anew begins anew.
    conduct.set(Manner::Allow);
    patch(VALIDATING, json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]))
        .await;
    conduct.judged().await;
    assert_eq!(policies(&cluster, VALIDATING).await, "Ignore Ignore", "without a proof");
    conduct.set(Manner::MarkAndRefuse);
    becomes(&cluster, VALIDATING, "Fail Ignore").await;
    conduct.set(Manner::Allow);
    cluster.kubectl(&["delete", VALIDATING, "sallyport"], None).await;
    becomes(&cluster, VALIDATING, "Ignore Ignore").await;
    conduct.judged().await;
    assert_eq!(policies(&cluster, VALIDATING).await, "Ignore Ignore", "without a proof");
    conduct.set(Manner::MarkAndRefuse);
    becomes(&cluster, VALIDATING, "Fail Ignore").await;

    // Another bundle.
    conduct.set(Manner::Allow);
    cluster.kubectl(&["delete", "secret", "sallyport-ca", "-n", NAMESPACE], None).await;
    let new = eventually("a new authority", async || {
        cluster.identity("sallyport-ca").await.filter(|new| new.bundle != identity.bundle)
    })
    .await;
    for (kind, wanted) in [(MUTATING, "Fail Fail Ignore"), (VALIDATING, "Fail Ignore")] {
        eventually("the new bundle", async || {
            let live = cluster.get(kind, "sallyport").await?;
            bundles(&live).iter().all(|bundle| *bundle == new.bundle.to_pem()).then_some(())
        })
        .await;
        assert_eq!(policies(&cluster, kind).await, wanted, "{kind}");
    }
    rotator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_no_refusal_and_a_mutator_alone_is_proven_by_its_mark_r07() {
    let cluster = Cluster::start().await;
    let flags = ["--registration-configmap", "registration", "--promote"];
    // May do everything that a registration needs, and not create a ConfigMap.
    cluster.kubectl(&["create", "serviceaccount", "weak", "-n", NAMESPACE], None).await;
    let role = |verbs: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "weak"},
            "rules": [
                {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]},
            ],
        })
    };
    cluster.apply(&role(json!(["get", "list", "watch"]))).await;
    let account = format!("--serviceaccount={NAMESPACE}:weak");
    cluster.kubectl(&["create", "clusterrolebinding", "weak", "--clusterrole=weak", &account], None).await;
    let token = cluster.kubectl(&["create", "token", "weak", "-n", NAMESPACE], None).await;
    let mut kubeconfig = Kubeconfig::read_from(cluster.control_plane.kubeconfig()).unwrap();
    let user = serde_json::from_value(json!({"token": token.trim()})).unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(user);
    let weak = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let mut config = cluster.config(&flags).await;
    config.registration.as_mut().unwrap().client = kube::Client::try_from(weak).unwrap();
    let rotator = Rotator::start(config);

    let identity = eventually("the front's certificate", || cluster.identity("sallyport-webhook-tls")).await;
    let conduct = Conduct::new(Manner::MarkAndRefuse);
    let front = front_with(&identity, conduct.answer("/mutate")).await;
    cluster.describe(&[described(&front, "mutate", &["fail"])]).await;
    becomes(&cluster, MUTATING, "Ignore Ignore").await;
    // It may do everything else, so what the API server counts are probes. Of two, the first has been judged.
    let denied = async || -> f64 {
        let metrics = cluster.kubectl(&["get", "--raw", "/metrics"], None).await;
        let is_it = |line: &&str| line.starts_with("authorization_attempts_total{result=\"no-opinion\"}");
        let counted = metrics.lines().find(is_it).and_then(|line| line.rsplit(' ').next()?.parse().ok());
        counted.unwrap_or_default()
    };
    let before = denied().await;
    eventually("two refusals for want of a right", async || (denied().await > before + 1.5).then_some(()))
        .await;
    assert_eq!(policies(&cluster, MUTATING).await, "Ignore Ignore");
    assert_eq!(conduct.probes(), 0, "it never came so far");

    // With the right, and without a mark: stored in a dry run, and no proof.
    conduct.set(Manner::Allow);
    cluster.apply(&role(json!(["get", "list", "watch", "create"]))).await;
    conduct.judged().await;
    assert_eq!(policies(&cluster, MUTATING).await, "Ignore Ignore");
    conduct.set(Manner::MarkAndRefuse);
    becomes(&cluster, MUTATING, "Fail Ignore").await;
    assert!(cluster.get("configmap", "sallyport-probe").await.is_none(), "nothing was stored");
    rotator.stop().await;
}
