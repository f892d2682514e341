//! A backend that could not decide is a failed call, never a decision (G-03, C-08, C-09).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sallyport_testkit::verdict::Decision;
use tonic::{Code, Status};

use crate::admission::{bytes, review};
use crate::answers::allowed;
use crate::suite::{MUTATE, Suite, VALIDATE, judge, undecided};

#[tokio::test]
async fn a_backends_status_is_mapped_g03() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    for (code, status, again) in [
        (Code::Unavailable, 503, true),
        (Code::ResourceExhausted, 429, true),
        (Code::DeadlineExceeded, 504, false),
        (Code::Cancelled, 504, false),
        (Code::Internal, 500, false),
        (Code::Unknown, 500, false),
        (Code::DataLoss, 500, false),
        (Code::Unimplemented, 500, false),
        (Code::PermissionDenied, 500, false),
        (Code::Unauthenticated, 500, false),
        (Code::NotFound, 500, false),
        (Code::AlreadyExists, 500, false),
        (Code::FailedPrecondition, 500, false),
        (Code::Aborted, 500, false),
        (Code::OutOfRange, 500, false),
    ] {
        for path in [MUTATE, VALIDATE, "/mutate/ignore", "/validate/ignore"] {
            suite.backend(path).script.fail(Status::new(code, "for a reason"));
            let answer = suite.post(path, &body).await;
            assert_eq!(answer.status, status, "{code:?}: {}", answer.text());
            assert!(undecided(&answer, status).contains("for a reason"), "{code:?}");
            assert_eq!(answer.header("retry-after"), again.then_some("1"), "{code:?}");
        }
    }
}

#[tokio::test]
async fn an_object_that_the_backend_cannot_read_is_a_denial_with_400_g03() {
    let suite = Suite::start().await;
    for path in [MUTATE, VALIDATE] {
        suite.backend(path).script.fail(Status::invalid_argument("object: nested too deep"));
        let verdict = suite.review(path, &review()).await;
        let Decision::Denied(refusal) = verdict.decision else { panic!("allowed") };
        assert_eq!((refusal.code, refusal.message.as_str()), (400, "object: nested too deep"));
    }
}

#[tokio::test]
async fn a_backend_that_panics_decides_nothing_g03() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    suite.mutator.script.act(|_| async { panic!("as a test wants it") });
    let answer = suite.post(MUTATE, &body).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    undecided(&answer, answer.status);
    suite.mutator.script.answer(allowed());
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
}

#[tokio::test]
async fn a_call_that_was_not_decided_is_tried_once_more_g03() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    suite.mutator.script.act(move |_| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Err(Status::unavailable("starting")) } else { Ok(allowed()) } }
    });
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
    assert_eq!(tries.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn without_a_backend_it_is_503_and_come_again_and_later_it_works_c09() {
    let mut suite = Suite::start().await;
    let body = bytes(&review());
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
    suite.mutator.stop().await;
    let mut client = suite.client().await;
    for _ in 0..5 {
        let begun = Instant::now();
        let answer = client.post(MUTATE, &body).await;
        undecided(&answer, 503);
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(answer.header("connection").is_none(), "the connection is kept for the next try");
        assert!(begun.elapsed() < Duration::from_secs(1), "known at once");
    }
    judge(VALIDATE, &body, &client.post(VALIDATE, &body).await);

    suite.mutator.restart().await;
    let begun = Instant::now();
    let passed = loop {
        let answer = client.post(MUTATE, &body).await;
        if answer.status != 503 || begun.elapsed() > Duration::from_secs(2) {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    judge(MUTATE, &body, &passed);
}

#[tokio::test]
async fn a_door_without_a_backend_says_which_flag_to_set_r13() {
    let suite = Suite::with(|args| args.validator.clear()).await;
    let body = bytes(&review());
    let answer = suite.post(VALIDATE, &body).await;
    assert!(undecided(&answer, 503).contains("--validator"));
    assert!(answer.header("retry-after").is_none(), "coming again does not help");
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
}

#[tokio::test]
async fn a_backends_long_words_stay_in_bounds() {
    let suite = Suite::start().await;
    suite.mutator.script.fail(Status::internal("x".repeat(4000)));
    let answer = suite.post(MUTATE, &bytes(&review())).await;
    undecided(&answer, 500);
    assert!(answer.body.len() < 5000);
}
