//! What the rotator exports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::state::{Phase, Step};
use crate::store::Slot;

/// The rotator's metrics, resolved once.
#[derive(Debug, Clone)]
pub struct Metrics {
    not_after: GaugeVec,
    rotations: IntCounterVec,
    in_sync: IntGaugeVec,
    writes: IntCounterVec,
    backoff: GaugeVec,
    failures: IntCounterVec,
    awaited_since: IntGaugeVec,
    injection_writes: IntCounterVec,
    injection_errors: IntCounterVec,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            not_after: GaugeVec::new(
                Opts::new(
                    "sallyport_certificate_not_after_timestamp_seconds",
                    "When the stored certificate expires, in seconds since the epoch.",
                ),
                &["certificate"],
            )?,
            rotations: IntCounterVec::new(
                Opts::new(
                    "sallyport_certificate_rotations_total",
                    "Steps taken towards good certificates: a new authority, a new leaf, another bundle.",
                ),
                &["phase"],
            )?,
            in_sync: IntGaugeVec::new(
                Opts::new(
                    "sallyport_ca_bundle_in_sync",
                    "1 when the configuration is as it should be, with the current caBundle; else 0.",
                ),
                &["configuration"],
            )?,
            writes: IntCounterVec::new(
                Opts::new("sallyport_registration_writes_total", "Writes to a registered configuration."),
                &["configuration"],
            )?,
            backoff: GaugeVec::new(
                Opts::new(
                    "sallyport_registration_backoff_seconds",
                    "How long the next repair waits because another writer keeps changing the configuration.",
                ),
                &["configuration"],
            )?,
            failures: IntCounterVec::new(
                Opts::new("sallyport_rotator_failures_total", "Rounds of work that failed."),
                &["task"],
            )?,
            awaited_since: IntGaugeVec::new(
                Opts::new(
                    "sallyport_rotation_awaited_since_timestamp_seconds",
                    "Since when the rotation of the authority waits for a phase to be seen complete, in seconds since \
                     the epoch; 0 while it does not.",
                ),
                &["phase"],
            )?,
            injection_writes: IntCounterVec::new(
                Opts::new(
                    "sallyport_injection_writes_total",
                    "Writes to an object of others that a caBundle is injected into.",
                ),
                &["target"],
            )?,
            injection_errors: IntCounterVec::new(
                Opts::new(
                    "sallyport_injection_errors_total",
                    "Rounds that could not inject a caBundle into an object of others that asks for one.",
                ),
                &["target"],
            )?,
        };
        registry.register(Box::new(metrics.not_after.clone()))?;
        registry.register(Box::new(metrics.rotations.clone()))?;
        registry.register(Box::new(metrics.in_sync.clone()))?;
        registry.register(Box::new(metrics.writes.clone()))?;
        registry.register(Box::new(metrics.backoff.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        registry.register(Box::new(metrics.awaited_since.clone()))?;
        registry.register(Box::new(metrics.injection_writes.clone()))?;
        registry.register(Box::new(metrics.injection_errors.clone()))?;
        metrics.awaited(None);
        for phase in Step::PHASES {
            metrics.rotations.with_label_values(&[phase]).reset();
        }
        for task in ["certificates", "registration", "injection"] {
            metrics.failures.with_label_values(&[task]).reset();
        }
        Ok(metrics)
    }

    pub(crate) fn certificate(&self, slot: Slot, not_after: SystemTime) {
        let seconds = not_after.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.not_after.with_label_values(&[slot.word()]).set(seconds);
    }

    pub(crate) fn step(&self, step: &Step) {
        self.rotations.with_label_values(&[step.phase()]).inc();
    }

    pub(crate) fn awaited(&self, awaited: Option<Phase>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for phase in Phase::ALL {
            let since = self.awaited_since.with_label_values(&[phase.word()]);
            if awaited != Some(phase) {
                since.set(0);
            } else if since.get() == 0 {
                since.set(i64::try_from(now).unwrap_or(i64::MAX));
            }
        }
    }

    pub(crate) fn in_sync(&self, configuration: &str, in_sync: bool) {
        // There from the start, so that the first write is seen to increase it.
        let _ = self.writes.with_label_values(&[configuration]);
        self.in_sync.with_label_values(&[configuration]).set(i64::from(in_sync));
    }

    pub(crate) fn written(&self, configuration: &str) {
        self.writes.with_label_values(&[configuration]).inc();
    }

    pub(crate) fn waiting(&self, configuration: &str, wait: Duration) {
        self.backoff.with_label_values(&[configuration]).set(wait.as_secs_f64());
    }

    pub(crate) fn forget(&self, configuration: &str) {
        // Absent already is as good.
        let _ = self.in_sync.remove_label_values(&[configuration]);
        let _ = self.backoff.remove_label_values(&[configuration]);
    }

    pub(crate) fn injects(&self, target: &str) {
        // There from the start, so that the first of each is seen to increase it.
        let _ = self.injection_writes.with_label_values(&[target]);
        let _ = self.injection_errors.with_label_values(&[target]);
    }

    pub(crate) fn injected(&self, target: &str, in_sync: bool) {
        self.in_sync.with_label_values(&[target]).set(i64::from(in_sync));
    }

    pub(crate) fn injection_written(&self, target: &str) {
        self.injection_writes.with_label_values(&[target]).inc();
    }

    pub(crate) fn injection_failed(&self, target: &str) {
        self.injection_errors.with_label_values(&[target]).inc();
    }

    pub(crate) fn failed(&self, task: &str) {
        self.failures.with_label_values(&[task]).inc();
    }
}
