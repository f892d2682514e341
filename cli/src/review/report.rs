//! What came of reviews, for people and for machines.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::decision::{Decision, Outcome, Subject, Verdict};
use crate::output::difference::write_difference;
use crate::output::terminal::{BAD, GOOD, NOTICE, QUIET, STRONG, plain, write_indented};
use crate::output::yaml;

/// Column of the further lines of a message.
const COLUMN: usize = 20;

/// How the outcome is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; in colour on a terminal, unless `NO_COLOR` is set
    Text,
    /// A JSON list with an element a manifest
    Json,
    /// The same in YAML
    Yaml,
}

/// Writes outcomes as they come, or all at the end.
pub(crate) struct Report {
    format: Format,
    collected: Vec<Value>,
    written: bool,
}

impl Report {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, collected: Vec::new(), written: false }
    }

    /// Adds what came of one review. `before` is the object as it was sent.
    pub(crate) fn add(&mut self, subject: &Subject, before: &Value, outcome: &Outcome) -> anyhow::Result<()> {
        if self.format != Format::Text {
            self.collected.push(to_json(subject, before, outcome));
            return Ok(());
        }
        let mut output = anstream::stdout().lock();
        if std::mem::replace(&mut self.written, true) {
            writeln!(output)?;
        }
        write_text(&mut output, subject, before, outcome)?;
        Ok(())
    }

    /// Writes what is collected.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let text = match self.format {
            Format::Text => return Ok(()),
            Format::Json => serde_json::to_string_pretty(&self.collected)? + "\n",
            Format::Yaml => yaml::document(&self.collected)?,
        };
        io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}

fn to_json(subject: &Subject, before: &Value, outcome: &Outcome) -> Value {
    let identity = &subject.identity;
    let api_version = if identity.group.is_empty() {
        identity.version.clone()
    } else {
        format!("{}/{}", identity.group, identity.version)
    };
    let allowed = !outcome.denied() && !outcome.failed();
    let mut review = json!({
        "apiVersion": api_version,
        "kind": identity.kind,
        "operation": subject.operation,
        "allowed": allowed,
        "decisions": outcome.decisions.iter().map(decision_to_json).collect::<Vec<_>>(),
        "object": outcome.object.as_ref().unwrap_or(before),
    });
    for (field, value) in [
        ("namespace", &identity.namespace),
        ("name", &identity.name),
        ("generateName", &identity.generate_name),
    ] {
        if !value.is_empty() {
            review[field] = json!(value);
        }
    }
    review
}

fn decision_to_json(decision: &Decision) -> Value {
    let mut value = Map::new();
    value.insert("door".to_owned(), json!(decision.door.name()));
    value.insert("allowed".to_owned(), json!(matches!(decision.verdict, Verdict::Allowed)));
    match &decision.verdict {
        Verdict::Allowed => {}
        Verdict::Denied(status) => {
            value.insert("status".to_owned(), json!(status));
        }
        Verdict::Failed(failure) => {
            let ignored = decision.door.tolerates_failure();
            let error = json!({"code": failure.code, "message": failure.message, "ignored": ignored});
            value.insert("error".to_owned(), error);
        }
    }
    value.insert("warnings".to_owned(), json!(decision.warnings));
    value.insert("auditAnnotations".to_owned(), json!(decision.audit_annotations));
    value.insert("patch".to_owned(), json!(decision.patch));
    Value::Object(value)
}

fn write_text(
    output: &mut impl Write,
    subject: &Subject,
    before: &Value,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    let (style, word) = if outcome.failed() {
        (BAD, "failed")
    } else if outcome.denied() {
        (BAD, "denied")
    } else if outcome.object.is_some() {
        (GOOD, "allowed, changed")
    } else {
        (GOOD, "allowed")
    };
    let subject_text = subject.identity.to_string();
    let operation = plain(&subject.operation);
    writeln!(
        output,
        "{STRONG}{}{STRONG:#} {QUIET}{operation}{QUIET:#}: {style}{word}{style:#}",
        plain(&subject_text)
    )?;
    for decision in &outcome.decisions {
        write_decision(output, decision)?;
    }
    if let Some(after) = &outcome.object {
        let labels = ["received", "changed"];
        write_difference(output, "", labels, &yaml::document(before)?, &yaml::document(after)?)?;
    }
    Ok(())
}

