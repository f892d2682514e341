//! What the checks found, and how it is written.

use std::io::{self, Write};

use anstyle::Style;
use serde_json::{Value, json};

use crate::cluster::Unread;
use crate::cluster::installation::Installation;
use crate::output::terminal::{BAD, GOOD, NOTICE, QUIET, STRONG, plain};

/// The most findings of one check that are written.
const MAX_FINDINGS: usize = 40;

/// How a check ended. The order is that of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// All is well.
    Ok,
    /// Something could not be read.
    NotChecked,
    /// It works, and should be looked at.
    Warning,
    /// It does not work, or will not when it has to.
    Failure,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotChecked => "not checked",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => GOOD,
            Self::NotChecked => QUIET,
            Self::Warning => NOTICE,
            Self::Failure => BAD,
        }
    }
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    /// What it is about; empty if about the check's subject as a whole.
    pub(super) object: String,
    pub(super) problem: String,
    /// What to do; empty if there is nothing to do.
    pub(super) advice: String,
}

/// One check.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    /// What is well, in a few words.
    pub(super) summary: String,
    pub(super) findings: Vec<Finding>,
}

impl Check {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, summary: String::new(), findings: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        verdict: Verdict,
        object: impl Into<String>,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let (object, problem, advice) = (object.into(), problem.into(), advice.into());
        let finding = Finding { verdict, object, problem, advice };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Notes that something could not be read.
    pub(super) fn unread(&mut self, object: impl Into<String>, why: &Unread) {
        let advice = match why {
            Unread::Forbidden(_) => "ask somebody who may read it",
            _ => "",
        };
        self.add(Verdict::NotChecked, object, why.to_string(), advice);
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }
}

/// A number of things: `1 entry`, `2 entries`.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// All checks, in their order.
#[derive(Clone, Debug)]
pub(super) struct Diagnosis {
    pub(super) checks: Vec<Check>,
}

impl Diagnosis {
    fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict() == verdict).count()
    }

    /// Whether nothing failed; with `strict`, nothing is warned of either.
    pub(super) fn is_sound(&self, strict: bool) -> bool {
        let limit = if strict { Verdict::Warning } else { Verdict::Failure };
        self.checks.iter().all(|check| check.verdict() < limit)
    }

    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
        for check in &self.checks {
            let verdict = check.verdict();
            let style = verdict.style();
            let words = verdict.words();
            let (name, summary) = (check.name, plain(&check.summary));
            if check.findings.is_empty() {
                writeln!(output, "{style}{words:<11}{style:#}  {STRONG}{name:<width$}{STRONG:#}  {summary}")?;
                continue;
            }
            writeln!(output, "{style}{words:<11}{style:#}  {STRONG}{name}{STRONG:#}")?;
            let mut findings: Vec<_> = check.findings.iter().collect();
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
            for finding in findings.iter().take(MAX_FINDINGS) {
                let style = finding.verdict.style();
                let words = if finding.verdict == verdict {
                    String::new()
                } else {
                    format!("{style}{}{style:#}: ", finding.verdict.words())
                };
                let colon = if finding.object.is_empty() { "" } else { ": " };
                let text = plain(&finding.problem);
                writeln!(output, "             {words}{}{colon}{text}", plain(&finding.object))?;
                if !finding.advice.is_empty() {
                    writeln!(output, "               {QUIET}→ {}{QUIET:#}", plain(&finding.advice))?;
                }
            }
            if let Some(more) = findings.len().checked_sub(MAX_FINDINGS).filter(|more| *more > 0) {
                writeln!(output, "             and {more} more")?;
            }
        }
        let [ok, unchecked, warnings, failures] =
            [Verdict::Ok, Verdict::NotChecked, Verdict::Warning, Verdict::Failure].map(|v| self.count(v));
        let style = if failures > 0 {
            BAD
        } else if warnings > 0 {
            NOTICE
        } else {
            GOOD
        };
        let text = format!("{ok} ok, {warnings} with warnings, {failures} failed, {unchecked} not checked");
        writeln!(output, "{style}{text}{style:#}")
    }

    pub(super) fn to_json(&self, installation: &Installation) -> Value {
        let word = |verdict| match verdict {
            Verdict::NotChecked => "notChecked",
            other => other.words(),
        };
        let finding = |finding: &Finding| {
            json!({
                "status": word(finding.verdict),
                "object": finding.object,
                "problem": finding.problem,
                "advice": finding.advice,
            })
        };
        let checks = self.checks.iter().map(|check| {
            json!({
                "name": check.name,
                "status": word(check.verdict()),
                "summary": check.summary,
                "findings": check.findings.iter().map(finding).collect::<Vec<_>>(),
            })
        });
        json!({
            "namespace": installation.namespace,
            "release": installation.release,
            "summary": {
                "ok": self.count(Verdict::Ok),
                "notChecked": self.count(Verdict::NotChecked),
                "warning": self.count(Verdict::Warning),
                "failure": self.count(Verdict::Failure),
            },
            "checks": checks.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(verdicts: &[Verdict]) -> Diagnosis {
        let mut checks = vec![Check { summary: "fine".into(), ..Check::new("first") }];
        checks.extend(verdicts.iter().map(|verdict| {
            let mut check = Check::new("second-check");
            check.add(*verdict, "Secret \u{1b}[2Ja", "is wrong", "mend it");
            check
        }));
        Diagnosis { checks }
    }

    fn text(diagnosis: &Diagnosis) -> String {
        let mut bytes = Vec::new();
        diagnosis.write(&mut bytes).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
    }

    #[test]
    fn the_worst_finding_decides_and_strictness_counts_warnings() {
        for (verdicts, sound, strictly) in [
            (&[] as &[_], true, true),
            (&[Verdict::NotChecked], true, true),
            (&[Verdict::Warning, Verdict::NotChecked], true, false),
            (&[Verdict::Warning, Verdict::Failure], false, false),
        ] {
            let diagnosis = diagnosis(verdicts);
            assert_eq!(
                (diagnosis.is_sound(false), diagnosis.is_sound(true)),
                (sound, strictly),
                "{verdicts:?}"
            );
        }
        let mut check = Check::new("c");
        assert_eq!(check.verdict(), Verdict::Ok);
        check.add(Verdict::Failure, "", "a", "");
        check.add(Verdict::Warning, "", "b", "");
        assert_eq!(check.verdict(), Verdict::Failure);
    }

    #[test]
    fn a_check_is_a_line_and_each_finding_says_what_to_do_without_tricks() {
        let expected = "\
ok           first         fine
failure      second-check
             Secret \\u{1b}[2Ja: is wrong
               → mend it
1 ok, 0 with warnings, 1 failed, 0 not checked
";
        assert_eq!(text(&diagnosis(&[Verdict::Failure])), expected);
    }

    #[test]
    fn a_flood_of_findings_is_cut() {
        let mut check = Check::new("c");
        for index in 0..100 {
            check.add(Verdict::Warning, index.to_string(), "p", "");
            check.add(Verdict::Warning, index.to_string(), "p", "");
        }
        let text = text(&Diagnosis { checks: vec![check] });
        assert!(text.contains("and 60 more"), "{text}");
    }
}
