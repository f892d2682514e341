//! The core language.

use serde_json::json;

use crate::{all_fail, all_true, run};

#[test]
fn literals_and_operators() {
    all_true(&[
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 / 2 == 3 && -7 / 2 == -3 && 7 % 3 == 1 && -7 % 3 == -1",
        "7.0 / 2.0 == 3.5",
        "0x10 == 16 && -0x10 == -16 && 0x1Fu == 31u",
        "--1 == 1 && !!true && -(-1) == 1",
        "1.5e3 == 1500.0",
        "'a' + \"b\" == 'ab'",
        "b'a' + b'b' == b'ab'",
        "'\\u00e9' == 'é' && r'\\d' == '\\\\d'",
        "'''x\ny''' == 'x\\ny'",
        "[1] + [2, 3] == [1, 2, 3]",
        "{'a': [1], 'b': [2]} == {'b': [2], 'a': [1]}",
        "true ? true : 1 / 0 == 1",
        "1 < 2 && 'a' < 'b' && false < true && b'a' < b'b'",
        "2 >= 2 && 2 <= 2 && !(2 > 2) && 2 != 3",
        "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && 'app' in object.metadata.labels",
        "[1, 2, 3][1] == 2 && {'a': 5}['a'] == 5 && {1: 'x'}[1] == 'x' && {true: 'x'}[true] == 'x'",
        "dyn({1: 'x'})[1u] == 'x' && dyn({1u: 'x'})[1] == 'x' && dyn({1: 'x'})[1.0] == 'x' && dyn([1, 2])[1.0] == 2",
        "9223372036854775807 == 9223372036854775807 && -9223372036854775808 < 0",
        "'ab' // a comment\n == 'ab'",
    ]);
}

#[test]
fn numbers_compare_across_their_types() {
    all_true(&[
        "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1.0) == 1u",
        "dyn(1) < 1.5 && dyn(2u) > 1.5 && dyn(-1) < 1u",
        "dyn(9007199254740993) == 9007199254740992.0",
        "dyn(9223372036854775807) == 9223372036854775808.0",
        "dyn(-1) > -1.5 && dyn(-2) < -1.5",
        "double('NaN') != double('NaN')",
        "object.spec.ratio == 3 && object.spec.replicas == 3.0 && object.spec.replicas == object.spec.ratio",
        "dyn(1) != 'a' && dyn(null) != 0 && dyn([]) != {} && dyn(true) != 1",
        "[dyn(1), dyn(2.0)] == [dyn(1.0), dyn(2)]",
        "2.0 in dyn([1, 2])",
        "dyn(1e19) in {10000000000000000000u: 1} && dyn({10000000000000000000u: 'x'})[1e19] == 'x'",
        "!(dyn(1e20) in {10000000000000000000u: 1}) && !(dyn(-1e19) in {1u: 1}) && !(dyn(1.5) in {1: 1})",
        "!(dyn(18446744073709551616.0) in {18446744073709551615u: 1})",
    ]);
}

/// Upstream 33: numbers written with a fraction stay doubles; those beyond `int` become them.
#[test]
fn numbers_of_json() {
    all_true(&[
        "type(object.spec.replicas) == int",
        "type(object.spec.ratio) == double",
        "type(object.spec.big) == double",
    ]);
    all_fail(&[
        ("object.spec.ratio + 3", "no such overload"),
        ("dyn([1])[1e19]", "unsupported index type 'double' in list"),
    ]);
}

#[test]
fn errors_of_operators() {
    all_fail(&[
        ("1 / 0", "division by zero"),
        ("1u / 0u", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("-9223372036854775808 - 1", "integer overflow"),
        ("-(-9223372036854775808)", "integer overflow"),
        ("-9223372036854775808 / -1", "integer overflow"),
        ("-9223372036854775808 % -1", "integer overflow"),
        ("1u - 2u", "unsigned integer overflow"),
        ("dyn(1) + 'a'", "no such overload"),
        ("dyn(1.0) % dyn(2.0)", "no such overload"),
        ("dyn([1]) < dyn([2])", "no such overload: _<_"),
        ("1 in dyn(2)", "no such overload"),
        ("!dyn(1)", "no such overload"),
        ("dyn(1) ? 2 : 3", "no such overload"),
        ("[1][1]", "index out of bounds: 1"),
        ("[1][-1]", "index out of bounds: -1"),
        ("dyn([1])['a']", "unsupported index type 'string' in list"),
        ("{'a': 1}['b']", "no such key: b"),
        ("{'a': 1, 'a': 2}", "repeated key: a"),
        ("{dyn(1): 1, dyn(1u): 2}", "repeated key: 1"),
        ("{1.5: 1}", "unsupported key type: double"),
        ("object.nothing", "no such key: nothing"),
        ("object.metadata.name.x", "no such key: x"),
    ]);
}

#[test]
fn logic_absorbs_errors() {
    all_true(&[
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1)",
        "!(1 / 0 == 1 && false)",
        "[0, 1].exists(x, 1 / x == 1)",
        "![0, 2].all(x, 4 / x == 1)",
        "dyn(1) || true",
    ]);
    all_fail(&[
        ("false || 1 / 0 == 1", "division by zero"),
        ("1 / 0 == 1 || false", "division by zero"),
        ("true && 1 / 0 == 1", "division by zero"),
        ("[0, 1].all(x, 1 / x == 1)", "division by zero"),
        ("[0, 2].exists(x, 1 / x == 1)", "division by zero"),
        ("[0, 1].exists_one(x, 1 / x == 1)", "division by zero"),
        ("dyn(1) || false", "no such overload"),
    ]);
}

