//! What can be asked of a document.

use sallyport_document::{Content, Document, DocumentError, Node, Object, Problem};
use serde_json::json;

const TEXT: &str = r#"{
    "kind": "Pod", "z": 1, "flag": true, "none": null, "ratio": 3.0, "big": 18446744073709551615,
    "list": [1, [2], {"a": "\u00e9"}], "flat": [1, 2, 3], "a\"b": "c\\d", "kind": "Node", "empty": {}, "text": ""
}"#;

#[test]
fn members_are_found_and_the_last_of_equal_keys_counts() {
    let document = Document::parse(TEXT.as_bytes()).unwrap();
    let root = document.root();
    assert_eq!(root.get("kind").and_then(Node::as_str), Some("Node"));
    assert_eq!(root.get("z").and_then(Node::as_i64), Some(1));
    assert_eq!(root.get("flag").and_then(Node::as_bool), Some(true));
    assert_eq!(root.get("a\"b").and_then(Node::as_str), Some("c\\d"));
    assert_eq!(root.get("text").and_then(Node::as_str), Some(""));
    assert!(root.get("none").is_some_and(Node::is_null));
    assert!(
        root.get("kin").is_none() && root.get("").is_none() && root.get("list").unwrap().get("a").is_none()
    );
    assert!(matches!(root.get("ratio").unwrap().content(), Content::Float(3.0)));
    assert!(matches!(root.get("big").unwrap().content(), Content::Uint(u64::MAX)));
    assert_eq!(root.get("big").and_then(Node::as_i64), None);
    assert!(root.get("empty").and_then(Node::as_object).is_some_and(Object::is_empty));
    let list = root.get("list").and_then(Node::as_array).unwrap();
    assert_eq!((list.len(), list.is_empty()), (3, false));
    assert_eq!(list.get(2).unwrap().at(&["a"]).and_then(Node::as_str), Some("é"));
    assert!(list.get(3).is_none());
    let flat = root.get("flat").and_then(Node::as_array).unwrap();
    assert_eq!((0..4).map_while(|i| flat.get(i)?.as_i64()).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn entries_are_in_the_order_of_their_keys() {
    let document = Document::parse(TEXT.as_bytes()).unwrap();
    let object = document.root().as_object().unwrap();
    let keys: Vec<&str> = object.entries().map(|(key, _)| key).collect();
    let sorted = ["a\"b", "big", "empty", "flag", "flat", "kind", "list", "none", "ratio", "text", "z"];
    assert_eq!(keys, sorted);
    assert_eq!((object.len(), object.entries().len(), object.members().len()), (11, 11, 11));
    // Few and different, so that there is no index.
    let document = Document::parse(br#"{"b": 1, "c": [2], "a": 3}"#).unwrap();
    let object = document.root().as_object().unwrap();
    assert_eq!(object.entries().map(|(key, _)| key).collect::<String>(), "abc");
    assert_eq!(object.members().map(|(key, _)| key).collect::<String>(), "bca");
    // As `serde_json` has them, whatever their number.
    for count in [31, 32, 33, 34, 200] {
        let text = (0..count).map(|i| format!("\"{}\":[{i}]", (i * 7) % count)).collect::<Vec<_>>().join(",");
        let text = format!("{{{text}}}");
        let document = Document::parse(text.as_bytes()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let entries = document.root().as_object().unwrap().entries();
        let found: Vec<_> = entries.map(|(key, value)| (key.to_owned(), value.to_value())).collect();
        assert_eq!(found, value.as_object().unwrap().clone().into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn values_are_equal_as_those_of_serde_json() {
    let rows = [
        ("1", "1", true),
        ("1", "1.0", false),
        ("0.0", "-0.0", true),
        ("[1, 2]", "[1, 2]", true),
        ("[1, 2]", "[1]", false),
        ("[1]", "[1, 2]", false),
        (r#"{"a": 1, "b": [{}]}"#, r#"{"b": [{}], "a": 1}"#, true),
        (r#"{"a": 1, "a": 2}"#, r#"{"a": 2}"#, true),
        (r#"{"a": null}"#, "{}", false),
        (r#""\u0061""#, r#""a""#, true),
        ("null", "false", false),
    ];
    for (left, right, equal) in rows {
        let parse = |text: &'static str| Document::parse(text.as_bytes()).unwrap();
        assert_eq!(parse(left) == parse(right), equal, "{left} {right}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(left) == value(right), equal, "{left} {right}");
    }
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let rows = [
        ("", "unexpected end at line 1 column 1"),
        ("{\n  \"a\": }", "expected a value at line 2 column 8"),
        ("{\"a\" 1}", "expected ':' at line 1 column 6"),
        ("{\"a\":1,}", "expected a key at line 1 column 8"),
        ("{a:1}", "expected a key at line 1 column 2"),
        ("[1 2]", "expected ',' or ']' at line 1 column 4"),
        ("{\"a\":1]", "expected ',' or '}' at line 1 column 7"),
        ("[1", "unexpected end at line 1 column 3"),
        ("1 2", "trailing characters at line 1 column 3"),
        ("trve", "expected true, false or null at line 1 column 1"),
        ("[01]", "invalid number at line 1 column 4"),
        ("1e400", "number out of range at line 1 column 6"),
        ("\"\\ud800\"", "lone surrogate at line 1 column 8"),
        ("\"\\q\"", "invalid escape at line 1 column 4"),
        ("\"\t\"", "control character in a string at line 1 column 2"),
    ];
    for (text, expected) in rows {
        assert_eq!(Document::parse(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
    }
    let deep = Document::parse("[".repeat(128).as_bytes()).unwrap_err();
    assert_eq!(deep, DocumentError::Syntax { problem: Problem::Depth, line: 1, column: 128 });
    assert_eq!(Document::parse(b"\"\xff\"").unwrap_err(), DocumentError::Encoding(1));
}

#[test]
fn a_document_shows_what_is_in_it() {
    let value = json!({"b": [1, -0.5, null], "a": "é", "c": u64::MAX, "d": true});
    let document = Document::of(&value).unwrap();
    let shown = "{\"a\": \"é\", \"b\": [1, -0.5, null], \"c\": 18446744073709551615, \"d\": true}";
    assert_eq!(format!("{document:?}"), shown);
}
