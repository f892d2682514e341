//! `sallyport test`: suites, which say what policies do with requests, against what they do.
//!
//! The engine of the services runs in this process, on policies that their own reader read. The invariant: a
//! case passes only if all that it expects was looked at and is so; what cannot be looked at is an error.

mod discovery;
mod judgement;
mod junit;
mod outcome;
mod passage;
mod preparation;
mod progress;
mod report;
mod specification;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::builder::NonEmptyStringValueParser;
use sallyport_error_chain::format_chain;
use serde_json::{Value, json};

use self::judgement::Mismatch;
use self::outcome::{CaseOutcome, SuiteOutcome, SuiteResult, Tally};
use self::preparation::Prepared;
use self::progress::Progress;
use self::report::{Format, Report};
use crate::output::exit_status::ExitStatus;
use crate::output::terminal;
use crate::policies::Policies;

const EXAMPLES: &str = "\
A suite is a file suite.yaml. It tests the policies in the files beside it, unless it names others:

  policies: [policy.yaml]               # files or directories
  objects: [namespaces.yaml]            # what exists, such as Namespaces, settings of policies and
                                        # CustomResourceDefinitions: files, or objects themselves
  authorizer: {allow: [{user: me, verb: approve}]}   # what users may do
  cases:
    - name: a pod without an owner is refused
      manifest: pod.yaml                # a file, or the object itself
      namespace: shop
      expect:
        code: 403
        message: {contains: owner}
    - name: an owner is enough
      manifest: pod.yaml
      patch: {metadata: {labels: {owner: me}}}
      expect: {unchanged: true}

Fields of a case:
  manifest       the object, as its author writes it; for DELETE, as it was
  patch          JSON merge patch over the manifest
  operation      CREATE (default), UPDATE (with old: the object as it was), or DELETE
  user           {username, uid, groups, extra} [default: kubernetes-admin in system:authenticated]
  namespace      of a manifest that names none [default: default]
  subResource, dryRun
  request        in place of these: an AdmissionReview, or what it has under request
  objects        objects that exist besides those of the suite
  authorizer     {allow: [rule], reason, error}, in place of the suite's; `sallyport cel --help` tells of rules.
                 Without any, no check is allowed, and each has an error

Fields of expect, of which at least one is needed:
  allowed        true or false [default: false if code, reason, message or causes are expected, else true]
  code, reason, message, causes [{field, message, reason}]
  warnings, auditAnnotations: all of them
  object         the whole object as it leaves the policies; objectContains, a part (null: the field is absent)
  unchanged      whether no policy changes the object
  errors         names of the policies that cannot be evaluated [default: none]
  changesAgain   true if a second run over the result changes it again; otherwise it must not. In neither case may
                 it be denied, or meet other errors
Texts (message, warnings, values of auditAnnotations) are whole, or {contains: part}.

Examples:
  sallyport test policies
  sallyport test policies/deny-env --verbose
  sallyport test policies --filter sidecar --list
  sallyport test policies --junit report.xml

Exit status:
  0  every case passed
  1  a case failed, or a policy does not compile
  2  wrong usage, or a suite that cannot be read";

/// Check that policies do what their suites say.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TestArgs {
    /// Suites, and directories that are searched for them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Run only the cases whose name, or whose suite's path, contains this text.
    #[arg(long, short, env = "SALLYPORT_FILTER", value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    filter: Option<String>,

    /// Print the cases, as text, and run none.
    #[arg(long, env = "SALLYPORT_LIST", conflicts_with = "junit")]
    list: bool,

    /// Write of every case, not only of those that fail.
    #[arg(long, short, env = "SALLYPORT_VERBOSE")]
    verbose: bool,

    /// How the outcome is written.
    #[arg(long, short, env = "SALLYPORT_OUTPUT", value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,

    /// Write the outcome as a report in XML, too, as build servers read it (`JUnit`).
    #[arg(long, env = "SALLYPORT_JUNIT", value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub(crate) fn run(args: &TestArgs) -> anyhow::Result<ExitStatus> {
    match args.run() {
        Err(error) if !terminal::is_closed(&error) => {
            terminal::print_error(&error);
            Ok(ExitStatus::Usage)
        }
        outcome => outcome,
    }
}