/// Upstream 31: `has()` of a field that is null is true; of a scalar's or null's field false.
#[test]
fn presence() {
    all_true(&[
        "has(object.metadata.annotations)",
        "!has(object.metadata.annotations.x)",
        "!has(object.metadata.name.x)",
        "!has(object.spec.replicas.x)",
        "!has(object.nothing) && has({'a': 1}.a) && !has({'a': 1}.b)",
        "!has(oldObject.spec)",
        "has(object.?spec.containers) && !has(object.?nothing.containers)",
    ]);
    all_fail(&[("has(object.nothing.x)", "no such key: nothing"), ("has(object)", "1:5: ")]);
}

#[test]
fn macros() {
    all_true(&[
        "object.spec.containers.exists(c, c.name == 'a')",
        "!object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
        "object.spec.containers.exists_one(c, c.name == 'b') && [1, 2].existsOne(x, x > 1)",
        "object.spec.containers.map(c, c.name) == ['a', 'b', 'c']",
        "object.spec.containers.map(c, has(c.ports), c.name) == ['a']",
        "object.spec.containers.filter(c, c.name != 'a').size() == 2",
        "[].all(x, false) && ![].exists(x, true) && ![].exists_one(x, true)",
        "{'b': 1, 'a': 2}.map(k, k) == ['a', 'b']",
        "object.metadata.labels.map(k, k) == ['app', 'tier']",
        "object.metadata.labels.all(k, object.metadata.labels[k] != '')",
        "[[1, 2], [3]].map(l, l.map(x, x * 2)) == [[2, 4], [6]]",
        "[[1, 2], [3]].all(x, x.exists(y, y > 0 && x.size() > 0))",
        "[1, 2].map(x, [3].map(x, x)[0] + x) == [4, 5]",
        "[1].map(object, object) == [1]",
    ]);
    all_fail(&[
        ("dyn(1).all(x, true)", "got 'types.Int', expected iterable type"),
        ("[1].all(x, dyn(x))", "no such overload"),
        ("[1].all(1, true)", "must be a simple name"),
        ("[1].map(x, y)", "undeclared reference to 'y'"),
    ]);
}

#[test]
fn macros_of_two_variables() {
    all_true(&[
        "[1, 2].all(i, v, v == i + 1) && ![1, 2].all(i, v, v == i)",
        "{'a': 1}.all(k, v, k == 'a' && v == 1)",
        "[5, 6].exists(i, v, i == 1 && v == 6)",
        "object.metadata.labels.existsOne(k, v, v == 'front')",
        "[1, 2].transformList(i, v, i * v) == [0, 2]",
        "[1, 2].transformList(i, v, v > 1, i) == [1]",
        "{'x': 1}.transformList(k, v, k) == ['x']",
        "{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
        "['x', 'y'].transformMap(i, v, v) == {0: 'x', 1: 'y'}",
        "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'}",
        "object.spec.containers.transformMapEntry(i, c, c.name != 'c', {c.name: i}) == {'a': 0, 'b': 1}",
        "[[1, 2], [3]].all(i, l, l.all(j, v, v == 1 + i * 2 + j))",
    ]);
    all_fail(&[
        ("['x', 'x'].transformMapEntry(i, v, {v: i})", "repeated key: x"),
        ("[1].all(i, i, true)", "1:12: duplicate variable name: i"),
        ("[1].transformList(i)", "undeclared reference to 'transformList'"),
    ]);
}

