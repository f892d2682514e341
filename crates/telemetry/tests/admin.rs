//! The admin endpoint over real loopback connections.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use prometheus::{IntCounter, Opts};
use sallyport_telemetry::Admin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

async fn serve(admin: &Admin) -> Running {
    let server = admin.bind(LOOPBACK).await.unwrap();
    let address = server.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let done = tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    Running { address, stop, done }
}

/// Sends `request` on its own connection and reads to the end: status and body.
async fn exchange(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn each_path_answers_what_it_is_for() {
    let mut admin = Admin::new("webhook");
    admin.page("/certificates", || "{\"leaf\":\"0a\"}".to_owned());
    admin.readiness().condition("certificate").set(true);
    let running = serve(&admin).await;
    let rows = [
        ("/healthz", 200, "text/plain", Some("ok\n")),
        ("/readyz", 200, "text/plain", Some("ok\n")),
        ("/readyz?verbose", 200, "text/plain", Some("ok\n")),
        ("/metrics", 200, "text/plain; version=0.0.4", None),
        ("/certificates", 200, "application/json", Some("{\"leaf\":\"0a\"}")),
        ("/", 404, "text/plain", None),
        ("/metrics/", 404, "text/plain", None),
        ("/../etc/passwd", 404, "text/plain", None),
    ];
    for (path, status, content_type, body) in rows {
        let (got, head, text) = get(running.address, path).await;
        assert_eq!(got, status, "{path}");
        assert!(head.contains(&format!("content-type: {content_type}")), "{path}: {head}");
        if let Some(body) = body {
            assert_eq!(text, body, "{path}");
        }
    }
}

/// G-06: unready is 503 with the names of what is missing; health does not depend on it.
#[tokio::test]
async fn readiness_follows_its_conditions_and_health_does_not() {
    let admin = Admin::new("webhook");
    let certificate = admin.readiness().condition("certificate");
    let backend = admin.readiness().condition("backend");
    let running = serve(&admin).await;
    let (status, _, body) = get(running.address, "/readyz").await;
    assert_eq!((status, body.as_str()), (503, "backend\ncertificate\n"));
    assert_eq!(get(running.address, "/healthz").await.0, 200);
    certificate.set(true);
    assert_eq!(get(running.address, "/readyz").await.2, "backend\n");
    backend.set(true);
    assert_eq!(get(running.address, "/readyz").await.0, 200);
    certificate.set(false);
    assert_eq!(get(running.address, "/readyz").await.0, 503);
}

#[tokio::test]
async fn metrics_hold_the_build_the_process_and_what_the_service_registered() {
    let admin = Admin::new("mutator");
    let counter = IntCounter::with_opts(Opts::new("sallyport_test_total", "x")).unwrap();
    admin.registry().register(Box::new(counter.clone())).unwrap();
    counter.inc_by(3);
    let running = serve(&admin).await;
    let (_, _, text) = get(running.address, "/metrics").await;
    let build =
        format!("sallyport_build_info{{service=\"mutator\",version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    for line in ["sallyport_test_total 3", build.as_str()] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    if cfg!(target_os = "linux") {
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
    }
}

/// Two services in one process (`sallyport dev`) do not see each other's metrics.
#[tokio::test]
async fn two_services_have_registries_of_their_own() {
    let (one, two) = (Admin::new("mutator"), Admin::new("validator"));
    let counter = IntCounter::with_opts(Opts::new("sallyport_one_total", "x")).unwrap();
    one.registry().register(Box::new(counter)).unwrap();
    let (first, second) = (serve(&one).await, serve(&two).await);
    assert!(get(first.address, "/metrics").await.2.contains("sallyport_one_total"));
    assert!(!get(second.address, "/metrics").await.2.contains("sallyport_one_total"));
}

#[tokio::test]
async fn other_methods_and_oversized_heads_are_refused() {
    let running = serve(&Admin::new("webhook")).await;
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd";
    let (status, head, _) = exchange(running.address, post).await;
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    let (status, _, body) =
        exchange(running.address, "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert_eq!((status, body.as_str()), (200, ""));
    let long = format!("GET /healthz HTTP/1.1\r\nX: {}", "a".repeat(17 * 1024));
    assert_eq!(exchange(running.address, &long).await.0, 431);
}

#[tokio::test]
async fn a_connection_that_sends_no_request_is_closed() {
    let running = serve(&Admin::new("webhook")).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /healthz HT").await.unwrap();
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "still open after the header timeout");
}

/// More stalled peers than places: those behind them are served when the stalled ones are cut off.
#[tokio::test]
async fn stalled_peers_do_not_lock_others_out_for_good() {
    let running = serve(&Admin::new("webhook")).await;
    let mut stalled = Vec::new();
    for _ in 0..80 {
        stalled.push(TcpStream::connect(running.address).await.unwrap());
    }
    assert_eq!(get(running.address, "/healthz").await.0, 200);
}

#[tokio::test]
async fn shutdown_ends_idle_connections_and_frees_the_port() {
    let running = serve(&Admin::new("webhook")).await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    running.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(4), running.done).await.expect("serve did not end").unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}
