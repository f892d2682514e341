//! Calls to the API server: bounded in time, and with errors that say what was not allowed.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use kube::core::Status;

/// How long one call may take. The client itself has no limit, because watches share it.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A verb of the Kubernetes API, as RBAC names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read several objects.
    List,
    /// Make an object.
    Create,
    /// Change an object, also by server-side apply.
    Patch,
    /// Remove an object.
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        })
    }
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// RBAC does not allow the call.
    #[error(
        "not allowed to {verb} {resource} {name:?}: the ServiceAccount needs the verb {verb} on {resource}"
    )]
    Forbidden {
        /// The verb that is missing.
        verb: Verb,
        /// The resource, in plural.
        resource: &'static str,
        /// The object.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<Status>,
    },
    /// The API server refused the call for another reason.
    #[error("the API server refused to {verb} {resource} {name:?}")]
    Refused {
        /// The verb.
        verb: Verb,
        /// The resource, in plural.
        resource: &'static str,
        /// The object.
        name: String,
        /// What the API server said.
        #[source]
        source: Box<Status>,
    },
    /// The API server did not answer, or not in its own words.
    #[error("failed to {verb} {resource} {name:?}")]
    Failed {
        /// The verb.
        verb: Verb,
        /// The resource, in plural.
        resource: &'static str,
        /// The object.
        name: String,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("giving up on {verb} {resource} {name:?} after {} seconds", CALL_TIMEOUT.as_secs())]
    TimedOut {
        /// The verb.
        verb: Verb,
        /// The resource, in plural.
        resource: &'static str,
        /// The object.
        name: String,
    },
}

impl AccessError {
    /// Whether somebody else was faster: a conflict, an object that is there already or no more.
    pub fn is_overtaken(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if matches!(source.code, 404 | 409))
    }
}

/// Awaits a call to the API server, at most 10 s.
pub async fn call<T>(
    verb: Verb,
    resource: &'static str,
    name: &str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, AccessError> {
    let name = name.to_owned();
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(source))) if source.code == 403 && is_rbac(&source) => {
            Err(AccessError::Forbidden { verb, resource, name, source })
        }
        Ok(Err(kube::Error::Api(source))) => Err(AccessError::Refused { verb, resource, name, source }),
        Ok(Err(source)) => Err(AccessError::Failed { verb, resource, name, source: Box::new(source) }),
        Err(_) => Err(AccessError::TimedOut { verb, resource, name }),
    }
}

/// Whether a refusal is one of missing rights; quotas, terminating namespaces and admission say 403 as well.
fn is_rbac(status: &Status) -> bool {
    status.reason == "Forbidden" && status.message.contains(" cannot ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str) -> kube::Error {
        let message = "User \"u\" cannot create resource \"secrets\"";
        kube::Error::Api(Box::new(Status::failure(message, reason).with_code(code)))
    }

    #[tokio::test]
    async fn a_missing_right_is_named_r13() {
        let refused = async { Err::<(), _>(status(403, "Forbidden")) };
        let error = call(Verb::Create, "secrets", "sallyport-ca", refused).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "not allowed to create secrets \"sallyport-ca\": the ServiceAccount needs the verb create on secrets"
        );
        assert!(!error.is_overtaken());
    }

    #[tokio::test]
    async fn conflicts_are_told_from_failures_r01() {
        for (code, reason, overtaken) in
            [(409, "Conflict", true), (409, "AlreadyExists", true), (404, "NotFound", true), (500, "", false)]
        {
            let error = call(Verb::Patch, "secrets", "x", async { Err::<(), _>(status(code, reason)) }).await;
            assert_eq!(error.unwrap_err().is_overtaken(), overtaken, "{code} {reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_given_up_r13() {
        let error = call(Verb::Get, "secrets", "x", std::future::pending::<kube::Result<()>>()).await;
        assert!(error.unwrap_err().to_string().starts_with("giving up on get secrets"), "bounded");
    }
}
