//! How a JSON patch is read.

use crate::mutate::patch::fault::Missing;

/// Whose reading of JSON patches counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// RFC 6902.
    Rfc6902,
    /// That of the Go library in the API server, which departs from the RFC: `replace` adds a missing member, list
    /// indices may be negative or have leading zeros, `copy` of a missing member writes null, a `test` without value
    /// passes on a missing member, and the root can only be replaced. People rely on it.
    ApiServer,
}

impl Dialect {
    /// The index that `key` names in a list of this length.
    pub(super) fn index(self, length: usize, key: &str) -> Result<usize, Missing> {
        let not_an_index = || Missing::NotAnIndex(key.to_owned());
        match self {
            Self::Rfc6902 => {
                let plain =
                    key.bytes().all(|byte| byte.is_ascii_digit()) && (!key.starts_with('0') || key == "0");
                let index = key.parse().ok().filter(|_| plain).ok_or_else(not_an_index)?;
                if index < length { Ok(index) } else { Err(not_an_index()) }
            }
            Self::ApiServer => {
                let index: i64 = key.parse().map_err(|_| not_an_index())?;
                let place = usize::try_from(index.unsigned_abs()).ok();
                let place = if index < 0 { place.and_then(|back| length.checked_sub(back)) } else { place };
                place.filter(|place| *place < length).ok_or(Missing::OutOfRange(index))
            }
        }
    }
}
