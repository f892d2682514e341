//! The path under load: what a review costs from HTTPS to decision.
//!
//! `bench BIN_DIR` starts the services from that directory, drives each
//! arrangement over HTTP/1.1 keep-alive connections and prints one table:
//! throughput, latency, CPU time of the servers and their memory. All servers
//! together have one core, and the load generator another, so that the figures of
//! different machines and days can be compared.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a tool for developers: a broken step ends it

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use sallyport_net::https::{self, Options};
use sallyport_net::listener::OpenConnections;
use sallyport_net::{AcceptLimits, Credentials, Shutdown, grpc_incoming};
use sallyport_proto::v1alpha1::mutator_server::{Mutator, MutatorServer};
use sallyport_proto::v1alpha1::{MutateResponse, ReviewRequest};
use sallyport_testkit::ports::free_ports;
use sallyport_testkit::{Process, Program};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// How long each figure is measured, after a tenth of it to warm up.
const MEASURED: Duration = Duration::from_secs(5);

/// Clock ticks a second of `/proc/PID/stat`; Linux' `USER_HZ` on every common machine.
const TICKS: f64 = 100.0;

#[tokio::main]
async fn main() -> Result<()> {
    sallyport_tests::install_tls_provider();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--echo", address, tls] => echo(address.parse()?, Path::new(tls)).await,
        ["--no-op", address, tls] => no_op(address.parse()?, Path::new(tls)).await,
        [directory] if !directory.starts_with('-') => figures(Path::new(directory)).await,
        _ => anyhow::bail!("usage: bench BIN_DIR"),
    }
}

/// Bare hyper and rustls: the floor.
async fn echo(address: SocketAddr, tls: &Path) -> Result<()> {
    let credentials = Credentials::load(tls)?;
    let answer = Bytes::from_static(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}"#);
    let router = Router::new().fallback(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let _ = request.into_body().collect().await;
            Body::from(answer)
        }
    });
    let listener = TcpListener::bind(address).await?;
    let tls = credentials.https_config()?;
    https::serve(listener, tls, router, Options::default(), OpenConnections::default(), Shutdown::new())
        .await;
    Ok(())
}

struct NoOp;

#[tonic::async_trait]
impl Mutator for NoOp {
    async fn mutate(
        &self,
        _: tonic::Request<ReviewRequest>,
    ) -> Result<tonic::Response<MutateResponse>, tonic::Status> {
        Ok(tonic::Response::new(MutateResponse { allowed: true, ..MutateResponse::default() }))
    }
}

/// A backend that allows everything.
async fn no_op(address: SocketAddr, tls: &Path) -> Result<()> {
    let credentials = Credentials::load(tls)?;
    let config = credentials.mutual_server_config("sallyport-webhook.sallyport.svc")?;
    let incoming = grpc_incoming(TcpListener::bind(address).await?, config, AcceptLimits::default());
    let service = MutatorServer::new(NoOp).max_decoding_message_size(16 << 20);
    tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await?;
    Ok(())
}

struct Server {
    name: &'static str,
    process: Process,
}

struct Bench {
    bin: PathBuf,
    directory: tempfile::TempDir,
}

impl Bench {
    fn tls(&self, service: &str) -> PathBuf {
        self.directory.path().join("tls").join(service)
    }

    async fn service(&self, name: &'static str, program: Program) -> Result<(Server, SocketAddr)> {
        let [port, admin] = free_ports::<2>()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut process = program
            .env("SALLYPORT_LISTEN", address.to_string())
            .env("SALLYPORT_ADMIN_ADDRESS", format!("127.0.0.1:{admin}"))
            .env("SALLYPORT_LOG_LEVEL", "warn")
            .start()?;
        process.wait_ready(&format!("http://127.0.0.1:{admin}"), Duration::from_secs(20)).await?;
        Ok((Server { name, process }, address))
    }

    async fn backend(&self, name: &'static str, recipe: &str) -> Result<(Server, SocketAddr)> {
        let policies = self.directory.path().join(recipe);
        std::fs::create_dir_all(&policies)?;
        let from = sallyport_tests::root().join("policies").join(recipe).join("policy.yaml");
        std::fs::copy(from, policies.join("policy.yaml"))?;
        let program = on_servers_core(self.bin.join(format!("sallyport-{name}")))
            .env("SALLYPORT_POLICY_DIR", policies)
            .env("SALLYPORT_TLS_DIR", self.tls(name))
            .env("SALLYPORT_CLIENT_NAME", "sallyport-webhook.sallyport.svc");
        self.service(name, program).await
    }

