//! What was expected, against what came.

use sallyport_policy::Status;
use serde::Serialize;
use serde_json::{Value, json};

use super::passage::Observation;
use super::specification::{Cause, Expectation, Text};

/// Most differences of an object's parts that are told.
const MAX_PARTS: usize = 20;

/// Something that is not as expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mismatch {
    /// The field of `expect`, with the path of a part of the object.
    pub(crate) field: String,
    pub(crate) expected: Value,
    pub(crate) got: Value,
    /// Said besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// The objects that an expectation names, read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) whole: Option<Value>,
    pub(crate) part: Option<Value>,
}

/// What is not as expected. `again` is what came of a second run over the result, if the first changed anything.
pub(crate) fn judge(
    expect: &Expectation,
    objects: &Objects,
    observation: &Observation,
    again: Option<&Observation>,
) -> Vec<Mismatch> {
    let mut judge = Judge { mismatches: Vec::new() };
    let denial = observation.denial.as_ref();
    judge.compare("allowed", &expect.is_allowed(), &denial.is_none());
    if let (true, Some(status)) = (expect.is_allowed(), denial) {
        judge.add_note(format!("denied {}: {}", status.code, status.message));
    }
    if let Some(status) = denial.filter(|_| !expect.is_allowed()) {
        judge.compare_denial(expect, status);
    }
    if let Some(expected) = &expect.warnings
        && !fit(expected, &observation.warnings)
    {
        judge.add_mismatch("warnings", texts(expected), json!(observation.warnings));
    }
    if let Some(expected) = &expect.audit_annotations {
        let got = &observation.audit_annotations;
        let fits = expected.len() == got.len()
            && expected.iter().all(|(key, text)| got.get(key).is_some_and(|value| text.fits(value)));
        if !fits {
            let expected: Value =
                expected.iter().map(|(key, text)| (key.clone(), json!(text.to_string()))).collect();
            judge.add_mismatch("auditAnnotations", expected, json!(got));
        }
    }
    if denial.is_none() {
        judge.compare_object(expect, objects, observation);
    }
    let errors = expect.errors.clone().unwrap_or_default();
    if errors != observation.errors {
        judge.add_mismatch("errors", json!(errors), json!(observation.errors));
        judge.add_note("these policies could not be evaluated".to_owned());
    }
    judge.compare_again(expect, observation, again);
    judge.mismatches
}

struct Judge {
    mismatches: Vec<Mismatch>,
}

impl Judge {
    fn add_mismatch(&mut self, field: impl Into<String>, expected: Value, got: Value) {
        self.mismatches.push(Mismatch { field: field.into(), expected, got, note: None });
    }

    /// Says more of the last mismatch.
    fn add_note(&mut self, note: String) {
        if let Some(last) = self.mismatches.last_mut() {
            last.note = Some(note);
        }
    }

    fn compare_again(&mut self, expect: &Expectation, first: &Observation, again: Option<&Observation>) {
        let changed = again.filter(|again| again.changed);
        match (expect.changes_again.unwrap_or(false), changed) {
            (false, Some(again)) => {
                let object = |of: &Observation| of.object.clone().unwrap_or_default();
                self.add_mismatch("changesAgain", object(first), object(again));
                self.add_note("a second run over the result changes it again".to_owned());
            }
            (true, None) => self.add_mismatch("changesAgain", json!(true), json!(false)),
            _ => {}
        }
        let Some(again) = again else { return };
        if let Some(status) = &again.denial {
            self.add_mismatch("changesAgain", Value::Null, json!(status.message));
            self.add_note(format!("a second run over the result is denied with {}", status.code));
        }
        let more: Vec<_> = again.errors.difference(&first.errors).collect();
        if !more.is_empty() {
            self.add_mismatch("errors", json!(first.errors), json!(more));
            self.add_note("these policies could not be evaluated in a second run over the result".to_owned());
        }
    }

    fn compare<T: PartialEq + Serialize>(&mut self, field: &str, expected: &T, got: &T) {
        if expected != got {
            self.add_mismatch(field, json!(expected), json!(got));
        }
    }

    fn compare_denial(&mut self, expect: &Expectation, status: &Status) {
        if let Some(code) = expect.code {
            self.compare("code", &code, &status.code);
        }
        if let Some(reason) = &expect.reason {
            self.compare("reason", reason, &status.reason);
        }
        if let Some(message) = expect.message.as_ref().filter(|message| !message.fits(&status.message)) {
            self.add_mismatch("message", json!(message.to_string()), json!(status.message));
        }
        if let Some(expected) = &expect.causes {
            let fits = expected.len() == status.causes.len()
                && expected.iter().zip(&status.causes).all(|(expected, got)| cause_fits(expected, got));
            if !fits {
                let got = status.causes.iter();
                let got = got.map(|got| cause(Some(&got.field), Some(&got.message), Some(&got.reason)));
                let expected = expected.iter().map(|expected| {
                    let message = expected.message.as_ref().map(Text::to_string);
                    cause(expected.field.as_deref(), message.as_deref(), expected.reason.as_deref())
                });
                self.add_mismatch("causes", expected.collect(), got.collect());
            }
        }
    }

