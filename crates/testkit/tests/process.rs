//! Children are watched, signalled and cleaned up after, also when this process cannot do it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sallyport_testkit::Program;
use sallyport_testkit::ports::free_ports;
use sallyport_testkit::process::binary;

const SOON: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Program {
    Program::new("/bin/sh").args(["-c", script])
}

fn runs(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[tokio::test]
async fn the_log_and_the_exit_status_are_kept() {
    let mut process =
        shell("echo listening on $PORT; echo trouble >&2; exit 3").env("PORT", "17").start().unwrap();
    assert_eq!(process.wait_exit(SOON).await.unwrap().code(), Some(3));
    assert_eq!(process.log().unwrap(), "listening on 17\ntrouble\n");
    let error = process.terminate().expect_err("it has ended");
    assert!(format!("{error:#}").contains("trouble"), "{error:#}");
}

#[tokio::test]
async fn a_line_of_the_log_is_awaited() {
    let mut process = shell("sleep 0.1; echo port=17; exec sleep 60").start().unwrap();
    let port = process
        .wait_log("it named its port", SOON, |line| line.strip_prefix("port=")?.parse::<u16>().ok())
        .await
        .unwrap();
    assert_eq!(port, 17);
}

#[tokio::test]
async fn waiting_for_a_program_that_ends_fails_at_once_with_its_log() {
    let mut process = shell("echo no configuration; exit 1").start().unwrap();
    let error =
        process.wait_ready("http://127.0.0.1:1", Duration::from_secs(600)).await.expect_err("it has ended");
    assert!(format!("{error:#}").contains("no configuration"), "{error:#}");
}

#[tokio::test]
async fn waiting_for_a_program_that_never_gets_ready_is_bounded() {
    let mut process = shell("exec sleep 60").start().unwrap();
    let error =
        process.wait_ready("http://127.0.0.1:1", Duration::from_millis(200)).await.expect_err("never ready");
    assert!(error.to_string().contains("/readyz"), "{error:#}");
}

#[tokio::test]
async fn termination_is_a_request() {
    let mut process =
        shell("trap 'echo draining; exit 0' TERM; echo up; while :; do sleep 0.05; done").start().unwrap();
    process.wait_log("it was up", SOON, |line| (line == "up").then_some(())).await.unwrap();
    process.suspend().unwrap();
    process.resume().unwrap();
    process.terminate().unwrap();
    assert!(process.wait_exit(SOON).await.unwrap().success());
    assert!(process.log().unwrap().contains("draining"));
}

#[tokio::test]
async fn dropping_kills_and_removes_the_log() {
    let process = shell("exec sleep 60").start().unwrap();
    let (pid, log) = (process.pid(), process.log_file().to_path_buf());
    assert!(runs(pid) && log.is_file());
    drop(process);
    assert!(!runs(pid) && !log.exists());
}

#[test]
fn free_ports_differ() {
    let [a, b, c] = free_ports().unwrap();
    assert!(a != b && b != c && a != c && a != 0);
}

#[test]
fn a_binary_that_was_not_built_is_named() {
    let error = binary("sallyport-no-such-thing").expect_err("it does not exist");
    assert!(error.to_string().contains("cargo build --bin sallyport-no-such-thing"), "{error:#}");
}

/// Names the file that the inner run of the test below writes to.
const INNER: &str = "TESTKIT_INNER_RUN";

/// Runs this very test in a second process, which starts a child and aborts: the child and its directory go.
#[tokio::test]
async fn nothing_outlives_a_test_process_that_is_killed() {
    if let Some(file) = std::env::var_os(INNER) {
        let process = shell("exec sleep 60").start().unwrap();
        std::fs::write(file, format!("{}\n{}", process.pid(), process.log_file().display())).unwrap();
        std::process::abort();
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("inner");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nothing_outlives_a_test_process_that_is_killed"])
        .env(INNER, &file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    let text = std::fs::read_to_string(&file).unwrap();
    let (pid, log) = text.split_once('\n').unwrap();
    let (pid, log) = (pid.parse().unwrap(), PathBuf::from(log));
    let deadline = Instant::now() + SOON;
    while alive(pid) || log.exists() {
        assert!(Instant::now() < deadline, "{pid} or {} is still there", log.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether a process that is not a child of this one still runs; one that nobody has reaped yet does not.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
