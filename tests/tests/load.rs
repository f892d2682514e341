//! Nothing is lost while parts of the suite come and go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use sallyport_testkit::{Balancer, ControlPlane};
use sallyport_tests::suite::{in_force, pod};
use sallyport_tests::{Entry, Options, Suite};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

/// How many creates are in flight at once.
const IN_FLIGHT: usize = 500;

/// Held by the test whose load is on: that of several at once is more than two processors answer within 10 s.
static LOAD: Mutex<()> = Mutex::const_new(());

struct World {
    _load: MutexGuard<'static, ()>,
    plane: ControlPlane,
    suite: Suite,
}

impl World {
    async fn start(options: &Options, url: impl AsyncFnOnce(&Suite) -> String) -> Self {
        sallyport_tests::install_tls_provider();
        let load = LOAD.lock().await;
        let plane = ControlPlane::builder()
            .api_server_arg("--max-requests-inflight=4000")
            .api_server_arg("--max-mutating-requests-inflight=2000")
            .start()
            .await
            .unwrap();
        let mut suite = Suite::start(options).await.unwrap();
        let url = url(&suite).await;
        let inspector = suite.inspector().await.unwrap();
        let mutate = [Entry::pods("mutate", "Fail", ("door", "fail"))];
        suite.register(&plane, "sallyport", &url, &mutate).await.unwrap();
        plane.kubectl(&["create", "namespace", "load"], None).await.unwrap().ok().unwrap();
        plane.kubectl(&["label", "namespace", "load", "door=fail"], None).await.unwrap().ok().unwrap();
        // In force once a dry run comes back changed.
        let marker = pod("marker", &json!({"hello": "true"}), &json!({}));
        let arguments = ["-n", "load", "create", "--dry-run=server", "-o", "yaml", "-f", "-"];
        for _ in 0..200 {
            let output = plane.kubectl(&arguments, Some(&marker)).await.unwrap();
            if output.stdout.contains("hello-added") {
                drop(inspector);
                return Self { _load: load, plane, suite };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the registration did not come into force");
    }

    /// Keeps `IN_FLIGHT` dry-run creates going while `disturb` runs, and gives
    /// how many were made. Every one must succeed, and come back changed.
    async fn under_load(&mut self, least: usize, disturb: impl AsyncFnOnce(&mut Suite)) -> usize {
        let kubeconfig = Kubeconfig::read_from(self.plane.kubeconfig()).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(kube::Client::try_from(config).unwrap(), "load");
        let manifest: Pod = serde_json::from_str(&pod("x", &json!({"hello": "true"}), &json!({}))).unwrap();
        let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..IN_FLIGHT {
            let (pods, mut manifest, stop, made) =
                (pods.clone(), manifest.clone(), stop.clone(), made.clone());
            manifest.metadata.name = Some(format!("load-{number}"));
            tasks.spawn(async move {
                let parameters = PostParams { dry_run: true, ..PostParams::default() };
                while !stop.load(Ordering::Relaxed) {
                    let created =
                        pods.create(&parameters, &manifest).await.map_err(|error| error.to_string())?;
                    if created.metadata.labels.is_none_or(|labels| !labels.contains_key("hello-added")) {
                        return Err("a pod came back unchanged".to_owned());
                    }
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        let reached = async |least: usize| {
            for _ in 0..2400 {
                if made.load(Ordering::Relaxed) >= least {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("only {} creates in two minutes", made.load(Ordering::Relaxed));
        };
        reached(IN_FLIGHT).await;
        disturb(&mut self.suite).await;
        let so_far = made.load(Ordering::Relaxed);
        reached(so_far + least).await;
        stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            failures.extend(ended.unwrap().err());
        }
        let made = made.load(Ordering::Relaxed);
        assert!(
            failures.is_empty(),
            "{} of {made} creates failed, such as: {:?}",
            failures.len(),
            failures.first()
        );
        println!("{made} creates, 0 failed");
        made
    }
}

/// G-06, design 2: a retry elsewhere covers what was in flight on the one that died.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_mutators_is_killed_and_comes_back_under_500_creates_and_none_fails() {
    let options = Options { recipes: vec!["hello-file"], mutators: 2, ..Options::default() };
    let mut world =
        World::start(&options, async |suite| format!("https://{}", suite.fronts[0].address)).await;
    world
        .under_load(IN_FLIGHT, async |suite| {
            suite.mutators[0].process.kill().unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            suite.mutators[0].restart().await.unwrap();
        })
        .await;
}

/// R-10, G-07: new leaves of the same authority, both ends, under load.
#[tokio::test(flavor = "multi_thread")]
async fn the_certificates_of_front_and_backends_are_swapped_under_load_and_none_fails() {
    let options = Options { recipes: vec!["hello-file"], ..Options::default() };
    let mut world =
        World::start(&options, async |suite| format!("https://{}", suite.fronts[0].address)).await;
    world
        .under_load(IN_FLIGHT, async |suite| {
            let leaves = |suite: &Suite| {
                ["webhook", "mutator", "validator"]
                    .map(|service| std::fs::read(suite.tls().join(service).join("tls.crt")).ok())
            };
            let replaced = |suite: &Suite, before: &[Option<Vec<u8>>]| {
                leaves(suite).iter().zip(before).all(|(now, before)| now.is_some() && now != before)
            };
            for _ in 0..3 {
                let before = leaves(suite);
                suite.renew_leaves().unwrap();
                for _ in 0..400 {
                    if replaced(suite, &before) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                assert!(replaced(suite, &before), "the rotator has not replaced the leaves");
                // Longer than the services take to notice.
                tokio::time::sleep(Duration::from_millis(1500)).await;
            }
        })
        .await;
}

/// C-04, C-102: a front drains by `Connection: close`, never by closing.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_fronts_is_terminated_under_load_and_none_fails() {
    let options = Options { recipes: vec!["hello-file"], fronts: 2, ..Options::default() };
    let balancer = Arc::new(Balancer::start([]).await.unwrap());
    let service = balancer.clone();
    let mut world = World::start(&options, async move |suite| {
        for front in &suite.fronts {
            service.add(front.address);
        }
        format!("https://{}", service.address())
    })
    .await;
    world
        .under_load(IN_FLIGHT, async |suite| {
            let leaving = suite.fronts[0].address;
            assert!(balancer.connections(leaving) > 0, "both fronts are in use");
            suite.fronts[0].process.terminate().unwrap();
            // A Service's endpoints follow later; until then new connections still arrive.
            tokio::time::sleep(Duration::from_secs(1)).await;
            balancer.remove(leaving);
            let status = suite.fronts[0].process.wait_exit(Duration::from_secs(100)).await.unwrap();
            assert!(status.success(), "{status}");
        })
        .await;
}

/// C-97: used by the other files; here so that a broken helper shows in one place.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_comes_into_force() {
    sallyport_tests::install_tls_provider();
    let plane = ControlPlane::start().await.unwrap();
    let mut suite = Suite::start(&Options::default()).await.unwrap();
    let inspector = suite.inspector().await.unwrap();
    let entries = [Entry::pods("validate", "Ignore", ("door", "any"))];
    suite.register(&plane, "sallyport", &inspector.url(), &entries).await.unwrap();
    plane.kubectl(&["label", "namespace", "default", "door=any"], None).await.unwrap().ok().unwrap();
    in_force(&plane, &inspector, "default").await.unwrap();
    inspector.assert_clean();
}
