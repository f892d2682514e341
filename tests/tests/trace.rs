//! One trace over all hops, begun by the API server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use sallyport_testkit::{ControlPlane, TraceReceiver};
use sallyport_tests::suite::{in_force, pod};
use sallyport_tests::{Entry, Options, Suite};
use serde_json::json;

/// G-09, users.md 22.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_is_one_trace_through_webhook_and_mutator() {
    sallyport_tests::install_tls_provider();
    let receiver = TraceReceiver::start().await.unwrap();
    let plane = ControlPlane::builder().tracing(receiver.address().to_string()).start().await.unwrap();
    let options = Options { recipes: vec!["hello-file"], otlp: Some(receiver.url()), ..Options::default() };
    let mut suite = Suite::start(&options).await.unwrap();
    let inspector = suite.inspector().await.unwrap();
    let entries = [Entry::pods("mutate", "Fail", ("traced", "yes"))];
    suite.register(&plane, "sallyport", &inspector.url(), &entries).await.unwrap();
    plane.kubectl(&["create", "namespace", "traced"], None).await.unwrap().ok().unwrap();
    plane.kubectl(&["label", "namespace", "traced", "traced=yes"], None).await.unwrap().ok().unwrap();
    in_force(&plane, &inspector, "traced").await.unwrap();
    let manifest = pod("seen", &json!({"hello": "true"}), &json!({}));
    plane.kubectl(&["-n", "traced", "create", "-f", "-"], Some(&manifest)).await.unwrap().ok().unwrap();
    let review = inspector.of("seen").remove(0);
    let uid = review.request["request"]["uid"].as_str().unwrap().to_owned();

    let joined = |spans: &[sallyport_testkit::otlp::Span]| {
        let review = spans.iter().find(|span| {
            span.name == "review" && span.attributes.get("uid").is_some_and(|value| *value == uid)
        });
        review.is_some_and(|review| {
            let of_trace =
                |name: &str| spans.iter().find(|span| span.name == name && span.trace_id == review.trace_id);
            let (call, evaluate) = (of_trace("backend call"), of_trace("evaluate"));
            let api_server = spans
                .iter()
                .any(|span| span.trace_id == review.trace_id && span.service.contains("apiserver"));
            api_server
                && call.is_some_and(|call| call.parent_span_id == review.span_id)
                && evaluate.is_some_and(|span| call.is_some_and(|call| span.parent_span_id == call.span_id))
        })
    };
    let found = receiver.wait_for(Duration::from_secs(30), joined).await;
    if let Err(error) = found {
        let names: Vec<_> =
            receiver.spans().into_iter().map(|span| (span.service, span.name, span.trace_id)).collect();
        panic!("{error:#}: {names:?}");
    }
}
