//! Cleans up after a test process that ends without running its destructors: killed, aborted, or at exit with
//! a shared fixture in a `static`.
//!
//! The warden is one small shell that reads from a pipe whose only writer is this process. It is told of every
//! child and every temporary directory; the end of its input means that this process is gone, and then it kills
//! and removes what is left. Unlike a parent-death signal this does not depend on which thread spawned a child.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use tempfile::TempDir;

/// Lines on its input: `+PID` a child started, `-PID` a child is about to be reaped, `dPATH` a directory made.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=
while IFS= read -r line; do
  case $line in
    +*) pids="$pids ${line#+}" ;;
    -*) kept=
        for pid in $pids; do [ "$pid" = "${line#-}" ] || kept="$kept $pid"; done
        pids=$kept ;;
    d*) set -- "$@" "${line#d}" ;;
  esac
done
[ -z "$pids" ] || kill -KILL $pids
for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ $# -eq 0 ] || rm -rf -- "$@" && exit
  sleep 0.2
done
"#;

static WARDEN: Mutex<Option<ChildStdin>> = Mutex::new(None);

fn tell(line: &str) -> Result<()> {
    ensure!(!line.contains('\n'), "failed to guard {line:?}: its name holds a line break");
    let mut warden = WARDEN.lock();
    let input = match &mut *warden {
        Some(input) => input,
        none => {
            let mut shell = Command::new("sh")
                .args(["-c", SCRIPT, "testkit-warden"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("failed to start the shell that cleans up after the tests")?;
            none.insert(shell.stdin.take().context("the cleaning shell has no standard input")?)
        }
    };
    writeln!(input, "{line}").context("failed to reach the shell that cleans up after the tests")
}

/// A child has been started: kill it if this process ends first.
pub(crate) fn guard(pid: u32) -> Result<()> {
    tell(&format!("+{pid}"))
}

/// A child is about to be reaped, after which its id may belong to another process.
pub(crate) fn release(pid: u32) {
    // A warden that cannot be reached has no one to kill either.
    let _ = tell(&format!("-{pid}"));
}

/// A temporary directory that goes away with its owner or, at the latest, with this process.
pub(crate) fn directory() -> Result<TempDir> {
    let dir = tempfile::Builder::new()
        .prefix("sallyport-test-")
        .tempdir()
        .context("failed to make a temporary directory")?;
    let path = dir.path().to_str().context("the temporary directory's path is not UTF-8")?;
    tell(&format!("d{path}"))?;
    Ok(dir)
}
