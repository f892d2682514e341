//! `sallyport dev` without a cluster.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{recipes, run, sallyport, wait};

const START: Duration = Duration::from_secs(30);

/// A running `sallyport dev` with a policy directory of its own; ended with the test.
struct Dev {
    child: Child,
    directory: TempDir,
}

impl Dev {
    fn start(recipes_in_force: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let policies = directory.path().join("policies");
        fs::create_dir(&policies).unwrap();
        for recipe in recipes_in_force {
            copy(recipe, &policies);
        }
        let mut dev = Self { child: command(&directory).spawn().unwrap(), directory };
        let file = dev.state_dir().join("dev.json");
        wait("dev.json is there", START, || {
            assert!(dev.child.try_wait().unwrap().is_none(), "it has ended");
            file.exists()
        });
        dev
    }

    fn policies(&self) -> PathBuf {
        self.directory.path().join("policies")
    }

    fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn state(&self) -> Value {
        // Written atomically: once it is there it is whole.
        serde_json::from_str(&fs::read_to_string(self.state_dir().join("dev.json")).unwrap()).unwrap()
    }

    /// Ends it by a signal and gives what it had written to standard output and standard error.
    fn end(mut self, signal: &str) -> (String, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        wait("it ends", Duration::from_secs(20), || self.child.try_wait().unwrap().is_some());
        assert!(self.child.wait().unwrap().success());
        let (mut output, mut errors) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(!self.state_dir().join("dev.json").exists(), "dev.json is removed");
        (output, errors)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(directory: &TempDir) -> Command {
    let mut command = sallyport();
    command.arg("dev").arg("--policy-dir").arg(directory.path().join("policies"));
    command.arg("--state-dir").arg(directory.path().join("state"));
    command
}

fn copy(recipe: &str, policies: &Path) {
    let to = policies.join(format!("{recipe}.yaml"));
    fs::copy(recipes().join(recipe).join("policy.yaml"), to).unwrap();
}

fn get(url: &str, path: &str) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn its_state_tells_where_everything_is_and_goes_with_it() {
    let dev = Dev::start(&["hello-file", "deny-env"]);
    let state = dev.state();
    let webhook = state["webhook"].as_str().unwrap().to_owned();
    assert!(webhook.starts_with("https://127.0.0.1:"), "{webhook}");
    let ca_file = state["caFile"].as_str().unwrap().to_owned();
    let certificates = fs::read(&ca_file).unwrap();
    for service in ["webhook", "mutator", "validator"] {
        let admin = state["admin"][service].as_str().unwrap();
        assert!(get(admin, "/readyz").starts_with("HTTP/1.1 200"), "{service}");
        assert!(
            get(admin, "/metrics").contains(&format!("sallyport_build_info{{service=\"{service}\"")),
            "{service}"
        );
    }
    let pod = recipes().join("hello-file/fixtures/changed/busybox-1.before.yaml");
    let pod = pod.to_str().unwrap();
    for through in [
        ["--server", &webhook, "--ca-file", &ca_file].to_vec(),
        vec!["--state-dir", dev.state_dir().to_str().unwrap()],
    ] {
        let shown = run(["review", pod].into_iter().chain(through)).ended(0).stdout;
        assert!(shown.contains("+++ changed"), "{shown}");
    }
    let (output, errors) = dev.end("-INT");
    for part in ["MutationPolicy hello-file", "ValidationPolicy deny-env", "ready", &webhook] {
        assert!(errors.contains(part), "{part}: {errors}");
    }

    // Standard output is what is to be applied.
    let documents: Vec<Value> = serde_saphyr::from_multiple(&output).unwrap();
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
    for (document, door) in documents.iter().zip(["mutate/fail", "validate/fail"]) {
        let entry = &document["webhooks"][0];
        assert_eq!(entry["clientConfig"]["url"], format!("{webhook}/{door}"));
        let bundle = entry["clientConfig"]["caBundle"].as_str().unwrap();
        assert_eq!(STANDARD.decode(bundle).unwrap(), certificates);
        assert_eq!((&entry["failurePolicy"], &entry["sideEffects"]), (&json!("Fail"), &json!("None")));
        assert_eq!(document["webhooks"].as_array().unwrap().len(), 1, "a door without policies has no entry");
    }
}

#[test]
fn an_edit_is_in_force_within_two_seconds_and_a_bad_one_changes_nothing() {
    let mut dev = Dev::start(&["deny-env"]);
    let policy = dev.policies().join("deny-env.yaml");
    let denied = recipes().join("deny-env/fixtures/denied/nginx-with-env.yaml");
    let state_dir = dev.state_dir();
    let status = || {
        let through = ["review", "--state-dir", state_dir.to_str().unwrap(), denied.to_str().unwrap()];
        run(through).status
    };
    assert_eq!(status(), Some(3));
    let limit = Duration::from_secs(2);

    let original = fs::read_to_string(&policy).unwrap();
    let warns = original.replace("\nspec:\n", "\nspec:\n  validationActions: [Warn]\n");
    assert_ne!(warns, original);
    fs::write(&policy, &warns).unwrap();
    wait("an edit is in force", limit, || status() == Some(0));
    fs::write(&policy, &original).unwrap();
    wait("an edit is taken back", limit, || status() == Some(3));

    let mut errors = BufReader::new(dev.child.stderr.take().unwrap());
    fs::write(&policy, original.replace("\nspec:\n", "\nspec:\n  validationAction: [Warn]\n")).unwrap();
    let mut told = |part: &str| {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "not told: {part}");
        }
        line
    };
    let line = told("validationAction");
    assert!(line.contains("problem: deny-env.yaml:"), "{line}");
    assert_eq!(status(), Some(3), "the last good form stays in force");

