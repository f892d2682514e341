//! Random regular expressions over short texts, matched by the engine and by the API server's environment.

use fastrand::Rng;
use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use sallyport_document::Document;
use serde_json::{Value as Json, json};

use crate::oracle::Oracle;

const COUNT: usize = 8_000;
/// Patterns in one question to the API server.
const ROUND: usize = 500;

const PARTS: &[&str] = &[
    "a",
    "b",
    "K",
    "é",
    "1",
    "_",
    " ",
    "-",
    ".",
    "^",
    "$",
    "|",
    "*",
    "+",
    "?",
    "??",
    "{2}",
    "{1,}",
    "{0}",
    "{,2}",
    "{",
    "}",
    "{2,1}",
    "{1001}",
    "(",
    ")",
    "(?:",
    "(?i)",
    "(?s-i:",
    "(?m)",
    "(?U)",
    "(?P<n>",
    "(?<m>",
    "(?=",
    "(?x)",
    "[",
    "[^",
    "]",
    "[]",
    "[a-c]",
    "[^a\\d]",
    "[a&&b]",
    "[a--b]",
    "[b-a]",
    "[[:alpha:]]",
    "[[:^space:]]",
    "[[:no:]]",
    "[\\w-]",
    "\\d",
    "\\D",
    "\\s",
    "\\S",
    "\\w",
    "\\W",
    "\\b",
    "\\B",
    "\\A",
    "\\z",
    "\\Z",
    "\\pL",
    "\\P{Lu}",
    "\\p{^Greek}",
    "\\Q",
    "\\E",
    "\\Qa.\\E",
    "\\x41",
    "\\x{e9}",
    "\\x4",
    "\\101",
    "\\1",
    "\\0",
    "\\a",
    "\\n",
    "\\.",
    "\\[",
    "\\-",
    "\\_",
    "\\/",
    "\\C",
    "\\é",
    "\\",
    "&&",
    "--",
    "~~",
    "#",
    "/",
    ":",
    ",",
];

const TEXTS: &[&str] = &[
    "", "a", "b", "ab", "aab", "aé", "é", "É", "k", "K", "\u{212a}", "1", "\u{0664}", "_", " ", "\u{a0}",
    "\t", "\u{b}", "\n", "a\n", "a\nb", "-", "a-b", ".", "a.", "{", "a{,2}", "[", "]", "&", "&&", "~", "\\",
    "#", "/", "A1", "λ", "\u{7}", "\u{0}", "a b", "aaaa", "1 1", "a_1",
];

fn ours(text: &str, pattern: &str) -> Option<bool> {
    let scope = Scope::new(&["object"]);
    let program = Program::compile("object.text.matches(object.pattern)", &scope).unwrap();
    let object = Document::of(&json!({"text": text, "pattern": pattern})).unwrap();
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("object", Value::from(&object));
    program.evaluate(&activation).ok().map(|value| value.as_bool().unwrap())
}

#[test]
fn random_patterns_match_what_they_match_in_the_api_server() {
    let mut oracle = Oracle::start();
    let mut rng = Rng::with_seed(crate::differential::number("SEED", 7));
    let (mut refused, mut matched) = (0, 0);
    let mut differences = Vec::new();
    for _ in 0..COUNT / ROUND {
        let rows: Vec<(&str, String)> = (0..ROUND)
            .map(|_| {
                let pattern = (0..rng.usize(1..6)).map(|_| *rng.choice(PARTS).unwrap()).collect();
                (*rng.choice(TEXTS).unwrap(), pattern)
            })
            .collect();
        let questions: Vec<Json> = rows
            .iter()
            .map(|(text, pattern)| {
                let object = json!({"text": text, "pattern": pattern});
                json!({"expr": "object.text.matches(object.pattern)", "vars": {"object": object}})
            })
            .collect();
        for ((text, pattern), answer) in rows.iter().zip(oracle.ask(&questions)) {
            let (ours, theirs) = (ours(text, pattern), answer["value"].as_bool());
            refused += usize::from(theirs.is_none());
            matched += usize::from(theirs == Some(true));
            if ours != theirs {
                differences.push(format!(
                    "{pattern:?} on {text:?}: {ours:?}, theirs {theirs:?} {}",
                    answer["error"]
                ));
            }
        }
    }
    println!("{COUNT} patterns: {matched} matched, {refused} refused");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    assert!(refused > COUNT / 10 && matched > COUNT / 20, "{matched} matched, {refused} refused");
}