    async fn front(&self, backend: &str, address: SocketAddr) -> Result<(Server, SocketAddr)> {
        let flag = backend.to_uppercase();
        let program = on_servers_core(self.bin.join("sallyport-webhook"))
            .env("SALLYPORT_TLS_DIR", self.tls("webhook"))
            .env(format!("SALLYPORT_{flag}"), address.to_string())
            .env(format!("SALLYPORT_{flag}_NAME"), format!("sallyport-{backend}.sallyport.svc"));
        self.service("webhook", program).await
    }

    async fn helper(&self, name: &'static str, flag: &str, service: &str) -> Result<(Server, SocketAddr)> {
        let [port] = free_ports::<1>()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let program = on_servers_core(std::env::current_exe()?)
            .arg(flag)
            .arg(address.to_string())
            .arg(self.tls(service).into_os_string());
        let mut process = program.start()?;
        process
            .wait_until("it listens", Duration::from_secs(10), async || {
                TcpStream::connect(address).await.ok()
            })
            .await?;
        Ok((Server { name, process }, address))
    }
}

/// A program that shares the servers' core with the others.
fn on_servers_core(program: impl Into<std::ffi::OsString>) -> Program {
    Program::new("taskset").arg("--cpu-list").arg("0").arg(program)
}

async fn figures(bin: &Path) -> Result<()> {
    let pid = std::process::id().to_string();
    let moved = std::process::Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", "1", &pid])
        .stdout(std::process::Stdio::null())
        .status()
        .context("taskset (of util-linux) is needed")?;
    anyhow::ensure!(moved.success(), "a second core is needed for the load generator");
    let bench = Bench { bin: bin.canonicalize()?, directory: tempfile::tempdir()? };
    let [admin] = free_ports::<1>()?;
    let mut rotator = Program::new(bench.bin.join("sallyport-cert-rotator"))
        .env("SALLYPORT_NAMESPACE", "sallyport")
        .env("SALLYPORT_STORE_DIR", bench.directory.path().join("tls"))
        .env("SALLYPORT_EXTRA_NAMES", "localhost")
        .env("SALLYPORT_EXTRA_ADDRESSES", "127.0.0.1")
        .env("SALLYPORT_ADMIN_ADDRESS", format!("127.0.0.1:{admin}"))
        .start()?;
    rotator.wait_ready(&format!("http://127.0.0.1:{admin}"), Duration::from_secs(20)).await?;
    let client = {
        let credentials = Credentials::load(bench.tls("webhook"))?;
        let mut config = (*credentials.client_config()?).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsConnector::from(Arc::new(config))
    };
    let review = Bytes::from(review(8 << 10).to_string());
    println!("review: {} bytes; HTTP/1.1 keep-alive; {} s a row", review.len(), MEASURED.as_secs());
    println!(
        "{:<26} {:>5} {:>9} {:>9} {:>9} {:>12}  memory (MiB)",
        "arrangement", "conns", "req/s", "p50 µs", "p99 µs", "CPU µs/req"
    );
    for arrangement in ["echo", "front + no-op", "front + mutator", "front + validator"] {
        let (servers, address, path) = match arrangement {
            "echo" => {
                let (server, address) = bench.helper("echo", "--echo", "webhook").await?;
                (vec![server], address, "/")
            }
            "front + no-op" => {
                let (backend, address) = bench.helper("no-op", "--no-op", "mutator").await?;
                let (front, address) = bench.front("mutator", address).await?;
                (vec![front, backend], address, "/mutate/fail")
            }
            "front + mutator" => {
                let (backend, address) = bench.backend("mutator", "sidecar-nginx").await?;
                let (front, address) = bench.front("mutator", address).await?;
                (vec![front, backend], address, "/mutate/fail")
            }
            _ => {
                let (backend, address) = bench.backend("validator", "deny-env").await?;
                let (front, address) = bench.front("validator", address).await?;
                (vec![front, backend], address, "/validate/fail")
            }
        };
        for connections in [1, 16, 64] {
            drive(&client, address, path, &review, connections, MEASURED / 10).await?;
            let before = cpu(&servers)?;
            let mut latencies = drive(&client, address, path, &review, connections, MEASURED).await?;
            let spent = cpu(&servers)? - before;
            latencies.sort_unstable();
            let at = |quantile: usize| latencies[(latencies.len() - 1) * quantile / 100].as_secs_f64() * 1e6;
            #[allow(clippy::cast_precision_loss)] // counts of requests
            let count = latencies.len() as f64;
            println!(
                "{arrangement:<26} {connections:>5} {:>9.0} {:>9.0} {:>9.0} {:>12.1}  {}",
                count / MEASURED.as_secs_f64(),
                at(50),
                at(99),
                spent * 1e6 / count,
                memory(&servers)?,
            );
        }
        if arrangement == "front + mutator" {
            let big = Bytes::from(self::review(7 << 20).to_string());
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..16 {
                let (client, big) = (client.clone(), big.clone());
                tasks.spawn(async move {
                    let mut sender = connect(&client, address).await?;
                    // One that is refused at its head may be cut off before its answer is read.
                    let answer = post(&mut sender, path, &big).await;
                    anyhow::Ok(answer.map_or_else(|_| "cut off".to_owned(), |(status, _)| status.to_string()))
                });
            }
            let mut statuses = std::collections::BTreeMap::<String, usize>::new();
            while let Some(status) = tasks.join_next().await {
                *statuses.entry(status??).or_default() += 1;
            }
            println!("  sixteen reviews of 7 MiB at once: answers {statuses:?}; peak {}", peak(&servers)?);
        }
    }
    Ok(())
}