impl TestArgs {
    fn run(&self) -> anyhow::Result<ExitStatus> {
        let paths = discovery::find_suites(&self.paths)?;
        let report = Report::new(self.output, self.verbose);
        let mut outcomes = Vec::new();
        let mut tally = Tally::default();
        let mut progress = Progress::new(paths.len());
        let mut selected = 0;
        for path in paths {
            progress.step();
            let name = path.display().to_string();
            let result = match preparation::prepare(&path, |case| self.selects(&name, case)) {
                Ok(None) => continue,
                Ok(Some(suite)) if self.list => {
                    progress.clear();
                    for case in &suite.cases {
                        selected += 1;
                        let line = format!("{name}: {}", case.name);
                        writeln!(anstream::stdout(), "{}", terminal::plain(&line))?;
                    }
                    continue;
                }
                Ok(Some(suite)) => evaluate_suite(suite, &mut progress),
                Err(error) => SuiteResult::Unreadable(format_chain(error.as_ref())),
            };
            selected += 1;
            tally.count(&result);
            let outcome = SuiteOutcome { path: name, result };
            progress.clear();
            if self.list
                && let SuiteResult::Unreadable(problem) = &outcome.result
            {
                terminal::print_error(&anyhow::anyhow!("{}: {problem}", outcome.path));
            } else {
                report.add(&outcome)?;
            }
            outcomes.push(outcome);
        }
        progress.clear();
        if let (0, Some(filter)) = (selected, &self.filter) {
            anyhow::bail!("no case is called like {filter:?}");
        }
        if !self.list {
            report.finish(&outcomes, tally)?;
            if let Some(file) = &self.junit {
                junit::write_report(file, &outcomes)?;
            }
        }
        Ok(tally.exit_status())
    }

    fn selects(&self, suite: &str, case: &str) -> bool {
        self.filter.as_ref().is_none_or(|text| suite.contains(text.as_str()) || case.contains(text.as_str()))
    }
}

/// Runs the cases of a suite.
fn evaluate_suite(suite: preparation::Suite, progress: &mut Progress) -> SuiteResult {
    let policies = Policies::compile(suite.policies, None);
    let problems = policies.problems();
    if !problems.is_empty() {
        return SuiteResult::Policies(problems);
    }
    let mut outcomes = Vec::new();
    for case in suite.cases {
        progress.tick();
        let began = Instant::now();
        let own = case.policies.clone().map(|snapshot| Policies::compile(snapshot, Some(&policies)));
        let mismatches = judge_case(&case, own.as_ref(), &policies).unwrap_or_else(|error| {
            let got = json!(format_chain(error.as_ref()));
            vec![Mismatch { field: "error".to_owned(), expected: Value::Null, got, note: None }]
        });
        let duration = began.elapsed();
        outcomes.push(CaseOutcome { name: case.name, line: case.line, mismatches, duration });
    }
    SuiteResult::Cases(outcomes)
}

/// What is not as a case expects, with the policies of its own objects where it has any.
fn judge_case(case: &Prepared, own: Option<&Policies>, policies: &Policies) -> anyhow::Result<Vec<Mismatch>> {
    if let Some(own) = own {
        let problems = own.problems();
        ensure!(problems.is_empty(), "the objects of the case: {}", problems.join("\n"));
    }
    let policies = own.unwrap_or(policies);
    let observation = case.question.ask(policies)?;
    let again = match &observation.object {
        Some(object) if observation.changed => Some(case.question.ask_again(object, policies)?),
        _ => None,
    };
    Ok(judgement::judge(&case.expect, &case.objects, &observation, again.as_ref()))
}
