//! CEL held against others: the language's own conformance tests, and the API server's environment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod cases;
mod differential;
mod exceptions;
mod grammar;
mod notation;
mod oracle;
mod patterns;
mod spec;
mod textproto;
