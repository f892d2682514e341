//! The HTTPS server: who waits for whom, and when a connection ends.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_net::https::{Options, serve};
use sallyport_net::listener::OpenConnections;
use sallyport_net::{AcceptLimits, Shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::authority::{Ca, Member, name};
use crate::server::{PATIENCE, connect, eventually, plain_client};

/// A server that answers `ok`, after as many milliseconds as the path says.
pub struct Server {
    pub address: SocketAddr,
    pub ca: Ca,
    pub open: OpenConnections,
    pub shutdown: Shutdown,
    pub serving: JoinHandle<()>,
    _member: Member,
}

impl Server {
    pub async fn start(options: Options) -> Self {
        let ca = Ca::new();
        let member = ca.member("front");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, shutdown) = (OpenConnections::default(), Shutdown::new());
        let service = tower::service_fn(|request: Request<Incoming>| async move {
            let wait = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
            let _ = request.into_body().collect().await;
            if wait > 0 {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
        });
        let tls = member.credentials.https_config().unwrap();
        let serving = tokio::spawn(serve(listener, tls, service, options, open.clone(), shutdown.clone()));
        Self { address, ca, open, shutdown, serving, _member: member }
    }

    /// A new HTTP/1.1 connection.
    pub async fn client(&self) -> io::Result<Client> {
        let config = plain_client(&self.ca, &[b"http/1.1"]);
        Ok(Client { stream: connect(self.address, &name("front"), config).await? })
    }
}

/// An HTTP/1.1 connection that hides nothing.
pub struct Client {
    pub stream: TlsStream<TcpStream>,
}

impl Client {
    /// Posts and reads the answer; true when it says `Connection: close`.
    pub async fn post(&mut self, path: &str) -> io::Result<bool> {
        let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody");
        self.stream.write_all(request.as_bytes()).await?;
        tokio::time::timeout(PATIENCE, self.answer()).await.expect("no answer comes")
    }

    async fn answer(&mut self) -> io::Result<bool> {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            let byte = self.stream.read_u8().await?;
            answer.push(byte);
        }
        let head = String::from_utf8(answer).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        Ok(head.contains("connection: close"))
    }

    /// Waits for the server's end of the connection.
    pub async fn closed(&mut self) {
        let mut rest = [0; 64];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut rest)).await.expect("stays open");
        // A reset is an end too.
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}

fn limits(connections: usize, handshake: Duration) -> AcceptLimits {
    AcceptLimits { connections, handshake }
}

