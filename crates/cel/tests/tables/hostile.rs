//! Expressions that ask for as much work as they can, over large objects. Whatever they ask for, the limits on cost,
//! steps and bytes must end them.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use sallyport_cel::{Activation, EvalError, Limits, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::{Value as Json, json};

use crate::bounds::{SOON, STACK_BYTES, expressions};

/// How long one expression may take, compiled with optimisation.
const AIM: Duration = Duration::from_millis(50);

/// As large as reviews get: texts of a mebibyte, long lists, wide maps, deep nesting.
fn object() -> Document<'static> {
    let numbers: Vec<u32> = (0..20_000).collect();
    let names: Vec<Json> = (0..5_000).map(|i| json!({"name": format!("n{i}"), "value": "x"})).collect();
    let map: serde_json::Map<String, Json> = (0..20_000).map(|i| (format!("key{i}"), json!(i))).collect();
    let mut deep = json!(["leaf"]);
    for level in 0..100 {
        deep = json!({"a": deep, "b": [level, level], "c": "text"});
    }
    let mut random = fastrand::Rng::with_seed(1);
    let random: String = (0..1 << 20).map(|_| if random.bool() { 'a' } else { 'b' }).collect();
    // Equal in all that a fingerprint sees.
    let key = |letter: char| format!("{}{letter}k", "k".repeat(30_000));
    let alike: serde_json::Map<String, Json> =
        ('A'..='Z').chain('a'..='f').map(|letter| (key(letter), json!(1))).collect();
    let object = json!({
        "zeros": "0".repeat(1 << 20), "random": random, "alike": alike, "key": key('0'),
        "version": format!("1.0.0-{}", "a.".repeat(10_000) + "a"), "url": format!("http://{}", "h".repeat(20_000)),
        "quantity": "9".repeat(1_000), "pattern": "x".repeat(4_096), "sets": "[!-\u{10ffff}]".repeat(500),
        "text": "a".repeat(1 << 20), "digits": "9".repeat(1 << 20), "wide": "é".repeat(1 << 19),
        "numbers": numbers, "names": names, "map": map, "deep": deep,
        "words": (0..20_000).map(|i| format!("word{i}")).collect::<Vec<_>>(),
    });
    Document::of(&object).unwrap()
}

