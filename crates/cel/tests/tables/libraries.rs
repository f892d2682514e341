//! The libraries.

use serde_json::json;

use crate::{all_fail, all_true, run};

#[test]
fn conversions() {
    all_true(&[
        "int('42') == 42 && int('-1') == -1 && int(3.9) == 3 && int(-3.9) == -3 && int(5u) == 5",
        "int(timestamp('1970-01-01T00:01:00Z')) == 60",
        "uint('7') == 7u && uint(7) == 7u && uint(7.9) == 7u",
        "double('1.5') == 1.5 && double(2) == 2.0 && double(2u) == 2.0",
        "string(1) == '1' && string(1u) == '1' && string(true) == 'true' && string('a') == 'a'",
        "string(1.5) == '1.5' && string(2.0) == '2' && string(123.456) == '123.456' && string(-0.0045) == '-0.0045'",
        "string(1000000.0) == '1e+06' && string(0.00001) == '1e-05' && string(1.5e300) == '1.5e+300'",
        "string(b'abc') == 'abc' && bytes('abc') == b'abc'",
        "string(duration('90m')) == '5400s' && string(duration('1.5s')) == '1.5s'",
        "string(timestamp('2023-01-02T03:04:05.5+01:00')) == '2023-01-02T03:04:05.5+01:00'",
        "bool('true') && !bool('F') && bool(true)",
        "'é'.size() == 1 && size('héllo') == 5 && size(b'é') == 2 && size([1]) == 1 && size({'a': 1}) == 1",
        "object.metadata.labels.size() == 2 && size(object.spec.containers) == 3",
    ]);
    all_fail(&[
        ("int('x')", "type conversion error from 'string' to 'int'"),
        ("int('0x10')", "type conversion error"),
        ("int(1e20)", "integer overflow"),
        ("int(double('NaN'))", "integer overflow"),
        ("uint(-1)", "unsigned integer overflow"),
        ("uint(-0.5)", "unsigned integer overflow"),
        ("bool('yes')", "type conversion error"),
        ("string(b'\\xff')", "type conversion error"),
        ("string(dyn([1]))", "no such overload: string(list)"),
        ("size(dyn(1))", "no such overload: size"),
    ]);
}

