//! Ready once every backend was reached, and from then on; alive in any case (G-06).

use prometheus::Registry;
use sallyport_net::Shutdown;
use sallyport_telemetry::{Admin, Readiness};
use sallyport_testkit::{Unreachable, eventually, probe};
use sallyport_webhook::Front;

use crate::admission::{bytes, review};
use crate::client::PATIENCE;
use crate::suite::{MUTATE, Suite, VALIDATE, arguments, certificates, judge, undecided};

#[tokio::test]
async fn not_ready_before_every_backend_was_reached_and_ready_ever_after_g06() {
    let nobody = Unreachable::take().unwrap();
    let mut suite = Suite::unready(|args| args.validator.push(nobody.address().to_string())).await;
    suite.ready().await; // one of two replicas is enough

    let lonely = Suite::unready(|args| args.validator = vec![nobody.address().to_string()]).await;
    eventually("the mutator alone is reached", || lonely.readiness.missing() == ["validator"]).await;
    assert!(!lonely.readiness.ready());
    // Unready is not dead: the door whose backend is there works, the other one says come again.
    let body = bytes(&review());
    judge(MUTATE, &body, &lonely.post(MUTATE, &body).await);
    undecided(&lonely.post("/validate/fail", &body).await, 503);

    suite.mutator.stop().await;
    suite.validator.stop().await;
    // Each review is an attempt to reach them, and has failed when it is answered.
    for path in [MUTATE, VALIDATE].repeat(10) {
        undecided(&suite.post(path, &body).await, 503);
        assert!(suite.readiness.ready(), "a lost backend must not make the front unready");
    }
}

#[tokio::test]
async fn the_admin_endpoint_is_alive_before_it_is_ready_g06() {
    let (directory, _, _) = certificates();
    let nobody = Unreachable::take().unwrap();
    let admin = Admin::new("webhook");
    let args = arguments(directory.path(), nobody.address(), nobody.address());
    let front = Front::bind(&args, admin.registry(), admin.readiness(), Shutdown::new()).await.unwrap();
    tokio::spawn(front.serve());
    let server = admin.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let base = format!("http://{}", server.local_addr().unwrap());
    tokio::spawn(server.serve(std::future::pending()));
    let get = async |path: &str| probe::get(&format!("{base}{path}"), PATIENCE).await.unwrap();
    assert_eq!(get("/healthz").await.status, 200);
    assert_eq!(get("/readyz").await.status, 503);
    let metrics = get("/metrics").await.body;
    for name in [
        "sallyport_certificate_not_after_timestamp_seconds",
        "sallyport_backend_replicas",
        "sallyport_connections",
        "sallyport_reviews_in_flight",
    ] {
        assert!(metrics.contains(name), "{name} (C-110)");
    }
}

#[tokio::test]
async fn what_keeps_the_front_from_starting_is_named_r13() {
    let (directory, _, _) = certificates();
    let any = "127.0.0.1:1".parse().unwrap();
    let good = arguments(directory.path(), any, any);
    let fails = async |args: &sallyport_webhook::Args| {
        let bound = Front::bind(args, &Registry::new(), &Readiness::new(), Shutdown::new()).await;
        bound.expect_err("it starts").to_string()
    };
    let mut args = good.clone();
    args.tls_dir = directory.path().join("nothing");
    assert!(fails(&args).await.contains("--tls-dir"));
    let mut args = good.clone();
    args.mutator_name = None;
    assert!(fails(&args).await.contains("--mutator-name"), "an address has no name to verify");
    let mut args = good.clone();
    args.validator_name = Some("not a name".into());
    assert!(fails(&args).await.contains("--validator"));
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut args = good.clone();
    args.listen = taken.local_addr().unwrap();
    assert!(fails(&args).await.contains("--listen"));
}
