//! Two expressions by themselves: the object bound, the cost counted.

use std::hint::black_box;
use std::time::Duration;

use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use sallyport_document::Document;

use crate::table::shortest;

/// What is measured, and its aim in nanoseconds.
pub const ROWS: &[(&str, &str, u32)] = &[
    ("one clause", "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))", 2_000),
    (
        "eight clauses",
        "object.metadata.namespace != 'kube-system' \
         && object.spec.containers.all(c, c.image.startsWith('registry.example.com/') \
         && has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits \
         && has(c.securityContext) && c.securityContext.runAsNonRoot == true \
         && (!has(c.securityContext.privileged) || !c.securityContext.privileged)) \
         && !has(object.spec.hostNetwork) && object.spec.volumes.all(v, !has(v.hostPath))",
        10_000,
    ),
];

pub fn compile(source: &str) -> Duration {
    let scope = Scope::new(&["object", "oldObject"]);
    shortest(|| {
        black_box(Program::compile(black_box(source), &scope).unwrap());
    })
}

pub fn evaluate(source: &str, object: &Document<'_>) -> Duration {
    let scope = Scope::new(&["object", "oldObject"]);
    let program = Program::compile(source, &scope).unwrap();
    shortest(|| {
        let mut activation = Activation::new(&scope, Limits::default());
        activation.bind("object", Value::from(object));
        assert_eq!(black_box(&program).evaluate(&activation).unwrap().as_bool(), Some(true), "{source}");
    })
}
