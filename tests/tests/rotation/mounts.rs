//! Secrets are mounted late, in each pod at another time.

use std::time::{Duration, Instant};

use sallyport_tests::kubelet::Seen;
use sallyport_tests::release::Settings;

use crate::{PATIENCE, Watched, history, install, say};

/// When what was seen for the first time that is as `wanted` says.
fn first<'a>(seen: &'a [Seen], what: &str, wanted: impl Fn(&Seen) -> bool) -> &'a Seen {
    seen.iter().find(|seen| wanted(seen)).unwrap_or_else(|| panic!("never: {what}"))
}

/// A rotation whose pods mount so late: it goes on only after the last of them.
async fn late(name: &str, seconds: [u64; 6]) {
    let mut settings = Settings::new(name);
    settings.delays = seconds.map(Duration::from_secs);
    let slowest = Duration::from_secs(seconds.into_iter().max().unwrap());
    let release = install(settings).await;
    let authority = format!("{name}-ca");
    let before = release.stored("ca").await.unwrap().unwrap().serial();
    let watched = Watched::begin(&release, 3, Duration::from_millis(10));
    let asked = Instant::now();
    release.ask("late").await.unwrap();
    release.settled("late", PATIENCE + 4 * slowest).await.unwrap();
    watched.finish(&release).await;
    let seen: Vec<Seen> = release.kubelet.seen().into_iter().filter(|seen| seen.at >= asked).collect();

    let of = |seen: &Seen| !seen.is_mounted && seen.name == authority;
    let published = first(&seen, "a successor", |seen| of(seen) && seen.bundle.certificates().len() == 2);
    let promoted = first(&seen, "another authority in office", |seen| of(seen) && seen.serial != before);
    let dropped = first(&seen, "one authority", |seen| {
        of(seen) && seen.serial != before && seen.bundle.certificates().len() == 1
    });
    let pods = release.replicas.iter().map(|replica| {
        let mounted = |seen: &Seen| seen.is_mounted && seen.name == replica.pod;
        let secret = format!("{name}-{}-tls", replica.server.member.word());
        let issued = first(&seen, "a certificate of the successor", |seen| {
            !seen.is_mounted && seen.name == secret && seen.at >= promoted.at
        });
        let trusts = first(&seen, "both mounted", |seen| mounted(seen) && seen.bundle == published.bundle);
        let serves =
            first(&seen, "its certificate mounted", |seen| mounted(seen) && seen.serial == issued.serial);
        (replica.pod.as_str(), trusts.at, serves.at)
    });
    let pods: Vec<_> = pods.collect();
    let since = |at: Instant| (at - asked).as_secs_f64();
    say(&format!(
        "{name}: published after {:.1} s, in office after {:.1} s, dropped after {:.1} s",
        since(published.at),
        since(promoted.at),
        since(dropped.at)
    ));
    for (pod, trusts, serves) in pods {
        say(&format!(
            "{name}: {pod} has both after {:.1} s, serves after {:.1} s",
            since(trusts),
            since(serves)
        ));
        assert!(trusts < promoted.at, "{pod} did not trust the successor yet\n{}", history(&release));
        assert!(serves < dropped.at, "{pod} served a former certificate still\n{}", history(&release));
    }
    assert!(promoted.at - published.at >= slowest && dropped.at - promoted.at >= slowest);
}

///
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_waits_for_the_latest_of_late_mounts_and_no_create_fails_r04() {
    late("late", [0, 12, 3, 8, 1, 5]).await;
}

/// the longest that a kubelet takes with its defaults.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes some minutes: make soak"]
async fn a_rotation_waits_for_mounts_that_are_two_minutes_late_and_no_create_fails_r04() {
    late("later", [0, 120, 30, 90, 5, 60]).await;
}
