//! Programs of others that a test needs besides the API server's.

use std::path::PathBuf;
use std::process::{Command, Stdio};

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/testbed/tools");

/// The directory that holds the programs of a set of `tests/testbed/tools`; they are built the first time.
pub async fn programs(set: &'static str) -> PathBuf {
    let run = move || Command::new(TOOLS).arg(set).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    assert!(output.status.success(), "tests/testbed/tools {set}: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    PathBuf::from(text.lines().last().unwrap())
}
