//! Certificates that live for seconds.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use sallyport_tests::release::Settings;

use crate::{Watched, install, say};

/// Authorities of 60 s and leaves of 20 s for so long.
async fn short(name: &str, life: Duration, warm: Duration) {
    let mut settings = Settings::new(name);
    settings.rotators = vec![["--ca-life", "60s", "--leaf-life", "20s"].map(str::to_owned).to_vec()];
    let release = install(settings).await;
    let watched = Watched::begin(&release, 3, Duration::from_millis(10));
    tokio::time::sleep(warm).await;
    let before = release.memory().unwrap();
    let mut most = before.clone();
    let end = Instant::now() + life.saturating_sub(warm);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(5)).await;
        for (name, now) in release.memory().unwrap() {
            let most = most.entry(name).or_default();
            *most = now.max(*most);
        }
    }
    let after = release.memory().unwrap();
    let (_, report) = watched.finish(&release).await;
    let seen = release.kubelet.seen();
    let authorities: BTreeSet<&str> = seen
        .iter()
        .filter(|seen| !seen.is_mounted && seen.name == format!("{name}-ca"))
        .map(|seen| seen.serial.as_str())
        .collect();
    let memory = before.iter().fold(String::new(), |mut text, (name, before)| {
        write!(text, " {name} {before}→{} (most {})", after[name], most[name]).unwrap();
        text
    });
    say(&format!("{name}: {} authorities, {} leaves; KiB{memory}", authorities.len(), report.leaves.len()));
    assert!(authorities.len() >= 2, "no rotation was seen");
    assert!(report.leaves.len() >= 9, "leaves were not renewed: {report:?}");
    for (process, before) in before {
        // Room for what the allocator keeps for itself, and for a busy moment: a process that kept its connections,
        // or a bundle a rotation with what hangs on it, would pass it in the ten minutes.
        assert!(after[&process] <= before + before / 4 + 8 * 1024, "{process} has grown: {memory}");
    }
}

/// everything is renewed many times over.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_live_for_seconds_are_renewed_for_a_minute_and_no_create_fails_r03() {
    short("short", Duration::from_secs(60), Duration::from_secs(20)).await;
}

///
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes ten minutes: make soak"]
async fn certificates_that_live_for_seconds_are_renewed_for_ten_minutes_and_no_create_fails_r03() {
    short("shorter", Duration::from_mins(10), Duration::from_mins(1)).await;
}
