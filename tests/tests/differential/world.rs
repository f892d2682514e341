//! The API server with everything that the cases need, and the order in which it is asked: first without policies
//! in force, to record what its webhooks are asked, then with all of them.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use http::Method;
use sallyport_tests::oracle::{Answer, Call, IN_FORCE, NAMESPACES, Oracle, POLL};
use sallyport_tests::recorder::Recorder;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cases::Case;
use crate::comparison::Foreseen;
use crate::engine::Engine;

/// How many requests are under way at once, where their order does not matter.
pub const AT_ONCE: usize = 16;
/// Kinds of params whose objects take a while to be known to policies.
const PARAM_KINDS: [(&str, &str); 4] =
    [("v1", "ConfigMap"), ("v1", "Secret"), ("example.dev/v1", "Quota"), ("example.dev/v1", "ClusterQuota")];
/// The namespace of requests that tell whether policies are in force.
const MARKED: &str = "marked";

/// The API server, and what stands between it and the engine.
pub struct World {
    pub oracle: Oracle,
    recorder: Recorder,
    /// Objects besides Namespaces that exist.
    pub objects: Vec<Value>,
}

impl World {
    /// With the objects of all cases, and with the recorder registered.
    pub async fn start(cases: &[Case]) -> Self {
        let oracle = Oracle::start().await;
        let mut objects: Vec<Value> = serde_saphyr::from_str(include_str!("setup.yaml")).unwrap();
        oracle.define(&objects).await;
        oracle.create(NAMESPACES, &json!({"metadata": {"name": MARKED}})).await;
        let created: Vec<Vec<Value>> =
            stream::iter(cases).map(|case| provide(&oracle, case)).buffer_unordered(AT_ONCE).collect().await;
        objects.extend(created.into_iter().flatten());
        let recorder = Recorder::start().await;
        for (path, registration) in recorder.registrations() {
            oracle.create(path, &registration).await;
        }
        let world = Self { oracle, recorder, objects };
        let asked = Call { id: Some("marker".to_owned()), ..marker("none") };
        world
            .wait("the recorder", &asked, |world, answer| {
                let seen = world.recorder.take("marker");
                !answer.is_refusal() && seen.mutating.is_some() && seen.validating.is_some()
            })
            .await;
        world
    }

    /// Creates policies, which are not in force without bindings. Gives those refused, or with refused bindings.
    pub async fn create_policies(&self, cases: &[Case]) -> BTreeMap<String, String> {
        let policies: Vec<(&Value, &[Value])> = cases
            .iter()
            .flat_map(|case| case.policies.iter().map(|policy| (policy, case.bindings.as_slice())))
            .collect();
        let refused = stream::iter(policies).map(|(policy, bindings)| async move {
            let name = policy["metadata"]["name"].as_str().unwrap().to_owned();
            let mut refused = self.oracle.post(&path(policy), policy).await.err();
            for binding in bindings.iter().filter(|binding| binding["spec"]["policyName"] == *name) {
                let tried = self.oracle.post(&format!("{}?dryRun=All", path(binding)), binding).await;
                refused = refused.or(tried.err());
            }
            refused.map(|(_, message)| (name, message))
        });
        refused.buffer_unordered(AT_ONCE).filter_map(|refused| async move { refused }).collect().await
    }

    /// What the engine makes of a request, and the API server of what the engine leaves. Before the policies are in
    /// force.
    pub async fn foresee(&self, engine: &Engine, call: &Call) -> Foreseen {
        let id = call.id.as_deref().unwrap_or_default();
        let answer = self.oracle.send(call).await;
        let seen = self.recorder.take(id);
        let mut foreseen = Foreseen {
            refused: None,
            own_warnings: answer.warnings.clone(),
            answer,
            warnings: BTreeSet::new(),
            notes: BTreeMap::new(),
            is_changed: false,
            validating: seen.validating,
        };
        let Some(review) = seen.mutating else { return foreseen };
        let mutated = engine.mutate(&review);
        foreseen.warnings.extend(mutated.warnings);
        foreseen.notes.extend(mutated.notes);
        foreseen.refused = mutated.status;
        if foreseen.refused.is_some() {
            return foreseen;
        }
        if let (Some(changed), Some(_)) = (mutated.changed, &call.body) {
            foreseen.is_changed = true;
            let call = Call { body: Some(changed), ..call.clone() };
            foreseen.answer = self.oracle.send(&call).await;
            foreseen.own_warnings.extend(foreseen.answer.warnings.clone());
            foreseen.validating = self.recorder.take(id).validating;
        }
        if let Some(review) = &foreseen.validating {
            let validated = engine.validate(review);
            foreseen.warnings.extend(validated.warnings);
            foreseen.notes.extend(validated.notes);
            foreseen.refused = validated.status;
        }
        foreseen
    }

