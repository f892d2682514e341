//! The annotations by which objects and Secrets agree to injection.

/// Annotation of an object with the Secret to inject from, as `namespace/name`.
pub const INJECT_CA_FROM: &str = "sallyport.dev/inject-ca-from";
/// Annotation of a Secret whose `ca.crt` may be injected; its value has to be `true`.
pub const ALLOW_INJECTION: &str = "sallyport.dev/allow-injection";
