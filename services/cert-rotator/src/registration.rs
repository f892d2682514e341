//! The suite registers itself with the API server, from a description.
//!
//! A configuration is created only once the front that it names is proven: at least one is ready, and every
//! ready one serves a certificate that verifies for the name the API server will use, against the bundle that
//! the API server will use. An installation that does not come up therefore blocks nobody. Afterwards the
//! configuration is kept as described, with the current bundle in every entry, and nothing is written when
//! nothing differs. With promotion on, entries become Fail only after the whole way was proven.

mod controller;
mod live;
mod promotion;
mod proof;
mod source;

pub use controller::Controller;
pub use live::Objects;
pub(crate) use proof::pod_port;
pub use source::Source;
