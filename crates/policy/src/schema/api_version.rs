//! The two parts of an `apiVersion`.

/// Group, empty for core, and version.
pub(crate) fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
