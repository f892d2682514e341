//! How long ordinary expressions take over a pod of ordinary size.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::{Value as Json, json};

const PREFIX: &str = "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))";
const CLAUSES: &str = "object.metadata.namespace != 'kube-system' \
    && object.spec.containers.all(c, c.image.startsWith('registry.example.com/') \
    && has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits \
    && has(c.securityContext) && c.securityContext.runAsNonRoot == true \
    && (!has(c.securityContext.privileged) || !c.securityContext.privileged)) \
    && !has(object.spec.hostNetwork) && object.spec.volumes.all(v, !has(v.hostPath))";

/// A pod of three containers, or the object of `$OBJECT`, a file.
fn pod() -> Vec<u8> {
    if let Some(path) = std::env::var_os("OBJECT") {
        return std::fs::read(path).unwrap();
    }
    let container = |name: &str| {
        let env: Vec<Json> =
            (0..10).map(|i| json!({"name": format!("VARIABLE_{i}"), "value": "value"})).collect();
        json!({
            "name": name, "image": format!("registry.example.com/{name}:1.2.3"), "env": env,
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
            "securityContext": {"runAsNonRoot": true, "privileged": false, "readOnlyRootFilesystem": true},
        })
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "checkout", "namespace": "shop", "labels": {"app": "checkout", "tier": "front"}},
        "spec": {
            "containers": [container("checkout"), container("proxy"), container("logs")],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": "checkout"}}],
        },
    });
    pod.to_string().into_bytes()
}

/// The shortest of many rounds, for one evaluation: object bound, cost counted.
fn measure(source: &str, object: &Document<'_>) -> Duration {
    const ROUND: u32 = 2_000;
    let scope = Scope::new(&["object", "oldObject"]);
    let program = Program::compile(source, &scope).unwrap();
    let evaluate = || {
        let mut activation = Activation::new(&scope, Limits::default());
        activation.bind("object", Value::from(object));
        assert_eq!(black_box(&program).evaluate(&activation).unwrap().as_bool(), Some(true));
    };
    let round = || {
        let began = Instant::now();
        (0..ROUND).for_each(|_| evaluate());
        began.elapsed() / ROUND
    };
    (0..50).map(|_| round()).min().unwrap()
}

#[test]
#[ignore = "measures what is optimised: make bench"]
fn expressions_of_policies_take_microseconds() {
    let text = pod();
    let object = Document::parse(&text).unwrap();
    for (name, source, aim) in [("one clause", PREFIX, 2_000), ("eight clauses", CLAUSES, 10_000)] {
        let took = measure(source, &object);
        println!("{name}: {took:?}");
        assert!(took < Duration::from_nanos(aim), "{name}: {took:?}");
    }
}
