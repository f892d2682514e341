//! The gRPC contract between the webhook and its backends, generated from
//! `sallyport/v1alpha1/admission.proto`, and the [`conversion`] to and from the admission model.
//!
//! This is the suite's public extension point: the .proto file is the
//! documentation that authors of other backends read, so it is documented
//! field by field and changes only by addition.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod conversion;

/// `sallyport.v1alpha1`: messages, and the Mutator and Validator services.
pub mod v1alpha1 {
    #![allow(clippy::pedantic, missing_docs, unused_qualifications)] // generated
    tonic::include_proto!("sallyport.v1alpha1");
}

/// Bytes that a gRPC message may have on top of the objects it carries: names,
/// user, groups, framing. The front's body limit plus this is every hop's
/// message limit, so that the front's limit is always the smallest (G-01).
pub const MESSAGE_OVERHEAD: usize = 1 << 20;
