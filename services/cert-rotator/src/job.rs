//! Jobs that end, for webhooks that are not Sallyport's own: `create` makes a Secret with a certificate, `patch` writes
//! its authorities into webhook configurations and their like, `bootstrap` does both.
//!
//! A job reads, decides and writes only what differs, over exactly what it read; so it may run any number of times,
//! several at once, and be ended at any point. What is good is kept. Every wait is bounded by `--timeout`: within it
//! the job bears with an API server that is away, with objects that are not there yet, and with other writers; what
//! time will not mend ends it at once.
//!
//! The private key goes from memory into the Secret and nowhere else.

mod arguments;
mod certificate;
mod patch;
mod secret;
mod signer;

use std::pin::pin;
use std::time::Duration;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use kube::Client;
use sallyport_leadership::AccessError;
use sallyport_pki::{CertificateError, Defect, IssueError, NameError};
use tokio::time::Instant;
use tracing::{info, warn};

pub use arguments::{
    BootstrapArgs, CertificateArgs, CommonArgs, CreateArgs, FailurePolicy, Host, Job, PatchArgs, TargetArgs,
};

/// How long to wait before something is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a job failed, or has to try again.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The API server refused or failed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Making a key, a request or a certificate failed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A name cannot be put into a certificate.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Somebody else wrote what was read.
    #[error("somebody else keeps changing {0}")]
    Overtaken(String),
    /// What a job needs is not there.
    #[error("{0} does not exist")]
    Absent(String),
    /// A Secret has no authorities.
    #[error("{secret} has no certificate of an authority under {key:?}")]
    NoAuthority {
        /// The Secret.
        secret: String,
        /// The key in it.
        key: String,
        /// Why what is there is none.
        #[source]
        source: CertificateError,
    },
    /// Somebody else's private key would have been lost.
    #[error(
        "{secret} holds a private key under {key:?} that was not made here, and it cannot be used: {defect}; remove it, \
         choose another Secret, or let it be replaced with --replace"
    )]
    Foreign {
        /// The Secret.
        secret: String,
        /// The key in it.
        key: String,
        /// Why the certificate cannot be used.
        defect: Defect,
    },
    /// The Secret is of a kind that holds something else.
    #[error("{secret} is of the type {kind:?}, not Opaque or kubernetes.io/tls; choose another Secret")]
    Type {
        /// The Secret.
        secret: String,
        /// Its type.
        kind: String,
    },
    /// The Secret cannot be changed.
    #[error("{secret} is immutable, and cannot stay as it is: {reason}; delete it first")]
    Immutable {
        /// The Secret.
        secret: String,
        /// Why.
        reason: String,
    },
    /// An object has no place for a `caBundle`.
    #[error("{object} has no place for a caBundle: {reason}")]
    NoPlace {
        /// The object.
        object: String,
        /// Why.
        reason: &'static str,
    },
    /// The signer's authorities cannot be read.
    #[error("failed to read the signer's authorities from {origin}")]
    SignerAuthorities {
        /// Where from.
        origin: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another job of the same name has its request signed.
    #[error("another job's {0} is under way")]
    Busy(String),
    /// The request is neither signed nor refused yet.
    #[error("{request} is not {awaited} yet")]
    Pending {
        /// The request.
        request: String,
        /// `approved` or `signed`.
        awaited: String,
    },
    /// The request was refused.
    #[error("{request} is {condition}: {reason}: {message}")]
    Refused {
        /// The request.
        request: String,
        /// `denied` or `failed`.
        condition: &'static str,
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// The signer gave a certificate that nobody would accept.
    #[error("the certificate that {signer} signed is not good")]
    Unsound {
        /// The signer.
        signer: String,
        /// Why.
        #[source]
        source: Defect,
    },
    /// Time is up.
    #[error("giving up after {} seconds", patience.as_secs())]
    GaveUp {
        /// How long was waited.
        patience: Duration,
        /// What was in the way last.
        #[source]
        source: Option<Box<JobError>>,
    },
    /// SIGTERM or SIGINT.
    #[error("ended by a signal")]
    Signal,
}

impl JobError {
    /// Whether it may be over in a moment.
    fn is_passing(&self) -> bool {
        match self {
            Self::Access(AccessError::Failed { .. } | AccessError::TimedOut { .. })
            | Self::Overtaken(_)
            | Self::Absent(_)
            | Self::Busy(_)
            | Self::Pending { .. } => true,
            Self::Access(AccessError::Refused { source, .. }) => {
                matches!(source.code, 404 | 408 | 409 | 429 | 500..)
            }
            // A Secret that somebody is about to fill.
            Self::NoAuthority { source, .. } => *source == CertificateError::Empty,
            _ => false,
        }
    }
}

/// What a job did, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    /// Whether anything was written.
    is_changed: bool,
    /// What was written, or what is right already.
    text: String,
}

