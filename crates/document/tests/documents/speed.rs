//! How long reading a pod of ordinary size takes, against the ways of `serde_json`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sallyport_document::Document;
use serde_json::Value;
use serde_json::value::RawValue;

/// For eight kilobytes.
const AIM: Duration = Duration::from_micros(12);

/// The object of `$OBJECT`, a file, or a pod of three containers and some eight kilobytes.
fn pod() -> Vec<u8> {
    if let Some(path) = std::env::var_os("OBJECT") {
        return std::fs::read(path).unwrap();
    }
    let probe = r#"{"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"initialDelaySeconds":10,
        "timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}"#;
    let container = |name: &str| {
        let env = (0..12)
            .map(|i| format!(r#"{{"name":"VARIABLE_{i}","value":"value of {i}"}},"#))
            .collect::<Vec<_>>()
            .concat();
        format!(
            r#"{{"name":"{name}","image":"registry.example.com/shop/{name}:1.2.3@sha256:9b1f0c1f9e0f6f7f3f6ad7c2b0b4",
            "env":[{env}{{"name":"LAST","value":"1"}}],"livenessProbe":{probe},"readinessProbe":{probe},
            "ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],
            "resources":{{"limits":{{"cpu":"1","memory":"1Gi"}},"requests":{{"cpu":"100m","memory":"64Mi"}}}},
            "volumeMounts":[{{"name":"tmp","mountPath":"/tmp"}},{{"name":"token","readOnly":true,
            "mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"imagePullPolicy":"IfNotPresent",
            "securityContext":{{"runAsNonRoot":true,"privileged":false,"runAsUser":10001,
            "capabilities":{{"drop":["ALL"]}}}},"terminationMessagePath":"/dev/termination-log"}}"#
        )
    };
    let managed = (0..40)
        .map(|i| format!(r#""k:{{\"name\":\"entry{i}\"}}":{{".":{{}},"f:value":{{}}}},"#))
        .collect::<Vec<_>>()
        .concat();
    let text = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"checkout","namespace":"shop",
        "labels":{{"app":"checkout","tier":"front"}},"managedFields":[{{{managed}"manager":"kubectl"}}]}},
        "spec":{{"containers":[{},{},{}],"volumes":[{{"name":"tmp","emptyDir":{{}}}}],
        "restartPolicy":"Always","priority":0}},"status":{{}}}}"#,
        container("checkout"),
        container("proxy"),
        container("logs")
    );
    text.lines().map(str::trim).collect::<String>().into_bytes()
}

/// The shortest of many rounds.
fn measure(run: impl Fn()) -> Duration {
    const ROUND: u32 = 100;
    let round = || {
        let began = Instant::now();
        (0..ROUND).for_each(|_| run());
        began.elapsed() / ROUND
    };
    (0..500).map(|_| round()).min().unwrap()
}

#[test]
#[ignore = "measures what is optimised: make bench"]
fn a_pod_is_read_in_microseconds() {
    let text = pod();
    let read = measure(|| drop(black_box(Document::parse(black_box(&text)).unwrap())));
    let skip = measure(|| {
        black_box(serde_json::from_slice::<&RawValue>(black_box(&text)).unwrap());
    });
    let value = measure(|| drop(black_box(serde_json::from_slice::<Value>(black_box(&text)).unwrap())));
    let (document, tree) = (Document::parse(&text).unwrap(), serde_json::from_slice::<Value>(&text).unwrap());
    let made = measure(|| drop(black_box(Document::of(black_box(&tree)).unwrap())));
    let back = measure(|| drop(black_box(black_box(&document).root().to_value())));
    println!("{} bytes: {read:?}; serde_json {value:?}, {skip:?} to skip", text.len());
    println!("a document of a value {made:?}, a value of a document {back:?}");
    let aim = AIM * u32::try_from(text.len()).unwrap() / 8_000;
    assert!(read < aim, "{read:?}, more than {aim:?}");
}
