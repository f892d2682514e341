//! The engine against what a real API server answered to some 7,500 requests under the policies of others.
//!
//! The recordings are read from `$SALLYPORT_CORPORA/recorded/data` and are not part of this repository. Each set
//! of policies is compiled once, each request reviewed and compared in every respect: verdict, code, reason,
//! message, causes, warnings, audit annotations and the resulting object. `differences.txt` lists what differs
//! and why; whatever differs besides, and whatever no longer differs, fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod comparison;
mod corpus;
mod known;
mod objects;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Instant;

use comparison::Difference;
use corpus::Corpus;

/// The sources of the recordings.
const SOURCES: [&str; 3] = ["psa", "kyverno-policies", "kyverno-cel"];
/// How many of the most frequent differences are printed.
const SHOWN: usize = 60;

#[test]
fn every_recorded_request_is_answered_as_by_the_api_server() {
    let started = Instant::now();
    let mut table = String::new();
    let mut found: BTreeMap<(String, Difference), Vec<String>> = BTreeMap::new();
    for source in SOURCES {
        let corpus = Corpus::read(source);
        let answers = replay::all(&corpus);
        let differing = |kind| answers.iter().filter(|answer| answer.worst() == Some(kind)).count();
        writeln!(
            table,
            "{source:<17} {:>5} {:>5} {:>8} {:>8} {:>8} {:>8} {:>12}",
            answers.len(),
            answers.iter().filter(|answer| answer.differences.is_empty()).count(),
            differing(Difference::Verdict),
            differing(Difference::Message),
            differing(Difference::Notes),
            differing(Difference::Object),
            differing(Difference::Unsupported),
        )
        .unwrap();
        for answer in answers {
            for (kind, text) in answer.differences {
                found.entry((answer.set.clone(), kind)).or_default().push(format!("{}: {text}", answer.case));
            }
        }
        let accepted = corpus.accepted_though_refused();
        writeln!(
            table,
            "{:<17} {} of {} sets that the API server refuses are refused",
            "",
            corpus.refused.len() - accepted.len(),
            corpus.refused.len()
        )
        .unwrap();
        for (set, why) in accepted {
            found.entry((set.clone(), Difference::Accepted)).or_default().push(format!("{set}: {why}"));
        }
    }
    println!(
        "{:<17} {:>5} {:>5} {:>8} {:>8} {:>8} {:>8} {:>12}",
        "source", "cases", "equal", "verdict", "message", "notes", "object", "unsupported"
    );
    println!("{table}in {:.1} s", started.elapsed().as_secs_f64());
    let mut frequent: Vec<_> = found.iter().collect();
    frequent.sort_by_key(|(_, texts)| std::cmp::Reverse(texts.len()));
    for ((set, kind), texts) in frequent.iter().take(SHOWN) {
        println!("{:>4} {} {set}\n     {}", texts.len(), kind.as_str(), texts[0]);
    }
    let known = known::read();
    let seen: BTreeSet<_> = found.keys().cloned().collect();
    let new: Vec<_> = seen.difference(&known).map(|(set, kind)| format!("{set} {}", kind.as_str())).collect();
    let gone: Vec<_> =
        known.difference(&seen).map(|(set, kind)| format!("{set} {}", kind.as_str())).collect();
    assert!(new.is_empty(), "differences that differences.txt does not list:\n{}", new.join("\n"));
    assert!(gone.is_empty(), "differences.txt lists what no longer differs:\n{}", gone.join("\n"));
}
