//! The tape: how a document lies in memory.
//!
//! A word has the kind in its upper 4 bits, below them 28 bits that say how much there is (bytes of a text, items
//! of a list, entries of an object), and 32 bits that say where: the first byte of a text, the word behind the
//! last one of a list or an object.
//!
//! Behind the word of a list are its items, and behind those of a long one, whose items are not all of one word, is
//! a table: where each of them begins.
//!
//! Behind the word of an object that is not empty is one with a bit for each key, by which most keys that are not
//! there are told at once. Then keys and values alternate. After them is a table with a word for each key: a
//! fingerprint in the upper half, where the key is in the lower. It is in the order of the text, or, for an object
//! that is wide or repeats a key, has each key once and is in their order.

use std::hint::select_unpredictable;

/// Largest text of a document, and most that is in one, in bytes and in values.
pub const MAX_BYTES: usize = (1 << 28) - 1;
/// Deepest nesting of lists and objects in a text: as deep as `serde_json` goes.
pub const MAX_DEPTH: usize = 127;
/// Lists and objects up to this long are walked through.
pub(crate) const MAX_WALKED: usize = 32;

pub(crate) const NULL: u64 = 0;
pub(crate) const FALSE: u64 = 1;
pub(crate) const TRUE: u64 = 2;
/// An integer of 60 bits, all of them in the word.
pub(crate) const SHORT: u64 = 3;
/// Other numbers: which one of `Document::numbers`.
pub(crate) const INT: u64 = 4;
pub(crate) const UINT: u64 = 5;
pub(crate) const FLOAT: u64 = 6;
/// A string as it stands in the text.
pub(crate) const TEXT: u64 = 7;
/// A string that is kept besides.
pub(crate) const KEPT: u64 = 8;
pub(crate) const ARRAY: u64 = 9;
/// A list whose items take one word each.
pub(crate) const FLAT_ARRAY: u64 = 10;
/// One with a table.
pub(crate) const LONG_ARRAY: u64 = 11;
pub(crate) const OBJECT: u64 = 12;
/// One whose table is in the order of the keys.
pub(crate) const SORTED_OBJECT: u64 = 13;

const KIND_SHIFT: u32 = 60;
const EXTENT_SHIFT: u32 = 32;
const EXTENT_MASK: u64 = (1 << 28) - 1;
const PLACE_MASK: u64 = (1 << 32) - 1;

/// A JSON document, checked and ready to be read. It borrows the text that it was parsed from.
///
/// ```
/// use sallyport_document::{Document, Node};
///
/// # fn main() -> Result<(), sallyport_document::DocumentError> {
/// let document = Document::parse(br#"{"kind": "Pod", "spec": {"hostNetwork": true}}"#)?;
/// let pod = document.root();
/// assert_eq!(pod.get("kind").and_then(Node::as_str), Some("Pod"));
/// assert_eq!(pod.at(&["spec", "hostNetwork"]).and_then(Node::as_bool), Some(true));
/// assert!(pod.get("status").is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Document<'t> {
    pub(crate) text: &'t str,
    /// Strings that are not in the text as they are: those with escapes, and all of a document made of a value.
    pub(crate) kept: String,
    /// Numbers that do not fit into a word: integers, or the bits of doubles.
    pub(crate) numbers: Vec<u64>,
    pub(crate) tape: Vec<u64>,
}

impl Document<'_> {
    /// The word at a place; beyond the end there is nothing but null.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.tape.get(at).copied().unwrap_or(0)
    }

    /// Where the value after this one is.
    #[inline]
    pub(crate) fn skip(&self, at: usize) -> usize {
        let word = self.word(at);
        // Nobody can tell which it is going to be.
        select_unpredictable(kind(word) >= ARRAY, place(word), at + 1)
    }

    /// The string of a word of that kind.
    #[inline]
    pub(crate) fn string(&self, word: u64) -> &str {
        let (from, length) = (place(word), extent(word));
        self.strings(word).get(from..from + length).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn string_bytes(&self, word: u64) -> &[u8] {
        let (from, length) = (place(word), extent(word));
        self.strings(word).as_bytes().get(from..from + length).unwrap_or_default()
    }

    #[inline]
    fn strings(&self, word: u64) -> &str {
        if kind(word) == TEXT { self.text } else { &self.kept }
    }

    /// The table at the end of a list or an object that has one.
    #[inline]
    pub(crate) fn table(&self, word: u64) -> &[u64] {
        let end = place(word);
        self.tape.get(end.saturating_sub(extent(word))..end).unwrap_or_default()
    }
}

#[inline]
pub(crate) fn pack(kind: u64, extent: usize, place: usize) -> u64 {
    (kind << KIND_SHIFT) | ((extent as u64 & EXTENT_MASK) << EXTENT_SHIFT) | (place as u64 & PLACE_MASK)
}

/// An integer that fits, as a word.
pub(crate) fn pack_short(number: i64) -> Option<u64> {
    let fits = (number << 4) >> 4 == number;
    fits.then(|| (SHORT << KIND_SHIFT) | ((number.cast_unsigned() << 4) >> 4))
}

pub(crate) fn short(word: u64) -> i64 {
    (word << 4).cast_signed() >> 4
}

#[inline]
pub(crate) fn kind(word: u64) -> u64 {
    word >> KIND_SHIFT
}

/// How much there is.
#[inline]
#[allow(clippy::cast_possible_truncation)] // 28 bits
pub(crate) fn extent(word: u64) -> usize {
    ((word >> EXTENT_SHIFT) & EXTENT_MASK) as usize
}

/// Where it is.
#[inline]
#[allow(clippy::cast_possible_truncation)] // 32 bits
pub(crate) fn place(word: u64) -> usize {
    (word & PLACE_MASK) as usize
}

/// The fingerprint of a key: 32 bits, by its length, its first byte and its last one. With these factors few of the
/// fields that policies ask a pod for share a bit with one that it has.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u64 {
    let (first, last) = (key.first().copied().unwrap_or(0), key.last().copied().unwrap_or(0));
    let mixed = key.len() as u64 ^ u64::from(first).wrapping_mul(15) ^ u64::from(last).wrapping_mul(29);
    (((key.len() as u64) << 6) | (mixed & 63)) & PLACE_MASK
}

/// The bit of a fingerprint, one of 64.
#[inline]
pub(crate) fn bit(fingerprint: u64) -> u64 {
    1 << (fingerprint & 63)
}

/// What is in the table for a key.
#[inline]
pub(crate) fn pack_key(fingerprint: u64, place: usize) -> u64 {
    (fingerprint << EXTENT_SHIFT) | (place as u64 & PLACE_MASK)
}

/// The fingerprint in the table.
#[inline]
pub(crate) fn fingerprint_of(entry: u64) -> u64 {
    entry >> EXTENT_SHIFT
}

#[cfg(test)]
mod tests {
    use super::{extent, kind, pack, pack_short, place, short};

    #[test]
    fn words_give_back_what_was_put_in() {
        let word = pack(13, super::MAX_BYTES, u32::MAX as usize);
        assert_eq!((kind(word), extent(word), place(word)), (13, super::MAX_BYTES, u32::MAX as usize));
        for number in [0, 1, -1, 420, (1 << 59) - 1, -(1 << 59)] {
            assert_eq!(pack_short(number).map(short), Some(number));
        }
        for number in [1 << 59, -(1 << 59) - 1, i64::MAX, i64::MIN] {
            assert_eq!(pack_short(number), None);
        }
    }
}
