//! Who answers what policies ask of `authorizer`.

use sallyport_cel::{Attributes, Authorizer, Decision};

/// An authorizer that has no opinion, and says why: for where nobody can be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unconnected;

impl Authorizer for Unconnected {
    fn check(&self, _: &Attributes<'_>) -> Option<Decision> {
        let error = "no authorizer is connected: what users may do cannot be asked here";
        Some(Decision { error: Some(error.to_owned()), ..Decision::default() })
    }
}
