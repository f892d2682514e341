//! Writing the tape.

use crate::tape::{
    ARRAY, Document, FALSE, FLAT_ARRAY, FLOAT, INT, KEPT, LONG_ARRAY, MAX_WALKED, NULL, OBJECT,
    SORTED_OBJECT, TRUE, UINT, bit, fingerprint, fingerprint_of, pack, pack_key, pack_short, place,
};

/// Writes values in the order of the text. Whoever calls sees to it that keys and values of objects alternate, and
/// that there are no more than [`MAX_BYTES`](crate::MAX_BYTES) of anything.
pub(crate) struct Builder<'t> {
    pub(crate) document: Document<'t>,
    /// The lists and objects around the one at hand.
    outer: Vec<Open>,
    at_hand: Open,
    /// The tables of the objects that are open, those of the inner ones behind those of the outer ones.
    keys: Vec<u64>,
}

/// A list or an object that is being written.
#[derive(Clone, Copy, Default)]
struct Open {
    is_object: bool,
    /// A key is there twice.
    repeats: bool,
    /// Its word on the tape.
    at: usize,
    count: usize,
    /// The bits of the keys, by which most keys are seen at once to be new.
    seen: u64,
}

impl<'t> Builder<'t> {
    /// `words` is how long the tape is expected to get.
    pub(crate) fn new(text: &'t str, words: usize) -> Self {
        let document = Document { text, tape: Vec::with_capacity(words), ..Document::default() };
        Self {
            document,
            outer: Vec::with_capacity(16),
            at_hand: Open::default(),
            keys: Vec::with_capacity(64),
        }
    }

    /// How many lists and objects are open.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.outer.len()
    }

    /// Whether the innermost of them is an object.
    #[inline]
    pub(crate) fn is_in_object(&self) -> bool {
        self.at_hand.is_object
    }

    pub(crate) fn null(&mut self) {
        self.value(pack(NULL, 0, 0));
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.value(pack(if value { TRUE } else { FALSE }, 0, 0));
    }

    pub(crate) fn int(&mut self, number: i64) {
        match pack_short(number) {
            Some(word) => self.value(word),
            None => self.number(INT, number.cast_unsigned()),
        }
    }

    /// An integer beyond the range of `i64`.
    pub(crate) fn uint(&mut self, number: u64) {
        self.number(UINT, number);
    }

    pub(crate) fn float(&mut self, number: f64) {
        self.number(FLOAT, number.to_bits());
    }

    fn number(&mut self, kind: u64, bits: u64) {
        let place = self.document.numbers.len();
        self.document.numbers.push(bits);
        self.value(pack(kind, 0, place));
    }

    /// A value of one word.
    #[inline]
    pub(crate) fn value(&mut self, word: u64) {
        self.at_hand.count += 1;
        self.document.tape.push(word);
    }

    /// Keeps a string besides the text, and gives its word.
    pub(crate) fn keep(&mut self, text: &str) -> u64 {
        let from = self.document.kept.len();
        self.document.kept.push_str(text);
        pack(KEPT, text.len(), from)
    }

    /// The key of the next value.
    #[inline]
    pub(crate) fn key(&mut self, word: u64) {
        let fingerprint = fingerprint(self.document.string_bytes(word));
        let Open { seen, count, .. } = self.at_hand;
        if seen & bit(fingerprint) != 0 && count <= MAX_WALKED && self.has_key(fingerprint, word) {
            self.at_hand.repeats = true;
        }
        self.at_hand.seen |= bit(fingerprint);
        self.keys.push(pack_key(fingerprint, self.document.tape.len()));
        self.document.tape.push(word);
    }

    /// Whether the object at hand has this key already.
    fn has_key(&self, fingerprint: u64, word: u64) -> bool {
        let document = &self.document;
        let same = |entry: &u64| {
            fingerprint_of(*entry) == fingerprint
                && document.string_bytes(document.word(place(*entry))) == document.string_bytes(word)
        };
        self.keys.iter().rev().take(self.at_hand.count).any(same)
    }

    #[inline]
    pub(crate) fn open(&mut self, is_object: bool) {
        let at = self.document.tape.len();
        self.value(0);
        if is_object {
            self.document.tape.push(0);
        }
        let open = Open { is_object, at, ..Open::default() };
        self.outer.push(std::mem::replace(&mut self.at_hand, open));
    }

    /// Ends the list or object at hand.
    #[inline]
    pub(crate) fn close(&mut self) {
        let Some(outer) = self.outer.pop() else { return };
        let Open { is_object, repeats, at, count, seen } = std::mem::replace(&mut self.at_hand, outer);
        if is_object && count == 0 {
            self.document.tape.pop();
        } else if is_object && let Some(word) = self.document.tape.get_mut(at + 1) {
            *word = seen;
        }
        let words = self.document.tape.len() - at - 1;
        let (kind, count) = match is_object {
            true if repeats || count > MAX_WALKED => (SORTED_OBJECT, self.sorted_table(count)),
            true => (OBJECT, self.table(count)),
            false if words == count => (FLAT_ARRAY, count),
            false if count > MAX_WALKED => (LONG_ARRAY, self.item_table(at)),
            false => (ARRAY, count),
        };
        let end = self.document.tape.len();
        if let Some(word) = self.document.tape.get_mut(at) {
            *word = pack(kind, count, end);
        }
    }

    /// Writes the table of a list; how long that is.
    fn item_table(&mut self, at: usize) -> usize {
        let end = self.document.tape.len();
        let mut next = at + 1;
        while next < end {
            self.document.tape.push(pack(NULL, 0, next));
            next = self.document.skip(next);
        }
        self.document.tape.len() - end
    }

    /// Writes the table of an object.
    #[inline]
    fn table(&mut self, count: usize) -> usize {
        let first = self.keys.len().saturating_sub(count);
        self.document.tape.extend_from_slice(self.keys.get(first..).unwrap_or_default());
        self.keys.truncate(first);
        count
    }

    /// The same in the order of the keys, of which the last of equal ones stays.
    fn sorted_table(&mut self, count: usize) -> usize {
        let first = self.keys.len().saturating_sub(count);
        let document = &self.document;
        let key = |entry: u64| document.string_bytes(document.word(place(entry)));
        let mut sorted: Vec<(&[u8], u64)> =
            self.keys.drain(first..).map(|entry| (key(entry), entry)).collect();
        // Equal keys by their places, the last one first.
        sorted.sort_unstable_by(|(one, left), (other, right)| one.cmp(other).then(right.cmp(left)));
        sorted.dedup_by_key(|(key, _)| *key);
        let sorted: Vec<u64> = sorted.into_iter().map(|(_, entry)| entry).collect();
        self.document.tape.extend_from_slice(&sorted);
        sorted.len()
    }
}
