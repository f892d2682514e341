//! The macros that go through a list or a map.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter` and `transformList`
    List,
    /// `transformMap`: the same keys with other values.
    Map,
    /// `transformMapEntry`: each body is a map whose entries are taken.
    MapEntries,
    /// `sortBy`
    Sorted,
}
