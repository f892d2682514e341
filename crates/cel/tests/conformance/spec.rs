//! The language's own conformance tests (cel-spec's simple tests), read from `$SALLYPORT_CORPORA/cel-spec`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sallyport_cel::{Activation, Limits, Program, Scope, Value};
use serde_json::Value as Json;

use crate::exceptions::{EXCEPTIONS, Exception, FILES};
use crate::notation;
use crate::textproto::{Field, Message, read};

/// What came of a test.
#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
}

fn testdata() -> PathBuf {
    let root = std::env::var_os("SALLYPORT_CORPORA")
        .expect("SALLYPORT_CORPORA is not set: set it to the directory that holds cel-spec (make test does)");
    PathBuf::from(root).join("cel-spec/tests/simple/testdata")
}

#[test]
fn cel_spec_simple_tests() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(testdata())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "textproto"))
        .collect();
    files.sort();
    let mut used = vec![false; EXCEPTIONS.len()];
    let mut problems = Vec::new();
    let mut totals = [0_usize; 3];
    println!("{:<16} {:>6} {:>6} {:>11}", "file", "passed", "failed", "unsupported");
    for path in files {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let tests = read(&std::fs::read_to_string(&path).unwrap());
        let mut counts = [0_usize; 3];
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for section in tests.messages("section") {
            for test in section.messages("test") {
                let name = format!("{}/{}", section.text("name"), test.text("name"));
                let mut unsupported = |reason| {
                    counts[2] += 1;
                    *reasons.entry(reason).or_default() += 1;
                };
                if let Some((_, reason)) = FILES.iter().find(|(named, _)| *named == file) {
                    unsupported(*reason);
                    continue;
                }
                if is_about_protobuf(test) {
                    unsupported("messages of protobuf");
                    continue;
                }
                let exception = EXCEPTIONS.iter().position(|exception| exception.fits(&file, &name));
                match (exception, judge(test)) {
                    (None, Verdict::Passed) => counts[0] += 1,
                    (Some(row), Verdict::Failed(_)) => {
                        used[row] = true;
                        unsupported(EXCEPTIONS[row].reason);
                    }
                    (Some(row), Verdict::Passed) => {
                        counts[0] += 1;
                        used[row] = true;
                        let text = test.text("expr");
                        problems.push(format!("{file} {name} is an exception and passes: {text}"));
                    }
                    (None, Verdict::Failed(problem)) => {
                        counts[1] += 1;
                        problems.push(format!("{file} {name}: {}\n    {problem}", test.text("expr")));
                    }
                }
            }
        }
        println!("{file:<16} {:>6} {:>6} {:>11}", counts[0], counts[1], counts[2]);
        for (reason, count) in reasons {
            println!("{:<32} {count:>9}  {reason}", "");
        }
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    println!("{:<16} {:>6} {:>6} {:>11}", "total", totals[0], totals[1], totals[2]);
    for (row, _) in EXCEPTIONS.iter().zip(&used).filter(|(_, used)| !**used) {
        problems.push(format!("no test fits the exception {} {}", row.file, row.test));
    }
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(totals[0] > 900, "only {} passed", totals[0]);
}

impl Exception {
    fn fits(&self, file: &str, test: &str) -> bool {
        let fits = match self.test.strip_suffix('*') {
            Some(prefix) => test.starts_with(prefix),
            None => self.test == test,
        };
        self.file == file && fits
    }
}

/// Kubernetes has no messages of protobuf, and no types of their own for wrappers.
fn is_about_protobuf(test: &Message) -> bool {
    let expression = test.text("expr");
    let container = test.text("container");
    let known = expression.replace("google.protobuf.Timestamp", "").replace("google.protobuf.Duration", "");
    let declared = test.messages("type_env").any(speaks_of_messages);
    let bound = test.messages("bindings").any(has_message);
    container.starts_with("cel.expr.conformance")
        || known.contains("google.protobuf.")
        || known.contains("TestAllTypes")
        || declared
        || bound
        || test.message("value").is_some_and(has_message)
}

fn speaks_of_messages(declared: &Message) -> bool {
    declared.0.iter().any(|(name, field)| match field {
        Field::Message(message) => speaks_of_messages(message),
        Field::Text(_) => name == "message_type",
        Field::Word(_) => name == "wrapper",
    })
}

fn has_message(value: &Message) -> bool {
    value.0.iter().any(|(name, field)| {
        let other = name.starts_with('[') && !name.ends_with(".Timestamp]") && !name.ends_with(".Duration]");
        other || matches!(field, Field::Message(message) if has_message(message))
    })
}

