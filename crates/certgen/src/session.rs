//! One run of a job: the API server, and the time that is left.

use std::time::Duration;

use kube::Client;
use sallyport_error_chain::format_chain;
use tokio::time::Instant;
use tracing::warn;

use crate::arguments::CommonArgs;
use crate::error::JobError;

/// The name under which jobs write.
pub(crate) const FIELD_MANAGER: &str = "sallyport-cert-rotator";

/// How long to wait before something is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// What a job did, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Whether anything was written.
    pub is_changed: bool,
    /// What was written, or what is right already.
    pub text: String,
}

/// The API server, and the time that is left.
pub(crate) struct Session {
    pub client: Client,
    /// DER of the authorities that the API server's own certificate is verified against.
    pub roots: Vec<Vec<u8>>,
    pub patience: Duration,
    deadline: Instant,
}

impl Session {
    pub async fn start(args: &CommonArgs) -> Result<Self, JobError> {
        let deadline = Instant::now() + args.timeout;
        let cluster = sallyport_leadership::cluster(args.kubeconfig.as_deref()).await?;
        let roots = cluster.root_cert.clone().unwrap_or_default();
        Ok(Self { client: sallyport_leadership::client(cluster)?, roots, patience: args.timeout, deadline })
    }

    /// Attempts something until it succeeds, fails for good, or time is up.
    pub async fn persevere<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        let mut last: Option<JobError> = None;
        loop {
            match tokio::time::timeout_at(self.deadline, attempt()).await {
                Ok(Err(error)) if error.is_passing() => {
                    // The same trouble is told once.
                    if last.as_ref().map(ToString::to_string) != Some(error.to_string()) {
                        warn!(reason = format_chain(&error), "trying again");
                    }
                    last = Some(error);
                }
                Ok(outcome) => return outcome,
                Err(_) => return Err(self.gave_up(last)),
            }
            // Two jobs in step would meet again.
            let pause = PAUSE.mul_f64(0.5 + fastrand::f64() / 2.0);
            if Instant::now() + pause >= self.deadline {
                return Err(self.gave_up(last));
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn gave_up(&self, last: Option<JobError>) -> JobError {
        match last {
            // An inner wait has said so already.
            Some(last @ JobError::GaveUp { .. }) => last,
            last => JobError::GaveUp { patience: self.patience, source: last.map(Box::new) },
        }
    }
}