/// Each is repeated until a limit ends it.
const REPEATED: &[&str] = &[
    // Comparing.
    "object.numbers == object.numbers",
    "object.map == object.map",
    "object.deep == object.deep",
    "object.names == object.names",
    "object.text == object.text",
    "object.text + 'x' != object.text",
    "object.text <= object.text",
    "object.text != ''",
    "object.text != null",
    "object.wide != 'é'",
    // Keys.
    "object.map[object.text] == 1 || true",
    "!(object.text in object.map)",
    "!(object.key in object.alike)",
    "!object.alike[?object.key].hasValue()",
    "object.alike == object.alike",
    "object.alike.all(k, true)",
    "{object.key: 1, dyn('x'): 2}.size() == 2",
    "object.alike.transformMapEntry(k, v, {k: v}).size() > 0",
    "!(i in object.numbers.map(n, -1 - n))",
    "!(-1 in object.numbers)",
    "!(object.deep in object.names)",
    "sets.contains(object.words, object.words)",
    "sets.equivalent(object.numbers, object.numbers)",
    "!sets.intersects(object.numbers, object.words)",
    "sets.contains(object.names, object.names)",
    // Lists.
    "object.numbers.indexOf(-1) == -1",
    "object.names.lastIndexOf(object.deep) == -1",
    "object.numbers.sum() > 0",
    "object.words.max() > ''",
    "object.words.isSorted() || true",
    "object.words.sort().size() > 0",
    "object.words.distinct().size() > 0",
    "object.names.sortBy(n, n.name).size() > 0",
    "object.numbers.reverse().size() > 0",
    "object.numbers.slice(0, 20000).size() > 0",
    "[object.numbers, object.words].flatten().size() > 0",
    "[[[[object.numbers]]]].flatten(100).size() > 0",
    "(object.numbers + object.numbers).size() > 0",
    "lists.range(100000).size() > 0",
    "lists.range(100000).filter(x, x > 5).size() > 0",
    "object.map.transformMap(k, v, v).size() > 0",
    "object.numbers.transformMapEntry(n, v, {n: v}).size() > 0",
    "object.map.transformList(k, v, k + 'x').size() > 0",
    "object.names.all(a, object.names.exists(b, a.name == b.name))",
    "object.names.all(n, a, object.names.exists(m, b, a.name == b.name && n == m))",
    // Texts.
    "object.text.contains('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab') == false",
    "object.text.indexOf('b') == -1",
    "object.text.lastIndexOf('ab') == -1",
    "object.wide.indexOf('è') == -1",
    "object.text.charAt(1048575) == 'a'",
    "object.wide.substring(1, 500000).size() > 0",
    "object.text.split('').size() > 0",
    "object.text.split('a').size() > 0",
    "object.text.split('aa', 100000).size() > 0",
    "object.text.replace('a', 'bb').size() > 0",
    "object.text.replace('', 'b').size() > 0",
    "object.text.replace('aaaaaaab', 'b').size() > 0",
    "object.text.upperAscii().size() > 0",
    "object.text.trim().size() > 0",
    "strings.quote(object.wide).size() > 0",
    "object.words.join(',').size() > 0",
    "[object.text, object.text, object.text].join().size() > 0",
    "size(object.wide) > 0",
    "'%s'.format([object.deep]).size() > 0",
    "'%s%s%s%s%s%s%s%s'.format([object.text, object.text, object.text, object.text, object.text, object.text, \
     object.text, object.text]).size() > 0",
    "'%s'.format([object.map]).size() > 0",
    "'%.1000f'.format([1.7976931348623157e308]).size() > 0",
    "'%x'.format([object.text]).size() > 0",
    "bytes(object.text).size() > 0",
    "string(bytes(object.wide)).size() > 0",
    "jsonpatch.escapeKey(object.text).size() > 0",
    // Patterns.
    "!object.text.matches('(a|a)*b')",
    "!object.text.matches('(.*)(.*)(.*)(.*)x$')",
    "!object.text.matches('(a?){50}b')",
    "object.text.findAll('').size() > 0",
    "object.text.findAll('a').size() > 0",
    "object.wide.find('.{1,500}e') == ''",
    "object.words.exists(w, !'x'.matches(w + '(a{50}){50}'))",
    "!matches(object.random, 'a[ab]{300}[^ab]')",
    "!matches(object.random, '[^ab][ab]{300}a[ab]*$')",
    "object.text.findAll('.*[^a]|a').size() > 0",
    "object.text.findAll('a(.*b)?').size() > 0",
    "!matches('y', object.pattern)",
    "matches('x', '(?i)' + object.sets) || true",
    // Conversions, which fail or not.
    "int(object.zeros) == 0",
    "uint(object.zeros) == 0u",
    "int(object.digits) > 0 || true",
    "uint(object.digits) > 0u || true",
    "double(object.digits) > 0.0 || true",
    "timestamp(object.digits) == timestamp(0) || true",
    "duration(object.digits + 's') == duration('1s') || true",
    "duration(object.words.join('')) == duration('1s') || true",
    "timestamp(0).getHours(object.text) == 0 || true",
    "bool(object.text) || true",
    // Kubernetes' libraries, first with values that are made once.
    "[semver(object.version)].all(v, object.numbers.all(n, v == v))",
    "[semver(object.version)].all(v, object.numbers.all(n, v.compareTo(v) == 0))",
    "[url(object.url)].all(u, object.numbers.all(n, u.getPort() == ''))",
    "[quantity(object.quantity)].all(q, object.numbers.all(n, q.asApproximateFloat() != 0.0))",
    "[quantity('1e1000')].all(q, object.numbers.all(n, sign(q.add(1)) == 1))",
    "cidr(object.names[0].name) == cidr('::/0') || true",
    "ip(object.digits) == ip('::1') || true",
    "cidr(object.digits) == cidr('::/0') || true",
    "url(object.text).getHost() == '' || true",
    "semver(object.digits).major() == 1 || true",
    "quantity(object.digits).isInteger() || true",
    "quantity('9' + object.digits + 'Ki').add(1).compareTo(quantity('1')) == 0 || true",
    "format.dns1123Subdomain().validate(object.text).hasValue()",
    "format.uri().validate(object.text).hasValue() || true",
];

