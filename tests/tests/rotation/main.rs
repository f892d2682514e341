//! Certificates are rotated while pods are created through both doors: not one create fails, and at every moment
//! every certificate that is served verifies against every bundle that is in use.
//!
//! One API server for all; each test has a release of its own, in namespaces of its own. Figures go to standard
//! error.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod deaths;
mod leaves;
mod lives;
mod mounts;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams};
use sallyport_pki::names::Member;
use sallyport_testkit::ControlPlane;
use sallyport_tests::release::{Release, Settings};
use sallyport_tests::{Load, Verifier, load};
use serde_json::json;
use tokio::sync::OnceCell;

/// How long a rotation may take whose pods are not late.
const PATIENCE: Duration = Duration::from_secs(120);

async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    sallyport_tests::install_tls_provider();
    PLANE.get_or_init(async || ControlPlane::start().await.unwrap()).await
}

/// Figures are worth seeing of tests that pass, too: not by the macro, whose text is kept from them.
fn say(text: &str) {
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "rotation: {text}").unwrap();
}

/// A release under load, with everything it serves being verified.
struct Watched {
    name: String,
    begun: Instant,
    load: Load,
    verifier: Verifier,
}

impl Watched {
    fn begin(release: &Release, workers: usize, pause: Duration) -> Self {
        Self {
            name: release.settings.release.clone(),
            begun: Instant::now(),
            load: Load::start(&release.client, &release.load_namespace(), workers, pause),
            verifier: release.verifier(),
        }
    }

    /// Ends both, once the latest mount and a look at it have had their time: what was dropped too early shows only
    /// then. Nothing must have failed, and everything have verified.
    async fn finish(self, release: &Release) -> (load::Outcome, sallyport_tests::verifier::Report) {
        let latest = release.settings.delays.into_iter().max().unwrap();
        tokio::time::sleep(latest + Duration::from_secs(2)).await;
        let outcome = self.load.finish().await;
        let report = self.verifier.finish().await;
        let fronts = release.replicas.iter().filter(|replica| replica.server.member == Member::Webhook);
        let connections: Vec<_> =
            fronts.map(|front| release.balancer.connections(front.server.address)).collect();
        let inner: Vec<_> = release.wires.iter().map(|(backend, wire)| wire.connections(*backend)).collect();
        say(&format!(
            "{}: {:.0} s, {} creates ({} rightly refused), {} failed, slowest {:?}; {connections:?} connections to \
             the fronts, {inner:?} to the backends; {} samples, {} verifications ({} at a change), {} leaves, {} bundles, {} violations",
            self.name,
            self.begun.elapsed().as_secs_f64(),
            outcome.good,
            outcome.forbidden,
            outcome.failed,
            outcome.slowest,
            report.samples,
            report.verified,
            report.either,
            report.leaves.len(),
            report.bundles.len(),
            report.violations.len(),
        ));
        if outcome.failed > 0 || !report.violations.is_empty() {
            say(&format!("{}\n{}", history(release), release.evidence()));
        }
        assert_eq!((outcome.failed, &outcome.failures), (0, &Vec::new()));
        assert_eq!(report.violations, Vec::<String>::new());
        assert!(outcome.good > 100 && outcome.forbidden > 0, "{outcome:?}");
        assert!(report.samples > 20 && report.verified > 0, "{report:?}");
        (outcome, report)
    }
}

/// What was stored and mounted, a line each.
fn history(release: &Release) -> String {
    let seen = release.kubelet.seen();
    let first = seen.first().map_or_else(Instant::now, |seen| seen.at);
    seen.iter().fold(String::new(), |mut text, seen| {
        let how = if seen.is_mounted { "mounted" } else { "stored" };
        let at = (seen.at - first).as_secs_f64();
        let fingerprint = seen.bundle.fingerprint();
        writeln!(
            text,
            "{at:8.2} {how:8} {:26} leaf {:.8} bundle {fingerprint:.8} of {}",
            seen.name,
            seen.serial,
            seen.bundle.certificates().len()
        )
        .unwrap();
        text
    })
}

async fn install(settings: Settings) -> Release {
    let plane = plane().await;
    Release::install(plane.kubeconfig(), plane.kubeconfig(), settings).await.unwrap()
}