    /// Puts policies in force by creating their bindings, and waits until they are.
    pub async fn bind(&self, bindings: impl IntoIterator<Item = &Value>) {
        for (path, registration) in self.recorder.registrations() {
            let path = format!("{path}/{}", registration["metadata"]["name"].as_str().unwrap());
            let removed = self.oracle.send(&Call::new(Method::DELETE, path, None)).await;
            assert!(!removed.is_refusal(), "{removed:?}");
        }
        let create = |binding: Value| async move {
            self.oracle.create(&path(&binding), &binding).await;
        };
        stream::iter(bindings.into_iter().cloned()).for_each_concurrent(AT_ONCE, create).await;
        let mut awaited = Vec::new();
        for (index, (version, kind)) in PARAM_KINDS.into_iter().enumerate() {
            for family in ["Validating", "Mutating"] {
                let name = format!("{}-{index}", family.to_lowercase());
                self.mark(family, &name, Some((version, kind))).await;
                awaited.push((format!("{family}: {kind}"), name));
            }
        }
        for (what, name) in awaited {
            let refuses = |_: &Self, answer: &Answer| answer.body.to_string().contains("no params found");
            self.wait(&what, &marker(&name), refuses).await;
        }
        // What was created last is in force last.
        for family in ["Validating", "Mutating"] {
            let name = family.to_lowercase();
            self.mark(family, &name, None).await;
            let acts = |_: &Self, answer: &Answer| {
                answer.is_refusal() || answer.body["metadata"]["labels"].get("last").is_some()
            };
            self.wait(family, &marker(&name), acts).await;
        }
        // Custom kinds take a moment longer to be known for merging.
        let gadget = json!({"apiVersion": "example.dev/v1", "kind": "Gadget",
            "metadata": {"name": "marker", "labels": {"marker": "mutating"}}});
        let gadget = Call::new(
            Method::POST,
            format!("/apis/example.dev/v1/namespaces/{MARKED}/gadgets?dryRun=All"),
            Some(gadget),
        );
        self.wait("custom kinds", &gadget, |_, answer| {
            answer.body["metadata"]["labels"].get("last").is_some()
        })
        .await;
    }

    /// A policy for the marker with this name: one that finds no params, or one that always acts.
    async fn mark(&self, family: &str, name: &str, params: Option<(&str, &str)>) {
        let mut spec = json!({
        "matchConstraints": {
            "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MARKED}},
            "objectSelector": {"matchLabels": {"marker": name}},
        }});
        let mut bound = json!({"policyName": format!("marker-{name}")});
        if let Some((version, kind)) = params {
            spec["paramKind"] = json!({"apiVersion": version, "kind": kind});
            bound["paramRef"] =
                json!({"selector": {"matchLabels": {"no": "such"}}, "parameterNotFoundAction": "Deny"});
        }
        if family == "Validating" {
            spec["validations"] = json!([{"expression": "false"}]);
            bound["validationActions"] = json!(["Deny"]);
        } else {
            spec["reinvocationPolicy"] = json!("Never");
            spec["mutations"] = json!([{"patchType": "ApplyConfiguration", "applyConfiguration":
                {"expression": "Object{metadata: Object.metadata{labels: {'last': 'yes'}}}"}}]);
        }
        for (what, spec) in [("Policy", spec), ("PolicyBinding", bound)] {
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1",
                "kind": format!("{family}Admission{what}"), "metadata": {"name": format!("marker-{name}")}, "spec": spec});
            self.oracle.create(&path(&object), &object).await;
        }
    }

    async fn wait(&self, what: &str, call: &Call, done: impl Fn(&Self, &Answer) -> bool) {
        let deadline = Instant::now() + IN_FORCE;
        loop {
            let answer = self.oracle.send(call).await;
            if done(self, &answer) {
                return;
            }
            assert!(Instant::now() < deadline, "not in force: {what}: {answer:?}");
            sleep(POLL).await;
        }
    }

    /// Sends requests by their ids, with the policies in force, and gives answers and audit annotations.
    pub async fn send(&self, calls: Vec<Call>) -> BTreeMap<String, (Answer, BTreeMap<String, String>)> {
        let ids: BTreeSet<String> = calls.iter().filter_map(|call| call.id.clone()).collect();
        let answers: Vec<(String, Answer)> = stream::iter(calls)
            .map(|call| async move {
                let call = Call { audited: true, ..call };
                let answer = self.oracle.try_send(&call).await.unwrap_or_else(|_| unanswered());
                (call.id.unwrap_or_default(), answer)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut notes = self.oracle.audited(&ids).await;
        let pairs = answers.into_iter().map(|(id, answer)| {
            let notes = notes.remove(&id).unwrap_or_default();
            (id, (answer, notes))
        });
        pairs.collect()
    }
}

/// Creates a case's namespace, its objects, and those that its requests start from.
async fn provide(oracle: &Oracle, case: &Case) -> Vec<Value> {
    let namespace = json!({"metadata": {"name": case.name, "labels": case.labels}});
    oracle.create(NAMESPACES, &namespace).await;
    let mut created = Vec::new();
    for (path, object) in &case.objects {
        created.push(oracle.create(path, object).await);
    }
    let mut kept = BTreeSet::new();
    for (index, sent) in case.requests.iter().enumerate() {
        let Some((path, object)) = sent.kept(&case.name, index) else { continue };
        // An object is the same one in all versions.
        let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
        if kept.insert((plural, object["metadata"]["name"].to_string())) {
            oracle.create(&path, &object).await;
        }
    }
    created
}

/// What stands for an answer when the API server panics.
fn unanswered() -> Answer {
    Answer { code: 500, body: json!({"message": "no answer"}), warnings: BTreeSet::new() }
}

/// Where policies and bindings are created.
fn path(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    format!("/apis/admissionregistration.k8s.io/v1/{plural}")
}

fn marker(name: &str) -> Call {
    let object = json!({"metadata": {"name": "marker", "labels": {"marker": name}}});
    Call::new(Method::POST, format!("/api/v1/namespaces/{MARKED}/configmaps?dryRun=All"), Some(object))
}
