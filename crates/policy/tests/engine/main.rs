//! The policy engine through its public surface: policies in YAML, reviews in JSON.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod admission_policies;
mod configurations;
mod costs;
mod definitions;
mod fixtures;
mod idempotence;
mod matching;
mod mutations;
mod params;
mod pod_security;
mod safety;
mod validations;
mod versions;
