//! Why a job ends without success, or tries again.

use std::time::Duration;

use sallyport_leadership::{AccessError, ConnectError};
use sallyport_pki::{CertificateError, Defect, IssueError, NameError};
use sallyport_telemetry::TelemetryError;

/// Why a job failed, or has to try again.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is no API server to speak to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The logs cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
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
    pub(crate) fn is_passing(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use sallyport_leadership::Verb;

    use super::*;

    #[test]
    fn what_time_may_mend_is_told_from_what_it_will_not_r13() {
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
