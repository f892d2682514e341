//! The built command, as users and scripts run it; what looks after a cluster, against a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::too_many_lines)] // a table or a scenario is read from top to bottom

mod cel;
mod certs;
mod cluster;
mod completion;
mod dev;
mod doctor;
mod process;
mod review;
mod rotation;
mod surroundings;
mod test;
