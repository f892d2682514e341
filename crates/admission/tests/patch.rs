//! C-28, C-31…C-34, G-04: a patch is accepted exactly when the API server could apply it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use sallyport_admission::Patch;
use sallyport_testkit::Random;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

fn verify(object: &Value, patch: &str) -> Result<(), String> {
    let object = to_raw_value(object).unwrap();
    Patch::parse(patch.as_bytes()).and_then(|patch| patch.verify(Some(&object))).map_err(|e| e.to_string())
}

#[test]
fn each_operation_applies_or_says_why_not() {
    let object = json!({
        "metadata": {"labels": {"a/b": "1", "m~n": "2", "": "3"}, "annotations": null},
        "spec": {"containers": [{"name": "c0"}, {"name": "c1"}], "volumes": [], "n": 1.5, "héé": {"x": true}}
    });
    let rows = [
        (r#"{"op":"add","path":"/metadata/labels/x","value":"1"}"#, ""),
        (r#"{"op":"add","path":"/metadata/labels/x","value":null}"#, ""),
        (r#"{"op":"replace","path":"/metadata/labels/a~1b","value":"1"}"#, ""),
        (r#"{"op":"replace","path":"/metadata/labels/m~0n","value":"1"}"#, ""),
        (r#"{"op":"replace","path":"/metadata/labels/","value":"1"}"#, ""),
        (r#"{"op":"replace","path":"/spec/h\u00e9é/x","value":"1"}"#, ""),
        (r#"{"op":"replace","path":"/metadata/labels/a/b","value":"1"}"#, "parent"),
        (r#"{"op":"replace","path":"/metadata/labels/a~2b","value":"1"}"#, "JSON pointer"),
        (r#"{"op":"replace","path":"/metadata/labels/a~","value":"1"}"#, "JSON pointer"),
        (r#"{"op":"add","path":"metadata","value":1}"#, "JSON pointer"),
        (r#"{"op":"add","path":"","value":{}}"#, "root"),
        (r#"{"op":"remove","path":""}"#, "root"),
        (r#"{"op":"test","path":"","value":{}}"#, "root"),
        (r#"{"op":"move","from":"/spec","path":""}"#, "root"),
        (r#"{"op":"copy","from":"","path":"/x"}"#, "`from`"),
        (r#"{"op":"add","path":"/metadata/annotations/x","value":"1"}"#, "parent"),
        (r#"{"op":"add","path":"/metadata/absent/x","value":"1"}"#, "parent"),
        (r#"{"op":"add","path":"/metadata/annotations","value":{"x":"1"}}"#, ""),
        (r#"{"op":"add","path":"/spec/volumes/-","value":1}"#, ""),
        (r#"{"op":"add","path":"/spec/volumes/0","value":1}"#, ""),
        (r#"{"op":"add","path":"/spec/volumes/1","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/2","value":1}"#, ""),
        (r#"{"op":"add","path":"/spec/containers/3","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/00","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/-1","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/+1","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/1e0","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/99999999999999999999999","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/containers/name","value":1}"#, "index"),
        (r#"{"op":"add","path":"/spec/n/x","value":1}"#, "parent"),
        (r#"{"op":"remove","path":"/spec/containers/1"}"#, ""),
        (r#"{"op":"remove","path":"/spec/containers/2"}"#, "index"),
        (r#"{"op":"remove","path":"/spec/containers/-"}"#, "index"),
        (r#"{"op":"remove","path":"/spec/absent"}"#, "does not exist"),
        (r#"{"op":"replace","path":"/spec/absent","value":1}"#, "does not exist"),
        (r#"{"op":"replace","path":"/spec/containers/-","value":1}"#, "does not exist"),
        (r#"{"op":"test","path":"/spec/containers/0/name","value":"c0"}"#, ""),
        (r#"{"op":"test","path":"/spec/containers","value":[{"name":"c0"},{"name":"c1"}]}"#, ""),
        (r#"{"op":"test","path":"/spec/containers/0/name","value":"c1"}"#, "differs"),
        (r#"{"op":"test","path":"/spec/absent","value":null}"#, "does not exist"),
        (r#"{"op":"test","path":"/metadata/annotations","value":null}"#, ""),
        (r#"{"op":"move","from":"/spec/containers/0","path":"/spec/containers/1"}"#, ""),
        (r#"{"op":"move","from":"/spec/containers/0","path":"/spec/containers/2"}"#, "index"),
        (r#"{"op":"move","from":"/spec","path":"/spec/inner"}"#, "itself"),
        (r#"{"op":"move","from":"/spec","path":"/specific"}"#, ""),
        (r#"{"op":"move","from":"/spec/n","path":"/spec/n"}"#, ""),
        (r#"{"op":"move","from":"/spec/absent","path":"/x"}"#, "does not exist"),
        (r#"{"op":"copy","from":"/spec","path":"/spec/inner"}"#, ""),
        (r#"{"op":"copy","from":"/spec/containers/0","path":"/spec/containers/-"}"#, ""),
        (r#"{"op":"copy","from":"/spec/absent","path":"/x"}"#, "does not exist"),
        (r#"{"op":"copy","path":"/x"}"#, "`from`"),
        (r#"{"op":"move","from":null,"path":"/x"}"#, "`from`"),
        (r#"{"op":"add","path":"/x"}"#, "`value`"),
        (r#"{"op":"replace","path":"/spec/n"}"#, "`value`"),
        (r#"{"op":"test","path":"/spec/n"}"#, "`value`"),
        (r#"{"op":"remove","path":"/spec/n","extra":[1]}"#, ""),
    ];
    for (operation, expected) in rows {
        match (verify(&object, &format!("[{operation}]")), expected) {
            (Ok(()), "") => {}
            (Err(message), expected) if !expected.is_empty() => {
                assert!(message.contains(expected), "{operation}: {message}");
                assert!(message.contains("operation 0"), "{operation}: {message}");
            }
            (outcome, _) => panic!("{operation}: {outcome:?}, expected {expected:?}"),
        }
    }
}

/// C-31: text that is no patch is found before anything is applied.
#[test]
fn what_is_no_json_patch_is_refused() {
    for text in [
        "",
        "null",
        "{}",
        "[",
        "[]x",
        "[1]",
        "[null]",
        "[{}]",
        r#"[["add","/a",null,1]]"#,
        r#"[{"op":"add"}]"#,
        r#"[{"path":"/a"}]"#,
        r#"[{"op":"spam","path":"/a"}]"#,
        r#"[{"op":"ADD","path":"/a","value":1}]"#,
        r#"[{"op":"add","path":null,"value":1}]"#,
        r#"[{"op":"add","path":1,"value":1}]"#,
        r#"[{"op":"add","op":"remove","path":"/a"}]"#,
    ] {
        let message = Patch::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(message.contains("JSON Patch array"), "{text}: {message}");
    }
    assert!(Patch::parse(b"[{\"op\":\"remove\",\"path\":\"/\xff\"}]").is_err());
    let long = format!(r#"[{{"op":"{}","path":"/a"}}]"#, "x".repeat(1 << 20));
    assert!(Patch::parse(long.as_bytes()).unwrap_err().to_string().len() < 500);
}

/// C-28, C-31: nothing to do needs no object; anything else does, and an object it must be.
#[test]
fn a_patch_needs_an_object_unless_it_is_empty() {
    let operation = br#"[{"op":"add","path":"/a","value":1}]"#;
    assert!(Patch::parse(b"[]").unwrap().is_empty());
    assert!(Patch::parse(b" [ ] ").unwrap().verify(None).is_ok());
    let message = Patch::parse(operation).unwrap().verify(None).unwrap_err().to_string();
    assert!(message.contains("no object"), "{message}");
    for object in ["[]", "null", "\"text\"", "1"] {
        let raw: &RawValue = serde_json::from_str(object).unwrap();
        let message = Patch::parse(operation).unwrap().verify(Some(raw)).unwrap_err().to_string();
        assert!(message.contains("not a JSON object"), "{object}: {message}");
    }
}

/// The second operation sees what the first did; the message counts from 0.
#[test]
fn operations_build_on_each_other() {
    let object = json!({"metadata": {}});
    let labels = r#"{"op":"add","path":"/metadata/labels","value":{}}"#;
    let label = r#"{"op":"add","path":"/metadata/labels/a~1b","value":"1"}"#;
    assert_eq!(verify(&object, &format!("[{labels},{label}]")), Ok(()));
    let message = verify(&object, &format!("[{label},{labels}]")).unwrap_err();
    assert!(message.contains("operation 0 (add \"/metadata/labels/a~1b\")"), "{message}");
    let message = verify(&object, &format!(r#"[{labels},{{"op":"remove","path":"/x"}}]"#)).unwrap_err();
    assert!(message.contains("operation 1 (remove"), "{message}");
}

fn repeated(operation: &str, times: usize) -> String {
    format!("[{}]", vec![operation; times].join(","))
}

#[test]
fn the_number_of_operations_is_bounded() {
    let operation = r#"{"op":"add","path":"/a","value":1}"#;
    assert_eq!(verify(&json!({}), &repeated(operation, 10_000)), Ok(()));
    assert!(verify(&json!({}), &repeated(operation, 10_001)).unwrap_err().contains("10001 operations"));
}

/// Values may be as deep as they like: nobody looks into them. Paths and what copies build may not.
#[test]
fn depth_is_bounded_where_it_costs_stack() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    assert_eq!(verify(&json!({}), &format!(r#"[{{"op":"add","path":"/a","value":{deep}}}]"#)), Ok(()));
    let into = format!(
        r#"[{{"op":"add","path":"/a","value":{deep}}},{{"op":"add","path":"/a{}","value":1}}]"#,
        "/0".repeat(300)
    );
    assert!(verify(&json!({}), &into).unwrap_err().contains("deeper"));
    let compare =
        format!(r#"[{{"op":"add","path":"/a","value":{deep}}},{{"op":"test","path":"/a","value":{deep}}}]"#);
    assert!(verify(&json!({}), &compare).unwrap_err().contains("compared"));
    for operation in ["move", "copy"] {
        let from = format!(r#"[{{"op":"{operation}","from":"/a{}","path":"/b"}}]"#, "/0".repeat(300));
        assert!(verify(&json!({}), &from).unwrap_err().contains("deeper"), "{operation}");
    }
    let nest = r#"{"op":"add","path":"/b","value":{}},{"op":"copy","from":"/a","path":"/b/a"},{"op":"move","from":"/b","path":"/a"}"#;
    assert!(verify(&json!({"a": {}}), &repeated(nest, 300)).unwrap_err().contains("deeper"));
}

/// A small patch must not build a large document, nor a long computation.
#[test]
fn growth_and_work_are_bounded() {
    let double = r#"{"op":"copy","from":"/a","path":"/a/-"}"#;
    assert!(verify(&json!({"a": ["x".repeat(1000)]}), &repeated(double, 40)).unwrap_err().contains("copies"));
    // Keys are copied too, and objects that were looked into take more than their text.
    let key = "k".repeat(1 << 20);
    let copy = r#"{"op":"copy","from":"/a","path":"/b"}"#;
    let with_key = format!(r#"[{{"op":"add","path":"/a/{key}","value":1}},{}]"#, vec![copy; 20].join(","));
    assert!(verify(&json!({"a": {}}), &with_key).unwrap_err().contains("copies"));
    let looked_into: Vec<String> =
        (0..1000).map(|at| format!(r#"{{"op":"add","path":"/a/{at}/y","value":1}}"#)).collect();
    let wide = format!("[{},{}]", looked_into.join(","), vec![copy; 100].join(","));
    assert!(verify(&json!({"a": vec![json!({"x": 1}); 1000]}), &wide).unwrap_err().contains("copies"));

    let many = json!({"a": vec![0; 300_000], "b": "x".repeat(4 << 20)});
    let insert = r#"{"op":"add","path":"/a/0","value":1}"#;
    let remove = r#"{"op":"remove","path":"/a/0"}"#;
    let test = format!(r#"{{"op":"test","path":"/b","value":{}}}"#, many["b"]);
    let there_and_back = r#"{"op":"move","from":"/b","path":"/c"},{"op":"move","from":"/c","path":"/b"}"#;
    for (operation, too_often) in [(insert, 1000), (remove, 1000), (there_and_back, 100), (&test, 40)] {
        assert_eq!(verify(&many, &repeated(operation, 2)), Ok(()));
        let message = verify(&many, &repeated(operation, too_often)).unwrap_err();
        assert!(message.contains("too much work"), "{message}");
    }
    let append = r#"{"op":"add","path":"/a/-","value":1}"#;
    assert_eq!(verify(&many, &repeated(append, 10_000)), Ok(()), "an honest patch of the same length");
}

fn key(random: &mut Random) -> String {
    random.choice(&KEYS).to_owned()
}

fn value(random: &mut Random, depth: usize) -> Value {
    let leaf = |random: &mut Random| match random.below(4) {
        0 => Value::Null,
        1 => json!(random.below(3)),
        2 => json!(random.choice(&["x", "y~", ""])),
        _ => json!(random.below(2) == 0),
    };
    random.json(depth, &key, &leaf)
}

fn path(random: &mut Random) -> String {
    let tokens = ["a", "b", "a~1b", "m~0n", "0", "1", "2", "-", "00", ""];
    (0..=random.below(3)).flat_map(|_| ["/", random.choice(&tokens)]).collect()
}

fn operation(random: &mut Random) -> Value {
    let (at, from) = (path(random), path(random));
    match random.below(6) {
        0 | 1 => json!({"op": "add", "path": at, "value": value(random, 2)}),
        2 => json!({"op": "remove", "path": at}),
        3 => json!({"op": "replace", "path": at, "value": value(random, 2)}),
        4 => json!({"op": "move", "from": from, "path": at}),
        _ => json!({"op": "copy", "from": from, "path": at}),
    }
}

const KEYS: [&str; 6] = ["a", "b", "a/b", "m~n", "0", ""];

/// Success, failure and the resulting document agree with the json-patch crate. The one documented
/// difference, the whole-document path, is not generated.
#[test]
fn random_patches_agree_with_json_patch() {
    let mut random = Random::seeded(1);
    let (mut applied, mut refused) = (0, 0);
    for _ in 0..8_000 {
        let members = (0..5).map(|_| (key(&mut random), value(&mut random, 3)));
        let object = Value::Object(members.collect());
        // Most random operations fail, so patches grow from operations that applied.
        let mut patch: Vec<Value> = Vec::new();
        let mut result = object.clone();
        for _ in 0..6 {
            let operation = operation(&mut random);
            let one: json_patch::Patch = serde_json::from_value(json!([operation])).unwrap();
            // On a copy: a `move` that fails has removed its source already.
            let mut next = result.clone();
            let theirs = json_patch::patch(&mut next, &one);
            patch.push(operation);
            let mut whole = patch.clone();
            if theirs.is_ok() {
                applied += 1;
                result = next;
                let tests = result.as_object().unwrap().iter().map(|(key, value)| {
                    json!({"op": "test", "path": format!("/{}", key.replace('~', "~0").replace('/', "~1")), "value": value})
                });
                whole.extend(tests);
            } else {
                refused += 1;
                patch.pop();
            }
            let text = Value::Array(whole).to_string();
            let ours = verify(&object, &text);
            assert_eq!(ours.is_ok(), theirs.is_ok(), "{object}\n{text}\nours {ours:?}, theirs {theirs:?}");
        }
    }
    assert!(applied > 4_000 && refused > 4_000, "{applied} applied, {refused} refused");
}