fn judge(test: &Message) -> Verdict {
    let mut scope = Scope::default();
    for declared in test.messages("type_env").filter(|declared| declared.message("ident").is_some()) {
        scope.variable(&declared.text("name"));
    }
    let bindings: Vec<(String, Value<'static>)> = test
        .messages("bindings")
        .filter_map(|bound| {
            let value = bound.message("value")?.message("value")?;
            Some((bound.text("key"), literal(value)))
        })
        .collect();
    for (name, _) in &bindings {
        scope.variable(name);
    }
    let outcome =
        Program::compile(&test.text("expr"), &scope).map_err(|error| error.to_string()).and_then(|program| {
            if test.word("check_only") == Some("true") {
                return Ok(Value::null());
            }
            let mut activation = Activation::new(&scope, Limits::default());
            for (name, value) in bindings {
                activation.bind(&name, value);
            }
            program.evaluate(&activation).map_err(|error| error.to_string())
        });
    if test.message("eval_error").is_some() || test.message("any_eval_errors").is_some() {
        return match outcome {
            Err(_) => Verdict::Passed,
            Ok(value) => Verdict::Failed(format!("an error was expected, gave {value:?}")),
        };
    }
    if test.word("check_only") == Some("true") {
        return Verdict::Failed("deduced types cannot be seen".to_owned());
    }
    let typed = test.message("typed_result").and_then(|typed| typed.message("result"));
    // Without a result, true is expected.
    let expected = match test.message("value").or(typed) {
        Some(value) => literal(value),
        None => Value::bool(true),
    };
    match outcome.and_then(|value| described(&value)) {
        Ok(found) if described(&expected).as_ref() == Ok(&found) => Verdict::Passed,
        found => Verdict::Failed(format!("expected {:?}, gave {found:?}", described(&expected))),
    }
}

fn described(value: &Value<'_>) -> Result<(String, Json), String> {
    Ok((value.type_name().to_owned(), notation::write(value)?))
}

/// The value that a message of the tests stands for.
fn literal(value: &Message) -> Value<'static> {
    let source = source(value);
    let scope = Scope::default();
    let program = Program::compile(&source, &scope).unwrap_or_else(|error| panic!("{source}: {error}"));
    program.evaluate(&Activation::new(&scope, Limits::default())).unwrap_or_else(|e| panic!("{source}: {e}"))
}

/// An expression that gives the value.
fn source(value: &Message) -> String {
    let Some((name, field)) = value.0.first() else { return "null".to_owned() };
    match (name.as_str(), field) {
        ("null_value", _) => "null".to_owned(),
        ("bool_value" | "int64_value", Field::Word(word)) => word.clone(),
        ("uint64_value", Field::Word(word)) => format!("{word}u"),
        ("double_value", Field::Word(word)) => match word.as_str() {
            "nan" => "0.0 / 0.0".to_owned(),
            "inf" => "1.0 / 0.0".to_owned(),
            "-inf" => "-1.0 / 0.0".to_owned(),
            word => format!("double('{word}')"),
        },
        ("string_value", Field::Text(bytes)) => escaped("", bytes),
        ("bytes_value", Field::Text(bytes)) => escaped("b", bytes),
        ("type_value", Field::Text(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        ("list_value", Field::Message(list)) => {
            // Kubernetes refuses literals of mixed types.
            let items: Vec<String> =
                list.messages("values").map(|item| format!("dyn({})", source(item))).collect();
            format!("[{}]", items.join(", "))
        }
        ("map_value", Field::Message(map)) => {
            let part = |entry: &Message, name| entry.message(name).map(source).unwrap_or_default();
            let entries: Vec<String> = map
                .messages("entries")
                .map(|entry| format!("dyn({}): dyn({})", part(entry, "key"), part(entry, "value")))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        ("object_value", Field::Message(object)) => {
            let (type_name, field) = object.0.first().unwrap();
            let Field::Message(time) = field else { panic!("{type_name} is no message") };
            let number = |name| time.word(name).unwrap_or("0").to_owned();
            let (seconds, nanos) = (number("seconds"), number("nanos"));
            if type_name.ends_with(".Duration]") {
                format!("duration('{seconds}s') + duration('{nanos}ns')")
            } else {
                format!("timestamp({seconds}) + duration('{nanos}ns')")
            }
        }
        (name, field) => panic!("no value is known of {name} {field:?}"),
    }
}

/// A literal of these bytes; text stays text.
fn escaped(prefix: &str, bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut literal = format!("{prefix}'");
    if prefix.is_empty() {
        for character in String::from_utf8_lossy(bytes).chars() {
            let _ = write!(literal, "\\U{:08x}", u32::from(character));
        }
    } else {
        for byte in bytes {
            let _ = write!(literal, "\\x{byte:02x}");
        }
    }
    literal + "'"
}
