//! Webhook configurations: what is to be registered, and how what is there differs from it.
//!
//! Start with [`Description::parse`]: it reads the configurations that are to be registered, each a [`Described`].
//! [`Described::complete`] adds what only the writer knows, the `caBundle` and the owners, and [`difference`] compares
//! the result with a live object.
//!
//! Everything here is pure: objects come in as JSON and leave as JSON, and nobody is asked.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod description;
mod difference;
mod live;
mod promotion;

pub use description::{Described, Description, DescriptionError, Kind, Target};
pub use difference::{Difference, difference};
pub use live::{FIELD_MANAGER, Live, owner};
pub use promotion::{Entries, Outcome, Probe, Unproven, held};
