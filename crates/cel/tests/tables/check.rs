//! The static check: what Kubernetes refuses when an expression is created, in its words.

use std::thread;

use sallyport_cel::{Activation, CompileError, Limits, Program, Scope, Type, Value};
use sallyport_document::Document;
use serde_json::json;

/// The scope of a policy's expressions, with some definitions.
fn scope() -> Scope {
    let mut scope = Scope::admission();
    scope.declare_params();
    scope.declare_authorizer();
    scope.compose();
    for (name, source) in [
        ("count", "1 + 1"),
        ("names", "['a']"),
        ("any", "object.x"),
        ("maybe", "optional.of(1)"),
        ("namespace", "namespaceObject"),
    ] {
        let program = Program::compile(source, &scope).unwrap();
        scope.define(name, program);
    }
    scope
}

fn refusal(source: &str) -> CompileError {
    match Program::compile(source, &scope()) {
        Ok(program) => panic!("{source} was taken, as {}", program.result_type()),
        Err(error) => error,
    }
}

fn all_typed(rows: &[(&str, &str)]) {
    let scope = scope();
    let failed: Vec<String> = rows
        .iter()
        .filter_map(|(source, wanted)| match Program::compile(source, &scope) {
            Ok(program) if program.result_type().to_string() == *wanted => None,
            Ok(program) => Some(format!("{source}\n    wanted {wanted}, is {}", program.result_type())),
            Err(error) => Some(format!("{source}\n    wanted {wanted}, refused: {}", error.describe(source))),
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each is refused with these problems, one a line.
fn all_refused(rows: &[(&str, &str)]) {
    let failed: Vec<String> = rows
        .iter()
        .filter_map(|(source, wanted)| {
            let problems = match Program::compile(source, &scope()) {
                Ok(program) => format!("taken, as {}", program.result_type()),
                Err(error) => {
                    let problems = error.problems().into_iter();
                    let lines = problems.map(|it| format!("{}:{}: {}", it.line, it.column, it.message));
                    lines.collect::<Vec<_>>().join("\n")
                }
            };
            (problems != *wanted).then(|| format!("{source}\n  wanted {wanted}\n  gave   {problems}"))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn results_have_types() {
    all_typed(&[
        ("1 + 2", "int"),
        ("object.x + 1", "int"),
        ("object.x + object.y", "dyn"),
        ("object.x < 1 || object.flag", "bool"),
        ("1 < 1.5 && 1u >= 1", "bool"),
        ("object.spec.flag", "dyn"),
        ("object.spec.flag == true", "bool"),
        ("[]", "list(dyn)"),
        ("{}", "map(dyn, dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ("{'a': [1], 'b': []}", "map(string, list(int))"),
        ("[1].map(x, {'a': x})", "list(map(string, int))"),
        ("object.items.map(i, i.name)", "list(dyn)"),
        ("[1, 2].filter(x, x > 1)", "list(int)"),
        ("{'a': 1}.map(k, k)", "list(string)"),
        ("[1].exists_one(x, x == 1)", "bool"),
        ("['a'].transformMap(i, v, v)", "map(int, string)"),
        ("['a'].transformMapEntry(i, v, {v: i})", "map(string, int)"),
        ("{'a': 1}.transformList(k, v, v > 0, k)", "list(string)"),
        ("[2, 1].sortBy(x, -x)", "list(int)"),
        ("object.sortBy(x, x.a)", "dyn"),
        ("object.?a.b", "optional_type(dyn)"),
        ("request.?name", "optional_type(string)"),
        ("request.?name.orValue('')", "string"),
        ("optional.of(1).optMap(x, string(x))", "optional_type(string)"),
        ("optional.of([1]).optFlatMap(x, x[?0])", "optional_type(int)"),
        ("optional.none().orValue(1)", "int"),
        ("[?object.?a, object.b]", "list(dyn)"),
        ("true ? null : request", "null_type"),
        ("true ? [] : [1]", "list(int)"),
        ("type(1)", "type(int)"),
        ("int", "type(int)"),
        ("net.IP", "type(net.IP)"),
        ("null", "null_type"),
        ("duration('1s') + duration('1s')", "google.protobuf.Duration"),
        ("timestamp(0) - timestamp(0)", "google.protobuf.Duration"),
        ("quantity('1').add(1)", "kubernetes.Quantity"),
        ("cidr('10.0.0.0/8').ip()", "net.IP"),
        ("url('https://a').getQuery()", "map(string, list(string))"),
        ("[[1], [2]].flatten()", "list(int)"),
        ("[object.a].min()", "dyn"),
        ("'%s %d'.format(['a', 1])", "string"),
        ("lists.range(3).first()", "optional_type(int)"),
        ("format.named('uuid').value().validate('x')", "optional_type(list(string))"),
    ]);
}

#[test]
fn variables_of_admission_have_their_declared_types() {
    all_typed(&[
        ("request.kind.group", "string"),
        ("request.requestResource.resource", "string"),
        ("request.userInfo.extra['a'][0]", "string"),
        ("request.userInfo.groups", "list(string)"),
        ("request.dryRun", "bool"),
        ("request.options.a.b", "dyn"),
        ("namespaceObject.metadata.labels['a']", "string"),
        ("namespaceObject.metadata.labels.a", "string"),
        ("namespaceObject.metadata.UID", "string"),
        ("namespaceObject.metadata.creationTimestamp", "google.protobuf.Timestamp"),
        ("namespaceObject.status.conditions.map(c, c.lastTransitionTime)", "list(google.protobuf.Timestamp)"),
        ("object.a.b", "dyn"),
        ("params", "dyn"),
        ("variables.count", "int"),
        ("variables.names", "list(string)"),
        ("variables.any", "dyn"),
        // Only types that JSON has are known of a definition.
        ("variables.maybe", "dyn"),
        ("variables.namespace", "dyn"),
        ("variables.namespace.nothing", "dyn"),
    ]);
    all_refused(&[
        ("request.nothing", "1:8: undefined field 'nothing'"),
        ("has(request.nothing)", "1:4: undefined field 'nothing'"),
        ("request.name.x", "1:13: type 'string' does not support field selection"),
        (
            "request['name']",
            "1:8: found no matching overload for '_[_]' applied to '(kubernetes.AdmissionRequest, string)'",
        ),
        ("namespaceObject.metadata.uid", "1:25: undefined field 'uid'"),
        ("variables.nothing", "1:10: undefined field 'nothing'"),
        ("variables.count + 'a'", "1:17: found no matching overload for '_+_' applied to '(int, string)'"),
        (
            "request.kind == request.resource",
            "1:14: found no matching overload for '_==_' applied to '(kubernetes.GroupVersionKind, kubernetes.GroupVersionResource)'",
        ),
    ]);
}

#[test]
fn authorizers_have_their_methods() {
    all_refused(&[
        ("authorizer.nothing", "1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'"),
        (
            "authorizer.check('get')",
            "1:17: found no matching overload for 'check' applied to 'kubernetes.authorization.Authorizer.(string)'",
        ),
        (
            "authorizer.path(1)",
            "1:16: found no matching overload for 'path' applied to 'kubernetes.authorization.Authorizer.(int)'",
        ),
        (
            "authorizer.group('').check('get')",
            "1:27: found no matching overload for 'check' applied to 'kubernetes.authorization.GroupCheck.(string)'",
        ),
        (
            "authorizer.requestResource.path('/')",
            "1:32: found no matching overload for 'path' applied to 'kubernetes.authorization.ResourceCheck.(string)'",
        ),
    ]);
    all_typed(&[("authorizer.requestResource", "kubernetes.authorization.ResourceCheck")]);
    let error = Program::compile("authorizer.path('/')", &Scope::admission()).unwrap_err();
    assert_eq!(error.message, "undeclared reference to 'authorizer' (in container '')");
}

/// Upstream 29.
#[test]
fn types_that_do_not_fit_are_refused() {
    all_refused(&[
        ("1 == 1.0", "1:3: found no matching overload for '_==_' applied to '(int, double)'"),
        ("null == 1", "1:6: found no matching overload for '_==_' applied to '(null, int)'"),
        ("1 + 'a'", "1:3: found no matching overload for '_+_' applied to '(int, string)'"),
        ("!1", "1:1: found no matching overload for '!_' applied to '(int)'"),
        ("1 in ['a']", "1:3: found no matching overload for '@in' applied to '(int, list(string))'"),
        ("1 ? 2 : 'a'", "1:3: found no matching overload for '_?_:_' applied to '(int, int, string)'"),
        (
            "1 || 'a'",
            "1:1: expected type 'bool' but found 'int'\n1:6: expected type 'bool' but found 'string'",
        ),
        ("size(1)", "1:5: found no matching overload for 'size' applied to '(int)'"),
        ("'a'.contains(1)", "1:13: found no matching overload for 'contains' applied to 'string.(int)'"),
        ("[1]['a']", "1:4: found no matching overload for '_[_]' applied to '(list(int), string)'"),
        ("{'a': 1}[1]", "1:9: found no matching overload for '_[_]' applied to '(map(string, int), int)'"),
        ("[1].a", "1:4: type 'list(int)' does not support field selection"),
        ("ip('::1').a", "1:10: type 'net.IP' does not support field selection"),
        (
            "1.all(x, true)",
            "1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("[1].all(x, x)", "1:12: expected type 'bool' but found 'int'"),
        (
            "[1].filter(x, x)",
            "1:11: found no matching overload for '_?_:_' applied to '(int, list(int), list(int))'",
        ),
        (
            "{'a': 1}.all(k, v, k == v)",
            "1:22: found no matching overload for '_==_' applied to '(string, int)'",
        ),
        (
            "[1].transformMapEntry(i, v, v)",
            "1:22: found no matching overload for 'cel.@mapInsert' applied to '(map(dyn, dyn), int)'",
        ),
        (
            "[1].sortBy(x, [x])",
            "1:11: found no matching overload for '@sortByAssociatedKeys' applied to 'list(int).(list(list(int)))'",
        ),
        (
            "{'a': 1}.sortBy(k, k)",
            "1:1: sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        ),
        (
            "1.optMap(x, x)",
            "1:9: found no matching overload for 'hasValue' applied to 'int.()'\n1:9: found no matching overload for 'value' applied to 'int.()'",
        ),
        (
            "optional.of(1).optFlatMap(x, x)",
            "1:26: found no matching overload for '_?_:_' applied to '(bool, int, optional_type(dyn))'",
        ),
        ("[?1]", "1:3: expected type 'optional_type(int)' but found 'int'"),
        ("1.?a", "1:2: type 'int' does not support field selection"),
        (
            "x.y.z()",
            "1:1: undeclared reference to 'x' (in container '')\n1:6: undeclared reference to 'z' (in container '')",
        ),
        ("nothing (1)", "1:9: undeclared reference to 'nothing' (in container '')"),
        (".nothing", "1:2: undeclared reference to '.nothing' (in container '')"),
        ("dyn", "1:1: undeclared reference to 'dyn' (in container '')"),
        (
            "cel.bind(x, 1, x)",
            "1:1: undeclared reference to 'cel' (in container '')\n1:9: undeclared reference to 'bind' (in container '')\n1:10: undeclared reference to 'x' (in container '')\n1:16: undeclared reference to 'x' (in container '')",
        ),
        ("int{a: 1}", "1:4: 'int' is not a message type\n1:6: undefined field 'a'"),
        ("object{}", "1:7: 'dyn' is not a type"),
        ("a.b.C{}", "1:6: undeclared reference to 'a.b.C' (in container '')"),
    ]);
}

#[test]
fn literals_of_mixed_types_are_refused() {
    all_refused(&[
        ("[1, 'a']", "1:5: expected type 'int' but found 'string'"),
        ("[1, object.a]", "1:11: expected type 'int' but found 'dyn'"),
        ("[request, null]", "1:11: expected type 'kubernetes.AdmissionRequest' but found 'null'"),
        ("[[], 1, 'a']", "1:6: expected type 'list(dyn)' but found 'int'"),
        (
            "{'a': 1, 2: 'c'}",
            "1:10: expected type 'string' but found 'int'\n1:13: expected type 'int' but found 'string'",
        ),
        ("object.items.map(i, [i, 1])", "1:25: expected type 'dyn' but found 'int'"),
        (
            "'a' in ['a', 1] && 'x'.format([1, 'a']) == ''",
            "1:14: expected type 'string' but found 'int'\n1:30: too many arguments supplied to string.format (expected 0, got 2)",
        ),
    ]);
    all_typed(&[("'%s'.format([[1, 'a', {'x': 1, 'y': null}]])", "string")]);
}

#[test]
fn clauses_of_literal_formats_are_checked() {
    let error = "error during formatting";
    let rows = [
        ("'%d'.format(['a'])", "decimal clause can only be used on integers, was given string"),
        ("'%f'.format([1])", "fixed-point clause can only be used on doubles, was given int"),
        ("'%.3e'.format([1u])", "scientific clause can only be used on doubles, was given uint"),
        ("'%b'.format([1.0])", "only integers and bools can be formatted as binary, was given double"),
        (
            "'%X'.format([true])",
            "only integers, byte buffers, and strings can be formatted as hex, was given bool",
        ),
        ("'%o'.format([true])", "octal clause can only be used on integers, was given bool"),
    ];
    for (source, message) in rows {
        assert_eq!(refusal(source).message, format!("{error}: {message}"), "{source}");
    }
    assert!(
        refusal("'%s'.format([[1, request]])").message.ends_with("was given kubernetes.AdmissionRequest")
    );
    for optional in ["[[?optional.of(1), 2]]", "[{'a': {?'b': optional.of(1)}}]", "[?optional.of(1)]"] {
        let refused = refusal(&format!("'%s'.format({optional})"));
        assert!(refused.message.ends_with("was given optional_type"), "{optional}: {refused:?}");
    }
    for (source, message) in [
        ("'%d %d'.format([1])", "index 1 out of range"),
        ("'%'.format([1])", "unexpected end of string"),
        ("'%z'.format([1])", "could not parse formatting clause: unrecognized formatting clause \"z\""),
        ("'a%%'.format([1, 2])", "too many arguments supplied to string.format (expected 0, got 2)"),
    ] {
        assert_eq!(refusal(source).message, message, "{source}");
    }
    all_typed(&[
        ("'%d %s %f'.format([object.a, null, 'NaN'])", "string"),
        ("object.a.format([1])", "string"),
    ]);
}

/// Upstream 30.
#[test]
fn constants_are_computed_at_compile_time() {
    all_refused(&[
        ("duration('1x')", "1:10: invalid duration argument"),
        ("timestamp('yesterday')", "1:11: invalid timestamp argument"),
        ("'a'.matches('[')", "1:13: invalid matches argument"),
        // The first argument is looked at, whatever it is.
        ("matches('[', 'a')", "1:9: invalid matches argument"),
    ]);
    for (source, message) in [
        ("int('0x10')", "type conversion error from 'string' to 'int'"),
        ("true || [int('x')] == [1]", "type conversion error from 'string' to 'int'"),
        ("int(string(1.5))", "type conversion error from 'string' to 'int'"),
        ("int(1e20)", "integer overflow"),
        ("uint(-1)", "unsigned integer overflow"),
        ("object.a[null]", "invalid qualifier type: null_type"),
        ("object[?duration('1s')]", "invalid qualifier type: google.protobuf.Duration"),
    ] {
        let error = refusal(source);
        assert_eq!(error.describe(source), format!("program instantiation failed: {message}"), "{source}");
    }
    for source in ["'a'.find('[')", "'a'.findAll('[', 1)", "'a'.matches(string('['))", "matches('a', '[')"] {
        let message = refusal(source).describe(source);
        assert!(message.starts_with("program instantiation failed: invalid regular expression"), "{message}");
    }
}

#[test]
fn other_constants_fail_when_evaluated() {
    let scope = scope();
    let activation = Activation::new(&scope, Limits::default());
    for source in [
        "1 / 0",
        "quantity('x')",
        "ip('x')",
        "cidr('x')",
        "url('x')",
        "semver('x')",
        "duration('x' + 'y')",
        "'a'.matches('[' + 'a')",
        "{'a': 1, 'a': 2}",
        "{1.5: 1}",
        "[1][5]",
        "dyn([1])['a']",
        "'%d'.format([dyn('a')])",
    ] {
        let program = Program::compile(source, &scope).unwrap();
        assert!(program.evaluate(&activation).is_err(), "{source}");
    }
    for (source, value) in [
        ("{'a': int('5')}.a == 5", true),
        ("int('5') in [int('4'), 5]", true),
        ("false && int('1') == 1", false),
    ] {
        let program = Program::compile(source, &scope).unwrap();
        assert_eq!(program.evaluate(&activation).unwrap().as_bool(), Some(value), "{source}");
    }
}

/// Upstream 23, 24.
#[test]
fn patches_are_checked_as_far_as_kubernetes_does() {
    let object = [Type::apply_configuration()];
    let patches = [Type::list(Type::json_patch())];
    let scope = scope();
    let demand = |source: &str, wanted: &[Type]| {
        let program = Program::compile(source, &scope).map_err(|error| error.to_string())?;
        program.demand(wanted).map_err(|error| error.describe(source))
    };
    assert_eq!(demand("Object{spec: Object.wrong{replicas: 'x'}}", &object), Ok(()));
    assert_eq!(demand("[JSONPatch{op: 'add', path: '/a', value: 1}]", &patches), Ok(()));
    assert_eq!(demand("object.a ? [] : [JSONPatch{op: object.x}]", &patches), Ok(()));
    assert_eq!(demand("[]", &patches).unwrap_err(), "must evaluate to list(JSONPatch) but got list(dyn)");
    assert_eq!(demand("Object.spec{}", &object).unwrap_err(), "must evaluate to Object but got Object.spec");
    all_refused(&[
        ("[JSONPatch{op: 1}]", "1:14: expected type of field 'op' is 'string' but provided type is 'int'"),
        ("JSONPatch{wrong: 1}", "1:16: expected type of field 'wrong' is '' but provided type is 'int'"),
        ("[Object{}, Object.spec{}]", "1:23: expected type 'Object' but found 'Object.spec'"),
    ]);
    let mut validation = Scope::admission();
    validation.forbid_patches();
    for source in ["Object{}", "JSONPatch{}", "jsonpatch.escapeKey('a')", "Object.spec{}"] {
        let error = Program::compile(source, &validation).unwrap_err();
        assert!(error.message.starts_with("undeclared reference to"), "{source}: {error}");
    }
}

#[test]
fn results_are_demanded() {
    let scope = scope();
    let demand = |source: &str, wanted: &[Type]| {
        let program = Program::compile(source, &scope).unwrap();
        program.demand(wanted).map_err(|error| error.describe(source))
    };
    assert_eq!(demand("object.a == 1", &[Type::Bool]), Ok(()));
    let error = demand("object.spec.flag", &[Type::Bool]).unwrap_err();
    assert_eq!(error, "must evaluate to bool but got dyn");
    let annotation = [Type::String, Type::Null];
    assert_eq!(demand("null", &annotation), Ok(()));
    let error = demand("object.a", &annotation).unwrap_err();
    assert_eq!(error, "must evaluate to one of [string null_type] but got dyn");
    assert_eq!(demand("object.a", &[Type::Dyn]), Ok(()));
}

#[test]
fn errors_are_described_as_kubernetes_does() {
    let source = "object.a ==\n\t'é' + 1 && 'ü' == nothing";
    assert_eq!(
        refusal(source).describe(source),
        "compilation failed: ERROR: <input>:2:6: found no matching overload for '_+_' applied to '(string, int)'\n \
         |  'é' + 1 && 'ü' == nothing\n \
         | ..\u{ff0e}..^\n\
         ERROR: <input>:2:20: undeclared reference to 'nothing' (in container '')\n \
         |  'é' + 1 && 'ü' == nothing\n \
         | ..\u{ff0e}..........\u{ff0e}.....^"
    );
    let source = "'ü' == nothing";
    let first = refusal(source);
    assert_eq!((first.line, first.column, first.problems().len()), (1, 8, 1));
}

#[test]
fn the_number_of_problems_is_bounded() {
    let source = format!("[{}]", vec!["x"; 1000].join(","));
    assert_eq!(refusal(&source).problems().len(), 100);
}

/// The declared type says what compiles, the value what is computed.
#[test]
fn results_do_not_depend_on_declared_types() {
    let mut scope = Scope::default();
    scope.declare("text", Type::String);
    let program = Program::compile("text + text", &scope).unwrap();
    assert_eq!(program.result_type(), &Type::String);
    let mut activation = Activation::new(&scope, Limits::default());
    let rows = [(json!("a"), json!("aa")), (json!(1), json!(2)), (json!([1]), json!([1, 1]))];
    let rows = rows.map(|(value, sum)| (Document::of(&value).unwrap(), sum));
    for (value, sum) in &rows {
        activation.bind("text", Value::from(value));
        assert_eq!(program.evaluate(&activation).unwrap().to_json().unwrap(), *sum);
    }
}

/// The check recurses as deep as the tree nests and shares no stack with a thread of its own; types that are
/// exponentially large when written out end it.
#[test]
fn the_check_fits_a_small_stack_and_ends() {
    let run = || {
        let scope = scope();
        for (source, wanted) in [
            (format!("{}1{}", "[".repeat(90), "]".repeat(90)), None),
            (format!("1{}", " + 1".repeat(98)), None),
            (format!("[[1]]{}", ".map(x, [x])".repeat(30)), None),
            (format!("optional.of(1){}", ".optMap(x, [x])".repeat(90)), None),
            (format!("{}true{}", "[1].all(x, ".repeat(30), ")".repeat(30)), None),
            (
                format!("[1]{}", ".map(x, {x: x})".repeat(30)),
                Some("the types of the expression are too large"),
            ),
            (format!("{}1{}", "[".repeat(120), "]".repeat(120)), Some("")),
        ] {
            let began = std::time::Instant::now();
            match (Program::compile(&source, &scope), wanted) {
                (Ok(_), None) => {}
                (Err(error), Some(wanted)) if error.message.contains(wanted) => {}
                (other, _) => panic!("{source}: {other:?}"),
            }
            assert!(began.elapsed().as_secs() < 5, "{source}");
        }
    };
    thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn types_of_definitions_stay_small() {
    let mut scope = scope();
    scope.define("x0", Program::compile("[1]", &scope).unwrap());
    for level in 1..200 {
        let program = Program::compile(&format!("[variables.x{}]", level - 1), &scope).unwrap();
        scope.define(&format!("x{level}"), program);
    }
    let program = Program::compile("variables.x199", &scope).unwrap();
    assert!(program.result_type().to_string().len() < 200);
}
