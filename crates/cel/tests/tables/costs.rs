//! The API server's costs, to the last unit: each figure was seen there.

use sallyport_cel::{Activation, Budget, EvalError, Limits, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::{Value as Json, json};

fn pod() -> Json {
    let digest = "0123456789abcdef".repeat(4);
    json!({
        "kind": "Pod",
        "metadata": {"name": "checkout-7c9f8d6b5-x2v4k", "labels": {"app": "checkout", "team": "payments"}},
        "spec": {"containers": [
            {"name": "checkout", "image": format!("registry.example.com/shop/checkout:2.14.3@sha256:{digest}")},
            {"name": "envoy", "image": "registry.example.com/mesh/envoy:1.33.0"},
            {"name": "log-shipper", "image": "registry.example.com/obs/fluent-bit:3.2.1"}
        ]}
    })
}

/// What evaluating costs, whether it gives a value or not.
fn cost(source: &str) -> u64 {
    let scope = Scope::new(&["object"]);
    let program = Program::compile(source, &scope).unwrap_or_else(|error| panic!("{source}: {error}"));
    let object = Document::of(&pod()).unwrap();
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    let _ = program.evaluate(&activation);
    activation.cost()
}

#[test]
fn costs_are_those_of_the_api_server() {
    let rows: &[(&str, u64)] = &[
        // Places, with one for the variable and one for each step; a branch and an index cost their steps only.
        ("object.metadata.name", 3),
        ("has(object.metadata.labels)", 2),
        ("has(object.metadata.labels) && object.metadata.name == 'x'", 6),
        ("true ? object.metadata.name : 'b'", 2),
        ("(true ? object.metadata : object.spec).name", 2),
        ("has((true ? object.metadata : object.spec).name)", 1),
        ("object.spec.containers[0].name", 5),
        ("object.metadata.labels[object.kind]", 5),
        ("object.metadata.labels['a' + 'b']", 5),
        ("object.nope.x", 2),
        ("has(object.nope.x)", 1),
        // Optional steps that lead nowhere cost nothing.
        ("object.metadata.?labels.app", 4),
        ("object.metadata.?nope.app", 2),
        ("object.metadata.?labels[?'app'].orValue('x')", 4),
        ("object.metadata.?labels.optMap(l, l.app)", 11),
        ("object.metadata.?labels.optMap(l, 1)", 5),
        ("object.metadata.?nope.optMap(l, 1)", 4),
        ("optional.of(1u).optMap(v, v).optMap(w, w)", 16),
        ("object.metadata.?labels.optFlatMap(l, l.?app)", 10),
        // Loops.
        ("[1,2,3].map(x, x)", 40),
        ("[1,2,3].map(x, 1)", 7),
        ("[1,2,3].filter(x, x > 1)", 33),
        ("[1,2,3].all(x, x > 0)", 16),
        ("[1,2,3].all(x, x > 5)", 8),
        ("[1,2,3].exists(x, x > 1)", 16),
        ("[1,2,3].exists_one(x, x > 1)", 12),
        ("[1,2,3].transformMap(i, v, v)", 13),
        ("[1,2,3].transformMapEntry(i, v, {i: v})", 103),
        ("[1,2,3].map(x, x/0)", 43),
        ("[1,2,3].exists_one(x, x/0 == 1)", 11),
        ("object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))", 40),
        // Sorting costs the square where the types are known.
        ("[3,1,2].sortBy(x, -x)", 74),
        ("[3,1,2].sort()", 29),
        ("object.spec.containers.map(c, c.name).sort()", 47),
        ("object.spec.containers.sortBy(c, c.name)", 49),
        // Literals are made beforehand.
        ("'a' in ['a','b']", 0),
        ("'a' in []", 0),
        ("object.kind in ['Pod','b']", 2),
        ("object.kind in [object.kind]", 15),
        ("'app' in object.metadata.labels", 4),
        ("{'a': 1}['a']", 2),
        ("{'a': object}.a.kind", 34),
        ("timestamp('2020-01-01T00:00:00Z') < timestamp('2021-01-01T00:00:00Z')", 1),
        // Texts, as far as the overload shows.
        ("object.metadata.name + 'x'", 6),
        ("object.metadata.name + object.kind", 6),
        ("object.metadata.name < 'b'", 4),
        ("string(object.metadata.name)", 4),
        ("string(b'abcdefghijklmnopqrstuvwxyz' + b'')", 6),
        ("object.metadata.name.matches('^[a-z]+$')", 9),
        ("matches(object.metadata.name, '^[a-z]+$')", 4),
        ("'%s is %d'.format(['a', 1])", 1),
        ("object.kind.startsWith(object.nope)", 5),
        // Kubernetes' libraries.
        ("ip('10.0.0.1') == ip('10.0.0.1')", 3),
        ("ip('10.0.0.1') != ip('10.0.0.1')", 3),
        ("cidr('10.0.0.0/8').containsIP('10.1.1.1')", 3),
        ("cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))", 3),
        ("cidr('10.0.0.0/8').containsIP(dyn('10.1.1.1'))", 2),
        ("format.dns1123Label().validate('abc').hasValue()", 10),
        ("[[1,2],[3,4]].flatten()", 13),
        ("type(object.kind) == string", 4),
    ];
    let failed: Vec<String> = rows
        .iter()
        .map(|(source, expected)| (source, expected, cost(source)))
        .filter(|(_, expected, found)| *expected != found)
        .map(|(source, expected, found)| format!("{source}: {found}, not {expected}"))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What `has()` of a conditional costs less is taken off its own steps, of which there may be none.
#[test]
fn costs_never_go_down() {
    let free = "has((true ? object.?no : object.?no).foo)";
    assert_eq!(cost(&format!("1 == 1 && {free}")), cost("1 == 1"));
    let mapped = format!("1 == 1 && !({free} ? object.?no : object.?no).optMap(v, v).hasValue()");
    assert!(cost(&mapped) > cost("1 == 1"), "{mapped}");
    let source = format!("[optional.of(1)].all(o, ({free} ? o : o).optMap(v, v == 1).orValue(true))");
    assert!(cost(&source) < 100, "{source}: {}", cost(&source));
}

#[test]
fn an_expression_beyond_the_limit_is_an_error_and_one_at_the_limit_is_not() {
    let scope = Scope::default();
    let program = Program::compile("[1,2,3].all(x, x > 0)", &scope).unwrap();
    let limited = |cost| Activation::new(&scope, Limits { cost, ..Limits::default() });
    assert_eq!(program.evaluate(&limited(16)).unwrap().as_bool(), Some(true));
    let error = program.evaluate(&limited(15)).unwrap_err();
    assert_eq!(error, EvalError::CostExceeded);
    assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
}

#[test]
fn definitions_are_counted_apart_and_in_the_expression_that_first_uses_them() {
    let mut scope = Scope::new(&["object"]);
    scope.define("name", Program::compile("object.metadata.name", &scope).unwrap());
    let program = Program::compile("variables.name == variables.name", &scope).unwrap();
    let object = Document::of(&pod()).unwrap();
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    program.evaluate(&activation).unwrap();
    // Two for each use and three for comparing 24 characters.
    assert_eq!((activation.cost(), activation.definitions_cost()), (7, 3));
    program.evaluate(&activation).unwrap();
    assert_eq!((activation.cost(), activation.definitions_cost()), (7, 0));
}

#[test]
fn a_definition_has_the_limit_for_itself_and_its_error_can_be_absorbed() {
    let mut scope = Scope::default();
    scope.define("dear", Program::compile("[1,2,3].all(x, x > 0)", &scope).unwrap());
    let activation = Activation::new(&scope, Limits { cost: 15, ..Limits::default() });
    let evaluate = |source| Program::compile(source, &scope).unwrap().evaluate(&activation);
    let error = evaluate("variables.dear").unwrap_err();
    let expected =
        "composited variable \"dear\" fails to evaluate: operation cancelled: actual cost limit exceeded";
    assert_eq!(error.to_string(), expected);
    assert_eq!(evaluate("variables.dear || true").unwrap().as_bool(), Some(true));
}

#[test]
fn a_budget_goes_from_expression_to_expression_and_from_activation_to_activation() {
    let scope = Scope::default();
    let program = Program::compile("[1,2,3].all(x, x > 0)", &scope).unwrap();
    let first = Activation::new(&scope, Limits::default());
    first.set_budget(Budget::new(40));
    program.evaluate(&first).unwrap();
    let second = Activation::new(&scope, Limits::default());
    second.set_budget(first.budget().unwrap());
    program.evaluate(&second).unwrap();
    assert_eq!(second.budget().map(|budget| budget.left()), Some(8));
    let error = program.evaluate(&second).unwrap_err();
    assert_eq!(error, EvalError::BudgetExceeded);
    assert_eq!(
        error.to_string(),
        "validation failed due to running out of cost budget, no further validation rules will be run"
    );
    // Spent for good, even for what costs nothing.
    let free = Program::compile("true", &scope).unwrap();
    assert_eq!(free.evaluate(&second).unwrap_err(), EvalError::BudgetExceeded);
}
