//! What came of suites and their cases.

use std::time::Duration;

use super::judgement::Mismatch;
use crate::output::exit_status::ExitStatus;

/// What came of a suite.
#[derive(Debug)]
pub(crate) struct SuiteOutcome {
    pub(crate) path: String,
    pub(crate) result: SuiteResult,
}

#[derive(Debug)]
pub(crate) enum SuiteResult {
    /// It cannot be run as it is written.
    Unreadable(String),
    /// Its policies cannot be used.
    Policies(Vec<String>),
    Cases(Vec<CaseOutcome>),
}

/// What came of a case.
#[derive(Debug)]
pub(crate) struct CaseOutcome {
    pub(crate) name: String,
    /// Where it is in the suite.
    pub(crate) line: u64,
    pub(crate) mismatches: Vec<Mismatch>,
    pub(crate) duration: Duration,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) suites: usize,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Suites whose policies cannot be used.
    pub(crate) broken: usize,
    /// Suites that cannot be read.
    pub(crate) unreadable: usize,
}

impl Tally {
    /// Counts a suite.
    pub(crate) fn count(&mut self, result: &SuiteResult) {
        self.suites += 1;
        match result {
            SuiteResult::Unreadable(_) => self.unreadable += 1,
            SuiteResult::Policies(_) => self.broken += 1,
            SuiteResult::Cases(cases) => {
                let failed = cases.iter().filter(|case| !case.mismatches.is_empty()).count();
                self.failed += failed;
                self.passed += cases.len() - failed;
            }
        }
    }

    /// The exit status of a run with these counts.
    pub(crate) fn exit_status(self) -> ExitStatus {
        if self.unreadable > 0 {
            ExitStatus::Usage
        } else if self.failed > 0 || self.broken > 0 {
            ExitStatus::Failure
        } else {
            ExitStatus::Success
        }
    }
}