#[test]
fn optionals() {
    all_true(&[
        "object.?metadata.?name.orValue('x') == 'web'",
        "object.?nothing.deep.deeper.orValue('x') == 'x'",
        "object.metadata[?'name'].value() == 'web' && !object.metadata[?'nothing'].hasValue()",
        "[1][?0].value() == 1 && !([1][?5].hasValue())",
        "optional.of(1).hasValue() && !optional.none().hasValue()",
        "!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue(1).value() == 1",
        "optional.none().or(optional.of(2)).value() == 2 && optional.of(1).or(optional.of(1 / 0)).value() == 1",
        "optional.of(1).orValue(1 / 0) == 1",
        "optional.of(1).optMap(x, x + 1).value() == 2 && !optional.none().optMap(x, x + 1).hasValue()",
        "optional.of([1]).optFlatMap(x, x[?0]).value() == 1",
        // Values of types that are only known when evaluated.
        "optional.of(1).optFlatMap(x, dyn(x)) == 1",
        "object.spec.replicas.orValue(1) == 3",
        "dyn(object.spec.replicas.or(optional.of(1))) == 3",
        "!object.spec.replicas.?name.hasValue()",
        "!object.metadata.annotations.?name.hasValue()",
        "type([1.0].filter(x, false).sum()) == double",
        "type([dyn(1.0)].filter(x, false).sum()) == int",
        "[?optional.none(), ?optional.of(1)] == [1]",
        "{?'a': optional.none(), 'b': 1} == {'b': 1}",
        "optional.of(1) == optional.of(1) && optional.none() != optional.of(1)",
        "object.metadata.?annotations.hasValue() && !object.metadata.annotations.?x.hasValue()",
        "optional.of({'a': 1})['a'].value() == 1 && !optional.none()['a'].hasValue()",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
    ]);
    all_fail(&[
        ("optional.none().value()", "optional.none() dereference"),
        ("{?'a': dyn(1)}", "type conversion error"),
        ("optional.of(1)", "cannot be written as JSON"),
        ("object.spec.replicas.optMap(x, x)", "no such overload: hasValue(int)"),
        ("has(object.spec.containers.name)", "unsupported index type 'string' in list"),
        ("has(object.spec.?containers.name)", "unsupported index type 'string' in list"),
        ("object.spec.containers.?name", "unsupported index type 'string' in list"),
        ("object.metadata.labels.sortBy(k, k)", "no such overload: @sortByAssociatedKeys"),
    ]);
}

#[test]
fn types() {
    all_true(&[
        "type(1) == int && type(1u) == uint && type(1.0) == double && type('') == string && type(b'') == bytes",
        "type(true) == bool && type(null) == null_type && type([]) == list && type({}) == map",
        "type(type(1)) == type && type(object) == map && type(object.spec.containers) == list",
        "type(duration('1s')) == google.protobuf.Duration",
        "type(timestamp(0)) == google.protobuf.Timestamp && type(optional.none()) == optional_type",
        "dyn(1) == 1",
    ]);
}

#[test]
fn structs_of_patches() {
    assert_eq!(
        run("Object{spec: Object.spec{replicas: 1, ?x: optional.none()}, metadata: {'a': 'b'}}"),
        Ok(json!({"spec": {"replicas": 1}, "metadata": {"a": "b"}}))
    );
    assert_eq!(
        run(
            "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('x/y~z'), value: Object.a{b: [dyn(1), dyn('c')]}}]"
        ),
        Ok(json!([{"op": "add", "path": "/a/x~1y~0z", "value": {"b": [1, "c"]}}]))
    );
    all_true(&[
        "Object{a: 1}.a == 1 && has(Object{a: 1}.a) && !has(Object{a: 1}.b)",
        "Object{a: 1} == Object{a: 1} && Object{a: 1} != Object{a: 2}",
        "JSONPatch{op: 'remove', path: '/a'}.op == 'remove'",
    ]);
    all_fail(&[
        ("JSONPatch{op: 'add', path: '/a', wrong: 1}", "expected type of field 'wrong'"),
        ("Pod{a: 1}", "undeclared reference to 'Pod'"),
        ("Object{a: 1, a: 2}", "repeated field 'a'"),
    ]);
}

#[test]
fn compile_errors_have_a_place() {
    let rows = [
        ("object.a +", "1:11: syntax error"),
        ("1 +\n  nothing", "2:3: undeclared reference to 'nothing'"),
        ("'é' + nothing", "1:7: undeclared reference to 'nothing'"),
        ("nothing(1)", "1:8: undeclared reference to 'nothing'"),
        ("object.spec.nothing(1)", "1:20: undeclared reference to 'nothing'"),
        ("'a'.contains()", "1:13: found no matching overload for 'contains' applied to 'string.()'"),
        ("size(1, 2)", "1:5: found no matching overload for 'size' applied to '(int, int)'"),
        ("'a'.matches('(')", "1:13: invalid matches argument"),
        ("variables.x", "1:1: undeclared reference to 'variables'"),
        ("variables", "1:1: undeclared reference to 'variables'"),
        ("cel.bind(x, 1, x)", "undeclared reference"),
        ("'abc'.reverse()", "1:14: found no matching overload for 'reverse' applied to 'string.()'"),
        ("a b", "1:3: syntax error"),
        ("", "1:1: syntax error"),
        ("object.`x-y`", "1:8: syntax error"),
        ("[1, 2", "syntax error"),
        ("'unterminated", "1:1: syntax error"),
        ("math.greatest(1, 2)", "undeclared reference"),
        ("base64.encode(b'a')", "undeclared reference"),
    ];
    all_fail(&rows);
}

/// Asked for with `[?…]`, what a map cannot have is missing; what is no key at all is an error, as in Kubernetes.
#[test]
fn optional_keys_that_are_no_keys_are_errors() {
    all_fail(&[
        ("object[?object.metadata]", "no such overload"),
        ("object[?object.spec.containers]", "no such overload"),
        ("object[?dyn(quantity('1'))]", "no such overload"),
        ("dyn(null)[?dyn(optional.of('a'))]", "no such overload"),
    ]);
}
