//! Values of CEL as JSON, those included that JSON has no form for.
//!
//! A value may hold the same part many times without taking more memory, so what is written is bounded: an
//! answer never takes more than some [`MAX_BYTES`].

use sallyport_cel::{EvalError, Value};
use serde_json::{Map, Value as Json, json};

/// Most that an answer may take, in bytes, counting text and [`NODE_BYTES`] for each value.
const MAX_BYTES: usize = 8 << 20;
/// What a value counts besides its text.
const NODE_BYTES: usize = 32;
/// Deepest nesting: what expressions can make and as much JSON as a parser takes.
const MAX_DEPTH: usize = 256;

/// Writes a value. The errors are those of a limit.
pub(crate) fn encode(value: &Value<'_>) -> Result<Json, EvalError> {
    Encoder { left: MAX_BYTES }.value(value, 0)
}

struct Encoder {
    left: usize,
}

impl Encoder {
    fn spend(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.left = self.left.checked_sub(bytes).ok_or(EvalError::SizeExceeded)?;
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>, depth: usize) -> Result<Json, EvalError> {
        if depth > MAX_DEPTH {
            return Err(EvalError::TooDeep);
        }
        self.spend(NODE_BYTES)?;
        if let Some(items) = value.as_list() {
            return items.map(|item| self.value(&item, depth + 1)).collect();
        }
        if let Some(entries) = value.as_map() {
            return self.map(&entries, depth);
        }
        if let Some(optional) = value.as_optional() {
            let held = match optional {
                Some(held) => self.value(&held, depth + 1)?,
                None => json!("none"),
            };
            return Ok(json!({"$optional": held}));
        }
        if let Some(text) = value.as_str() {
            self.spend(text.len())?;
            return Ok(json!(text));
        }
        if let Some(name) = value.as_type() {
            return Ok(json!({"$type": name}));
        }
        if let Some(double) = value.as_double() {
            return Ok(number(double));
        }
        if let Some(text) = value.to_text() {
            return Ok(json!(text));
        }
        let scalar = value.to_json()?;
        self.spend(scalar.as_str().map_or(0, str::len))?;
        Ok(scalar)
    }

    fn map(&mut self, entries: &[(Value<'_>, Value<'_>)], depth: usize) -> Result<Json, EvalError> {
        let mut written = Map::new();
        for (key, value) in entries {
            let Some(name) = key.as_str() else { return self.pairs(entries, depth) };
            self.spend(name.len())?;
            let value = self.value(value, depth + 1)?;
            written.insert(name.to_owned(), value);
        }
        Ok(Json::Object(written))
    }

    /// A map with keys that are not strings.
    fn pairs(&mut self, entries: &[(Value<'_>, Value<'_>)], depth: usize) -> Result<Json, EvalError> {
        let mut pairs = Vec::new();
        for (key, value) in entries {
            self.spend(NODE_BYTES)?;
            pairs.push(json!([self.value(key, depth + 1)?, self.value(value, depth + 1)?]));
        }
        Ok(json!({"$map": pairs}))
    }
}

