//! What the engine takes for a review, in CPU time: the figures of `make bench`.
//!
//! The review is a file that `$REVIEW` names, else `probes/data/review.json` beside `$SALLYPORT_CORPORA`: the
//! creation of an ordinary pod of some 8 KB. Everything runs in one thread and never waits, so that the shortest of
//! many rounds is CPU time. The allocator is that of the services.
//!
//! A review parses its object itself. What that takes is the row of a policy that only says `true`; it is taken off
//! wherever a row says "parsed".
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod expressions;
mod policies;
mod sample;
mod table;

use sallyport_document::Document;
use sallyport_policy::{FailurePolicy, MutationSet, ValidationSet};

use crate::policies::{MATCHING_NOTHING, MUTATIONS, TRIVIAL};
use crate::sample::Sample;
use crate::table::{Table, shortest};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many policies are installed where most of them do not match.
const INSTALLED: usize = 1_000;

#[test]
#[ignore = "measures what is optimised: make bench"]
fn a_review_takes_microseconds() {
    let sample = Sample::read();
    let mut table = Table::default();
    println!("{} bytes of object, {}", sample.object.len(), sample.request.resource.resource);

    let document = Document::parse(&sample.object).unwrap();
    table.row("object parsed as a tree of values, and dropped", shortest(|| sample.parse()), None);
    table.row("object read as a document, and dropped", shortest(|| sample.read_document()), None);
    for (name, source, aim) in expressions::ROWS {
        table.row(&format!("{name} compiled"), expressions::compile(source), Some(100_000));
        table.row(&format!("{name} evaluated"), expressions::evaluate(source, &document), Some(*aim));
    }

    let validate = |set: &ValidationSet| shortest(|| sample.validate(set));
    let nothing = validate(&policies::validations(&[""; 0]));
    table.row("review, no policy", nothing, None);
    let trivial = validate(&policies::validations(&[TRIVIAL]));
    table.row("review, one policy that says true: parses", trivial, None);

    let restricted = policies::restricted();
    let set = policies::validations(&restricted);
    let matching = sample.matching(&set);
    assert!(matching >= 16, "{matching}");
    let whole = validate(&set);
    let evaluation = whole.saturating_sub(trivial);
    table.row(&format!("review, restricted ({matching} match)"), whole, None);
    table.row("  parsed", evaluation, Some(50_000));
    table.row("  a policy", evaluation / u32::try_from(matching).unwrap(), Some(3_000));

    for (name, other) in MATCHING_NOTHING {
        let others = (matching..INSTALLED).map(|index| policies::other(index, other));
        let all: Vec<String> = restricted.iter().cloned().chain(others).collect();
        let set = policies::validations(&all);
        assert_eq!(sample.matching(&set), matching, "{name}");
        let took = validate(&set);
        table.row(&format!("review, {matching} of {INSTALLED} match, others {name}"), took, None);
        let each = took.saturating_sub(whole) / u32::try_from(INSTALLED - matching).unwrap();
        table.row("  a policy that does not match", each, Some(50));
    }

    for (name, policy) in MUTATIONS {
        let set: MutationSet = policies::mutations(&[policy]);
        let outcome = set.review(&sample.review(), FailurePolicy::Fail);
        assert!(!outcome.answer.patch.is_empty(), "{name}: {outcome:?}");
        let took = shortest(|| sample.mutate(&set));
        table.row(&format!("review, one mutation: {name}"), took, None);
        table.row("  parsed", took.saturating_sub(trivial), None);
    }
    table.finish();
}
