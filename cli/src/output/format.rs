//! Formats in which commands about a cluster write.

use clap::ValueEnum;

/// How a look at a cluster is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; in colour on a terminal, unless `NO_COLOR` is set
    Text,
    /// JSON
    Json,
}
