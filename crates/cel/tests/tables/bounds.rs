//! Hostile expressions and objects: an error, soon, within a small stack.

use std::thread;
use std::time::{Duration, Instant};

use sallyport_cel::{Activation, Limits, MAX_DEPTH, MAX_SOURCE_BYTES, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::{Value as Json, json};

/// The stack of a worker thread of an async runtime, and of a thread of the standard library.
pub(crate) const STACK_BYTES: usize = 2 << 20;

/// Far above what any of these takes, even unoptimised on a busy machine. Without the bounds most would run
/// for minutes, or end the process.
pub(crate) const SOON: Duration = Duration::from_secs(30);

fn on_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap()
}

/// What compiling and evaluating gives, with what it took.
fn attempt(source: String, object: Json) -> (Result<Json, String>, Duration) {
    on_small_stack(move || {
        let object = Document::of(&object).unwrap();
        let began = Instant::now();
        let scope = Scope::new(&["object"]);
        let result =
            Program::compile(&source, &scope).map_err(|error| error.to_string()).and_then(|program| {
                let mut activation = Activation::new(&scope, Limits::default());
                activation.bind("object", Value::from(&object));
                program
                    .evaluate(&activation)
                    .and_then(|value| value.to_json())
                    .map_err(|error| error.to_string())
            });
        (result, began.elapsed())
    })
}

fn hundred() -> String {
    format!("[{}]", (0..100).map(|i| i.to_string()).collect::<Vec<_>>().join(","))
}

fn nested(levels: usize, name: &str, inner: &str) -> String {
    (0..levels).fold(inner.to_owned(), |body, level| format!("{}.{name}(x{level}, {body})", hundred()))
}