    fn compare_object(&mut self, expect: &Expectation, objects: &Objects, observation: &Observation) {
        let got = observation.object.clone().unwrap_or_default();
        if let Some(unchanged) = expect.unchanged
            && unchanged == observation.changed
        {
            self.add_mismatch("unchanged", json!(unchanged), json!(!observation.changed));
        }
        if let Some(whole) = objects.whole.as_ref().filter(|whole| **whole != got) {
            self.add_mismatch("object", whole.clone(), got.clone());
        }
        if let Some(part) = &objects.part {
            let mut found = Vec::new();
            compare_parts(part, Some(&got), "", &mut found);
            found.truncate(MAX_PARTS);
            for (path, expected, got) in found {
                self.add_mismatch(format!("objectContains{path}"), expected, got);
            }
        }
    }
}

fn texts(texts: &[Text]) -> Value {
    texts.iter().map(|text| json!(text.to_string())).collect()
}

fn fit(expected: &[Text], got: &[String]) -> bool {
    expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| expected.fits(got))
}

fn cause(field: Option<&str>, message: Option<&str>, reason: Option<&str>) -> Value {
    let fields = [("field", field), ("message", message), ("reason", reason)];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

fn cause_fits(expected: &Cause, got: &sallyport_policy::Cause) -> bool {
    expected.field.as_ref().is_none_or(|field| *field == got.field)
        && expected.message.as_ref().is_none_or(|message| message.fits(&got.message))
        && expected.reason.as_ref().is_none_or(|reason| *reason == got.reason)
}

/// Where a part is not in the whole. Maps may have more fields, and lists more entries: each entry of the part
/// must be among those of the whole, in this order. Null asks that a field is absent.
fn compare_parts(part: &Value, whole: Option<&Value>, path: &str, found: &mut Vec<(String, Value, Value)>) {
    if found.len() > MAX_PARTS {
        return;
    }
    match (part, whole) {
        (Value::Object(part), Some(Value::Object(whole))) => {
            for (name, part) in part {
                let path = if name.contains(['.', '/']) {
                    format!("{path}[{name:?}]")
                } else {
                    format!("{path}.{name}")
                };
                match (part, whole.get(name)) {
                    (Value::Null, None | Some(Value::Null)) => {}
                    (part, whole) => compare_parts(part, whole, &path, found),
                }
            }
        }
        (Value::Array(part), Some(Value::Array(whole))) => {
            let mut rest = whole.as_slice();
            for (index, part) in part.iter().enumerate() {
                let fits = |candidate: &Value| {
                    let mut found = Vec::new();
                    compare_parts(part, Some(candidate), "", &mut found);
                    found.is_empty()
                };
                match rest.iter().position(fits) {
                    Some(position) => rest = rest.get(position + 1..).unwrap_or_default(),
                    None => found.push((format!("{path}[{index}]"), part.clone(), json!(rest))),
                }
            }
        }
        (part, whole) if whole == Some(part) => {}
        (part, whole) => found.push((path.to_owned(), part.clone(), whole.cloned().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use sallyport_policy::{Cause, Status};
    use serde_json::{Value, json};

    use super::{Objects, compare_parts, judge};
    use crate::input::manifest;
    use crate::test::passage::Observation;
    use crate::test::specification::Expectation;

    fn denied() -> Observation {
        let cause = |field: &str| Cause { field: field.into(), message: "m".into(), reason: "R".into() };
        Observation {
            denial: Some(Status {
                code: 402,
                reason: "Forbidden".into(),
                message: "a b c".into(),
                causes: vec![cause("x"), cause("y")],
            }),
            warnings: vec!["w1".into(), "w2".into()],
            audit_annotations: [("k".to_owned(), "v".to_owned())].into(),
            ..Observation::default()
        }
    }

    fn changed() -> Observation {
        Observation { object: Some(json!({"a": 1, "b": [1, 2]})), changed: true, ..Observation::default() }
    }

    /// Each row: what is expected, of what, and the fields in which it is not so.
    #[test]
    fn every_expectation_can_fail() {
        for (expect, observation, fields) in [
            ("allowed: false", denied(), &[] as &[&str]),
            ("allowed: true", denied(), &["allowed"]),
            ("allowed: true", changed(), &[]),
            ("allowed: false", changed(), &["allowed"]),
            ("code: 402", denied(), &[]),
            ("code: 403", denied(), &["code"]),
            ("code: 402", changed(), &["allowed"]),
            ("reason: Forbidden", denied(), &[]),
            ("reason: forbidden", denied(), &["reason"]),
            ("message: a b c", denied(), &[]),
            ("message: a b", denied(), &["message"]),
            ("message: {contains: b}", denied(), &[]),
            ("message: {contains: d}", denied(), &["message"]),
            ("causes: [{field: x}, {field: y, message: m, reason: R}]", denied(), &[]),
            ("causes: [{field: x}]", denied(), &["causes"]),
            ("causes: [{field: y}, {field: x}]", denied(), &["causes"]),
            ("causes: [{field: x}, {message: n}]", denied(), &["causes"]),
            ("causes: [{field: x}, {reason: S}]", denied(), &["causes"]),
            ("{allowed: false, warnings: [w1, {contains: w}]}", denied(), &[]),
            ("{allowed: false, warnings: [w2, w1]}", denied(), &["warnings"]),
            ("{allowed: false, warnings: []}", denied(), &["warnings"]),
            ("{allowed: false, auditAnnotations: {k: v}}", denied(), &[]),
            ("{allowed: false, auditAnnotations: {}}", denied(), &["auditAnnotations"]),
            ("{allowed: false, auditAnnotations: {l: v}}", denied(), &["auditAnnotations"]),
            ("{allowed: false, auditAnnotations: {k: w}}", denied(), &["auditAnnotations"]),
            ("unchanged: false", changed(), &[]),
            ("unchanged: true", changed(), &["unchanged"]),
            ("unchanged: false", Observation::default(), &["unchanged"]),
            ("errors: []", changed(), &[]),
            ("errors: [p]", changed(), &["errors"]),
            ("errors: [p]", Observation { errors: ["p".to_owned()].into(), ..changed() }, &[]),
            ("allowed: true", Observation { errors: ["p".to_owned()].into(), ..changed() }, &["errors"]),
            ("changesAgain: true", changed(), &["changesAgain"]),
        ] {
            let parsed: Expectation = manifest::parse_as(expect).unwrap();
            let mismatches = judge(&parsed, &Objects::default(), &observation, None);
            let found: Vec<_> = mismatches.iter().map(|mismatch| mismatch.field.as_str()).collect();
            assert_eq!(found, fields, "{expect}");
        }
    }

    #[test]
    fn objects_are_compared_whole_in_part_and_with_their_second_run() {
        let allowed = Expectation { allowed: Some(true), ..Expectation::default() };
        let fields = |objects: Objects, again: Option<&Observation>| -> Vec<String> {
            let mismatches = judge(&allowed, &objects, &changed(), again);
            mismatches.into_iter().map(|mismatch| mismatch.field).collect()
        };
        let whole = |value: Value| Objects { whole: Some(value), part: None };
        assert_eq!(fields(whole(json!({"a": 1, "b": [1, 2]})), None), [""; 0]);
        assert_eq!(fields(whole(json!({"a": 1})), None), ["object"]);
        let part = |value: Value| Objects { whole: None, part: Some(value) };
        assert_eq!(fields(part(json!({"b": [2], "c": null})), None), [""; 0]);
        assert_eq!(fields(part(json!({"a": 2, "c": 3})), None), ["objectContains.a", "objectContains.c"]);
        let second = |again: Observation| fields(Objects::default(), Some(&again));
        assert_eq!(second(changed()), ["changesAgain"]);
        let settled = || Observation { changed: false, ..changed() };
        assert_eq!(second(settled()), [""; 0]);
        assert_eq!(second(Observation { denial: Some(Status::default()), ..settled() }), ["changesAgain"]);
        assert_eq!(second(Observation { errors: ["p".to_owned()].into(), ..settled() }), ["errors"]);
    }

    #[test]
    fn a_part_is_found_in_the_whole() {
        let whole = json!({"l": [{"n": "a", "x": 1}, {"n": "b"}, {"n": "c"}], "m": {"k/y": 1}, "z": null});
        for (part, paths) in [
            (json!({}), &[] as &[&str]),
            (json!({"l": []}), &[]),
            (json!({"l": [{"n": "a"}, {"n": "c"}]}), &[]),
            (json!({"l": [{"n": "c"}, {"n": "a"}]}), &[".l[1]"]),
            (json!({"l": [{"n": "a"}, {"n": "a"}]}), &[".l[1]"]),
            (json!({"l": [{"n": "b", "x": 1}]}), &[".l[0]"]),
            (json!({"l": {}}), &[".l"]),
            (json!({"m": {"k/y": 2, "o": null}}), &[".m[\"k/y\"]"]),
            (json!({"m": null}), &[".m"]),
            (json!({"z": null, "none": null}), &[]),
            (json!(null), &[""]),
        ] {
            let mut found = Vec::new();
            compare_parts(&part, Some(&whole), "", &mut found);
            let found: Vec<_> = found.iter().map(|(path, ..)| path.as_str()).collect();
            assert_eq!(found, paths, "{part}");
        }
    }
}
