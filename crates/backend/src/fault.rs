//! Why a review was not decided, and the gRPC status that says so (G-03).

use sallyport_proto::conversion::Incomplete;
use tonic::{Code, Status};

/// Why a review was not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The request is not one that a front sends.
    #[error("malformed review: {0}")]
    Malformed(Incomplete),
    /// The process holds as many reviews as it may.
    #[error("too many reviews at once")]
    Crowded,
    /// The process holds as many bytes of reviews as it may.
    #[error("too many bytes of reviews at once")]
    Full,
    /// The caller has stopped waiting.
    #[error("the deadline has passed")]
    Late,
    /// A defect in this program.
    #[error("the evaluation panicked")]
    Panicked,
    /// The process is ending.
    #[error("the backend is shutting down")]
    Ending,
}

impl Fault {
    /// The status. What another replica may decide is `UNAVAILABLE`: the front tries it there, and otherwise
    /// the API server tries again.
    fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => Code::InvalidArgument,
            Self::Crowded | Self::Full | Self::Ending => Code::Unavailable,
            Self::Late => Code::DeadlineExceeded,
            Self::Panicked => Code::Internal,
        }
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        Self::new(fault.code(), fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::{Fault, Incomplete};

    /// G-03, seen from the backend.
    #[test]
    fn every_fault_has_the_status_that_the_front_maps() {
        for (fault, code) in [
            (Fault::Malformed(Incomplete::Uid), Code::InvalidArgument),
            (Fault::Crowded, Code::Unavailable),
            (Fault::Full, Code::Unavailable),
            (Fault::Ending, Code::Unavailable),
            (Fault::Late, Code::DeadlineExceeded),
            (Fault::Panicked, Code::Internal),
        ] {
            let status = Status::from(fault.clone());
            assert_eq!((status.code(), status.message()), (code, fault.to_string().as_str()));
        }
    }
}