    fs::remove_file(&policy).unwrap();
    wait("a removed policy is out of force", limit, || status() == Some(0));
    told("the rules have changed");
    dev.child.stderr = Some(errors.into_inner());
    let (output, _) = dev.end("-TERM");
    assert!(output.contains("# No policy has rules"), "{output}");
}

#[test]
fn certificates_stay_from_run_to_run_and_a_taken_port_is_told() {
    let first = Dev::start(&["deny-env"]);
    let state = first.state();
    let port = state["webhook"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let certificates = fs::read(state["caFile"].as_str().unwrap()).unwrap();
    let other = TempDir::new().unwrap();
    fs::create_dir(other.path().join("policies")).unwrap();
    let taken = command(&other).args(["--port", &port]).output().unwrap();
    let errors = String::from_utf8(taken.stderr).unwrap();
    assert_eq!(taken.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&port) && !other.path().join("state/dev.json").exists(), "{errors}");

    let kept = TempDir::new().unwrap();
    let copied = Command::new("cp").arg("-R").arg(first.state_dir()).arg(kept.path()).status().unwrap();
    assert!(copied.success());
    fs::create_dir(kept.path().join("policies")).unwrap();
    drop(first);
    let file = kept.path().join("state/dev.json");
    fs::remove_file(&file).unwrap();
    let mut again = Dev { child: command(&kept).spawn().unwrap(), directory: kept };
    wait("dev.json is there", START, || {
        assert!(again.child.try_wait().unwrap().is_none(), "it has ended");
        file.exists()
    });
    assert_eq!(fs::read(again.state()["caFile"].as_str().unwrap()).unwrap(), certificates);
    again.end("-TERM");
}

#[test]
fn what_cannot_start_says_why() {
    let directory = TempDir::new().unwrap();
    let missing = command(&directory).stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(1), "{errors}");
    assert!(errors.contains("policies"), "{errors}");
    fs::create_dir(directory.path().join("policies")).unwrap();
    for (flags, message) in [
        (["--kubeconfig", "/nonexistent"], "/nonexistent"),
        (["--name", "Bad_Name"], "--name"),
        (["--host", "a b"], "--host"),
        (["--log-level", "x=loud"], "--log-level"),
    ] {
        let refused = command(&directory).args(flags).output().unwrap();
        let errors = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{errors}");
        assert!(errors.contains(message), "{message}: {errors}");
    }
}
