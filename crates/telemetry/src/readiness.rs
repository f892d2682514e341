//! Whether a service can do its work yet, as the conjunction of named conditions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The conditions of one service. Clones share them.
///
/// A service that has named no condition yet is still starting, which is not ready: probes may come before it
/// knows what it waits for.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<BTreeMap<&'static str, Arc<AtomicBool>>>>,
}

impl Readiness {
    /// No condition yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The condition of that name, unmet until it is [set](Condition::set). The same name gives the
    /// same condition.
    pub fn condition(&self, name: &'static str) -> Condition {
        let mut conditions = self.conditions.lock();
        Condition { name, met: Arc::clone(conditions.entry(name).or_default()) }
    }

    /// Whether every condition is met.
    pub fn ready(&self) -> bool {
        self.missing().is_empty()
    }

    /// The names of the conditions that are not met, in alphabetical order; `start` as long as there is none.
    pub fn missing(&self) -> Vec<&'static str> {
        let conditions = self.conditions.lock();
        if conditions.is_empty() {
            return vec!["start"];
        }
        conditions.iter().filter(|(_, met)| !met.load(Ordering::Acquire)).map(|(name, _)| *name).collect()
    }
}

/// One named condition; clones set the same one.
#[derive(Clone)]
pub struct Condition {
    name: &'static str,
    met: Arc<AtomicBool>,
}

impl Condition {
    /// Says whether the condition is met. A change is logged.
    pub fn set(&self, met: bool) {
        if self.met.swap(met, Ordering::AcqRel) != met {
            tracing::info!(condition = self.name, met, "readiness condition changed");
        }
    }

    /// Whether the condition is met.
    pub fn is_met(&self) -> bool {
        self.met.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition").field("name", &self.name).field("met", &self.is_met()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    /// G-06: ready is the conjunction; each row sets conditions and names what is missing.
    #[test]
    fn ready_when_every_condition_is_met() {
        type Row = (&'static [(&'static str, Option<bool>)], &'static [&'static str]);
        let rows: [Row; 6] = [
            (&[], &["start"]),
            (&[("certificate", None)], &["certificate"]),
            (&[("certificate", Some(true))], &[]),
            (&[("certificate", Some(true)), ("backend", None)], &["backend"]),
            (&[("b", Some(false)), ("a", None)], &["a", "b"]),
            (&[("a", Some(true)), ("a", Some(false))], &["a"]),
        ];
        for (sets, missing) in rows {
            let readiness = Readiness::new();
            for (name, value) in sets {
                let condition = readiness.condition(name);
                if let Some(value) = value {
                    condition.set(*value);
                }
            }
            assert_eq!(readiness.missing(), missing, "{sets:?}");
            assert_eq!(readiness.ready(), missing.is_empty(), "{sets:?}");
        }
    }

    #[test]
    fn clones_and_equal_names_share_one_condition() {
        let readiness = Readiness::new();
        let first = readiness.condition("policies");
        readiness.clone().condition("policies").set(true);
        assert!(first.is_met() && readiness.ready());
    }
}