/// Sends the review over so many connections for so long; the latency of each answer.
async fn drive(
    client: &TlsConnector,
    address: SocketAddr,
    path: &'static str,
    review: &Bytes,
    connections: usize,
    time: Duration,
) -> Result<Vec<Duration>> {
    let until = Instant::now() + time;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (client, review) = (client.clone(), review.clone());
        tasks.spawn(async move {
            let mut latencies = Vec::with_capacity(1 << 16);
            let mut sender = connect(&client, address).await?;
            while Instant::now() < until {
                let begun = Instant::now();
                let (status, close) = post(&mut sender, path, &review).await?;
                anyhow::ensure!(status == 200, "answered {status}");
                latencies.push(begun.elapsed());
                if close {
                    sender = connect(&client, address).await?;
                }
            }
            Ok::<_, anyhow::Error>(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    Ok(all)
}

async fn connect(client: &TlsConnector, address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = client.connect("127.0.0.1".try_into()?, stream).await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn post(sender: &mut SendRequest<Full<Bytes>>, path: &str, body: &Bytes) -> Result<(u16, bool)> {
    sender.ready().await?;
    let request = Request::post(format!("{path}?timeout=10s"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body.clone()))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let close = answer.headers().get("connection").is_some_and(|value| value == "close");
    answer.into_body().collect().await?;
    Ok((status, close))
}

/// CPU seconds of all servers so far.
fn cpu(servers: &[Server]) -> Result<f64> {
    let mut ticks = 0.0;
    for server in servers {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.process.pid()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().context("stat")?.split_whitespace().collect();
        for field in &fields[11..13] {
            ticks += field.parse::<f64>()?;
        }
    }
    Ok(ticks / TICKS)
}

fn memory(servers: &[Server]) -> Result<String> {
    status(servers, "VmRSS:")
}

fn peak(servers: &[Server]) -> Result<String> {
    status(servers, "VmHWM:")
}

fn status(servers: &[Server], field: &str) -> Result<String> {
    let mut shown = Vec::new();
    for server in servers {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)).context("status")?;
        let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        shown.push(format!("{} {:.1}", server.name, kibibytes / 1024.0));
    }
    Ok(shown.join(", "))
}

/// The creation of a pod as the API server sends it, about this large: labels,
/// annotations and managed fields as real ones have.
fn review(size: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:1.4.2"), "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true},
        })
    };
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop", "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller", "uid": "3f1c9d0e",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            },
            "object": {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "generateName": "checkout-7c9f8d6b5-", "namespace": "shop",
                    "labels": {"app": "checkout", "pod-template-hash": "7c9f8d6b5", "team": "payments"},
                    "annotations": {"sidecar-injector-webhook.morven.me/inject": "yes"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-7c9f8d6b5",
                        "uid": "aa0e6b57", "controller": true, "blockOwnerDeletion": true}],
                    "managedFields": [],
                },
                "spec": {
                    "containers": [container("checkout"), container("metrics"), container("proxy")],
                    "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": []}}],
                    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                    "serviceAccountName": "checkout", "schedulerName": "default-scheduler", "priority": 0,
                },
                "status": {},
            },
            "oldObject": null, "dryRun": false, "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    });
    let mut left = size.saturating_sub(review.to_string().len());
    let fields = &mut review["request"]["object"]["metadata"]["managedFields"];
    let mut number = 0;
    while left > 0 {
        let entry = json!({
            "manager": format!("manager-{number}"), "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:team": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"checkout\"}": {".": {}, "f:image": {}, "f:resources": {}}}}},
        });
        left = left.saturating_sub(entry.to_string().len() + 1);
        fields.as_array_mut().expect("a list").push(entry);
        number += 1;
    }
    review
}
