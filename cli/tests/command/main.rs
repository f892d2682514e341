//! The built command, as users and scripts run it. No cluster is needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod certs;
mod completion;
mod dev;
mod process;
mod review;
