//! The front as the API server and the backends see it: HTTPS with hand-written requests on one
//! side, gRPC over mutual TLS on the other, all of it real and on loopback.
//!
//! Every answer with status 200 goes through the API server's own reading of answers
//! (`sallyport_testkit::verdict`); every other answer is checked not to be a decision.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod answers;
mod backend;
mod bodies;
mod client;
mod connections;
mod deadlines;
mod envelope;
mod failures;
mod fields;
mod overload;
mod process;
mod readiness;
mod suite;
