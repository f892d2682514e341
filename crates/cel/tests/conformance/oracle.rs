//! The API server's own environment, as a child process that answers questions (`tests/testbed/cel-oracle`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::Value as Json;

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/testbed/tools");

/// The directory with the program: `SALLYPORT_CEL_ORACLE`, or what `tests/testbed/tools cel` builds and prints.
fn directory() -> PathBuf {
    if let Some(directory) = std::env::var_os("SALLYPORT_CEL_ORACLE") {
        return directory.into();
    }
    let output =
        Command::new(TOOLS).arg("cel").stderr(Stdio::inherit()).output().expect("tests/testbed/tools");
    assert!(output.status.success(), "tests/testbed/tools cel failed ({})", output.status);
    String::from_utf8(output.stdout).unwrap().lines().last().expect("a directory").into()
}

pub(crate) struct Oracle {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(directory().join("cel-oracle"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cel-oracle");
        let questions = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, questions, answers }
    }

    /// The answers to these questions, which are written while answers are read.
    pub(crate) fn ask(&mut self, questions: &[Json]) -> Vec<Json> {
        let (writer, answers) = (&mut self.questions, &mut self.answers);
        thread::scope(|scope| {
            scope.spawn(move || {
                for question in questions {
                    writeln!(writer, "{question}").expect("cel-oracle reads questions");
                }
                writer.flush().unwrap();
            });
            questions
                .iter()
                .map(|question| {
                    let mut line = String::new();
                    let read = answers.read_line(&mut line).unwrap();
                    assert!(read > 0, "cel-oracle ended at {question}");
                    serde_json::from_str(&line).unwrap()
                })
                .collect()
        })
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
