//! Certificates and registration against a real API server, one for each test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod brought;
mod cert_manager;
mod cluster;
mod controller_manager;
mod leadership;
mod programs;
mod registration;
mod rotation;
mod secrets;
