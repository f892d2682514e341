//! What injection exports.

use std::time::Duration;

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// The metrics of injection, resolved once.
#[derive(Debug, Clone)]
pub struct Metrics {
    in_sync: IntGaugeVec,
    backoff: GaugeVec,
    writes: IntCounterVec,
    errors: IntCounterVec,
}

impl Metrics {
    /// Makes the metrics and registers them. `in_sync` and `backoff` are the registration's, with a series for each
    /// object that has a `caBundle`, whoever keeps it; they are registered already.
    pub fn register(
        registry: &Registry,
        in_sync: IntGaugeVec,
        backoff: GaugeVec,
    ) -> prometheus::Result<Self> {
        let writes = IntCounterVec::new(
            Opts::new(
                "sallyport_injection_writes_total",
                "Writes to an object of others that a caBundle is injected into.",
            ),
            &["target"],
        )?;
        let errors = IntCounterVec::new(
            Opts::new(
                "sallyport_injection_errors_total",
                "Rounds that could not inject a caBundle into an object of others that asks for one.",
            ),
            &["target"],
        )?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        Ok(Self { in_sync, backoff, writes, errors })
    }

    pub(crate) fn injects(&self, target: &str) {
        // There from the start, so that the first of each is seen to increase it.
        let _ = self.writes.with_label_values(&[target]);
        let _ = self.errors.with_label_values(&[target]);
    }

    pub(crate) fn in_sync(&self, target: &str, in_sync: bool) {
        self.in_sync.with_label_values(&[target]).set(i64::from(in_sync));
    }

    pub(crate) fn waiting(&self, target: &str, wait: Duration) {
        self.backoff.with_label_values(&[target]).set(wait.as_secs_f64());
    }

    pub(crate) fn written(&self, target: &str) {
        self.writes.with_label_values(&[target]).inc();
    }

    pub(crate) fn failed(&self, target: &str) {
        self.errors.with_label_values(&[target]).inc();
    }

    pub(crate) fn forget(&self, target: &str) {
        // Absent already is as good.
        let _ = self.in_sync.remove_label_values(&[target]);
        let _ = self.backoff.remove_label_values(&[target]);
    }
}
