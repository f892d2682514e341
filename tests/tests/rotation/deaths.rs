//! The rotator dies: at each write of a rotation, at those of an installation, at any instant.

use std::future::Future;
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use sallyport_pki::names::Member;
use sallyport_tests::gateway::{Gateway, Side};
use sallyport_tests::release::{Release, Rotator, Settings};
use serde_json::json;

use crate::{PATIENCE, Watched, install, plane, say};

/// Every write of one rotation, in order.
fn writes(release: &str) -> Vec<String> {
    let members =
        |what: &'static str| Member::ALL.map(|member| format!("{release}-{}-tls: {what}", member.word()));
    let entries = ["mutatingwebhookconfigurations: caBundle", "validatingwebhookconfigurations: caBundle"];
    let entries = entries.map(str::to_owned);
    let authority = |what: &str| format!("{release}-ca: {what}");
    let mut writes = vec![authority("successor")];
    writes.extend(members("bundle").into_iter().chain(entries.clone()));
    writes.push(authority("successor in office"));
    writes.extend(members("certificate"));
    writes.push(authority("bundle"));
    writes.extend(members("bundle").into_iter().chain(entries));
    writes
}

/// Kills the rotator at every write, on that side of it, while `work` goes on, and starts another each time. Returns
/// the writes.
async fn kill_at_every_write<T>(
    gateway: &mut Gateway,
    rotator: &Mutex<Rotator>,
    side: Side,
    work: impl Future<Output = T>,
) -> (Vec<String>, T) {
    let (mut work, mut table, mut outcome) = (std::pin::pin!(work), Vec::new(), None);
    gateway.stop_after(0, side);
    loop {
        let stop = tokio::select! {
            stop = gateway.stopped() => stop.unwrap(),
            done = &mut work, if outcome.is_none() => {
                outcome = Some(done);
                continue;
            }
            // The answer to the last write may be taken away after the work is done.
            () = tokio::time::sleep(Duration::from_secs(1)), if outcome.is_some() => break,
        };
        rotator.lock().kill().unwrap();
        assert_eq!(stop.side, side);
        table.push(stop.write.clone());
        drop(stop);
        // What was not passed on is written by the next one, which is stopped at the write after it.
        gateway.stop_after(usize::from(side == Side::Before), side);
        rotator.lock().restart().unwrap();
    }
    gateway.open();
    (table, outcome.unwrap())
}

/// Waits until the Secret that was broken at this version was written, and everything is whole.
async fn mended(release: &Release, name: &str, broken: Option<String>) {
    let begun = Instant::now();
    loop {
        let version = release.secrets().get(name).await.unwrap().metadata.resource_version;
        if version != broken && release.whole().await.unwrap().is_some() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{name} stays broken\n{}", release.evidence());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// where a rotation stands is in the cluster alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_rotator_is_killed_before_and_after_every_write_and_the_next_one_goes_on_r04() {
    let plane = plane().await;
    let mut gateway = Gateway::start(plane).await.unwrap();
    let settings = Settings::new("killed");
    let release = Release::install(plane.kubeconfig(), &gateway.kubeconfig(), settings).await.unwrap();
    let watched = Watched::begin(&release, 3, Duration::from_millis(10));
    for (side, word) in [(Side::Before, "before"), (Side::After, "after")] {
        let begun = Instant::now();
        let rotation = async {
            release.ask(word).await.unwrap();
            release.settled(word, 2 * PATIENCE).await.unwrap();
        };
        let (table, ()) = kill_at_every_write(&mut gateway, &release.rotators[0], side, rotation).await;
        let took = begun.elapsed().as_secs_f64();
        let rows = table.join("\n    ");
        say(&format!("killed: {} times {word} a write, in {took:.1} s:\n    {rows}", table.len()));
        assert_eq!(table, writes("killed"));

        // The bundle alone, of the authority and of a service.
        for (name, write) in
            [("killed-ca", "killed-ca: bundle"), ("killed-mutator-tls", "killed-mutator-tls: bundle")]
        {
            let repair = async {
                let patch = Patch::Merge(json!({"data": {"ca.crt": "bm90IFBFTQo="}}));
                let broken = release.secrets().patch(name, &PatchParams::default(), &patch).await.unwrap();
                mended(&release, name, broken.metadata.resource_version).await;
            };
            let (table, ()) = kill_at_every_write(&mut gateway, &release.rotators[0], side, repair).await;
            say(&format!("killed: {word} {}", table.join(", ")));
            assert_eq!(table, [write]);
        }
    }
    watched.finish(&release).await;
}

/// nothing is served yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_rotator_is_killed_before_and_after_every_write_of_an_installation_r12() {
    let plane = plane().await;
    for (side, word) in [(Side::Before, "before"), (Side::After, "after")] {
        let name = format!("killed-{word}");
        let mut gateway = Gateway::start(plane).await.unwrap();
        gateway.stop_after(0, side);
        let settings = Settings::new(&name);
        let mut release = Release::begin(plane.kubeconfig(), &gateway.kubeconfig(), settings).await.unwrap();
        let rotator = release.rotators[0].clone();
        let (table, done) = kill_at_every_write(&mut gateway, &rotator, side, release.complete()).await;
        done.unwrap();
        say(&format!("{name}: {}", table.join(", ")));
        let secrets = ["ca", "webhook-tls", "mutator-tls", "validator-tls"];
        let (made, entries) = table.split_at(secrets.len().min(table.len()));
        assert_eq!(made, secrets.map(|word| format!("{name}-{word}: made")));
        // Each is proven by itself, in no order that holds from one life of the rotator to the next: the one that was
        // about to be written may be the later one then.
        let expected =
            ["mutatingwebhookconfigurations: caBundle", "validatingwebhookconfigurations: caBundle"];
        assert!(
            entries.len() == 2 && entries.iter().all(|it| expected.contains(&it.as_str())),
            "{entries:?}"
        );
        assert!(release.whole().await.unwrap().is_some());
    }
}

/// either may die at any instant.
#[tokio::test(flavor = "multi_thread")]
async fn either_of_two_rotators_is_killed_at_any_instant_and_no_create_fails_r12() {
    let mut settings = Settings::new("pair");
    let flags = ["--lease", "pair", "--lease-duration", "3s"];
    settings.rotators = vec![flags.map(str::to_owned).to_vec(); 2];
    let release = install(settings).await;
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let watched = Watched::begin(&release, 3, Duration::from_millis(10));
    let mut deaths = [0, 0];
    for number in 1..=3 {
        let (request, begun) = (format!("number {number}"), Instant::now());
        release.ask(&request).await.unwrap();
        let mut next = begun;
        while release.rotated(&request).await.unwrap().is_none() {
            assert!(begun.elapsed() < 2 * PATIENCE, "seed {seed}: it never ends\n{}", release.evidence());
            if Instant::now() >= next {
                let one = random.usize(0..2);
                release.rotators[one].lock().kill().unwrap();
                deaths[one] += 1;
                tokio::time::sleep(Duration::from_millis(random.u64(0..1000))).await;
                release.rotators[one].lock().restart().unwrap();
                // At first in the middle of its writes, then less often, so that it comes to an end.
                let most = if begun.elapsed() < Duration::from_secs(10) { 1500 } else { 9000 };
                next = Instant::now() + Duration::from_millis(random.u64(100..most));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    say(&format!("pair: seed {seed}, deaths {deaths:?}"));
    assert!(deaths.iter().sum::<usize>() >= 6, "{deaths:?}");
    watched.finish(&release).await;
}
