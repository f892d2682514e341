//! What came of suites, for people and for machines.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::judgement::Mismatch;
use super::outcome::{CaseOutcome, SuiteOutcome, SuiteResult, Tally};
use crate::output::difference::write_difference;
use crate::output::terminal::{BAD, GOOD, QUIET, STRONG, plain, write_indented};
use crate::output::yaml;

/// How the outcome is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; in colour on a terminal, unless `NO_COLOR` is set
    Text,
    /// One JSON object with all suites and cases
    Json,
}

/// Writes outcomes as they come, or all at the end.
pub(crate) struct Report {
    format: Format,
    verbose: bool,
}

impl Report {
    pub(crate) fn new(format: Format, verbose: bool) -> Self {
        Self { format, verbose }
    }

    /// Writes what came of a suite.
    pub(crate) fn add(&self, outcome: &SuiteOutcome) -> anyhow::Result<()> {
        match self.format {
            Format::Text => write_suite(&mut anstream::stdout().lock(), outcome, self.verbose),
            Format::Json => Ok(()),
        }
    }

    /// Writes the end.
    pub(crate) fn finish(self, outcomes: &[SuiteOutcome], tally: Tally) -> anyhow::Result<()> {
        match self.format {
            Format::Text => writeln!(anstream::stdout(), "{}", summarize(tally))?,
            Format::Json => {
                let text = serde_json::to_string_pretty(&to_json(outcomes, tally))?;
                writeln!(io::stdout(), "{text}")?;
            }
        }
        Ok(())
    }
}

fn summarize(tally: Tally) -> String {
    let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let Tally { suites, passed, failed, broken, unreadable } = tally;
    let mut parts = vec![format!("{passed} passed")];
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if broken > 0 {
        parts.push(format!("{} with policies that cannot be used", counted(broken, "suite")));
    }
    if unreadable > 0 {
        parts.push(format!("{} that cannot be read", counted(unreadable, "suite")));
    }
    let style = if failed + broken + unreadable == 0 { GOOD } else { BAD };
    let (cases, suites) = (counted(passed + failed, "case"), counted(suites, "suite"));
    format!("{cases} in {suites}: {style}{}{style:#}", parts.join(", "))
}

fn write_suite(output: &mut impl Write, outcome: &SuiteOutcome, verbose: bool) -> anyhow::Result<()> {
    let path = plain(&outcome.path);
    match &outcome.result {
        SuiteResult::Unreadable(problem) => {
            write!(output, "{BAD}ERROR{BAD:#} {STRONG}{path}{STRONG:#}: ")?;
            write_indented(output, 8, problem)?;
        }
        SuiteResult::Policies(problems) => {
            writeln!(output, "{BAD}FAIL{BAD:#}  {STRONG}{path}{STRONG:#}: the policies cannot be used")?;
            for problem in problems {
                write!(output, "      ")?;
                write_indented(output, 8, problem)?;
            }
        }
        SuiteResult::Cases(cases) => {
            let failed = cases.iter().filter(|case| !case.mismatches.is_empty()).count();
            let (style, word) = if failed == 0 { (GOOD, "ok  ") } else { (BAD, "FAIL") };
            let count = match (cases.len(), failed) {
                (1, 0) => "1 case".to_owned(),
                (count, 0) => format!("{count} cases"),
                (count, failed) => format!("{failed} of {count} failed"),
            };
            writeln!(output, "{style}{word}{style:#}  {STRONG}{path}{STRONG:#} {QUIET}({count}){QUIET:#}")?;
            for case in cases {
                if !case.mismatches.is_empty() {
                    write_failure(output, &outcome.path, case)?;
                } else if verbose {
                    writeln!(output, "      {GOOD}ok{GOOD:#}    {}", plain(&case.name))?;
                }
            }
        }
    }
    Ok(())
}

fn write_failure(output: &mut impl Write, path: &str, case: &CaseOutcome) -> anyhow::Result<()> {
    let place = format!("{path}:{}", case.line);
    writeln!(
        output,
        "      {BAD}FAIL{BAD:#}  {STRONG}{}{STRONG:#} {QUIET}{}{QUIET:#}",
        plain(&case.name),
        plain(&place)
    )?;
    for mismatch in &case.mismatches {
        write_mismatch(output, mismatch)?;
    }
    Ok(())
}

fn write_mismatch(output: &mut impl Write, mismatch: &Mismatch) -> anyhow::Result<()> {
    const INDENT: &str = "            ";
    let Mismatch { field, expected, got, note } = mismatch;
    write!(output, "{INDENT}{}:", plain(field))?;
    if field == "error" {
        let text = format!(" {}", got.as_str().unwrap_or_default());
        return Ok(write_indented(output, INDENT.len() + 2, &text)?);
    }
    if expected.is_object() && got.is_object() && is_whole(field) {
        writeln!(output, " {}", note.as_deref().unwrap_or("it is another"))?;
        let labels = if field == "object" { ["expected", "got"] } else { ["first run", "second run"] };
        write_difference(output, INDENT, labels, &yaml::document(expected)?, &yaml::document(got)?)?;
        return Ok(());
    }
    writeln!(output)?;
    for (style, word, value) in [(GOOD, "expected", expected), (BAD, "got     ", got)] {
        write!(output, "{INDENT}  {style}{word}{style:#}  ")?;
        let text = match value {
            Value::Null => "nothing".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        write_indented(output, INDENT.len() + 12, &text)?;
    }
    if let Some(note) = note {
        write!(output, "{INDENT}  ")?;
        write_indented(output, INDENT.len() + 2, note)?;
    }
    Ok(())
}

/// Whether a field holds whole objects, which are shown by their difference.
fn is_whole(field: &str) -> bool {
    field == "object" || field == "changesAgain"
}

fn to_json(outcomes: &[SuiteOutcome], tally: Tally) -> Value {
    let suites: Vec<Value> = outcomes.iter().map(suite_to_json).collect();
    let Tally { passed, failed, broken, unreadable, .. } = tally;
    json!({
        "passed": passed,
        "failed": failed,
        "brokenSuites": broken,
        "unreadableSuites": unreadable,
        "suites": suites,
    })
}

fn suite_to_json(outcome: &SuiteOutcome) -> Value {
    match &outcome.result {
        SuiteResult::Unreadable(problem) => json!({"suite": outcome.path, "error": problem}),
        SuiteResult::Policies(problems) => json!({"suite": outcome.path, "problems": problems}),
        SuiteResult::Cases(cases) => {
            let cases: Vec<Value> = cases
                .iter()
                .map(|case| {
                    json!({
                        "name": case.name,
                        "line": case.line,
                        "passed": case.mismatches.is_empty(),
                        "failures": case.mismatches,
                    })
                })
                .collect();
            json!({"suite": outcome.path, "cases": cases})
        }
    }
}

/// The failure of a case without colours, for reports of other kinds.
pub(crate) fn explain_failure(case: &CaseOutcome) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    for mismatch in &case.mismatches {
        write_mismatch(&mut bytes, mismatch)?;
    }
    Ok(anstream::adapter::strip_str(&String::from_utf8_lossy(&bytes)).to_string())
}
