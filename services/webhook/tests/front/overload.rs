//! More than the front can hold is asked to come again, at once (C-09).

use std::sync::Arc;
use std::time::{Duration, Instant};

use sallyport_testkit::eventually;
use tokio::sync::Semaphore;

use crate::admission::{bytes, review, sized};
use crate::answers::allowed;
use crate::client::head;
use crate::suite::{MUTATE, Suite, VALIDATE, judge, undecided};

/// Holds every call of the mutator until permits are given.
fn held(suite: &Suite) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    let keep = gate.clone();
    suite.mutator.script.act(move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(allowed())
        }
    });
    keep
}

#[tokio::test]
async fn reviews_beyond_the_limit_are_503_and_come_again_c09() {
    let suite = Arc::new(Suite::with(|args| args.max_reviews_in_flight = 2).await);
    let gate = held(&suite);
    let body = bytes(&review());
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let (suite, body) = (suite.clone(), body.clone());
        waiting.push(tokio::spawn(async move { suite.post(MUTATE, &body).await }));
    }
    eventually("two are in flight", || suite.mutator.script.calls() == 2).await;
    let mut client = suite.client().await;
    for path in [MUTATE, VALIDATE] {
        let begun = Instant::now();
        let answer = client.post(path, &body).await;
        assert!(undecided(&answer, 503).contains("reviews in flight"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    gate.add_permits(3);
    for answer in waiting {
        judge(MUTATE, &body, &answer.await.unwrap());
    }
    judge(MUTATE, &body, &client.post(MUTATE, &body).await);
}

#[tokio::test]
async fn bytes_beyond_the_budget_are_503_and_come_again_c09() {
    let suite = Arc::new(
        Suite::with(|args| {
            args.max_body_bytes = 64 << 10;
            args.max_bytes_in_flight = 100 << 10;
        })
        .await,
    );
    let gate = held(&suite);
    let large = sized(60 << 10);
    let first = tokio::spawn({
        let (suite, large) = (suite.clone(), large.clone());
        async move { suite.post(MUTATE, &large).await }
    });
    eventually("the first is in flight", || suite.mutator.script.calls() == 1).await;
    assert_eq!(suite.metric("sallyport_bytes_in_flight").to_bits(), 61_440.0_f64.to_bits());

    let answer = suite.post(MUTATE, &large).await;
    assert!(undecided(&answer, 503).contains("bytes in flight"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    // In chunks, where the size is not announced.
    let head = head(MUTATE, &[("Transfer-Encoding", "chunked")]);
    let (size, text) = (large.len(), std::str::from_utf8(&large).unwrap());
    let request = format!("{head}\r\n{size:x}\r\n{text}\r\n0\r\n\r\n");
    let answer = suite.client().await.exchange(request.as_bytes()).await;
    assert!(undecided(&answer, 503).contains("bytes in flight"));

    // What fits is served meanwhile.
    let small = bytes(&review());
    judge(VALIDATE, &small, &suite.post(VALIDATE, &small).await);
    gate.add_permits(2);
    judge(MUTATE, &large, &first.await.unwrap());
    judge(MUTATE, &large, &suite.post(MUTATE, &large).await);
    assert_eq!(suite.metric("sallyport_bytes_in_flight").to_bits(), 0.0_f64.to_bits());
}

#[tokio::test]
async fn a_caller_that_goes_gives_back_its_place() {
    let suite = Suite::with(|args| args.max_reviews_in_flight = 1).await;
    let gate = held(&suite);
    let body = bytes(&review());
    let mut client = suite.client().await;
    let request = format!("{}Content-Length: {}\r\n\r\n", head(MUTATE, &[]), body.len());
    client.send(&[request.as_bytes(), &body].concat()).await.unwrap();
    eventually("it is in flight", || suite.mutator.script.calls() == 1).await;
    assert_eq!(suite.metric("sallyport_reviews_in_flight").to_bits(), 1.0_f64.to_bits());
    drop(client);
    eventually("its place is free", || suite.metric("sallyport_reviews_in_flight") < 0.5).await;
    gate.add_permits(2);
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let suite = Arc::new(Suite::with(|args| args.max_connections = 1).await);
    let body = bytes(&review());
    let mut first = suite.client().await;
    judge(MUTATE, &body, &first.post(MUTATE, &body).await);
    let second = tokio::spawn({
        let (suite, body) = (suite.clone(), body.clone());
        async move { suite.post(MUTATE, &body).await }
    });
    // As many handshakes as the first can ask for reviews meanwhile would have been done.
    for _ in 0..50 {
        judge(MUTATE, &body, &first.post(MUTATE, &body).await);
    }
    assert!(!second.is_finished(), "it does not wait for the first to go");
    assert_eq!(suite.metric("sallyport_connections").to_bits(), 1.0_f64.to_bits());
    drop(first);
    judge(MUTATE, &body, &second.await.unwrap());
}
