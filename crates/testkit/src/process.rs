//! Programs as child processes: their logs in a file, their readiness, their end.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tokio::time::{self, Instant};

use crate::{probe, warden};

/// How often conditions are looked at while waiting.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// How much of a log an error quotes, in bytes.
const TAIL: u64 = 8 * 1024;

/// Names the directory to take our binaries from, instead of the one that the tests were built into.
pub const BIN_DIR: &str = "SALLYPORT_BIN_DIR";

/// The path of one of the workspace's binaries, such as `sallyport-webhook`.
///
/// # Errors
/// When it has not been built: integration tests of other packages do not build it by themselves.
pub fn binary(name: &str) -> Result<PathBuf> {
    let dir = if let Some(dir) = std::env::var_os(BIN_DIR) {
        PathBuf::from(dir)
    } else {
        let test = std::env::current_exe().context("failed to find the running test's own path")?;
        let dir = test.parent().context("the running test has no directory")?;
        // Cargo puts tests into target/<profile>/deps and binaries one level up.
        let nested = dir.file_name().is_some_and(|name| name == "deps" || name == "examples");
        if nested { dir.parent().unwrap_or(dir).to_path_buf() } else { dir.to_path_buf() }
    };
    let path = dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    ensure!(
        path.is_file(),
        "{name} is not in {}: run `cargo build --bin {name}` first, or set {BIN_DIR}",
        dir.display()
    );
    Ok(path)
}

/// A program about to be started: its path, arguments and environment.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    log: Option<PathBuf>,
}

impl Program {
    /// The program at `path`; it inherits this process's environment.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new(), log: None }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Puts the log there, instead of into a temporary directory.
    #[must_use]
    pub fn log_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// Starts the program with standard output and error going to its log. It is killed when the returned value
    /// is dropped, and when this process ends.
    pub fn start(&self) -> Result<Process> {
        let name = self.path.file_name().unwrap_or(OsStr::new("?")).to_string_lossy().into_owned();
        let (log, directory) = if let Some(log) = &self.log {
            (log.clone(), None)
        } else {
            let directory = warden::directory()?;
            (directory.path().join(format!("{name}.log")), Some(directory))
        };
        let output = File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        let errors = output.try_clone().context("failed to share the log file")?;
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("failed to start {}", self.path.display()))?;
        let process = Process { name, child, exited: None, log, _directory: directory };
        // On failure `process` is dropped here, and the child killed.
        warden::guard(process.pid())?;
        Ok(process)
    }
}

/// A running child. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    exited: Option<ExitStatus>,
    log: PathBuf,
    _directory: Option<TempDir>,
}

impl Process {
    /// The program's file name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where standard output and error go.
    pub fn log_file(&self) -> &Path {
        &self.log
    }

    /// All that the program has written so far, with invalid UTF-8 replaced.
    pub fn log(&self) -> Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("failed to read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The last lines of the log, for error messages.
    pub fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("(the log cannot be read: {error})"))
    }

    /// The exit status, once the program has ended.
    pub fn try_exit(&mut self) -> Result<Option<ExitStatus>> {
        if self.exited.is_none() {
            self.exited =
                self.child.try_wait().with_context(|| format!("failed to look after {}", self.name))?;
            if self.exited.is_some() {
                warden::release(self.child.id());
            }
        }
        Ok(self.exited)
    }

    /// Waits until `condition` gives a value. Fails, quoting the log, when the program ends or `timeout` passes
    /// first; `what` names the condition in that error.
    pub async fn wait_until<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut condition: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_exit()? {
                bail!("{} ended ({status}) before {what}; its log ends:\n{}", self.name, self.log_tail());
            }
            if let Ok(Some(value)) = time::timeout_at(deadline, condition()).await {
                return Ok(value);
            }
            if Instant::now() >= deadline {
                bail!("{} took over {timeout:?} until {what}; its log ends:\n{}", self.name, self.log_tail());
            }
            time::sleep(POLL).await;
        }
    }

    /// Waits until `GET <admin_url>/readyz` answers 200.
    pub async fn wait_ready(&mut self, admin_url: &str, timeout: Duration) -> Result<()> {
        let url = format!("{}/readyz", admin_url.trim_end_matches('/'));
        self.wait_until(&format!("{url} said 200"), timeout, async || {
            let answer = probe::get(&url, Duration::from_secs(5)).await.ok()?;
            (answer.status == 200).then_some(())
        })
        .await
    }

    /// Waits until a whole line of the log gives a value, for instance the address that the program listens on.
    pub async fn wait_log<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T> {
        let log = self.log.clone();
        self.wait_until(what, timeout, async || {
            let bytes = fs::read(&log).ok()?;
            let text = String::from_utf8_lossy(&bytes);
            text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).find_map(&mut find)
        })
        .await
    }

    /// Asks the program to end (SIGTERM).
    pub fn terminate(&mut self) -> Result<()> {
        self.signal("TERM")
    }

    /// Suspends the program (SIGSTOP): its connections stay open and nothing answers.
    pub fn suspend(&mut self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets a suspended program go on (SIGCONT).
    pub fn resume(&mut self) -> Result<()> {
        self.signal("CONT")
    }

    /// Ends the program at once (SIGKILL) and waits for its end.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.try_exit()? {
            return Ok(status);
        }
        self.child.kill().with_context(|| format!("failed to kill {}", self.name))?;
        warden::release(self.child.id());
        let status =
            self.child.wait().with_context(|| format!("failed to await the end of {}", self.name))?;
        self.exited = Some(status);
        Ok(status)
    }

    /// Waits for the program to end by itself.
    pub async fn wait_exit(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_exit()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("{} has not ended within {timeout:?}; its log ends:\n{}", self.name, self.log_tail());
            }
            time::sleep(POLL).await;
        }
    }

    fn signal(&mut self, signal: &str) -> Result<()> {
        // A child that has not been reaped keeps its id, so the signal cannot reach a stranger.
        if let Some(status) = self.try_exit()? {
            bail!("{} has ended already ({status}); its log ends:\n{}", self.name, self.log_tail());
        }
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, signal, &self.child.id().to_string()])
            .status()
            .context("failed to start a shell to send a signal")?;
        ensure!(status.success(), "failed to send SIG{signal} to {}", self.name);
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing can be done about a child that cannot be killed.
        let _ = self.kill();
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
