//! Random documents, and what random changes make of them.

use fastrand::Rng;
use sallyport_document::Document;
use serde_json::Value;

use crate::difference;

/// Texts of numbers, the odd ones included.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-0.0",
    "1",
    "-1",
    "576460752303423487",
    "576460752303423488",
    "-576460752303423488",
    "-576460752303423489",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "-18446744073709551615",
    "123456789012345678901234567890",
    "0.1",
    "1e5",
    "1E+5",
    "-1.5e-3",
    "1e308",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "1e309",
    "-1e400",
    "1e-400",
    "0e999999999999",
    "4.9e-324",
    "2.4703282292062327e-324",
    "9007199254740993.0",
    "1e99999999999999999999",
    "01",
    "-",
    "-a",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e+",
    "1.e5",
    "00",
    "-01",
    "0x10",
    "NaN",
    "Infinity",
    "1_000",
];

/// Pieces of strings, some of them wrong.
const PIECES: &[&str] = &[
    "a",
    "name",
    "é",
    "😀",
    "\\n",
    "\\\"",
    "\\\\",
    "\\/",
    "\\b\\f\\r\\t",
    "\\u0041",
    "\\u00e9",
    "\\uD83D\\uDE00",
    "\\u0000",
    "\u{7f}",
    "12345678",
    "abcdefghijklmnopqrstuvwxyz",
];
const WRONG_PIECES: &[&str] = &[
    "\\ud800",
    "\\udc00",
    "\\ud83dx",
    "\\ud83d\\n",
    "\\ud83d\\u0041",
    "\\ud83d\\ud83d",
    "\\u12",
    "\\u12g4",
    "\\x",
    "\n",
    "\u{1}",
    "\u{1f}",
    "\\",
    "\\u",
];

fn spaces(rng: &mut Rng, text: &mut String) {
    while rng.u8(..) < 20 {
        text.push(*rng.choice(&[' ', '\n', '\t', '\r']).unwrap());
    }
}

fn string(rng: &mut Rng, text: &mut String) {
    text.push('"');
    for _ in 0..rng.usize(..4) {
        text.push_str(rng.choice(PIECES.iter()).unwrap());
    }
    if rng.u16(..) < 40 {
        text.push_str(rng.choice(WRONG_PIECES.iter()).unwrap());
    }
    text.push('"');
}

fn value(rng: &mut Rng, depth: usize, text: &mut String) {
    spaces(rng, text);
    match rng.u8(..if depth > 6 { 6 } else { 10 }) {
        0 => text.push_str("null"),
        1 => text.push_str(if rng.bool() { "true" } else { "false" }),
        2 => text.push_str(&rng.i64(..).to_string()),
        3 => text.push_str(&rng.u8(..).to_string()),
        4 if rng.u8(..) < 40 => text.push_str(rng.choice(NUMBERS.iter()).unwrap()),
        4 => text.push_str(&f64::from_bits(rng.u64(..)).to_string()),
        5 => string(rng, text),
        6 | 7 => {
            text.push('[');
            for index in 0..length(rng) {
                if index > 0 {
                    text.push(',');
                }
                value(rng, depth + 1, text);
            }
            spaces(rng, text);
            text.push(']');
        }
        _ => {
            text.push('{');
            for index in 0..length(rng) {
                if index > 0 {
                    text.push(',');
                }
                spaces(rng, text);
                string(rng, text);
                spaces(rng, text);
                text.push(':');
                value(rng, depth + 1, text);
            }
            spaces(rng, text);
            text.push('}');
        }
    }
    spaces(rng, text);
}

/// Mostly short; some are long enough to have an index.
fn length(rng: &mut Rng) -> usize {
    if rng.u8(..) < 6 { rng.usize(25..70) } else { rng.usize(..5) }
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.usize(..=bytes.len());
    match rng.u8(..5) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => {
            bytes.remove(at);
        }
        2 if at < bytes.len() => bytes[at] = rng.u8(..),
        3 => {
            let token = *rng.choice(b"{}[],:\"\\-+0eE.tn \x00\xc3\xff").unwrap();
            bytes.insert(at, token);
        }
        _ => {
            let end = rng.usize(at..=bytes.len()).min(at + 20);
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
    }
}

#[test]
fn what_serde_json_accepts_is_accepted_and_means_the_same() {
    let mut rng = Rng::with_seed(20_261_121);
    let mut failed = Vec::new();
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let mut text = String::new();
        value(&mut rng, 0, &mut text);
        let mut bytes = text.into_bytes();
        for _ in 0..4 {
            failed.extend(difference(&bytes));
            *(if Document::parse(&bytes).is_ok() { &mut accepted } else { &mut refused }) += 1;
            change(&mut rng, &mut bytes);
        }
    }
    assert!(accepted > 20_000 && refused > 20_000, "{accepted} {refused}");
    assert!(failed.is_empty(), "{} differ, such as\n{}", failed.len(), failed[0]);
}

#[test]
fn every_number_and_every_string_is_read_as_by_serde_json() {
    let numbers = NUMBERS.iter().map(ToString::to_string);
    let strings = PIECES.iter().chain(WRONG_PIECES).map(|piece| format!("\"{piece}\""));
    // Each piece at each place of the eight bytes that are looked at together.
    let shifted = PIECES.iter().chain(WRONG_PIECES).flat_map(|piece| {
        (0..18).map(move |before| format!("\"{}{piece}{}\"", "x".repeat(before), "y".repeat(17 - before)))
    });
    let failed: Vec<String> = numbers
        .chain(strings)
        .chain(shifted)
        .flat_map(|text| [format!("[{text}]"), format!("{{\"a\":{text}}}"), text])
        .filter_map(|text| difference(text.as_bytes()))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Every byte, and every two, as a document and in a string.
#[test]
fn every_byte_is_judged_as_by_serde_json() {
    let mut failed = Vec::new();
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            failed.extend(difference(&[first, second]));
            failed.extend(difference(&[b'"', first, second, b'"']));
            failed.extend(difference(&[b'[', first, b',', second, b']']));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_document_of_a_value_is_the_value() {
    let mut rng = Rng::with_seed(7);
    let mut compared = 0;
    for _ in 0..2_000 {
        let mut text = String::new();
        value(&mut rng, 0, &mut text);
        let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
        let made = Document::of(&value).unwrap();
        assert_eq!(made.root().to_value(), value);
        assert_eq!(made.root(), value);
        let mut other = String::new();
        self::value(&mut rng, 0, &mut other);
        if let Ok(other) = serde_json::from_str::<Value>(&other) {
            assert_eq!(made.root() == other, value == other, "{value} {other}");
        }
        assert_eq!(made, Document::parse(text.as_bytes()).unwrap());
        compared += 1;
    }
    assert!(compared > 1_000, "{compared}");
}
