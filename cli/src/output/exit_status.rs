//! The exit status: the same four of every command.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It did what it was to do, and the verdict is good.
    Success,
    /// It could not do it; of `sallyport test`: a case failed.
    Failure,
    /// It was used wrongly; of `sallyport test`: a suite that cannot be read.
    Usage,
    /// It did what it was to do, and the verdict is bad: a denial, a fault.
    Negative,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Success => 0,
            ExitStatus::Failure => 1,
            ExitStatus::Usage => 2,
            ExitStatus::Negative => 3,
        })
    }
}
