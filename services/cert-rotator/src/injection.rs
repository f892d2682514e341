//! Injection of `caBundle` into objects of others: off unless targets and Secrets are named.
//!
//! Three have to agree before anything is written: whoever runs the rotator names the object and the Secret by
//! flags, the object carries the annotation [`INJECT_CA_FROM`] with the Secret's name, and the Secret carries
//! [`ALLOW_INJECTION`]. Then the Secret's `ca.crt` is put into every `caBundle` of the object, and authorities that
//! were there before stay beside the new ones for a while, so that processes that still serve an old certificate
//! are reached.
//!
//! What is written is `caBundle` and nothing else, under a field manager of its own: under the one of the
//! registration, a partial object would take everything else away from a configuration that a rotator registered.
//! Nothing is remembered but patience: what was injected, and when, is read from the object's `managedFields`, so
//! that any rotator continues where another stopped.

mod field;
mod injector;
mod overlap;
mod source;
mod target;

pub use field::MANAGER;
pub use injector::{Injection, InjectionError, Injector, Round};
pub use source::{SecretName, Unfit};
pub use target::{Kind, Target};

/// Annotation of an object with the Secret to inject from, as `namespace/name`.
pub const INJECT_CA_FROM: &str = "sallyport.dev/inject-ca-from";
/// Annotation of a Secret whose `ca.crt` may be injected; its value has to be `true`.
pub const ALLOW_INJECTION: &str = "sallyport.dev/allow-injection";
