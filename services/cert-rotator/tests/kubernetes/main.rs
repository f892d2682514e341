//! Certificates and registration against a real API server, one for each test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster;
mod injection;
mod registration;
mod rotation;
mod secrets;