fn number(double: f64) -> Json {
    if double.is_nan() {
        json!("NaN")
    } else if double.is_infinite() {
        json!(if double > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(double)
    }
}

#[cfg(test)]
mod tests {
    use sallyport_cel::{Activation, EvalError, Limits, Program, Scope, Value};
    use sallyport_document::Document;
    use serde_json::{Value as Json, json};

    use super::encode;

    fn written(source: &str, object: &Json) -> Result<(String, Json), EvalError> {
        let scope = Scope::new(&["object"]);
        let program = Program::compile(source, &scope).unwrap();
        let object = Document::of(object).unwrap();
        let mut activation = Activation::new(&scope, Limits::default());
        activation.bind("object", Value::from(&object));
        let value = program.evaluate(&activation)?;
        Ok((value.type_name().to_owned(), encode(&value)?))
    }

    #[test]
    fn every_type_has_its_form() {
        let object = json!({
            "text": "é\"\n", "float": 4.0, "list": [1, {"a": null}],
            "big": 18_446_744_073_709_551_615_u64,
        });
        for (source, type_name, json) in [
            ("null", "null_type", json!(null)),
            ("true", "bool", json!(true)),
            ("-9223372036854775808", "int", json!(i64::MIN)),
            ("18446744073709551615u", "uint", json!(u64::MAX)),
            ("2.0", "double", json!(2.0)),
            ("-0.0", "double", json!(-0.0)),
            ("1e300", "double", json!(1e300)),
            ("0.0 / 0.0", "double", json!("NaN")),
            ("1.0 / 0.0", "double", json!("Infinity")),
            ("-1.0 / 0.0", "double", json!("-Infinity")),
            ("'a\\u00e9'", "string", json!("aé")),
            ("b'\\xff\\x00a'", "bytes", json!("/wBh")),
            ("b''", "bytes", json!("")),
            (
                "timestamp('2026-01-02T03:04:05.5+01:00')",
                "google.protobuf.Timestamp",
                json!("2026-01-02T03:04:05.5+01:00"),
            ),
            ("duration('1500ms')", "google.protobuf.Duration", json!("1.5s")),
            ("duration('-1h30m')", "google.protobuf.Duration", json!("-5400s")),
            ("type(1)", "type", json!({"$type": "int"})),
            ("type(type(1))", "type", json!({"$type": "type"})),
            ("optional.of(1)", "optional_type", json!({"$optional": 1})),
            ("optional.of(null)", "optional_type", json!({"$optional": null})),
            ("optional.of(optional.none())", "optional_type", json!({"$optional": {"$optional": "none"}})),
            ("optional.none()", "optional_type", json!({"$optional": "none"})),
            ("quantity('1500m')", "kubernetes.Quantity", json!("1500m")),
            ("quantity('2000m')", "kubernetes.Quantity", json!("2")),
            ("quantity('0')", "kubernetes.Quantity", json!("0")),
            ("quantity('-0.25')", "kubernetes.Quantity", json!("-250m")),
            ("quantity('3000k')", "kubernetes.Quantity", json!("3M")),
            ("quantity('7E')", "kubernetes.Quantity", json!("7E")),
            ("quantity('1n')", "kubernetes.Quantity", json!("1n")),
            ("quantity('1.5Gi')", "kubernetes.Quantity", json!("1536Mi")),
            ("url('HTTP://a.b/c?d#e')", "kubernetes.URL", json!("http://a.b/c?d#e")),
            ("ip('2001:DB8:0:0::1')", "net.IP", json!("2001:db8::1")),
            ("cidr('10.1.0.0/8')", "net.CIDR", json!("10.1.0.0/8")),
            ("semver('v1.02', true)", "kubernetes.Semver", json!("1.2.0")),
            ("[ip('::1')]", "list", json!(["::1"])),
            (
                "[dyn(1), dyn('a'), dyn(0.0 / 0.0), dyn([type(1)])]",
                "list",
                json!([1, "a", "NaN", [{"$type": "int"}]]),
            ),
            ("[]", "list", json!([])),
            ("{}", "map", json!({})),
            ("{'b': dyn(1), 'a': dyn(b'a')}", "map", json!({"a": "YQ==", "b": 1})),
            ("{2: 'b', 1: 'a'}", "map", json!({"$map": [[1, "a"], [2, "b"]]})),
            (
                "{dyn(true): dyn(1), dyn('x'): dyn({1u: 2})}",
                "map",
                json!({"$map": [[true, 1], ["x", {"$map": [[1, 2]]}]]}),
            ),
            ("Object{spec: Object.spec{a: 1, b: [2u]}}", "Object", json!({"spec": {"a": 1, "b": [2]}})),
            (
                "[JSONPatch{op: 'add', path: '/a', value: Object.a{b: duration('1s')}}]",
                "list",
                json!([{"op": "add", "path": "/a", "value": {"b": "1s"}}]),
            ),
            (
                "object",
                "map",
                json!({"text": "é\"\n", "float": 4.0, "list": [1, {"a": null}], "big": 18_446_744_073_709_551_615.0}),
            ),
            ("object.float", "double", json!(4.0)),
            ("object.list[0]", "int", json!(1)),
            ("object.big", "double", json!(18_446_744_073_709_551_615.0)),
        ] {
            let (found_type, found) = written(source, &object).unwrap();
            assert_eq!((found_type.as_str(), found.to_string()), (type_name, json.to_string()), "{source}");
        }
    }

    /// What an expression repeats costs it nothing, but would cost its reader.
    #[test]
    fn an_answer_is_bounded() {
        let object = json!({"text": "x".repeat(1 << 20)});
        assert!(written("[object, object]", &object).is_ok());
        for source in [
            "[object, object, object, object, object, object, object, object]",
            "[1,2,3,4,5,6,7,8,9].map(i, object.text)",
            "[0,1,2,3,4,5,6,7,8,9].map(a, [0,1,2,3,4,5,6,7,8,9].map(b, {a: object}))",
        ] {
            assert_eq!(written(source, &object).unwrap_err(), EvalError::SizeExceeded, "{source}");
        }
    }
}
