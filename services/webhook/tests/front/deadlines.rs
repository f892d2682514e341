//! The API server's `?timeout=` on its way to the backend, and what happens when it is over (C-60 to C-63, G-02).

use std::time::{Duration, Instant};

use tonic::Status;

use crate::admission::{bytes, review};
use crate::answers::allowed;
use crate::suite::{MUTATE, Suite, VALIDATE, judge, undecided};

#[tokio::test]
async fn the_backend_is_given_what_is_left_less_a_margin_c60_c61_g02() {
    let suite = Suite::with(|args| args.default_timeout = Duration::from_secs(6)).await;
    let body = bytes(&review());
    let mut client = suite.client().await;
    for (query, milliseconds) in [
        ("", 5_400),
        ("?timeout=0s", 5_400),
        ("?timeout=1s", 900),
        ("?timeout=10s", 9_000),
        ("?timeout=30s", 27_000),
        ("?timeout=1m0s", 27_000),
        ("?timeout=900ms", 800),
        ("?timeout=soon", 5_400),
        ("?timeout=", 5_400),
        ("?timeout=-5s", 5_400),
        ("?x=1&timeout=2s", 1_800),
    ] {
        let path = format!("{MUTATE}{query}");
        judge(MUTATE, &body, &client.post(&path, &body).await);
        let (granted, most) = (suite.mutator.script.last().granted(), Duration::from_millis(milliseconds));
        assert!(granted <= most && granted + Duration::from_millis(400) > most, "{query}: {granted:?}");
    }
}

#[tokio::test]
async fn a_backend_that_takes_too_long_is_a_gateway_timeout_in_time_c61_c62_g03() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    for path in [MUTATE, VALIDATE] {
        suite.backend(path).script.act(|_| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(allowed())
        });
        let begun = Instant::now();
        let answer = suite.post(&format!("{path}?timeout=1s"), &body).await;
        let took = begun.elapsed();
        undecided(&answer, 504);
        assert!(answer.header("retry-after").is_none(), "there is no time to come again");
        assert!(took >= Duration::from_millis(850) && took < Duration::from_millis(1900), "{took:?}");
        assert_eq!(suite.backend(path).script.calls(), 1, "not tried again");
    }
}

#[tokio::test]
async fn a_backend_that_gives_up_is_a_gateway_timeout_g02() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    for status in [Status::cancelled("Timeout expired"), Status::deadline_exceeded("too late")] {
        suite.mutator.script.fail(status);
        let answer = suite.post(MUTATE, &body).await;
        assert!(undecided(&answer, 504).contains("mutator"));
        assert!(answer.header("retry-after").is_none());
    }
}