/// The API server, and the time that is left.
struct Session {
    client: Client,
    /// DER of the authorities that the API server's own certificate is verified against.
    roots: Vec<Vec<u8>>,
    patience: Duration,
    deadline: Instant,
}

impl Session {
    async fn start(args: &CommonArgs) -> anyhow::Result<Self> {
        let deadline = Instant::now() + args.timeout;
        let cluster = sallyport_leadership::cluster(args.kubeconfig.as_deref()).await?;
        let roots = cluster.root_cert.clone().unwrap_or_default();
        Ok(Self { client: sallyport_leadership::client(cluster)?, roots, patience: args.timeout, deadline })
    }

    /// Attempts something until it succeeds, fails for good, or time is up.
    async fn persevere<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        let mut last: Option<JobError> = None;
        loop {
            match tokio::time::timeout_at(self.deadline, attempt()).await {
                Ok(Err(error)) if error.is_passing() => {
                    // The same trouble is told once.
                    if last.as_ref().map(ToString::to_string) != Some(error.to_string()) {
                        let reason: Vec<String> =
                            anyhow::Chain::new(&error).map(ToString::to_string).collect();
                        warn!(reason = reason.join(": "), "trying again");
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

/// Runs a job to its end. The last line on standard output says what was done.
///
/// # Errors
/// A [`clap::Error`] for flags that contradict each other, else a [`JobError`] or that there is no API server.
pub(crate) async fn run(job: Job) -> anyhow::Result<()> {
    check(&job).map_err(|text| crate::Args::command().error(ErrorKind::ValueValidation, text))?;
    let common = match &job {
        Job::Create(args) => &args.common,
        Job::Patch(args) => &args.common,
        Job::Bootstrap(args) => &args.common,
    };
    let tracing = sallyport_telemetry::install("cert-rotator", &common.telemetry())?;
    let outcome = perform(&job, common).await;
    tracing.shutdown().await;
    let Outcome { is_changed, text } = outcome?;
    info!(is_changed, "{text}");
    if is_changed {
        println!("{text}");
    } else {
        println!("nothing to do: {text}");
    }
    Ok(())
}

async fn perform(job: &Job, common: &CommonArgs) -> anyhow::Result<Outcome> {
    let session = Session::start(common).await?;
    let work = async {
        match job {
            Job::Create(args) => certificate::create(&session, common, &args.certificate, None).await,
            Job::Patch(args) => patch::patch(&session, common, &args.targets).await,
            Job::Bootstrap(args) => {
                let created =
                    certificate::create(&session, common, &args.certificate, Some(&args.targets)).await?;
                let patched = patch::patch(&session, common, &args.targets).await?;
                let text = match (created.is_changed, patched.is_changed) {
                    (true, false) => created.text,
                    (false, true) => patched.text,
                    _ => format!("{}; {}", created.text, patched.text),
                };
                Ok(Outcome { is_changed: created.is_changed || patched.is_changed, text })
            }
        }
    };
    // The first process of a container ignores signals that it does not handle.
    tokio::select! {
        outcome = work => Ok(outcome?),
        () = pin!(crate::terminated()) => Err(JobError::Signal.into()),
    }
}

/// What the flags cannot be together.
fn check(job: &Job) -> Result<(), String> {
    match job {
        Job::Create(args) => args.common.check().and_then(|()| args.certificate.check(&args.common)),
        Job::Patch(args) => args.common.check(),
        Job::Bootstrap(args) => args.common.check().and_then(|()| args.certificate.check(&args.common)),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use sallyport_leadership::Verb;

    use super::*;

    #[test]
    fn what_time_may_mend_is_told_from_what_it_will_not_r_13() {
        let refused = |code, reason: &str| {
            let source = Box::new(Status::failure("no", reason).with_code(code));
            JobError::Access(AccessError::Refused {
                verb: Verb::Get,
                resource: "secrets",
                name: "x".to_owned(),
                source,
            })
        };
        let forbidden = JobError::Access(AccessError::Forbidden {
            verb: Verb::Get,
            resource: "secrets",
            name: "x".to_owned(),
            source: Box::new(Status::failure("no", "Forbidden").with_code(403)),
        });
        let timed_out = AccessError::TimedOut { verb: Verb::Get, resource: "secrets", name: "x".to_owned() };
        for (error, wanted) in [
            (refused(409, "Conflict"), true),
            (refused(404, "NotFound"), true),
            (refused(429, "TooManyRequests"), true),
            (refused(503, "ServiceUnavailable"), true),
            (refused(401, "Unauthorized"), false),
            (refused(403, "Forbidden"), false),
            (refused(422, "Invalid"), false),
            (forbidden, false),
            (JobError::Access(timed_out), true),
            (JobError::Absent("x".to_owned()), true),
            (JobError::Signal, false),
        ] {
            assert_eq!(error.is_passing(), wanted, "{error:?}");
        }
    }
}
