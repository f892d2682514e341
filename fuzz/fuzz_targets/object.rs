//! Any object under a fixed set of expressions, which look at everything in it: they end, within their bounds.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use sallyport_document::Document;

const EXPRESSIONS: &[&str] = &[
    "object == object && object in [object]",
    "'%s'.format([object])",
    "object.all(x, y, x == y || object[x] == y)",
    "object.map(x, [x, x]).flatten().distinct()",
    "object.transformMap(k, v, string(v))",
    "object.sort() == object.sortBy(x, x)",
    "sets.equivalent(object, object)",
    "object.min() == object.max() || object.sum() == object.indexOf(object)",
    "object.a.b.startsWith(object.a.c) || object.a.b.matches(object.a.c)",
    "object.a.split(object.b).join(object.c).replace(object.a, object.b)",
    "url(object.a).getQuery().size() > 0 || ip(object.a).family() == 4 || cidr(object.a).containsIP(object.b)",
    "quantity(object.a).add(quantity(object.b)).isGreaterThan(quantity(object.c))",
    "semver(object.a).isLessThan(semver(object.b)) || timestamp(object.a) < timestamp(object.b)",
    "duration(object.a) + duration(object.b) > duration(object.c)",
    "object.?a.?b.optMap(x, x.?c.orValue(x)).hasValue()",
    "format.named(object.a).value().validate(object.b)",
    "object.a + object.b - object.c * object.a / object.b % object.c",
];

static PROGRAMS: LazyLock<(Scope, Vec<Program>)> = LazyLock::new(|| {
    let scope = Scope::new(&["object"]);
    let compile = |source: &&str| Program::compile(source, &scope).expect("the expressions compile");
    let programs = EXPRESSIONS.iter().map(compile).collect();
    (scope, programs)
});

fuzz_target!(|input: &[u8]| {
    let Ok(object) = Document::parse(input) else { return };
    let (scope, programs) = &*PROGRAMS;
    let mut activation = Activation::new(scope, Limits::default());
    activation.bind("object", Value::from(&object));
    for program in programs {
        if let Ok(value) = program.evaluate(&activation) {
            let _ = value.to_json();
        }
    }
});
