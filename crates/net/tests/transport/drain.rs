//! Draining: from SIGTERM to the last connection, without losing a review (C-04, C-102).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_net::https::Options;

use crate::authority::name;
use crate::https::Server;
use crate::server::{PATIENCE, connect, eventually, plain_client};

fn options(least: Duration, most: Duration) -> Options {
    Options { drain_least: least, drain_most: most, ..Options::default() }
}

async fn ended(server: Server) -> Duration {
    let begun = Instant::now();
    tokio::time::timeout(PATIENCE, server.serving).await.expect("the server never ends").unwrap();
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keep_alive_clients_under_load_lose_nothing_c102() {
    let server = Arc::new(Server::start(options(Duration::from_secs(1), PATIENCE)).await);
    let (answered, after, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let counters = Arc::new((answered, after, stop));
    let mut clients = Vec::new();
    for number in 0..32_u64 {
        let (server, counters) = (server.clone(), counters.clone());
        clients.push(tokio::spawn(async move {
            let (answered, after, stop) = &*counters;
            let mut client = server.client().await.expect("cannot connect");
            loop {
                let draining = server.shutdown.is_started();
                let close = client.post(&format!("/{}", number % 4)).await.expect("a review was lost");
                answered.fetch_add(1, Ordering::Relaxed);
                assert!(close || !draining, "an answer during the drain that does not retire its connection");
                if close {
                    after.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return; // as when the endpoint has gone from every node
                    }
                    client = server.client().await.expect("a new connection is refused during the drain");
                }
            }
        }));
    }
    eventually("every client is at work", || counters.0.load(Ordering::Relaxed) > 200).await;
    server.shutdown.trigger();
    eventually("reviews go on during the drain", || counters.1.load(Ordering::Relaxed) > 64).await;
    counters.2.store(true, Ordering::Relaxed);
    for client in clients {
        tokio::time::timeout(PATIENCE, client).await.expect("a client hangs").unwrap();
    }
    let server = Arc::into_inner(server).expect("all clients have ended");
    assert!(ended(server).await < Duration::from_secs(3), "nothing was open any more");
}

#[tokio::test]
async fn an_idle_connection_is_not_closed_by_a_drain_and_its_next_answer_retires_it_c04() {
    let server = Server::start(options(Duration::ZERO, PATIENCE)).await;
    let mut client = server.client().await.unwrap();
    assert!(!client.post("/").await.unwrap());
    server.shutdown.trigger();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!server.serving.is_finished(), "ended although a connection was open");
    assert!(client.post("/").await.expect("an idle connection was closed"), "not retired");
    client.closed().await;
    drop(client);
    assert!(ended(server).await < Duration::from_secs(2));
}

#[tokio::test]
async fn new_connections_are_served_until_the_least_time_is_over_c102() {
    let least = Duration::from_millis(600);
    let server = Server::start(options(least, PATIENCE)).await;
    let address = server.address;
    let begun = Instant::now();
    server.shutdown.trigger();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut client = server.client().await.expect("refused during the drain");
    assert!(client.post("/").await.unwrap());
    client.closed().await;
    ended(server).await;
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "still listening");
}

#[tokio::test]
async fn a_connection_that_stays_open_is_waited_for_at_most_so_long() {
    let most = Duration::from_millis(500);
    let server = Server::start(options(Duration::ZERO, most)).await;
    let mut client = server.client().await.unwrap();
    client.post("/").await.unwrap();
    let begun = Instant::now();
    server.shutdown.trigger();
    ended(server).await;
    assert!(begun.elapsed() >= most, "{:?}", begun.elapsed());
    client.closed().await;
}

#[tokio::test]
async fn with_nothing_open_a_drain_ends_after_the_least_time() {
    let server = Server::start(options(Duration::from_millis(100), PATIENCE)).await;
    server.shutdown.trigger();
    assert!(ended(server).await < Duration::from_secs(3));
}

#[tokio::test]
async fn a_call_in_flight_is_finished_by_a_drain() {
    let server = Server::start(options(Duration::ZERO, PATIENCE)).await;
    let mut client = server.client().await.unwrap();
    let shutdown = server.shutdown.clone();
    let triggered = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        shutdown.trigger();
    });
    assert!(client.post("/500").await.expect("cut off"), "not retired");
    triggered.await.unwrap();
    ended(server).await;
}

/// An h2 client on a connection of its own.
async fn h2(server: &Server) -> http2::SendRequest<Full<Bytes>> {
    let config = plain_client(&server.ca, &[b"h2"]);
    let stream = connect(server.address, &name("front"), config).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

fn post(path: &str) -> Request<Full<Bytes>> {
    Request::post(format!("https://front{path}")).body(Full::new(Bytes::from_static(b"body"))).unwrap()
}

#[tokio::test]
async fn h2_connections_get_goaway_and_finish_what_is_in_flight_c04() {
    let server = Server::start(options(Duration::from_millis(200), PATIENCE)).await;
    let mut client = h2(&server).await;
    assert_eq!(client.send_request(post("/")).await.unwrap().status(), StatusCode::OK);
    let mut busy = client.clone();
    let in_flight = tokio::spawn(async move { busy.send_request(post("/500")).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.trigger();
    assert_eq!(in_flight.await.unwrap().expect("cut off").status(), StatusCode::OK);
    eventually("the client knows", || client.is_closed()).await;
    assert!(client.send_request(post("/")).await.is_err());
    ended(server).await;
}

#[tokio::test]
async fn an_old_h2_connection_gets_goaway() {
    let age = Duration::from_millis(200);
    let server = Server::start(Options { age, ..Options::default() }).await;
    let mut client = h2(&server).await;
    assert_eq!(client.send_request(post("/400")).await.expect("cut off").status(), StatusCode::OK);
    eventually("the connection is retired", || client.is_closed()).await;
    assert_eq!(h2(&server).await.send_request(post("/")).await.unwrap().status(), StatusCode::OK);
}
