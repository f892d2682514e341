//! Many reviews on one connection, many connections, and connections that go away (C-04).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use sallyport_testkit::eventually;
use sallyport_testkit::verdict::{Door, check};
use serde_json::json;
use tokio::task::JoinSet;

use crate::admission::{UID, bytes, review, with};
use crate::client::head;
use crate::suite::{MUTATE, NAME, Suite, VALIDATE, judge, undecided};

#[tokio::test]
async fn reviews_on_one_connection_keep_their_uids_c04_c22() {
    let suite = Suite::start().await;
    let mut client = suite.client().await;
    for number in 0..10 {
        let body = bytes(&with("uid", json!(format!("uid-{number}"))));
        for path in [MUTATE, VALIDATE] {
            let answer = client.post(path, &body).await;
            judge(path, &body, &answer);
            assert!(answer.header("connection").is_none(), "a young connection is kept");
        }
        // What is refused does not cost the connection either.
        undecided(&client.post(MUTATE, b"{}").await, 400);
        undecided(&client.post("/elsewhere", &body).await, 404);
    }
    assert_eq!(suite.metric("sallyport_connections").to_bits(), 1.0_f64.to_bits());
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_in_their_order() {
    let suite = Suite::start().await;
    let bodies = [bytes(&with("uid", json!("first"))), bytes(&with("uid", json!("second")))];
    let mut requests = Vec::new();
    for body in &bodies {
        requests.extend(format!("{}Content-Length: {}\r\n\r\n", head(MUTATE, &[]), body.len()).into_bytes());
        requests.extend(body);
    }
    let mut client = suite.client().await;
    client.send(&requests).await.unwrap();
    for body in &bodies {
        judge(MUTATE, body, &client.answer().await.unwrap());
    }
}

#[tokio::test]
async fn a_hundred_connections_at_once_c04() {
    let suite = Arc::new(Suite::start().await);
    // All are in flight together before any is answered.
    let (arrived, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (count, gate) = (arrived.clone(), release.clone());
    suite.mutator.script.act(move |_| {
        let (count, gate) = (count.clone(), gate.clone());
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = gate.acquire().await;
            Ok(crate::answers::allowed())
        }
    });
    let mut clients = JoinSet::new();
    for number in 0..100 {
        let suite = suite.clone();
        clients.spawn(async move {
            let body = bytes(&with("uid", json!(format!("uid-{number}"))));
            let mut client = suite.client().await;
            for _ in 0..2 {
                judge(MUTATE, &body, &client.post(MUTATE, &body).await);
            }
        });
    }
    eventually("a hundred calls are in flight", || arrived.load(Ordering::SeqCst) == 100).await;
    release.add_permits(1000);
    clients.join_all().await;
    assert_eq!(suite.mutator.script.calls(), 200);
}

#[tokio::test]
async fn h2_is_spoken_to_who_asks_for_it_c04() {
    let suite = Suite::start().await;
    let stream = suite.stream(b"h2").await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut streams = JoinSet::new();
    for number in 0..20 {
        let mut client = client.clone();
        streams.spawn(async move {
            let body = bytes(&with("uid", json!(format!("uid-{number}"))));
            let request = http::Request::post(format!("https://{NAME}{MUTATE}?timeout=5s"))
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body.clone())))
                .unwrap();
            let (head, answer) = client.send_request(request).await.unwrap().into_parts();
            let answer = answer.collect().await.unwrap().to_bytes();
            let kind = head.headers.get("content-type").map(|kind| kind.to_str().unwrap());
            let verdict = check(Door::Mutating, &body, head.status.as_u16(), kind, &answer).unwrap();
            assert!(verdict.remarks.is_empty());
        });
    }
    streams.join_all().await;
    assert_eq!(suite.mutator.script.calls(), 20);
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn when_the_caller_goes_the_backends_handler_is_cancelled_g02() {
    let suite = Suite::start().await;
    let (begun, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (start, end) = (begun.clone(), dropped.clone());
    suite.validator.script.act(move |_| {
        let (start, end) = (start.clone(), end.clone());
        async move {
            let _flag = Flag(end);
            start.store(true, Ordering::SeqCst);
            std::future::pending().await
        }
    });
    let mut client = suite.client().await;
    let body = bytes(&review());
    let request = format!("{}Content-Length: {}\r\n\r\n", head(VALIDATE, &[]), body.len());
    client.send(&[request.as_bytes(), &body].concat()).await.unwrap();
    eventually("the backend is at work", || begun.load(Ordering::SeqCst)).await;
    assert!(!dropped.load(Ordering::SeqCst));
    drop(client);
    // Long before the review's own deadline: that is ten seconds away.
    tokio::time::timeout(
        Duration::from_secs(5),
        eventually("it is cancelled", || dropped.load(Ordering::SeqCst)),
    )
    .await
    .expect("the handler outlives its caller");
    let sample = r#"sallyport_review_duration_seconds_count{door="validate-fail",operation="CREATE",outcome="cancelled"}"#;
    eventually("it is counted", || suite.metric(sample) > 0.0).await;
}

#[tokio::test]
async fn a_drain_answers_and_retires_c102() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    let mut open = suite.client().await;
    judge(MUTATE, &body, &open.post(MUTATE, &body).await);
    suite.shutdown.trigger();
    for client in [&mut open, &mut suite.client().await] {
        let answer = client.post(MUTATE, &body).await;
        judge(MUTATE, &body, &answer);
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert!(suite.readiness.ready(), "a draining front still serves: it stays ready");
}

#[tokio::test]
async fn the_certificate_is_swapped_while_reviews_go_on_r10() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    let mut open = suite.client().await;
    judge(MUTATE, &body, &open.post(MUTATE, &body).await);
    let shown = |stream: &tokio_rustls::client::TlsStream<tokio::net::TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let before = shown(&suite.stream(b"http/1.1").await);
    let own = suite.directory.path().join("webhook");
    std::fs::write(own.join("tls.key"), "half-written").unwrap();
    eventually("the defect is counted", || suite.metric("sallyport_tls_reload_errors_total") > 0.0).await;
    assert_eq!(shown(&suite.stream(b"http/1.1").await), before, "the last good pair stays");
    judge(MUTATE, &body, &open.post(MUTATE, &body).await);

    // A new pair of the same authority.
    let authority = suite.directory.path().join("ca");
    let read = |name: &str| std::fs::read_to_string(authority.join(name)).unwrap();
    let pair = sallyport_pki::KeyPair { certificate_pem: read("tls.crt"), key_pem: read("tls.key") };
    let names = sallyport_pki::Suite::with_prefix("sallyport", "sallyport", "cluster.local").unwrap();
    let wanted =
        names.leaf(sallyport_pki::names::Member::Webhook, &sallyport_pki::names::Extras::loopback()).unwrap();
    let leaf = sallyport_pki::Authority::from_pem(&pair)
        .unwrap()
        .issue(&wanted, std::time::SystemTime::now(), Duration::from_hours(1))
        .unwrap();
    std::fs::write(own.join("tls.crt"), &leaf.certificate_pem).unwrap();
    std::fs::write(own.join("tls.key"), &leaf.key_pem).unwrap();
    let seen = Mutex::new(before.clone());
    let swapped = async {
        while *seen.lock() == before {
            let now = shown(&suite.stream(b"http/1.1").await);
            *seen.lock() = now;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), swapped).await.expect("the new pair is never shown");
    judge(MUTATE, &body, &open.post(MUTATE, &body).await);
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
    assert_eq!(suite.mutator.script.last().review.uid, UID);
}
