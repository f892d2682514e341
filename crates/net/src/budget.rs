//! A bound on the bytes of requests that a process holds at once.
//!
//! A connection limit does not bound memory: sixteen reviews of 7 MiB are few
//! connections and a lot of memory. Work that does not fit is refused at once,
//! so that the caller can answer "try again" instead of growing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may be in flight together. Cheap to clone; clones share the budget.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: usize,
    used: AtomicUsize,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { inner: Arc::new(Inner { limit, used: AtomicUsize::new(0) }) }
    }

    /// Takes `bytes` out of the budget until the reservation is dropped; `None`
    /// when they do not fit now.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = Reservation { inner: self.inner.clone(), bytes: 0 };
        reservation.grow(bytes).then_some(reservation)
    }

    /// Bytes in flight now.
    pub fn used(&self) -> usize {
        self.inner.used.load(Ordering::Relaxed)
    }
}

/// Bytes taken from a [`ByteBudget`]; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    inner: Arc<Inner>,
    bytes: usize,
}

impl Reservation {
    /// Takes `more` bytes; false, and nothing taken, when they do not fit.
    #[must_use]
    pub fn grow(&mut self, more: usize) -> bool {
        let limit = self.inner.limit;
        let grown = self.inner.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more).filter(|sum| *sum <= limit)
        });
        if grown.is_ok() {
            self.bytes += more;
        }
        grown.is_ok()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.inner.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::ByteBudget;

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_dropped_comes_back() {
        let budget = ByteBudget::new(10);
        let mut first = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none());
        assert!(first.grow(4));
        assert!(!first.grow(1));
        assert!(!first.grow(usize::MAX));
        assert_eq!((first.bytes(), budget.used()), (10, 10));
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(10).is_some());
    }
}
