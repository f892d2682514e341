use std::fmt::Write as _;
use std::thread;

use super::ast::{Expr, IdedExpr, LiteralValue};
use super::{MAX_DEPTH, parse, parser};

/// The tree in one line: calls as `(name operands)`, of methods as `(target.name arguments)`.
fn shown(node: &IdedExpr) -> String {
    let all = |nodes: &[IdedExpr]| nodes.iter().fold(String::new(), |text, node| text + " " + &shown(node));
    let optional = |is_optional: bool| if is_optional { " ?" } else { " " };
    match &node.expr {
        Expr::Literal(LiteralValue::Null) => "null".to_owned(),
        Expr::Literal(LiteralValue::Boolean(value)) => value.to_string(),
        Expr::Literal(LiteralValue::Int(value)) => value.to_string(),
        Expr::Literal(LiteralValue::UInt(value)) => format!("{value}u"),
        Expr::Literal(LiteralValue::Double(value)) => format!("{value:?}"),
        Expr::Literal(LiteralValue::String(value)) => format!("{value:?}"),
        Expr::Literal(LiteralValue::Bytes(value)) => format!("{value:?}"),
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) if select.test => format!("(has {} {})", shown(&select.operand), select.field),
        Expr::Select(select) => format!("{}.{}", shown(&select.operand), select.field),
        Expr::Call(call) => {
            let target = call.target.as_ref().map(|target| shown(target) + ".").unwrap_or_default();
            format!("({target}{}{})", call.func_name, all(&call.args))
        }
        Expr::List(list) => format!("[{:?}{}]", list.optional_indices, all(&list.elements)),
        Expr::Map(entries) => {
            entries.iter().fold("{".to_owned(), |text, entry| {
                format!("{text}{}{}: {}", optional(entry.optional), shown(&entry.key), shown(&entry.value))
            }) + " }"
        }
        Expr::Struct(made) => {
            made.fields.iter().fold(format!("{}{{", made.type_name), |text, field| {
                format!("{text}{}{}: {}", optional(field.optional), field.field, shown(&field.value))
            }) + " }"
        }
        Expr::Comprehension(made) => {
            let filter = made.filter.as_ref().map(|filter| shown(filter) + " ").unwrap_or_default();
            let (range, body) = (shown(&made.range), shown(&made.body));
            format!("({:?} {} in {range}: {filter}{body})", made.kind, made.variable)
        }
    }
}