#[tokio::test]
async fn clients_that_never_shake_hands_hold_nobody_up() {
    let handshake = Duration::from_millis(400);
    let server = Server::start(Options { accept: limits(64, handshake), ..Options::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    // As many as there are: all would wait for the first one's handshake if they ran one by one.
    let begun = Instant::now();
    for _ in 0..20 {
        server.client().await.unwrap().post("/").await.unwrap();
    }
    assert!(begun.elapsed() < handshake * 10, "{:?}", begun.elapsed());
    for mut stream in silent {
        let read = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("the handshake has a limit");
        assert!(read.is_err());
    }
    eventually("all connections are accounted for", || server.open.count() == 0).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_others_to_end() {
    let server = Server::start(Options { accept: limits(2, PATIENCE), ..Options::default() }).await;
    let (mut first, mut second) = (server.client().await.unwrap(), server.client().await.unwrap());
    first.post("/").await.unwrap();
    second.post("/").await.unwrap();
    let mut third = TcpStream::connect(server.address).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(200), server.client()).await;
    assert!(waiting.is_err(), "a third connection was served");
    first.post("/").await.unwrap();
    assert_eq!(server.open.count(), 2);
    drop(first);
    // The queue is served in order; the first in it gives up.
    third.shutdown().await.unwrap();
    drop(third);
    tokio::time::timeout(PATIENCE, async { server.client().await.unwrap().post("/").await.unwrap() })
        .await
        .expect("a place that became free is not taken");
}

#[tokio::test]
async fn a_head_that_trickles_in_is_cut() {
    let head = Duration::from_millis(300);
    let server = Server::start(Options { head, ..Options::default() }).await;
    let mut client = server.client().await.unwrap();
    client.post("/").await.unwrap(); // not only on a new connection
    let begun = Instant::now();
    let trickle = async {
        while client.stream.write_all(b"P").await.is_ok() && client.stream.flush().await.is_ok() {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
                // 408 or nothing, then the end.
                _ = client.stream.read_u8() => break,
            }
        }
    };
    tokio::time::timeout(PATIENCE, trickle).await.expect("a slow head is never cut");
    assert!(begun.elapsed() >= head, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn idle_connections_are_not_timed_like_heads_c04() {
    let (head, idle) = (Duration::from_millis(150), Duration::from_millis(1500));
    let server = Server::start(Options { head, idle, ..Options::default() }).await;
    // One that has answered at once, one that had to wait for its answer, and one that the
    // API server's pool opened and did not need.
    let mut clients =
        [server.client().await.unwrap(), server.client().await.unwrap(), server.client().await.unwrap()];
    clients[0].post("/").await.unwrap();
    clients[1].post("/50").await.unwrap();
    tokio::time::sleep(head * 4).await;
    for client in &mut clients {
        client.post("/").await.expect("an idle connection was closed like a slow head");
    }
    let begun = Instant::now();
    for client in &mut clients {
        client.closed().await;
    }
    assert!(begun.elapsed() >= idle / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_call_may_take_longer_than_a_head_or_an_idle_time() {
    let short = Duration::from_millis(100);
    let server = Server::start(Options { head: short, idle: short, ..Options::default() }).await;
    server.client().await.unwrap().post("/400").await.unwrap();
}

#[tokio::test]
async fn an_old_connection_is_retired_by_an_answer_and_not_before_c04() {
    let age = Duration::from_millis(300);
    let server = Server::start(Options { age, ..Options::default() }).await;
    let mut client = server.client().await.unwrap();
    let begun = Instant::now();
    while !client.post("/").await.expect("closed without a word") {
        assert!(begun.elapsed() < PATIENCE, "never retired");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begun.elapsed() >= age.mul_f64(0.8), "{:?}", begun.elapsed());
    client.closed().await;

    // Being old alone closes nothing: the answer has to say so.
    let mut idle = server.client().await.unwrap();
    tokio::time::sleep(age * 2).await;
    assert!(idle.post("/").await.unwrap(), "not retired");
}

#[tokio::test]
async fn with_no_age_every_answer_retires_its_connection() {
    let server = Server::start(Options { age: Duration::ZERO, ..Options::default() }).await;
    for _ in 0..3 {
        let mut client = server.client().await.unwrap();
        assert!(client.post("/").await.expect("closed without an answer"), "not retired");
        client.closed().await;
    }
}

/// hyper itself waits for the beginning of h2, and for unread answers, without any limit.
#[tokio::test]
async fn an_h2_client_that_is_silent_or_does_not_read_is_cut() {
    let (age, idle) = (Duration::from_millis(100), Duration::from_millis(300));
    let server = Server::start(Options { age, idle, ..Options::default() }).await;
    let config = plain_client(&server.ca, &[b"h2"]);
    let mut silent =
        Client { stream: connect(server.address, &name("front"), config.clone()).await.unwrap() };
    assert_eq!(silent.stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // A window of nothing: the answer can never be sent.
    let stream = connect(server.address, &name("front"), config).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post("https://front/").body(Full::new(Bytes::from_static(b"body"))).unwrap();
    let answer = client.send_request(request).await.unwrap();
    eventually("both are cut", || server.open.count() == 0).await;
    while silent.stream.read_u8().await.is_ok() {}
    assert!(answer.into_body().collect().await.is_err(), "the answer arrived: nothing proven");
}