/// Each of these ended the process, or took seconds, in one library or another. A name, the expression, and what
/// the error says; nothing where the end alone is what matters.
pub(crate) fn expressions() -> Vec<(&'static str, String, &'static str)> {
    let deep = "nests deeper than";
    // The API server's limit on cost or our own on steps, whichever comes first.
    let cost = "operation cancelled";
    let size = "too large";
    vec![
        ("sum", format!("1{} > 0", "+1".repeat(4_000)), deep),
        ("concatenation", format!("'a'{} == 'a'", "+'a'".repeat(2_000)), deep),
        ("index", format!("[[1]]{}", "[0]".repeat(2_600)), deep),
        ("select", format!("object{}", ".a".repeat(4_000)), deep),
        ("calls", format!("'a'{} == 'a'", ".contains('a')".repeat(580)), deep),
        ("short calls", format!("object{}", ".f()".repeat(2_000)), deep),
        ("optional selects", format!("object{}", ".?a".repeat(2_700)), deep),
        ("ternaries", format!("{}true", "true?true:".repeat(815)), deep),
        ("short ternaries", format!("{}1", "1?1:".repeat(2_000)), deep),
        ("parentheses", format!("{}1{}", "(".repeat(4_000), ")".repeat(4_000)), ""),
        ("open parentheses", "(".repeat(8_000), "syntax error"),
        ("parentheses and operators", format!("{}1{}", "(1+".repeat(1_600), ")".repeat(1_600)), deep),
        ("lists", format!("{}1{}", "[".repeat(4_000), "]".repeat(4_000)), deep),
        ("open lists", "[".repeat(8_000), deep),
        ("maps", format!("{}1{}", "{1:".repeat(2_000), "}".repeat(2_000)), deep),
        ("negations", format!("{}true", "!-".repeat(4_000)), deep),
        ("global calls", format!("{}1{}", "dyn(".repeat(1_600), ")".repeat(1_600)), deep),
        ("nested arguments", format!("{}1{}", "'a'.f(".repeat(1_100), ")".repeat(1_100)), deep),
        ("struct names", format!("{}a{{}}", "a.".repeat(4_000)), deep),
        ("no token first", format!("@||({}a).f()", "!-".repeat(4_000)), "syntax error"),
        ("no token in the middle", format!("(!a @ {}a).f()", "!-".repeat(4_000)), "syntax error"),
        ("no token and ternaries", format!("@ {}true", "true?true:".repeat(815)), "syntax error"),
        ("text without an end", format!("({}a).f('", "!-".repeat(4_000)), deep),
        ("no token and links", format!("@{}", ".f()".repeat(2_000)), "syntax error"),
        ("links around what is no token", format!("a{0}@{0}", ".f()".repeat(90)), "syntax error"),
        ("too long", "1".repeat(MAX_SOURCE_BYTES + 1), "is longer than 8192"),
        ("macros 3", nested(3, "all", "true"), cost),
        ("macros 4", nested(4, "map", "1"), "operation cancelled"),
        ("macros 6", nested(6, "exists", "false"), cost),
        ("cartesian map", nested(3, "map", "'x'"), ""),
        ("doubling", format!("['a']{}[0].size() > 0", ".map(x,x+x)".repeat(30)), size),
        ("doubling lists", format!("[[1]]{}[0].size() > 0", ".map(x,x+x)".repeat(30)), size),
        (
            "replacing",
            format!("'a'{}.size() > 0", ".replace('a','aaaaaaaaaa')".repeat(10)),
            "operation cancelled",
        ),
        (
            "joining",
            format!(
                "{}.map(x, 'aaaaaaaaaa'.replace('a','aaaaaaaaaa')){}.size() > 0",
                hundred(),
                ".map(y, lists.range(1000).map(x, y).join())"
            ),
            "",
        ),
        ("sharing", format!("[1]{} == [1]{}", ".map(x,[x,x])".repeat(24), ".map(x,[x,x])".repeat(24)), cost),
        ("range", "lists.range(9223372036854775807)".to_owned(), size),
        ("range of ranges", "lists.range(100000).map(x, lists.range(100000))".to_owned(), size),
        ("pattern", "'aaaa'.matches('(a{300}){300}')".to_owned(), "invalid matches argument"),
        ("another pattern", "'aaaa'.find('(a{300}){300}')".to_owned(), "invalid regular expression"),
        (
            "pattern at run time",
            "'aaaa'.matches('(a{300}){30' + '0}')".to_owned(),
            "invalid regular expression",
        ),
        (
            "patterns at run time",
            format!("{}.all(x, !'a'.matches('(a{{90}}){{90}}' + string(x)))", hundred()),
            cost,
        ),
        (
            "wide sets",
            format!("'x'.matches('(?i){}')", "[!-\u{10ffff}]".repeat(500)),
            "invalid matches argument",
        ),
        ("precision", "'%.9999999999f'.format([1.0])".to_owned(), "invalid precision"),
        ("distinct", "lists.range(50000).distinct().size() > 0".to_owned(), cost),
        ("sort", "lists.range(99999).sortBy(x, -x).sort().size() > 0".to_owned(), ""),
    ]
}

