//! The transport as its users see it: real TLS on loopback, certificates made by
//! `sallyport-pki`, backends that are tonic servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod authority;
mod balance;
mod calls;
mod credentials;
mod drain;
mod https;
mod mutual;
mod replica;
mod server;
