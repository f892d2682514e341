//! What the status of a call tells about the replica and about the decision.

use std::error::Error;

use sallyport_error_chain::causes;
use tonic::{Code, Status};

/// Returns whether tonic's own client made the status from `grpc-timeout`, perhaps a moment before our timer fired. It
/// comes as `Cancelled` with a source, as a lost connection does.
pub(super) fn is_expired(status: &Status) -> bool {
    causes(status).any(<dyn Error>::is::<tonic::TimeoutExpired>)
}

/// Returns whether tonic made the status because the connection failed. Those that a backend sent have no source.
pub(super) fn is_lost_connection(status: &Status) -> bool {
    status.source().is_some()
        && matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
}

/// Returns whether the backend cannot have decided, so that another may be called.
pub(super) fn is_undecided(status: &Status) -> bool {
    is_lost_connection(status) || matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

/// Makes a status that says what happened. tonic calls a connection that broke `Unknown`, and `Cancelled`
/// both a connection that was gone before the call and a call that the backend broke off (a
/// handler that panicked); none of them is a call that was cancelled or took too long.
pub(super) fn clarify(status: Status) -> Status {
    if !is_lost_connection(&status) {
        return status;
    }
    let code = match status.code() {
        Code::Cancelled if !was_never_sent(&status) => Code::Internal,
        Code::Cancelled | Code::Unknown => Code::Unavailable,
        code => code,
    };
    Status::new(code, status.message())
}

/// Returns whether the connection ended before it took the call.
fn was_never_sent(status: &Status) -> bool {
    causes(status).any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled))
}

#[cfg(test)]
mod tests {
    use std::io;

    use tonic::{Code, Status};

    use super::{clarify, is_lost_connection, is_undecided};

    fn from_transport(code: Code) -> Status {
        let mut status = Status::new(code, "m");
        status.set_source(std::sync::Arc::new(io::Error::other("broken pipe")));
        status
    }

    /// Code, whether the connection failed; whether another replica may decide, and the code that callers see.
    #[test]
    fn a_status_of_the_transport_is_told_from_one_of_the_backend() {
        for (code, lost, undecided, clear) in [
            (Code::Unavailable, true, true, Code::Unavailable),
            (Code::Unknown, true, true, Code::Unavailable),
            (Code::Cancelled, true, true, Code::Internal),
            (Code::Internal, true, true, Code::Internal),
            (Code::Unavailable, false, true, Code::Unavailable),
            (Code::ResourceExhausted, false, true, Code::ResourceExhausted),
            (Code::Unknown, false, false, Code::Unknown),
            (Code::Cancelled, false, false, Code::Cancelled),
            (Code::Internal, false, false, Code::Internal),
            (Code::InvalidArgument, false, false, Code::InvalidArgument),
            (Code::DeadlineExceeded, false, false, Code::DeadlineExceeded),
        ] {
            let status = if lost { from_transport(code) } else { Status::new(code, "m") };
            let what = format!("{code:?}, lost: {lost}");
            assert_eq!(is_lost_connection(&status), lost, "{what}");
            assert_eq!(is_undecided(&status), undecided, "{what}");
            assert_eq!(clarify(status).code(), clear, "{what}");
        }
    }
}