/// a new key each time. Each review comes by a new connection with a handshake of its own: the API server calls
/// by HTTP/1.1 here, and no front keeps a connection. Connections between fronts and backends are cut all the time.
/// The other tests have kept connections of h2.
#[tokio::test(flavor = "multi_thread")]
async fn ten_rotations_in_a_row_under_load_and_no_create_fails_r04() {
    sallyport_tests::install_tls_provider();
    let plane = ControlPlane::builder().api_server_env("DISABLE_HTTP2", "1").start().await.unwrap();
    let settings = Settings { connection_life: "0s", ..Settings::new("ten") };
    let release = Release::install(plane.kubeconfig(), plane.kubeconfig(), settings).await.unwrap();
    let watched = Watched::begin(&release, 6, Duration::from_millis(5));
    let mut keys = BTreeSet::from([release.stored("ca").await.unwrap().unwrap().public_key().to_vec()]);
    for number in 1..=10 {
        let (request, begun) = (format!("number {number}"), Instant::now());
        release.ask(&request).await.unwrap();
        let authority = tokio::select! {
            authority = release.settled(&request, PATIENCE) => authority.unwrap(),
            () = release.keep_cutting(Duration::from_millis(500)) => unreachable!(),
        };
        assert!(keys.insert(authority.public_key().to_vec()), "the same key again");
        say(&format!("ten: {request} took {:.1} s", begun.elapsed().as_secs_f64()));
    }
    let (_, report) = watched.finish(&release).await;
    assert!(report.leaves.len() > 20 && report.bundles.len() > 10, "{report:?}");
}

/// what is lost or broken in the store is replaced; what was served and trusted goes on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_lost_and_broken_and_no_create_fails_r04() {
    let release = install(Settings::new("lost")).await;
    let watched = Watched::begin(&release, 3, Duration::from_millis(10));
    let broken = |key: &str| json!({"data": {key: "bm90IFBFTQo="}});
    for (word, damage) in [
        ("ca", None),
        ("ca", Some(broken("tls.key"))),
        ("ca", Some(broken("tls.crt"))),
        ("ca", Some(broken("ca.crt"))),
        ("mutator-tls", None),
        ("mutator-tls", Some(broken("tls.crt"))),
        ("validator-tls", Some(broken("ca.crt"))),
        ("webhook-tls", None),
    ] {
        let (secrets, name, begun) = (release.secrets(), format!("lost-{word}"), Instant::now());
        let before = release.stored(word).await.unwrap().unwrap().serial();
        let version = match &damage {
            None => {
                secrets.delete(&name, &DeleteParams::default()).await.unwrap();
                None
            }
            Some(damage) => {
                let patch = Patch::Merge(damage);
                secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap().metadata.resource_version
            }
        };
        let mended = async || {
            let secret = secrets.get_opt(&name).await.unwrap()?;
            (secret.metadata.resource_version != version).then_some(())?;
            release.whole().await.unwrap()
        };
        while mended().await.is_none() {
            assert!(
                begun.elapsed() < PATIENCE,
                "{name} {damage:?}\n{}\n{}",
                history(&release),
                release.evidence()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let is_another = release.stored(word).await.unwrap().unwrap().serial() != before;
        let damage = damage.map_or("gone".to_owned(), |damage| damage["data"].to_string());
        let took = begun.elapsed().as_secs_f64();
        say(&format!("lost: {name} {damage}: mended after {took:.1} s, another certificate: {is_another}"));
    }
    watched.finish(&release).await;
}

/// SYS-7, R-05: in one namespace, even.
#[tokio::test(flavor = "multi_thread")]
async fn rotations_of_one_release_write_nothing_of_another_beside_it_r05() {
    let side = |name: &str| Settings { namespace: "side".to_owned(), ..Settings::new(name) };
    let (left, right) = tokio::join!(install(side("left")), install(side("right")));
    let begin = |release: &Release| Watched::begin(release, 2, Duration::from_millis(20));
    let watched = (begin(&left), begin(&right));
    for (turning, still) in [(&left, &right), (&right, &left)] {
        let (before, other) = (still.versions().await.unwrap(), turning.versions().await.unwrap());
        for number in 1..=2 {
            let request = format!("number {number}");
            turning.ask(&request).await.unwrap();
            turning.settled(&request, PATIENCE).await.unwrap();
        }
        assert_eq!(still.versions().await.unwrap(), before, "something of the other was written");
        let changed = turning.versions().await.unwrap();
        let changed: Vec<_> = changed.iter().filter(|(name, now)| other[*name] != **now).collect();
        assert_eq!(changed.len(), 6, "four Secrets and two configurations: {changed:?}");
    }
    watched.0.finish(&left).await;
    watched.1.finish(&right).await;
}