fn write_decision(output: &mut impl Write, decision: &Decision) -> io::Result<()> {
    let door = format!("{:<15}", decision.door.name());
    match &decision.verdict {
        Verdict::Allowed if decision.patch.is_empty() => {
            writeln!(output, "  {door} {GOOD}allowed{GOOD:#}")?;
        }
        Verdict::Allowed => {
            let count = decision.patch.len();
            let noun = if count == 1 { "operation" } else { "operations" };
            writeln!(output, "  {door} {GOOD}allowed{GOOD:#}, changed by a patch of {count} {noun}")?;
        }
        Verdict::Denied(status) => {
            let code =
                status.get("code").and_then(Value::as_u64).map(|code| format!(" {code}")).unwrap_or_default();
            let said = ["message", "reason"].iter().find_map(|field| status.get(*field)?.as_str());
            write!(output, "  {door} {BAD}denied{code}{BAD:#}")?;
            write_indented(output, COLUMN, &format!(": {}", said.unwrap_or("no reason is given")))?;
            let causes = status.get("details").and_then(|details| details.get("causes")?.as_array());
            for cause in causes.into_iter().flatten() {
                let text = |name: &str| cause.get(name).and_then(Value::as_str).unwrap_or_default();
                let (field, message) = (text("field"), text("message"));
                let colon = if field.is_empty() || message.is_empty() { "" } else { ": " };
                write!(output, "{:18}- {STRONG}{}{STRONG:#}{colon}", "", plain(field))?;
                write_indented(output, COLUMN, message)?;
            }
        }
        Verdict::Failed(failure) => {
            let code = failure.code.map(|code| format!(" {code}")).unwrap_or_default();
            let policy = decision.door.failure_policy();
            write!(output, "  {door} {BAD}no decision{code}{BAD:#} (failurePolicy: {policy})")?;
            write_indented(output, COLUMN, &format!(": {}", failure.message))?;
        }
    }
    for warning in &decision.warnings {
        write!(output, "{:18}{NOTICE}warning{NOTICE:#}", "")?;
        write_indented(output, COLUMN, &format!(": {warning}"))?;
    }
    for (key, value) in &decision.audit_annotations {
        write!(output, "{:18}{QUIET}audit{QUIET:#} {}", "", plain(key))?;
        write_indented(output, COLUMN, &format!(": {value}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{to_json, write_text};
    use crate::door::Door;
    use crate::input::manifest::Identity;
    use crate::review::decision::{Decision, Failure, Outcome, Subject, Verdict};

    fn subject(object: &Value) -> Subject {
        Subject { identity: Identity::of(object), operation: "CREATE".into() }
    }

    fn decision(door: Door, verdict: Verdict) -> Decision {
        Decision { door, verdict, warnings: Vec::new(), audit_annotations: [].into(), patch: Vec::new() }
    }

    fn written(before: &Value, outcome: &Outcome) -> String {
        let mut bytes = Vec::new();
        write_text(&mut bytes, &subject(before), before, outcome).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
    }

    #[test]
    fn a_change_is_a_difference_in_yaml() {
        let before =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": "yes"}});
        let mut after = before.clone();
        after["metadata"]["labels"] = json!({"b": "OK"});
        let mut changed = decision(Door::MutateFail, Verdict::Allowed);
        changed.patch = vec![json!({})];
        changed.warnings = vec!["first\nsecond".into()];
        changed.audit_annotations = [("k".to_owned(), "v".to_owned())].into();
        let outcome = Outcome { decisions: vec![changed], object: Some(after) };
        let expected = "\
Pod a CREATE: allowed, changed
  mutate/fail     allowed, changed by a patch of 1 operation
                  warning: first
                    second
                  audit k: v
--- received
+++ changed
@@ -1,6 +1,8 @@
 apiVersion: v1
 kind: Pod
 metadata:
+  labels:
+    b: OK
   name: a
 spec:
   x: \"yes\"
";
        assert_eq!(written(&before, &outcome), expected);
    }

    #[test]
    fn a_denial_tells_code_message_and_fields_and_plays_no_tricks() {
        let status = json!({"code": 402, "message": "a \u{1b}[2Jis using env vars",
            "details": {"causes": [{"field": "spec.containers[0].env", "message": "no"}]}});
        let denied = decision(Door::ValidateFail, Verdict::Denied(status.as_object().cloned().unwrap()));
        let object = json!({"kind": "Pod", "metadata": {"generateName": "a-", "namespace": "n"}});
        let expected = "\
Pod n/a-* CREATE: denied
  validate/fail   denied 402: a \\u{1b}[2Jis using env vars
                  - spec.containers[0].env: no
";
        assert_eq!(written(&object, &Outcome { decisions: vec![denied], object: None }), expected);
    }

    #[test]
    fn a_failure_counts_where_the_failure_policy_says_so() {
        let failure =
            |door| decision(door, Verdict::Failed(Failure { code: Some(503), message: "no mutator".into() }));
        let object = json!({"kind": "Pod", "apiVersion": "v1"});
        for (door, word, allowed) in
            [(Door::MutateFail, "failed", false), (Door::MutateIgnore, "allowed", true)]
        {
            let outcome = Outcome { decisions: vec![failure(door)], object: None };
            let text = written(&object, &outcome);
            assert!(text.starts_with(&format!("Pod (no name) CREATE: {word}\n")), "{text}");
            assert!(
                text.contains("no decision 503 (failurePolicy: ") && text.contains("no mutator"),
                "{text}"
            );
            let written = to_json(&subject(&object), &object, &outcome);
            assert_eq!(written["allowed"], allowed);
            assert_eq!(written["decisions"][0]["error"]["ignored"], allowed);
        }
    }
}