#[test]
fn time() {
    all_true(&[
        "duration('1h30m') == duration('90m') && duration('-1.5s') < duration('0')",
        "(duration('1ns') - duration('2562047h')).getHours() == -2562047", // as Go's doubles have it
        "duration('1h').getMinutes() == 60 && duration('90s').getMinutes() == 1 && duration('1500ms').getSeconds() == 1",
        "duration('-1500ms').getMilliseconds() == -1500 && duration('1us') == duration('1000ns')",
        "duration('1h') + duration('1m') == duration('61m') && duration('1h') - duration('1m') == duration('59m')",
        "timestamp('2024-02-29T12:30:15.250Z').getFullYear() == 2024",
        "timestamp('2024-02-29T12:30:15Z').getMonth() == 1 && timestamp('2024-02-29T12:30:15Z').getDate() == 29",
        "timestamp('2024-02-29T12:30:15Z').getDayOfMonth() == 28 && timestamp('2024-02-29T12:30:15Z').getDayOfYear() == 59",
        "timestamp('2024-02-29T12:30:15Z').getDayOfWeek() == 4 && timestamp('2024-02-29T12:30:15Z').getHours() == 12",
        "timestamp('2024-02-29T12:30:15Z').getMinutes() == 30 && timestamp('2024-02-29T12:30:15Z').getSeconds() == 15",
        "timestamp('2024-02-29T12:30:15.250Z').getMilliseconds() == 250",
        "timestamp('2024-07-01T12:00:00Z').getHours('America/New_York') == 8",
        "timestamp('2024-01-01T12:00:00Z').getHours('US/Eastern') == 7",
        "timestamp('2024-07-01T23:00:00Z').getDate('Asia/Kolkata') == 2",
        "timestamp('9999-12-31T23:59:59Z').getDate('Pacific/Kiritimati') == 1",
        "timestamp('0001-01-01T00:00:00Z').getFullYear('America/New_York') == 0",
        "timestamp('0001-01-01T00:00:00Z').getMinutes('America/New_York') == 3",
        "timestamp('2050-07-01T00:00:00Z').getHours('Europe/Berlin') == 2 && timestamp(0).getHours('CET') == 1",
        "timestamp('2024-02-29T12:30:15Z').getHours('-07:00') == 5 && timestamp('2024-02-29T12:30:15Z').getHours('02:30') == 15",
        "timestamp('2024-01-01T00:00:00Z') + duration('24h') == timestamp('2024-01-02T00:00:00Z')",
        "timestamp('2024-01-02T00:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('24h')",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-01T00:00:00.001Z')",
    ]);
    all_fail(&[
        ("duration('1' + 'x')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("duration('' + '')", "type conversion error"),
        ("duration('' + '1')", "type conversion error"),
        ("duration('' + 'é')", "type conversion error"),
        ("timestamp('' + 'yesterday')", "type conversion error"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("timestamp('0001-01-01T00:00:00Z') - duration('1s')", "timestamp overflow"),
        ("timestamp('9999-12-31T00:00:00Z') - timestamp('0001-01-01T00:00:00Z')", "integer overflow"),
        ("timestamp(0).getHours('Nowhere/Land')", "unknown time zone"),
        ("timestamp(0).getHours('europe/berlin')", "unknown time zone"),
        ("dyn(duration('1h')).getDate()", "no such overload"),
    ]);
    assert_eq!(run("timestamp('2024-01-01T00:00:00Z')"), Ok(json!("2024-01-01T00:00:00Z")));
}

#[test]
fn strings() {
    all_true(&[
        "'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo')",
        "'héllo'.charAt(1) == 'é' && 'héllo'.charAt(5) == ''",
        "'héllo'.indexOf('l') == 2 && 'hello'.indexOf('x') == -1 && 'hello'.indexOf('l', 3) == 3",
        "'héllo'.lastIndexOf('l') == 3 && 'hello'.lastIndexOf('l', 2) == 2 && 'hello'.indexOf('') == 0",
        "'bananananana'.lastIndexOf('nana', 7) == 6 && 'hello'.lastIndexOf('') == 5",
        "'abc'.indexOf('a', 9) == -1 && ''.indexOf('a', 0) == -1 && 'abc'.lastIndexOf('a', 3) == -1 && 'abc'.indexOf('', 9) == 9",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('-') == ''",
        "'HeLLo É'.lowerAscii() == 'hello É' && 'hello é'.upperAscii() == 'HELLO é'",
        "'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 2) == 'bba' && 'aaa'.replace('a', 'b', 0) == 'aaa'",
        "'ab'.replace('', '-') == '-a-b-' && 'aaa'.replace('a', 'b', -1) == 'bbb'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
        "'a,b'.split(',', 0) == [] && 'a,b'.split(',', 1) == ['a,b'] && 'aé'.split('') == ['a', 'é']",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'abc'.substring(3) == ''",
        "'  a '.trim() == 'a'",
        "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
    ]);
    all_fail(&[
        ("'abc'.charAt(4)", "index out of range: 4"),
        ("'abc'.charAt(-1)", "index out of range: -1"),
        ("'abc'.substring(4)", "index out of range: 4"),
        ("'abc'.substring(2, 1)", "invalid substring range"),
        ("'abc'.indexOf('a', -1)", "index out of range: -1"),
        ("'abc'.lastIndexOf('a', -1)", "index out of range: -1"),
        ("'abc'.contains(dyn(1))", "no such overload"),
        ("dyn([1]).join()", "no such overload"),
    ]);
}

#[test]
fn formatting() {
    all_true(&[
        "'%s is %d years, %d%%'.format(['x', 4, 5u]) == 'x is 4 years, 5%'",
        "'%.3f'.format([1.2345]) == '1.234' && '%f'.format([-1234567.891]) == '-1,234,567.891000'",
        "'%e'.format([1234.5]) == '1.234500×10⁰³' && '%.16e'.format([0.00015]) == '  1.500000×10⁻⁰⁴'",
        "'%b %o %x %X'.format([5, 8, 255, 255]) == '101 10 ff FF' && '%x'.format(['hi']) == '6869'",
        "'%b'.format([true]) == '1' && '%x'.format([-255]) == '-ff'",
        "'%s'.format([[1, 'a', {'k': null, 'b': 1.5}]]) == '[1, \"a\", {\"b\":1.500000, \"k\":null}]'",
        "'%s %s'.format([object.metadata.labels, duration('1m')]) == '{\"app\":\"web\", \"tier\":\"front\"} 60s'",
        "'%s'.format([object.spec.ratio]) == '3' && '%s'.format([int]) == 'int'",
    ]);
    // Upstream 35: `%d` refuses doubles.
    all_fail(&[
        ("'%d'.format([1.5])", "decimal clause can only be used on integers"),
        ("'%s'.format([])", "index 0 out of range"),
        ("'%'.format([1])", "unexpected end of string"),
        ("'%y'.format([1])", "unrecognized formatting clause \"y\""),
        ("'%.99999f'.format([1.0])", "invalid precision"),
    ]);
}

#[test]
fn lists_and_sets() {
    all_true(&[
        "[1, 2, 2].isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted() && [].isSorted()",
        "[1, 2, 3].sum() == 6 && [1.5, 1.5].sum() == 3.0 && [].sum() == 0 && [duration('1m'), duration('1s')].sum() == duration('61s')",
        "[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && ['b', 'a'].min() == 'a'",
        "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(9) == -1",
        "object.spec.containers.map(c, c.name).indexOf('b') == 1",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == []",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && [[[1]], [[2], [3]]].flatten(2) == [1, 2, 3]",
        "dyn([dyn(1), dyn([2, 3])]).flatten() == [1, 2, 3]",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [].sort() == []",
        "object.spec.containers.sortBy(c, c.image).map(c, c.name) == ['c', 'a', 'b']",
        "[dyn(1), dyn(2), dyn(1), dyn(1.0)].distinct() == [1, 2] && [1, 2].reverse() == [2, 1]",
        "lists.range(3) == [0, 1, 2] && lists.range(0) == []",
        "sets.contains([1, 2, 3], [3, 1]) && !sets.contains([1], [2]) && sets.contains([], [])",
        "sets.equivalent([1, 2, 2], [2, 1]) && !sets.equivalent([1], [1, 2])",
        "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && !sets.intersects([], [1])",
    ]);
    all_fail(&[
        ("[].min()", "min called on empty list"),
        ("dyn(['a']).sum()", "no such overload"),
        ("[dyn(1), dyn('a')].sort()", "list elements must have the same type"),
        ("dyn([[1]]).sort()", "list elements must be comparable"),
        ("double('NaN') < 1.0", "NaN values cannot be ordered"),
        ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
        ("[1].slice(-1, 2)", "cannot slice(-1, 2), negative indexes not supported"),
        ("[1].slice(1, 0)", "cannot slice(1, 0), start index must be less than or equal to end index"),
        ("lists.range(100001)", "too large"),
        ("dyn([1]).flatten(-1)", "level must be non-negative"),
        ("sets.contains(dyn(1), [])", "no such overload"),
    ]);
}

#[test]
fn patterns() {
    all_true(&[
        "'registry.example.com/a'.matches('^registry[.]example[.]com/') && matches('abc', 'b')",
        "object.spec.containers.exists(c, c.image.matches('^docker' + '[.]io/'))",
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
        "'1 22 333'.findAll('[0-9]+') == ['1', '22', '333'] && '1 22 333'.findAll('[0-9]+', 2) == ['1', '22']",
        "'1 2'.findAll('[0-9]', 0) == [] && 'a'.findAll('[0-9]') == [] && '1 2'.findAll('[0-9]', -1) == ['1', '2']",
        "'1 2'.findAll('[0-9' + ']', 1) == ['1']",
    ]);
    all_fail(&[
        ("'a'.matches('(' + 'x')", "invalid regular expression: unclosed group"),
        ("'a'.matches(dyn(1))", "no such overload"),
        ("dyn(1).matches('a')", "no such overload"),
        ("'a'.find('a', 1)", "found no matching overload"),
        ("'a'.matches('(a{300}){300}')", "1:13: invalid matches argument"),
    ]);
}

#[test]
fn values_as_json() {
    assert_eq!(run("object.metadata.labels"), Ok(json!({"app": "web", "tier": "front"})));
    assert_eq!(
        run("{dyn(1): dyn(b'\\x00\\xff'), dyn('d'): dyn(duration('1s')), dyn(true): dyn(5u)}"),
        Ok(json!({"1": "AP8=", "d": "1s", "true": 5}))
    );
    all_fail(&[("double('NaN')", "cannot be written as JSON"), ("int", "cannot be written as JSON")]);
}
