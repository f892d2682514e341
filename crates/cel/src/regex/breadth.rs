//! How much of a pattern can be under way at once.
//!
//! A pattern is searched for with sets of its places: after a character, those that have just taken it. A set of them
//! is usually made once and found again, but a text can be written so that every character makes a new one, which
//! takes as long as the set is large. It is no larger than the number of places that take one and the same
//! character: for a list of names a few, for `[ab]{300}` three hundred.

/// The characters that a place takes. Those beyond ASCII count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    ascii: u128,
    other: bool,
}

impl Taken {
    pub(crate) const NONE: Self = Self { ascii: 0, other: false };
    pub(crate) const ANY: Self = Self { ascii: u128::MAX, other: true };

    /// One character, or all from one to another.
    pub(crate) fn range(low: char, high: char) -> Self {
        let other = !high.is_ascii();
        if !low.is_ascii() {
            return Self { ascii: 0, other };
        }
        let up_to = |character: u32| u128::MAX >> (127 - character.min(127));
        let below = u32::from(low).checked_sub(1).map_or(0, up_to);
        Self { ascii: up_to(u32::from(high)) & !below, other }
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self { ascii: self.ascii | more.ascii, other: self.other || more.other }
    }

    /// All others; there are always some beyond ASCII.
    pub(crate) fn negated(self) -> Self {
        Self { ascii: !self.ascii, other: true }
    }

    /// In capitals and small letters. Some letters beyond ASCII are the same as one of these.
    pub(crate) fn folded(self) -> Self {
        let capitals = Self::range('A', 'Z').ascii;
        let small = capitals << 32;
        let (up, down) = ((self.ascii & small) >> 32, (self.ascii & capitals) << 32);
        Self { ascii: self.ascii | up | down, other: self.other || up != 0 || down != 0 }
    }
}

/// The places of a pattern, with how often repetitions make each.
#[derive(Debug, Default)]
pub(crate) struct Places {
    all: Vec<(Taken, u64)>,
}

impl Places {
    /// Where the next place will stand.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn add(&mut self, taken: Taken) {
        if taken != Taken::NONE {
            self.all.push((taken, 1));
        }
    }

    /// Repeats what was added since. As repetitions are bounded, only few of those around a place multiply it.
    pub(crate) fn repeat(&mut self, since: usize, times: u32) {
        if times > 1 {
            for (_, count) in self.all.iter_mut().skip(since) {
                *count = count.saturating_mul(times.into());
            }
        }
    }

    /// How many there are, repeated ones as often as they are repeated.
    pub(crate) fn count(&self) -> u64 {
        self.all.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The most that take one character.
    pub(crate) fn breadth(&self) -> u64 {
        let mut ascii = [0_u64; 128];
        let (mut any, mut other) = (0_u64, 0_u64);
        for (taken, count) in &self.all {
            if *taken == Taken::ANY {
                any = any.saturating_add(*count);
                continue;
            }
            if taken.other {
                other = other.saturating_add(*count);
            }
            let mut left = taken.ascii;
            while left != 0 {
                if let Some(sum) = ascii.get_mut(left.trailing_zeros() as usize) {
                    *sum = sum.saturating_add(*count);
                }
                left &= left - 1;
            }
        }
        let most = ascii.iter().copied().fold(other, u64::max);
        most.saturating_add(any)
    }
}