/// Sources and their trees, which are those of cel-go.
const TREES: &[(&str, &str)] = &[
    // Literals.
    ("null", "null"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("- 1", "-1"),
    ("-0x8000000000000000", "-9223372036854775808"),
    ("0xFfu", "255u"),
    ("18446744073709551615U", "18446744073709551615u"),
    ("1.5e+2", "150.0"),
    (".5E-1", "0.05"),
    ("-1e3", "-1000.0"),
    (r#"'a"\n\x41\X41\u00e9\U0001F600\101\?\`\"\'\\'"#, r#""a\"\nAAé😀A?`\"'\\""#),
    (r#"r'\d"' + R"\""#, r#"(_+_ "\\d\"" "\\")"#),
    ("'''a'b\\''''", r#""a'b'""#),
    ("\"\"\"a\r\nb\rc\"\"\"", r#""a\nb\nc""#),
    ("'' + \"\" + ''''''", r#"(_+_ (_+_ "" "") "")"#),
    (r"b'é\xff\377\n'", "[195, 169, 255, 255, 10]"),
    (r"rb'\x' + Br'\x'", "(_+_ [92, 120] [92, 120])"),
    // Operators.
    ("1 + 2 * 3 - 4", "(_-_ (_+_ 1 (_*_ 2 3)) 4)"),
    ("a / b % c * d", "(_*_ (_%_ (_/_ a b) c) d)"),
    ("a < b == c in d", "(@in (_==_ (_<_ a b) c) d)"),
    ("a + b <= c - d", "(_<=_ (_+_ a b) (_-_ c d))"),
    ("a || b && c || d", "(_||_ (_||_ a (_&&_ b c)) d)"),
    ("a && b && c", "(_&&_ (_&&_ a b) c)"),
    ("a || b || c || d", "(_||_ (_||_ a b) (_||_ c d))"),
    ("a && b && c && d && e", "(_&&_ (_&&_ (_&&_ a b) c) (_&&_ d e))"),
    ("a ? b : c ? d : e", "(_?_:_ a b (_?_:_ c d e))"),
    ("a || b ? c && d : e", "(_?_:_ (_||_ a b) (_&&_ c d) e)"),
    ("!a.b", "(!_ a.b)"),
    ("!!a && ---b", "(_&&_ a (-_ b))"),
    ("!-!-a", "(!_ (-_ (!_ (-_ a))))"),
    ("-a.b(1)", "(-_ (a.b 1))"),
    ("-1.f()", "(-1.f)"),
    ("--1", "1"),
    ("a-1", "(_-_ a 1)"),
    ("a - -1", "(_-_ a -1)"),
    // Parentheses.
    ("(((a)))", "a"),
    ("((a) + b)[(0)]", "(_[_] (_+_ a b) 0)"),
    ("(((a).b ? c : d).e() || f)", "(_||_ ((_?_:_ a.b c d).e) f)"),
    // Members, names and literals of other kinds.
    ("a.b.if[c].d(e, f)", "((_[_] a.b.if c).d e f)"),
    (". a.b(.c(1))", "(.a.b (.c 1))"),
    ("a.?b[?c].d", "(_[?_] (_?._ a \"b\") c).d"),
    ("[?a, b, ?c,]", "[[0, 2] a b c]"),
    ("[] + [[]]", "(_+_ [[]] [[] [[]]])"),
    ("{} == {?'a': 1, b: c ? d : e,}", "(_==_ { } { ?\"a\": 1 b: (_?_:_ c d e) })"),
    ("a.B{} == .A {?b: 1, for: 2,}", "(_==_ a.B{ } .A{ ?b: 1 for: 2 })"),
    ("int(true) in [_a1]", "(@in (int true) [[] _a1])"),
    ("a // comment ' (\n\t\r\n\u{b}\u{c}+ b // end", "(_+_ a b)"),
    // Macros.
    ("has(a.b.c)", "(has a.b c)"),
    ("has(a, b) || a.has(b) || .has(a.b)", "(_||_ (_||_ (has a b) (a.has b)) (.has a.b))"),
    ("a.all(x, x.b)", "(All x in a: x.b)"),
    ("a.exists(x, x) || a.exists(x)", "(_||_ (Exists x in a: x) (a.exists x))"),
    ("a.exists_one(x, x) && a.existsOne(y, y)", "(_&&_ (ExistsOne x in a: x) (ExistsOne y in a: y))"),
    ("a.map(x, b).filter(y, c)", "(List y in (List x in a: b): c y)"),
    ("a.map(x, b, c)", "(List x in a: b c)"),
    ("a.all(x, y, z) || all(x, y)", "(_||_ (a.all x y z) (all x y))"),
    ("a.optMap(x, y)", "(a.optMap x y)"),
];

#[test]
fn sources_have_the_trees_of_cel_go() {
    let mut failed = String::new();
    for (source, expected) in TREES {
        let found = parse(source).map(|tree| shown(&tree.root)).unwrap_or_default();
        if found != *expected {
            let _ = writeln!(failed, "{source}\n  found    {found}\n  expected {expected}");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// What is refused, where, and why.
const REFUSED: &[(&str, &str)] = &[
    ("", "1:1: syntax error: mismatched input '<EOF>' expecting expression"),
    ("a +\n", "1:4: syntax error: mismatched input '<EOF>' expecting expression"),
    ("a +\r\n\n", "2:1: syntax error: mismatched input '<EOF>' expecting expression"),
    ("a\n  b", "2:3: syntax error: mismatched input 'b' expecting <EOF>"),
    ("é", "1:1: syntax error: unexpected character"),
    ("'é' + @", "1:7: syntax error: unexpected character"),
    ("a & b", "1:3: syntax error: unexpected single '&', expected '&&'"),
    ("a | b", "1:3: syntax error: unexpected single '|', expected '||'"),
    ("a = b", "1:3: syntax error: mismatched input '=' expecting <EOF>"),
    ("a.`b`", "1:3: syntax error: unsupported syntax: '`'"),
    ("'a", "1:1: syntax error: unterminated string literal"),
    ("a + b'''a''", "1:5: syntax error: unterminated bytes literal"),
    ("'\\'", "1:1: syntax error: unterminated string literal"),
    ("'\\q'", "1:1: syntax error: unable to unescape string"),
    ("'\\x4'", "1:1: syntax error: unable to unescape string"),
    ("'\\400'", "1:1: syntax error: unable to unescape string"),
    ("'\\38'", "1:1: syntax error: unable to unescape octal sequence in string"),
    ("'\\ud800'", "1:1: syntax error: invalid unicode code point"),
    ("b'\\u0041'", "1:1: syntax error: unable to unescape string"),
    ("9223372036854775808", "1:1: syntax error: invalid int literal"),
    ("-9223372036854775809", "1:2: syntax error: invalid int literal"),
    ("18446744073709551616u", "1:1: syntax error: invalid uint literal"),
    ("1e400", "1:1: syntax error: invalid double literal"),
    ("1_000", "1:1: syntax error: int literal has unexpected trailing characters"),
    ("1.5u", "1:1: syntax error: float literal has unexpected trailing characters"),
    ("0x", "1:1: syntax error: integral literal missing digits after hexadecimal separator"),
    ("1e", "1:1: syntax error: floating point literal missing digits after exponent separator"),
    ("for", "1:1: syntax error: reserved identifier: for"),
    ("if(a)", "1:1: syntax error: reserved identifier: if"),
    ("a.in", "1:3: syntax error: expected identifier after '.'"),
    (".1a", "1:1: syntax error: float literal has unexpected trailing characters"),
    (".?a", "1:2: syntax error: expected identifier"),
    ("a.?b(c)", "1:5: syntax error: mismatched input '(' expecting <EOF>"),
    ("a ? b", "1:6: syntax error: expected ':' in conditional expression"),
    ("a ? b ? c : d : e", "1:7: syntax error: expected ':' in conditional expression"),
    ("(a", "1:3: syntax error: expected ')'"),
    ("f(a,)", "1:5: syntax error: unexpected token"),
    ("f(a b)", "1:5: syntax error: mismatched input 'b' expecting ')'"),
    ("f(a", "1:4: syntax error: mismatched input <EOF> expecting ')'"),
    ("[a, ", "1:5: syntax error: expected ']'"),
    ("[,]", "1:2: syntax error: unexpected token"),
    ("a[]", "1:3: syntax error: unexpected token"),
    ("{a}", "1:3: syntax error: expected ':' in map entry"),
    ("A{a: 1", "1:7: syntax error: expected '}'"),
    ("A{'a': 1}", "1:3: syntax error: expected struct field name"),
    ("A{}{}", "1:4: syntax error: mismatched input '{' expecting <EOF>"),
    ("a.map(b.c, d)", "1:8: syntax error: argument must be a simple name"),
    ("has(a)", "1:5: syntax error: invalid argument to has() macro"),
];

#[test]
fn syntax_errors_have_their_place() {
    let mut failed = String::new();
    for (source, expected) in REFUSED {
        let found = parse(source).map_or_else(|error| error.to_string(), |tree| shown(&tree.root));
        if found != *expected {
            let _ = writeln!(failed, "{source}\n  found    {found}\n  expected {expected}");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// Longer than any source that the parser is given, on a stack smaller than any thread has.
#[test]
fn hostile_sources_are_refused_on_a_small_stack() {
    const MANY: usize = 100_000;
    let too_deep = "expression nests deeper than 100";
    let rows = [
        ("(".repeat(MANY), "syntax error"),
        ("[".repeat(MANY), too_deep),
        ("{".repeat(MANY), too_deep),
        ("{1:".repeat(MANY), too_deep),
        ("A{a:".repeat(MANY), too_deep),
        ("f(".repeat(MANY), too_deep),
        ("a.f(".repeat(MANY), too_deep),
        ("a[".repeat(MANY), too_deep),
        ("!".repeat(MANY), "syntax error"),
        ("!-".repeat(MANY) + "a", too_deep),
        ("!!(".repeat(MANY), too_deep),
        ("-(".repeat(MANY), too_deep),
        ("(1+".repeat(MANY), too_deep),
        ("(a||b&&c==d+e*".repeat(MANY), too_deep),
        ("a?".repeat(MANY), "expected ':' in conditional expression"),
        ("a?b:".repeat(MANY), too_deep),
        ("(a?b:".repeat(MANY), too_deep),
        ("a".to_owned() + &"+a".repeat(MANY), too_deep),
        ("a".to_owned() + &".a".repeat(MANY), too_deep),
        ("a".to_owned() + &".a()".repeat(MANY), too_deep),
        ("a".to_owned() + &"[0]".repeat(MANY), too_deep),
        ("a".to_owned() + &".map(x,x)".repeat(MANY), too_deep),
        ("a.map(x,".repeat(MANY), too_deep),
        ("1".repeat(MANY), "invalid int literal"),
        ("0x".to_owned() + &"f".repeat(MANY), "invalid int literal"),
        ("1".repeat(MANY) + ".0", "invalid double literal"),
        ("'".to_owned() + &"\\".repeat(MANY + 1), "unterminated string literal"),
        ("'".to_owned() + &"\\x".repeat(MANY) + "'", "unable to unescape string"),
        ("//".repeat(MANY), "mismatched input '<EOF>'"),
    ];
    let run = move || {
        for (source, expected) in rows {
            let error = parser::parse(&source).expect_err(&source[..20]).message;
            assert!(error.contains(expected), "{source:.20}: {error}");
        }
        let (levels, wide) = (MAX_DEPTH - 1, "a||".repeat(MANY) + "a");
        assert_eq!(parser::parse(&wide).unwrap().0.depth, 18);
        for deepest in [
            "[".repeat(levels) + "a" + &"]".repeat(levels),
            "(1+".repeat(levels) + "a" + &")".repeat(levels),
            "a?b:".repeat(levels) + "a",
            "a".to_owned() + &".a".repeat(levels),
            "(".repeat(MANY) + "a" + &")".repeat(MANY),
        ] {
            assert!(parser::parse(&deepest).is_ok(), "{deepest:.20}");
        }
    };
    thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap();
}
