//! Certificates and registration against a real API server, one for each test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::too_many_lines)] // a table or a scenario is read from top to bottom

mod brought;
mod cert_manager;
mod cluster;
mod controller_manager;
mod damage;
mod injection;
mod job;
mod leadership;
mod manual;
mod programs;
mod promotion;
mod registration;
mod rotation;
mod secrets;
mod signer;