/// The error that compiling and evaluating end with, if they do, and how long they take on a small stack.
fn attempt(source: &str, object: &Document<'_>, limits: Limits) -> (Option<String>, Duration) {
    let run = || {
        let began = Instant::now();
        let scope = Scope::new(&["object"]);
        let error = match Program::compile(source, &scope) {
            Err(error) => Some(error.to_string()),
            Ok(program) => {
                let mut activation = Activation::new(&scope, limits);
                activation.bind("object", Value::from(object));
                program.evaluate(&activation).err().map(|error| error.to_string())
            }
        };
        (error, began.elapsed())
    };
    thread::scope(|scope| {
        thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run).unwrap().join().unwrap()
    })
}

fn repeated(expression: &str) -> String {
    format!("lists.range(100000).all(i, {expression})")
}

#[test]
fn work_that_is_repeated_ends_at_a_limit() {
    let object = object();
    // A tenth of what is allowed, since this is not optimised; but the list that all begin with has to be made.
    let limits = Limits { cost: 100_000, steps: 200_000, ..Limits::default() };
    let mut failed = String::new();
    for expression in REPEATED {
        let (error, took) = attempt(&repeated(expression), &object, limits);
        println!("{took:>12.1?} {expression} {error:?}");
        let ended = error.as_ref().is_some_and(|error| error.starts_with("operation cancelled"));
        if !ended || took > SOON {
            let _ = writeln!(failed, "{expression}: {took:?} {error:?}");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// What is limited is not the same everywhere: where the API server counts nothing, our own limits hold.
#[test]
fn each_limit_ends_what_the_others_let_through() {
    let object = object();
    let scope = Scope::new(&["object"]);
    let rows = [
        ("object.numbers.all(i, object.names.all(n, n.value == 'x'))", EvalError::CostExceeded),
        ("lists.range(100000).all(i, object.numbers == object.numbers)", EvalError::WorkExceeded),
        ("object.numbers.map(i, object.text + object.text).size() > 0", EvalError::SizeExceeded),
    ];
    for (source, expected) in rows {
        let mut activation = Activation::new(&scope, Limits::default());
        activation.bind("object", Value::from(&object));
        let error = Program::compile(source, &scope).unwrap().evaluate(&activation).unwrap_err();
        assert_eq!(error, expected, "{source}");
        let limit = Limits::default().cost;
        assert_eq!(activation.cost() > limit, error == EvalError::CostExceeded, "{source}");
    }
}

/// The aim of the limits: 50 ms for each expression of a policy, whatever it is.
#[test]
#[ignore = "measures what is optimised: make bench"]
fn hostile_expressions_end_within_50_ms() {
    let object = object();
    let nothing = Document::of(&json!({"a": null})).unwrap();
    let small = expressions().into_iter().map(|(_, source, _)| (source, &nothing));
    let large = REPEATED.iter().map(|expression| (repeated(expression), &object));
    let mut slow = String::new();
    for (source, object) in small.chain(large) {
        let took = (0..3).map(|_| attempt(&source, object, Limits::default()).1).min().unwrap();
        println!("{took:>12.1?} {source:.100}");
        if took > AIM {
            let _ = writeln!(slow, "{took:>12.1?} {source:.140}");
        }
    }
    assert!(slow.is_empty(), "{slow}");
}
