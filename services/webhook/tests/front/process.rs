//! The front as a process: trace context passes through it (G-09), and SIGTERM drains it.

use std::time::Duration;

use rustls::RootCertStore;
use sallyport_testkit::ports::free_ports;
use sallyport_testkit::{Process, Program};

use crate::admission::{UID, bytes, review};
use crate::backend::Backend;
use crate::client::{Client, connect, tls};
use crate::suite::{MUTATE, NAME, certificates, judge};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[tokio::test]
async fn trace_context_and_uid_reach_the_backend_g09() {
    let (directory, bundle, client_name) = certificates();
    let mutator = Backend::start(&directory.path().join("mutator"), &client_name).await;
    let [listen, admin] = free_ports().unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_sallyport-webhook"))
        .arg("--tls-dir")
        .arg(directory.path().join("webhook").display().to_string())
        .arg("--mutator")
        .arg(mutator.address.to_string())
        .arg("--mutator-name=sallyport-mutator.sallyport.svc")
        .env("SALLYPORT_LISTEN", format!("127.0.0.1:{listen}"))
        .env("SALLYPORT_ADMIN_ADDRESS", format!("127.0.0.1:{admin}"))
        .env("SALLYPORT_DRAIN_LEAST", "100ms")
        // Nobody receives: whether spans arrive is another test's business.
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let mut process: Process = program.start().unwrap();
    process.wait_ready(&format!("http://127.0.0.1:{admin}"), Duration::from_secs(20)).await.unwrap();

    let mut roots = RootCertStore::empty();
    for certificate in bundle.certificates() {
        roots.add(certificate.der().clone()).unwrap();
    }
    let stream = connect(([127, 0, 0, 1], listen).into(), NAME, tls(roots, b"http/1.1")).await.unwrap();
    let mut client = Client::new(stream);
    let body = bytes(&review());
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let answer = client.post_with(MUTATE, &[("traceparent", parent.as_str())], &body).await;
    judge(MUTATE, &body, &answer);
    let call = mutator.script.last();
    let sent = call.metadata.get("traceparent").expect("no trace context").to_str().unwrap();
    assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-01"), "{sent}");
    assert_ne!(sent, parent, "the front has a span of its own");
    assert_eq!(call.review.uid, UID);

    process.terminate().unwrap();
    let answer = client.post(MUTATE, &body).await;
    judge(MUTATE, &body, &answer);
    drop(client);
    let status = process.wait_exit(Duration::from_secs(20)).await.unwrap();
    assert!(status.success(), "{status}");
}
