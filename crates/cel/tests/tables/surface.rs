//! Scopes, activations, definitions and values.

use std::thread;

use sallyport_cel::{Activation, EvalError, Limits, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::json;

#[test]
fn definitions_are_evaluated_once_and_only_when_used() {
    let mut scope = Scope::new(&["object"]);
    let define = |scope: &mut Scope, name: &str, source: &str| {
        let program = Program::compile(source, scope).unwrap();
        scope.define(name, program);
    };
    define(&mut scope, "names", "object.items.map(i, i.name)");
    define(&mut scope, "count", "variables.names.size()");
    define(&mut scope, "broken", "object.nothing");
    let program = Program::compile("variables.count == 1000", &scope).unwrap();
    let items: Vec<_> = (0..1000).map(|i| json!({"name": i.to_string()})).collect();
    let object = Document::of(&json!({"items": items})).unwrap();

    // Enough for the first evaluation, which goes through the list, and hardly more.
    let mut activation = Activation::new(&scope, Limits { steps: 6_000, ..Limits::default() });
    activation.bind("object", Value::from(&object));
    assert_eq!(program.evaluate(&activation).unwrap().as_bool(), Some(true));
    let again =
        Program::compile("[1, 2, 3, 4, 5, 6, 7, 8].all(i, variables.names.size() == 1000)", &scope).unwrap();
    assert_eq!(again.evaluate(&activation).unwrap().as_bool(), Some(true), "the result was not kept");

    for source in ["variables.broken", "variables.broken", "has(variables.broken)"] {
        let error = Program::compile(source, &scope).unwrap().evaluate(&activation).unwrap_err();
        let expected = "composited variable \"broken\" fails to evaluate: no such key: nothing";
        assert_eq!(error.to_string(), expected, "{source}");
    }
}

#[test]
fn rebinding_keeps_definitions_and_later_scopes_keep_programs() {
    let mut scope = Scope::new(&["object"]);
    let early = Program::compile("object.a", &scope).unwrap();
    scope.define("twice", Program::compile("object.a * 2", &scope).unwrap());
    let slot = scope.variable("item");
    assert_eq!(scope.variable("item"), slot);
    let program = Program::compile("variables.twice + item", &scope).unwrap();
    let object = Document::of(&json!({"a": 2})).unwrap();
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    assert_eq!(program.evaluate(&activation).unwrap_err(), EvalError::Unbound("item".to_owned()));
    for item in 0..3 {
        activation.bind("item", Value::int(item));
        assert_eq!(program.evaluate(&activation).unwrap().as_int(), Some(4 + item));
    }
    assert_eq!(early.evaluate(&activation).unwrap().as_int(), Some(2));
    activation.bind("unknown", Value::null());
}

#[test]
fn a_later_definition_hides_an_earlier_one() {
    let mut scope = Scope::new(&[]);
    scope.define("x", Program::compile("1", &scope).unwrap());
    let first = Program::compile("variables.x", &scope).unwrap();
    scope.define("x", Program::compile("variables.x + 1", &scope).unwrap());
    let second = Program::compile("variables.x", &scope).unwrap();
    let activation = Activation::new(&scope, Limits::default());
    assert_eq!(first.evaluate(&activation).unwrap().as_int(), Some(1));
    assert_eq!(second.evaluate(&activation).unwrap().as_int(), Some(2));
}

#[test]
fn uses_sees_through_definitions_and_not_into_macro_variables() {
    let mut scope = Scope::new(&["object", "oldObject", "request"]);
    scope.define("old", Program::compile("oldObject.a", &scope).unwrap());
    let program =
        Program::compile("[1].all(request, request > 0 && variables.old == object.a)", &scope).unwrap();
    assert!(program.uses("object") && program.uses("oldObject"));
    assert!(!program.uses("request") && !program.uses("params"));
}

#[test]
fn values_borrow_from_the_json_alone() {
    let object = Document::of(&json!({"list": ["a", "b"], "null": null})).unwrap();
    let names: Vec<Value<'_>> = {
        let scope = Scope::new(&["object"]);
        let program = Program::compile("object.list", &scope).unwrap();
        let mut activation = Activation::new(&scope, Limits::default());
        activation.bind("object", Value::from(&object));
        program.evaluate(&activation).unwrap().as_list().unwrap().collect()
    };
    assert_eq!(names.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(names[0], Value::str("a"));
    assert_ne!(names[0], Value::string("b"));
    assert!(Value::null().is_null() && Value::bool(true).as_bool() == Some(true));
    assert_eq!(Value::from(&object).type_name(), "map");
    assert!(Value::from(&object).as_list().is_none() && Value::int(1).as_str().is_none());
}

#[test]
fn programs_cross_threads() {
    let scope = Scope::new(&[]);
    let program = Program::compile("1 + 1", &scope).unwrap();
    let inside = program.clone();
    let result =
        thread::spawn(move || inside.evaluate(&Activation::new(&scope, Limits::default())).unwrap().as_int());
    assert_eq!(result.join().unwrap(), Some(2));
    assert_eq!(program.source(), "1 + 1");
}

#[test]
fn a_program_of_another_scope_is_an_error_not_a_panic() {
    let mut scope = Scope::new(&["a", "b"]);
    scope.define("x", Program::compile("1", &scope).unwrap());
    let activation = Activation::new(&Scope::default(), Limits::default());
    for source in ["b", "variables.x"] {
        let program = Program::compile(source, &scope).unwrap();
        assert!(matches!(program.evaluate(&activation), Err(EvalError::Unbound(_))), "{source}");
    }
}

#[test]
fn compile_errors_show_their_place_first() {
    let error = Program::compile("1 +\n nothing", &Scope::default()).unwrap_err();
    assert_eq!((error.line, error.column), (2, 2));
    assert_eq!(error.to_string(), "2:2: undeclared reference to 'nothing' (in container '')");
}

#[test]
fn values_can_be_taken_apart() {
    let object = Document::of(&json!({"b": 1, "a": [2.5]})).unwrap();
    let scope = Scope::new(&["object"]);
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    let value = |source: &str| Program::compile(source, &scope).unwrap().evaluate(&activation).unwrap();
    for (source, names) in
        [("object", ["a", "b"]), ("{'b': 1, 'a': 2}", ["a", "b"]), ("Object{y: 1, x: object}", ["y", "x"])]
    {
        let entries = value(source).as_map().unwrap();
        let found: Vec<_> = entries.iter().map(|(name, _)| name.as_str().unwrap()).collect();
        assert_eq!(found, names, "{source}");
    }
    let keys: Vec<_> =
        value("{dyn(2): 'b', dyn(1u): 'a'}").as_map().unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [Value::int(1), Value::int(2)]);

    assert_eq!(value("object.a[0]").as_double(), Some(2.5));
    assert_eq!(value("optional.none()").as_optional(), Some(None));
    assert_eq!(value("optional.of(1)").as_optional(), Some(Some(Value::int(1))));
    assert_eq!(value("type(object)").as_type(), Some("map"));
    assert_eq!(value("quantity('0.5Ki')").to_text().as_deref(), Some("512"));

    let one = Value::int(1);
    assert!(one.as_map().is_none() && one.as_optional().is_none() && one.to_text().is_none());
    assert_eq!((one.as_double(), one.as_type()), (None, None));
}
