//! Outcomes as `JUnit` writes them, which is what most build servers read.

use super::report::explanation;
use super::{SuiteOutcome, SuiteResult};
use anyhow::Context as _;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Writes a report.
pub(crate) fn write(file: &Path, outcomes: &[SuiteOutcome]) -> anyhow::Result<()> {
    let text = document(outcomes)?;
    std::fs::write(file, text).with_context(|| format!("failed to write {}", file.display()))
}

fn document(outcomes: &[SuiteOutcome]) -> anyhow::Result<String> {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for outcome in outcomes {
        let path = escape(&outcome.path);
        match &outcome.result {
            SuiteResult::Cases(cases) => {
                let failures = cases.iter().filter(|case| !case.mismatches.is_empty()).count();
                let time = seconds(cases.iter().map(|case| case.duration).sum());
                writeln!(
                    text,
                    "  <testsuite name=\"{path}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" time=\"{time}\">",
                    cases.len()
                )?;
                for case in cases {
                    let (name, line, time) = (escape(&case.name), case.line, seconds(case.duration));
                    write!(
                        text,
                        "    <testcase classname=\"{path}\" name=\"{name}\" file=\"{path}\" line=\"{line}\" time=\"{time}\""
                    )?;
                    if case.mismatches.is_empty() {
                        text.push_str("/>\n");
                        continue;
                    }
                    let fields: Vec<_> =
                        case.mismatches.iter().map(|mismatch| mismatch.field.as_str()).collect();
                    let (message, body) = (escape(&fields.join(", ")), escape(&explanation(case)?));
                    writeln!(
                        text,
                        ">\n      <failure message=\"{message}\">{body}</failure>\n    </testcase>"
                    )?;
                }
            }
            SuiteResult::Policies(problems) => {
                text.push_str(&single(&path, "policies", "failure", &escape(&problems.join("\n"))));
            }
            SuiteResult::Unreadable(problem) => {
                text.push_str(&single(&path, "suite", "error", &escape(problem)));
            }
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    Ok(text)
}

/// The beginning of a suite that came to no case.
fn single(path: &str, name: &str, element: &str, body: &str) -> String {
    let is_error = u8::from(element == "error");
    format!(
        "  <testsuite name=\"{path}\" tests=\"1\" failures=\"{}\" errors=\"{is_error}\" time=\"0.000000\">\n    \
         <testcase classname=\"{path}\" name=\"{name}\" file=\"{path}\" time=\"0.000000\">\n      \
         <{element} message=\"the {name} cannot be used\">{body}</{element}>\n    </testcase>\n",
        1 - is_error
    )
}

fn seconds(duration: Duration) -> String {
    format!("{:.6}", duration.as_secs_f64())
}

/// Text for elements and attributes. XML has no way to say most control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\r' => escaped.push_str("&#13;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other if other.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::document;
    use crate::test::judgement::Mismatch;
    use crate::test::{CaseOutcome, SuiteOutcome, SuiteResult};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn reports_are_well_formed_whatever_is_in_them() {
        let case = |name: &str, mismatches: Vec<Mismatch>| CaseOutcome {
            name: name.into(),
            line: 3,
            mismatches,
            duration: Duration::from_millis(2),
        };
        let wrong = Mismatch {
            field: "message".into(),
            expected: json!("<a>"),
            got: json!("\u{1b}[2J&\"b\""),
            note: None,
        };
        let suite = |path: &str, result| SuiteOutcome { path: path.into(), result };
        let text = document(&[
            suite("a.yaml", SuiteResult::Cases(vec![case("good", vec![]), case("<\"&\u{0}>", vec![wrong])])),
            suite("b.yaml", SuiteResult::Policies(vec!["1 < 2".into(), "x".into()])),
            suite("c.yaml", SuiteResult::Unreadable("&".into())),
        ])
        .unwrap();
        let expected = "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites>
  <testsuite name=\"a.yaml\" tests=\"2\" failures=\"1\" errors=\"0\" time=\"0.004000\">
    <testcase classname=\"a.yaml\" name=\"good\" file=\"a.yaml\" line=\"3\" time=\"0.002000\"/>
    <testcase classname=\"a.yaml\" name=\"&lt;&quot;&amp;\u{fffd}&gt;\" file=\"a.yaml\" line=\"3\" time=\"0.002000\">
      <failure message=\"message\">            message:&#10;              expected  &lt;a&gt;&#10;              got       \\u{1b}[2J&amp;&quot;b&quot;&#10;</failure>
    </testcase>
  </testsuite>
  <testsuite name=\"b.yaml\" tests=\"1\" failures=\"1\" errors=\"0\" time=\"0.000000\">
    <testcase classname=\"b.yaml\" name=\"policies\" file=\"b.yaml\" time=\"0.000000\">
      <failure message=\"the policies cannot be used\">1 &lt; 2&#10;x</failure>
    </testcase>
  </testsuite>
  <testsuite name=\"c.yaml\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0.000000\">
    <testcase classname=\"c.yaml\" name=\"suite\" file=\"c.yaml\" time=\"0.000000\">
      <error message=\"the suite cannot be used\">&amp;</error>
    </testcase>
  </testsuite>
</testsuites>
";
        assert_eq!(text, expected);
    }
}
