//! Running the command.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command without any flag from the environment of whoever runs the tests.
pub(crate) fn sallyport() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SALLYPORT_") || text.starts_with("OTEL_") || text.starts_with("CLICOLOR") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    Run::from(sallyport().args(arguments).output().unwrap())
}

/// Runs it to its end with an input.
pub(crate) fn run_with_input<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, input: Vec<u8>) -> Run {
    let mut child = sallyport().args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let run = Run::from(child.wait_with_output().unwrap());
    writer.join().unwrap().unwrap();
    run
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Run {
    /// The run, if it ended with this status.
    pub(crate) fn ended(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// The recipes of this repository.
pub(crate) fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies")
}

/// Waits until a condition holds, at most this long.
pub(crate) fn wait(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        pause();
    }
}

/// Between two looks.
#[allow(clippy::disallowed_methods)] // There is no runtime here whose worker could be blocked.
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}