#[test]
fn hostile_expressions_end_soon_with_an_error() {
    let mut failed = Vec::new();
    for (name, source, message) in expressions() {
        let (result, took) = attempt(source, json!({"a": null}));
        let as_wanted = match &result {
            _ if message.is_empty() => true,
            Ok(_) => false,
            Err(error) => error.contains(message),
        };
        println!("{name:<28} {took:>12.1?} {}", format!("{result:?}").chars().take(100).collect::<String>());
        if !as_wanted || took > SOON {
            failed.push(format!("{name}: {took:?}, {:.200}", format!("{result:?}")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each takes up to some milliseconds to compile.
#[test]
fn an_expression_has_only_so_many_patterns() {
    let scope = Scope::new(&["object"]);
    let compile = |count: usize, pattern: &dyn Fn(usize) -> String| {
        let matches: Vec<String> =
            (0..count).map(|at| format!("object.matches(r'{}')", pattern(at))).collect();
        let source = format!("[{}]", matches.join(","));
        Program::compile(&source, &scope).map(drop).map_err(|error| error.to_string())
    };
    let too_many = |result: Result<(), String>| {
        result.is_err_and(|error| error.contains("too many patterns in one expression: at most 256"))
    };
    assert_eq!(compile(256, &|at| format!("{at}")), Ok(()));
    assert!(too_many(compile(257, &|at| format!("{at}"))));
    assert_eq!(compile(300, &|_| "a".to_owned()), Ok(()), "one pattern");
    assert_eq!(compile(10, &|at| format!(r"\pL{{9}}{at}")), Ok(()));
    let large = compile(20, &|at| format!(r"\pL{{9}}{at}"));
    assert!(too_many(large.clone()), "{large:?}");
}

/// Whatever the compiler lets through must fit the stack, unoptimised too.
#[test]
fn the_deepest_expressions_fit_a_small_stack() {
    let levels = MAX_DEPTH - 2;
    let rows = [
        (format!("0{} == {levels}", "+1".repeat(levels)), Json::Bool(true)),
        (format!("{}1{} == 0", "dyn(".repeat(94), ")".repeat(94)), Json::Bool(false)),
        (format!("{}true", "false?false:".repeat(levels)), Json::Bool(true)),
        (format!("{}[]", "[1].map(x,".repeat(24)) + &")".repeat(24) + ".size() == 1", Json::Bool(true)),
        (format!("optional.of(1){}.hasValue()", ".optMap(x,1)".repeat(90)), Json::Bool(true)),
    ];
    for (source, expected) in rows {
        let (result, _) = attempt(source.clone(), Json::Null);
        assert_eq!(result, Ok(expected), "{source}");
    }
}

/// Those with the widest frames, nested as deep as the bound lets them be. Whether they compile is not asked.
#[test]
fn compiling_what_nests_deepest_fits_a_small_stack() {
    for (open, close) in [
        ("[1].all(i,v,", ")"),
        ("[1].transformList(i,v,", ")"),
        ("optional.of(1).optMap(x,", ")"),
        ("{1:", "}"),
    ] {
        for levels in [MAX_DEPTH / 2 - 1, MAX_DEPTH - 8, MAX_DEPTH - 4, MAX_DEPTH - 2, MAX_DEPTH] {
            let source = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            on_small_stack(move || drop(Program::compile(&source, &Scope::default())));
        }
    }
}

#[test]
fn chains_of_definitions_end_with_an_error() {
    on_small_stack(|| {
        let mut scope = Scope::default();
        scope.define("x", Program::compile("[0]", &scope).unwrap());
        for _ in 0..400 {
            let program = Program::compile("[[[variables.x]]]", &scope).unwrap();
            scope.define("x", program);
        }
        let program = Program::compile("variables.x == variables.x", &scope).unwrap();
        let error = program.evaluate(&Activation::new(&scope, Limits::default())).unwrap_err();
        assert!(error.is_limit(), "{error}");
    });
}

/// Values may nest by way of definitions evaluated one after the other, each shallow.
#[test]
fn nesting_of_values_is_bounded() {
    on_small_stack(|| {
        let mut scope = Scope::default();
        scope.define("x", Program::compile("[0]", &scope).unwrap());
        let mut activation_scope = scope.clone();
        for _ in 0..100 {
            let program = Program::compile("[[variables.x]]", &activation_scope).unwrap();
            activation_scope.define("x", program);
        }
        let activation = Activation::new(&activation_scope, Limits::default());
        let program = Program::compile("variables.x", &activation_scope).unwrap();
        assert!(program.evaluate(&activation).unwrap_err().is_limit());
    });
}

#[test]
fn objects_as_deep_as_parsers_make_them_are_compared_and_written() {
    on_small_stack(|| {
        let text = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let object = Document::parse(text.as_bytes()).unwrap();
        let scope = Scope::new(&["object"]);
        let mut activation = Activation::new(&scope, Limits::default());
        activation.bind("object", Value::from(&object));
        let program = Program::compile("object == object ? object : []", &scope).unwrap();
        assert_eq!(program.evaluate(&activation).unwrap().to_json().unwrap(), object.root().to_value());
        let text = Program::compile("'%s'.format([object])", &scope).unwrap();
        assert_eq!(text.evaluate(&activation).unwrap().as_str().unwrap().len(), 254);
    });
}

#[test]
fn limits_are_not_absorbed() {
    let scope = Scope::default();
    let activation = Activation::new(&scope, Limits { steps: 1_000, ..Limits::default() });
    for source in [
        "lists.range(10000).all(x, x >= 0) || true",
        "true || lists.range(10000).all(x, x >= 0)",
        "[1].exists(y, lists.range(10000).all(x, x >= 0)) || true",
        "![1].all(y, lists.range(10000).all(x, x >= 0) && false)",
    ] {
        let result = Program::compile(source, &scope).unwrap().evaluate(&activation);
        match source.strip_prefix("true ||") {
            // Settled before it got there.
            Some(_) => assert_eq!(result.unwrap().as_bool(), Some(true)),
            None => assert!(result.unwrap_err().is_limit(), "{source}"),
        }
    }
}

#[test]
fn each_evaluation_has_the_whole_limits() {
    let scope = Scope::default();
    let activation = Activation::new(&scope, Limits { steps: 400, bytes: 100_000, ..Limits::default() });
    let program = Program::compile("lists.range(100).map(x, x).size()", &scope).unwrap();
    for _ in 0..20 {
        assert_eq!(program.evaluate(&activation).unwrap().as_int(), Some(100));
    }
}

#[test]
fn output_is_bounded() {
    let scope = Scope::new(&["text"]);
    let text = Document::of(&Json::String("x".repeat(100_000))).unwrap();
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("text", Value::from(&text));
    let program = Program::compile("lists.range(100).map(x, text)", &scope).unwrap();
    let error = program.evaluate(&activation).unwrap().to_json().unwrap_err();
    assert!(error.is_limit(), "{error}");
}

/// Texts of a mebibyte, and as many calls as the limits allow.
#[test]
fn hostile_texts_of_kubernetes_libraries_end_soon() {
    let texts = [
        "1.".repeat(1 << 19),
        "1:".repeat(1 << 19),
        "9".repeat(1 << 20),
        format!("1{}Ei", "9".repeat(1_000)),
        format!("1.0.0-{}", "a.".repeat(1 << 18)),
        format!("http://{}", "%C3%A9".repeat(1 << 17)),
        format!("/?{}", "&a".repeat(1 << 19)),
        "/%00".repeat(1 << 18),
        "a.".repeat(1 << 19),
        "\u{7f}".repeat(1 << 19),
    ];
    let calls = [
        "isIP(t)",
        "isCIDR(t)",
        "isQuantity(t)",
        "isSemver(t, true)",
        "isURL(t)",
        "isURL(t) && url(t).getQuery().size() > 0",
        "format.dns1123Subdomain().validate(t).hasValue()",
        "format.qualifiedName().validate(t).hasValue()",
        "format.uri().validate(t).hasValue()",
        "format.datetime().validate(t).hasValue()",
        "isQuantity(t) && quantity(t).add(quantity('1e-9')).isInteger()",
    ];
    for call in calls {
        let source = format!("lists.range(10000).all(i, object.all(t, ({call}) || true))");
        let (result, took) = attempt(source, Json::from(texts.to_vec()));
        println!("{call:<64} {took:>12.1?} {:.80}", format!("{result:?}"));
        assert!(result.unwrap_err().contains("operation cancelled"), "{call}");
        assert!(took < SOON, "{call} took {took:?}");
    }
    for call in ["ip", "cidr", "quantity", "semver", "url"] {
        for text in &texts {
            if let (Err(message), _) = attempt(format!("{call}(object) == null"), Json::from(text.clone())) {
                assert!(message.len() < 2_000, "{call}: {} bytes", message.len());
            }
        }
    }
    let (result, took) = attempt("quantity('1e2000000000').add(1) == null".to_owned(), Json::Null);
    assert_eq!(result, Err("quantity overflow".to_owned()));
    assert!(took < SOON);
}

#[test]
fn messages_do_not_grow_with_the_data() {
    let (result, _) = attempt("object[object.key]".to_owned(), json!({"key": "k".repeat(1 << 20)}));
    assert!(result.unwrap_err().len() < 300);
}
