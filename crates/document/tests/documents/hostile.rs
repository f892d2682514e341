//! Texts that are made to be expensive.

use std::time::{Duration, Instant};

use sallyport_document::{Document, MAX_DEPTH};
use serde_json::json;

use crate::difference;

/// As large as a review may hold, and more.
const LARGE: usize = 3 << 20;
/// Far more than any of it takes without optimisation.
const SOON: Duration = Duration::from_secs(5);

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn nesting_ends_where_that_of_serde_json_ends() {
    for depth in [1, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 100_000] {
        for text in [
            nested("[", "]", depth),
            format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
            nested("[{\"a\":", "}]", depth / 2).replace(":}", ":0}"),
            "[".repeat(depth),
            "{\"a\":".repeat(depth),
        ] {
            assert_eq!(difference(text.as_bytes()), None, "{depth}");
        }
    }
    let deepest = nested("[", "]", MAX_DEPTH);
    assert!(Document::parse(deepest.as_bytes()).is_ok());
}

#[test]
fn large_texts_are_read_soon_and_as_by_serde_json() {
    let rows = [
        ("white space", format!("{}1", " ".repeat(LARGE))),
        ("one string", format!("\"{}\"", "a".repeat(LARGE))),
        ("one string of escapes", format!("\"{}\"", "\\u00e9".repeat(LARGE / 6))),
        ("an open string", format!("\"{}", "a".repeat(LARGE))),
        ("one number", "9".repeat(LARGE)),
        ("a long fraction", format!("0.{}", "3".repeat(LARGE))),
        ("a long exponent", format!("1e{}", "9".repeat(LARGE))),
        ("small numbers", format!("[{}0]", "0,".repeat(LARGE / 2))),
        ("large numbers", format!("[{}0]", "1e5,".repeat(LARGE / 4))),
        ("empty lists", format!("[{}0]", "[],".repeat(LARGE / 3))),
        ("short lists", format!("[{}0]", "[[1]],".repeat(LARGE / 6))),
        ("empty objects", format!("[{}0]", "{},".repeat(LARGE / 3))),
        ("escapes", format!("[{}0]", "\"\\n\",".repeat(LARGE / 5))),
        ("one key", format!("{{{}\"a\":0}}", "\"a\":0,".repeat(LARGE / 6))),
        (
            "keys of one length",
            format!(
                "{{{}\"z\":0}}",
                (0..LARGE / 12).map(|i| format!("\"{i:06x}\":0,")).collect::<Vec<_>>().concat()
            ),
        ),
        (
            "keys with one hash, backwards",
            format!(
                "{{{}\"z\":0}}",
                (0..LARGE / 14).rev().map(|i| format!("\"k{i:06x}k\":0,")).collect::<Vec<_>>().concat()
            ),
        ),
        (
            "small objects with one key",
            format!("[{}0]", "{\"a\":0,\"a\":1,\"b\":2,\"a\":3},".repeat(LARGE / 30)),
        ),
        ("keys that are the empty string", format!("{{{}\"\":0}}", "\"\":[[]],".repeat(LARGE / 8))),
    ];
    for (name, text) in rows {
        let began = Instant::now();
        let document = Document::parse(text.as_bytes());
        let took = began.elapsed();
        println!("{took:>12.1?} {name}, {} bytes", text.len());
        assert!(took < SOON, "{name}: {took:?}");
        drop(document);
        assert!(difference(text.as_bytes()).is_none(), "{name} differs");
    }
}

/// As many look-ups as there are members take as long as going through a large list or object a few times.
#[test]
fn looking_up_does_not_depend_on_how_much_there_is() {
    let members = 100_000;
    let keys: Vec<String> = (0..members).rev().map(|i| format!("key{i}")).collect();
    let object = keys.iter().map(|key| format!("\"{key}\":[[0]]")).collect::<Vec<_>>().join(",");
    let text = format!(
        "[{{{object}}},[{}],[{}]]",
        "[[0]],".repeat(members - 1) + "0",
        "0,".repeat(members - 1) + "1"
    );
    let document = Document::parse(text.as_bytes()).unwrap();
    let root = document.root().as_array().unwrap();
    let (object, lists) = (root.get(0).unwrap(), [root.get(1).unwrap(), root.get(2).unwrap()]);
    let began = Instant::now();
    for (index, key) in keys.iter().enumerate() {
        assert!(object.get(key).is_some());
        for list in lists {
            assert!(list.as_array().unwrap().get(index).is_some());
        }
        // The first of the ordered ones does not wait for all of them to be put in order.
        assert!(object.as_object().unwrap().entries().next().is_some());
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// `serde_json` parses the text under this key in place of the object.
#[test]
fn a_key_that_serde_json_reserves_is_a_key_like_any_other() {
    let text = br#"{"$serde_json::private::RawValue": "[1]"}"#;
    let document = Document::parse(text).unwrap();
    let field = document.root().get("$serde_json::private::RawValue").unwrap();
    assert_eq!(field.as_str(), Some("[1]"));
    let number = br#"{"$serde_json::private::Number": "1"}"#;
    assert_eq!(difference(number), None);
    assert_eq!(
        Document::parse(number).unwrap().root().to_value(),
        json!({"$serde_json::private::Number": "1"})
    );
}
