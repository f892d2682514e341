//! Outcomes as `JUnit` writes them, which is what most build servers read.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::outcome::{CaseOutcome, SuiteOutcome, SuiteResult};
use super::report::explain_failure;

type Xml = Writer<Vec<u8>>;

/// Writes a report.
pub(crate) fn write_report(file: &Path, outcomes: &[SuiteOutcome]) -> anyhow::Result<()> {
    std::fs::write(file, make_document(outcomes)?)
        .with_context(|| format!("failed to write {}", file.display()))
}

fn make_document(outcomes: &[SuiteOutcome]) -> io::Result<Vec<u8>> {
    let mut xml = Writer::new_with_indent(Vec::new(), b' ', 2);
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    xml.create_element("testsuites")
        .write_inner_content(|xml| outcomes.iter().try_for_each(|outcome| write_suite(xml, outcome)))?;
    let mut document = xml.into_inner();
    document.push(b'\n');
    Ok(document)
}

fn write_suite(xml: &mut Xml, outcome: &SuiteOutcome) -> io::Result<()> {
    let path = make_printable(&outcome.path);
    match &outcome.result {
        SuiteResult::Cases(cases) => {
            let counts = Counts {
                tests: cases.len(),
                failures: cases.iter().filter(|case| !case.mismatches.is_empty()).count(),
                errors: 0,
                duration: cases.iter().map(|case| case.duration).sum(),
            };
            write_counted(xml, &path, &counts, |xml| {
                cases.iter().try_for_each(|case| write_case(xml, &path, case))
            })
        }
        SuiteResult::Policies(problems) => {
            let counts = Counts { tests: 1, failures: 1, ..Counts::default() };
            write_unrun(xml, &path, &counts, "policies", &problems.join("\n"))
        }
        SuiteResult::Unreadable(problem) => {
            let counts = Counts { tests: 1, errors: 1, ..Counts::default() };
            write_unrun(xml, &path, &counts, "suite", problem)
        }
    }
}

/// The numbers of a suite.
#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    duration: Duration,
}

fn write_counted(
    xml: &mut Xml,
    path: &str,
    counts: &Counts,
    write: impl FnOnce(&mut Xml) -> io::Result<()>,
) -> io::Result<()> {
    xml.create_element("testsuite")
        .with_attribute(("name", path))
        .with_attribute(("tests", counts.tests.to_string().as_str()))
        .with_attribute(("failures", counts.failures.to_string().as_str()))
        .with_attribute(("errors", counts.errors.to_string().as_str()))
        .with_attribute(("time", format_seconds(counts.duration).as_str()))
        .write_inner_content(write)?;
    Ok(())
}

fn write_case(xml: &mut Xml, path: &str, case: &CaseOutcome) -> io::Result<()> {
    let element = xml
        .create_element("testcase")
        .with_attribute(("classname", path))
        .with_attribute(("name", make_printable(&case.name).as_ref()))
        .with_attribute(("file", path))
        .with_attribute(("line", case.line.to_string().as_str()))
        .with_attribute(("time", format_seconds(case.duration).as_str()));
    if case.mismatches.is_empty() {
        element.write_empty()?;
        return Ok(());
    }
    let fields: Vec<_> = case.mismatches.iter().map(|mismatch| mismatch.field.as_str()).collect();
    let explanation = explain_failure(case).map_err(io::Error::other)?;
    element.write_inner_content(|xml| write_problem(xml, "failure", &fields.join(", "), &explanation))?;
    Ok(())
}

/// Writes a suite that came to no case: `what` cannot be used.
fn write_unrun(xml: &mut Xml, path: &str, counts: &Counts, what: &str, problem: &str) -> io::Result<()> {
    let element = if counts.errors > 0 { "error" } else { "failure" };
    write_counted(xml, path, counts, |xml| {
        xml.create_element("testcase")
            .with_attribute(("classname", path))
            .with_attribute(("name", what))
            .with_attribute(("file", path))
            .with_attribute(("time", format_seconds(counts.duration).as_str()))
            .write_inner_content(|xml| {
                write_problem(xml, element, &format!("the {what} cannot be used"), problem)
            })?;
        Ok(())
    })
}

fn write_problem(xml: &mut Xml, element: &str, message: &str, problem: &str) -> io::Result<()> {
    xml.create_element(element)
        .with_attribute(("message", make_printable(message).as_ref()))
        .write_text_content(BytesText::new(&make_printable(problem)))?;
    Ok(())
}

fn format_seconds(duration: Duration) -> String {
    format!("{:.6}", duration.as_secs_f64())
}

/// Replaces the characters that XML 1.0 cannot hold, or only by reference.
fn make_printable(text: &str) -> Cow<'_, str> {
    let is_printable = |character: char| match character {
        '\n' | '\t' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        other => !other.is_control(),
    };
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(|character| !is_printable(character), "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::make_document;
    use crate::test::judgement::Mismatch;
    use crate::test::outcome::{CaseOutcome, SuiteOutcome, SuiteResult};

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
        let written = make_document(&[
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
      <failure message=\"message\">            message:
              expected  &lt;a&gt;
              got       \\u{1b}[2J&amp;&quot;b&quot;
</failure>
    </testcase>
  </testsuite>
  <testsuite name=\"b.yaml\" tests=\"1\" failures=\"1\" errors=\"0\" time=\"0.000000\">
    <testcase classname=\"b.yaml\" name=\"policies\" file=\"b.yaml\" time=\"0.000000\">
      <failure message=\"the policies cannot be used\">1 &lt; 2
x</failure>
    </testcase>
  </testsuite>
  <testsuite name=\"c.yaml\" tests=\"1\" failures=\"0\" errors=\"1\" time=\"0.000000\">
    <testcase classname=\"c.yaml\" name=\"suite\" file=\"c.yaml\" time=\"0.000000\">
      <error message=\"the suite cannot be used\">&amp;</error>
    </testcase>
  </testsuite>
</testsuites>
";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
