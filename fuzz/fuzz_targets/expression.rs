//! Any expression over a small object: compiling and evaluating end, within their bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use sallyport_document::Document;

fuzz_target!(|source: &str| {
    let scope = Scope::new(&["object"]);
    let Ok(program) = Program::compile(source, &scope) else { return };
    let object = serde_json::json!({
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": null},
        "spec": {"replicas": 3, "ratio": 0.5, "flag": true, "containers": [{"name": "a", "image": "b:1"}, {}]},
    });
    let object = Document::of(&object).expect("it is small");
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    // Which value or error it gives is for the tests to judge, against an oracle; here it must only end.
    if let Ok(value) = program.evaluate(&activation) {
        let _ = value.to_json();
    }
});
