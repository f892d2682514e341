//! The balancer treats connections as a Kubernetes Service does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;

use sallyport_testkit::Balancer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A backend that answers each byte with its own name.
async fn backend(name: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                while stream.read_u8().await.is_ok() {
                    stream.write_u8(name).await.unwrap();
                }
            });
        }
    });
    address
}

async fn ask(stream: &mut TcpStream) -> std::io::Result<u8> {
    stream.write_u8(0).await?;
    stream.read_u8().await
}

#[tokio::test]
async fn new_connections_take_turns_and_stay_where_they_are() {
    let (a, b) = (backend(b'a').await, backend(b'b').await);
    let balancer = Balancer::start([a, b]).await.unwrap();
    let mut streams = Vec::new();
    let mut names = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
        names.push(ask(&mut stream).await.unwrap());
        streams.push(stream);
    }
    assert_eq!(names, *b"abab");
    assert_eq!((balancer.connections(a), balancer.connections(b)), (2, 2));

    balancer.remove(a);
    assert_eq!(ask(&mut streams[0]).await.unwrap(), b'a', "a connection outlives its backend's removal");
    for _ in 0..3 {
        let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
        assert_eq!(ask(&mut stream).await.unwrap(), b'b');
    }

    balancer.add(a);
    let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
    let mut next = TcpStream::connect(balancer.address()).await.unwrap();
    let mut both = [ask(&mut stream).await.unwrap(), ask(&mut next).await.unwrap()];
    both.sort_unstable();
    assert_eq!(both, *b"ab");
}

#[tokio::test]
async fn a_backend_that_refuses_is_passed_over_and_none_at_all_closes() {
    // Bound and not listening: it refuses, and nobody else can take the port.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dead = held.local_addr().unwrap();
    let live = backend(b'l').await;
    let balancer = Balancer::start([dead, live]).await.unwrap();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
        assert_eq!(ask(&mut stream).await.unwrap(), b'l');
    }
    balancer.remove(live);
    let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
    assert!(ask(&mut stream).await.is_err(), "nobody is there to answer");
}

#[tokio::test]
async fn dropping_closes_connections() {
    let balancer = Balancer::start([backend(b'a').await]).await.unwrap();
    let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
    assert_eq!(ask(&mut stream).await.unwrap(), b'a');
    drop(balancer);
    assert!(stream.read_u8().await.is_err());
}

#[tokio::test]
async fn cutting_closes_connections_and_new_ones_are_served() {
    let balancer = Balancer::start([backend(b'a').await]).await.unwrap();
    let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
    assert_eq!(ask(&mut stream).await.unwrap(), b'a');
    balancer.cut();
    assert!(stream.read_u8().await.is_err());
    let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
    assert_eq!(ask(&mut stream).await.unwrap(), b'a');
}
