//! The variables that expressions see, by the names that Kubernetes gives them.

/// What every expression may use.
pub(super) const VARIABLES: [&str; 5] = ["object", "oldObject", "request", NAMESPACE_OBJECT, AUTHORIZER];
/// The Namespace of the request.
pub(super) const NAMESPACE_OBJECT: &str = "namespaceObject";
/// What the user who asks may do.
pub(super) const AUTHORIZER: &str = "authorizer";
/// The same, with what is asked filled in from the request.
pub(super) const REQUEST_RESOURCE: &str = "authorizer.requestResource";
/// The settings of a policy, where it has any.
pub(super) const PARAMS: &str = "params";

/// Returns whether a variable may have this name.
pub(super) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_')
}
