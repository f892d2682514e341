//! How large a body may be, and in which pieces it may come (C-06, G-01).

use std::time::Duration;

use sallyport_proto::v1alpha1::MutateResponse;
use sallyport_testkit::verdict::Decision;

use crate::admission::{bytes, review, sized};
use crate::answers::allowed;
use crate::client::head;
use crate::suite::{MUTATE, Suite, VALIDATE, judge, undecided};

const LIMIT: usize = 8 << 20;

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut request = head(MUTATE, &[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]);
    request.push_str("\r\n");
    let mut request = request.into_bytes();
    for chunk in body.chunks(size) {
        request.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend_from_slice(chunk);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    request
}

#[tokio::test]
async fn a_body_may_come_in_chunks() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    for size in [1, 7, 1000, body.len()] {
        judge(MUTATE, &body, &suite.client().await.exchange(&chunked(&body, size)).await);
    }
}

#[tokio::test]
async fn eight_mebibytes_pass_and_one_byte_more_is_a_clear_413_c06_g01() {
    let suite = Suite::start().await;
    for (what, size) in [("7 MiB", 7 << 20), ("the limit", LIMIT)] {
        let body = sized(size);
        for path in [MUTATE, VALIDATE] {
            let answer = suite.post(path, &body).await;
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            judge(path, &body, &answer);
            let object = suite.backend(path).script.last().review.object;
            assert!(
                body.windows(20).any(|window| window == &object[..20]) && object.len() > size - 2000,
                "{what}"
            );
        }
        judge(MUTATE, &body, &suite.client().await.exchange(&chunked(&body, 100_000)).await);
    }
    let calls = suite.mutator.script.calls();
    let body = sized(LIMIT + 1);
    for mut request in [None, Some(chunked(&body, 100_000))] {
        let mut client = suite.client().await;
        let answer = match request.take() {
            Some(request) => client.exchange(&request).await,
            None => client.post(MUTATE, &body).await,
        };
        let said = undecided(&answer, 413);
        assert!(said.contains("8388608") && said.contains("--max-body-bytes"), "{said}");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(answer.header("retry-after").is_none());
        assert!(client.is_closed().await);
    }
    assert_eq!(suite.mutator.script.calls(), calls);
    assert_eq!(suite.metric("sallyport_bytes_in_flight").to_bits(), 0.0_f64.to_bits());
}

#[tokio::test]
async fn a_body_without_end_is_given_up_c06() {
    let suite = Suite::with(|args| args.max_body_bytes = 64 << 10).await;
    let filler = "1000\r\n".to_owned() + &" ".repeat(0x1000) + "\r\n";
    let mut request = head(MUTATE, &[("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]);
    request.push_str("\r\n");
    // Never ended; far more than the front will read.
    for _ in 0..500 {
        request.push_str(&filler);
    }
    let mut client = suite.client().await;
    let answer = client.exchange(request.as_bytes()).await;
    assert!(undecided(&answer, 413).contains("65536"));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn an_announced_giant_is_refused_without_waiting_for_it_c06() {
    let suite = Suite::start().await;
    let request = head(MUTATE, &[("Content-Type", "application/json"), ("Content-Length", "99999999999999")]);
    let mut client = suite.client().await;
    client.send((request + "\r\n").as_bytes()).await.unwrap();
    // It is read and forgotten up to a bound, so that the sender is there to read the answer.
    let filler = vec![b' '; 1 << 20];
    let sending = async {
        for _ in 0..18 {
            if client.send(&filler).await.is_err() {
                break;
            }
        }
        client.answer().await
    };
    let answer = tokio::time::timeout(Duration::from_secs(20), sending).await.unwrap().unwrap();
    undecided(&answer, 413);
}

#[tokio::test]
async fn a_body_that_breaks_off_reaches_no_backend() {
    let suite = Suite::start().await;
    let body = bytes(&review());
    let mut client = suite.client().await;
    let request = format!("{}Content-Length: {}\r\n\r\n", head(MUTATE, &[]), body.len());
    client.send(request.as_bytes()).await.unwrap();
    client.send(&body[..body.len() / 2]).await.unwrap();
    drop(client);
    // The next review shows that nothing is stuck.
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
    assert_eq!(suite.mutator.script.calls(), 1);
}

#[tokio::test]
async fn a_patch_may_be_as_large_as_the_largest_object_g01() {
    let suite = Suite::start().await;
    let patch =
        |size: usize| format!(r#"[{{"op":"add","path":"/x","value":"{}"}}]"#, "x".repeat(size)).into_bytes();
    let body = bytes(&review());
    suite.mutator.script.answer(MutateResponse { json_patch: patch(7 << 20).into(), ..allowed() });
    let verdict = judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
    let Decision::Allowed { object: Some(object), .. } = verdict.decision else { panic!("no patch") };
    assert_eq!(object["x"].as_str().map(str::len), Some(7 << 20));

    suite.mutator.script.answer(MutateResponse { json_patch: patch(10 << 20).into(), ..allowed() });
    let answer = suite.post(MUTATE, &body).await;
    assert!(
        undecided(&answer, 500).contains("OutOfRange"),
        "more than any review is an error, not a decision"
    );
    suite.mutator.script.answer(allowed());
    judge(MUTATE, &body, &suite.post(MUTATE, &body).await);
}
