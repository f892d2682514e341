//! Webhook configurations: what is to be registered, and how what is there differs from it.
//!
//! Start with [`Description::parse`]: it reads the objects that are to be registered, each a [`Described`]. [`decide`]
//! says what to do next about one of them, from what is [`Observed`] of it. [`configurations`] makes such objects from
//! policies, and [`entries`] reads those of a cluster, whoever made them.
//!
//! Everything here is pure: objects come in as JSON and leave as JSON, and nobody is asked.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod decision;
mod description;
mod difference;
mod endpoint;
mod entry;
mod live;
mod policies;
mod promotion;
mod selector;
mod target;

pub use decision::{Action, Cause, Hold, Observed, Owners, Promotion, Proof, SOON, decide};
pub use description::{Described, Description, DescriptionError, Kind};
pub use difference::{Difference, difference};
pub use endpoint::Endpoint;
pub use entry::{Entry, Resource, entries, title};
pub use live::{FIELD_MANAGER, Live, owner};
pub use policies::{Policy, configurations};
pub use promotion::{Entries, Outcome, Probe, Unproven};
pub use selector::{Labels, labels_at};
pub use target::{ServicePort, Target};
