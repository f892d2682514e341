//! What the rotator exports.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use sallyport_pki::Certificate;
use sallyport_telemetry::CertificateGauges;

use crate::state::{Phase, Step};
use crate::store::Slot;

/// The rotator's metrics, resolved once.
#[derive(Debug, Clone)]
pub struct Metrics {
    certificates: CertificateGauges,
    rotations: IntCounterVec,
    in_sync: IntGaugeVec,
    promoted: IntGaugeVec,
    writes: IntCounterVec,
    backoff: GaugeVec,
    failures: IntCounterVec,
    awaited_since: IntGaugeVec,
    leader: IntGauge,
    injection: sallyport_ca_injection::Metrics,
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let in_sync = IntGaugeVec::new(
            Opts::new(
                "sallyport_ca_bundle_in_sync",
                "1 when the configuration is as it should be, with the current caBundle; else 0.",
            ),
            &["configuration"],
        )?;
        let backoff = GaugeVec::new(
            Opts::new(
                "sallyport_registration_backoff_seconds",
                "How long the next repair waits because another writer keeps changing the configuration.",
            ),
            &["configuration"],
        )?;
        registry.register(Box::new(in_sync.clone()))?;
        registry.register(Box::new(backoff.clone()))?;
        let injection =
            sallyport_ca_injection::Metrics::register(registry, in_sync.clone(), backoff.clone())?;
        let metrics = Self {
            certificates: CertificateGauges::register(registry)?,
            rotations: IntCounterVec::new(
                Opts::new(
                    "sallyport_certificate_rotations_total",
                    "Steps taken towards good certificates: a new authority, a new leaf, another bundle.",
                ),
                &["phase"],
            )?,
            in_sync,
            promoted: IntGaugeVec::new(
                Opts::new(
                    "sallyport_registration_promoted",
                    "1 when every entry that is described with failurePolicy Fail is in force as such; else 0. Only \
                     with promotion on.",
                ),
                &["configuration"],
            )?,
            writes: IntCounterVec::new(
                Opts::new("sallyport_registration_writes_total", "Writes to a registered configuration."),
                &["configuration"],
            )?,
            backoff,
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
            leader: IntGauge::new(
                "sallyport_rotator_leader",
                "1 while this rotator leads, or none has to lead; else 0.",
            )?,
            injection,
        };
        registry.register(Box::new(metrics.rotations.clone()))?;
        registry.register(Box::new(metrics.promoted.clone()))?;
        registry.register(Box::new(metrics.writes.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        registry.register(Box::new(metrics.awaited_since.clone()))?;
        registry.register(Box::new(metrics.leader.clone()))?;
        metrics.awaited(None);
        for phase in Step::PHASES {
            metrics.rotations.with_label_values(&[phase]).reset();
        }
        for task in ["certificates", "registration", "injection"] {
            metrics.failures.with_label_values(&[task]).reset();
        }
        Ok(metrics)
    }

    /// Says whether this rotator leads. One that does not shows nothing of what it saw when it did: it would never
    /// be corrected.
    pub(crate) fn leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
        if !leads {
            self.certificates.reset();
            self.in_sync.reset();
            self.promoted.reset();
            self.backoff.reset();
            self.awaited(None);
        }
    }

    pub(crate) fn certificate(&self, slot: Slot, certificate: &Certificate) {
        let end = certificate.not_after().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.certificates.show(slot.word(), &certificate.serial(), end);
    }

    pub(crate) fn step(&self, step: &Step) {
        self.rotations.with_label_values(&[step.phase()]).inc();
    }

    /// Says what a rotation waits for. Returns for how long it has.
    pub(crate) fn awaited(&self, awaited: Option<Phase>) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let mut waited = 0;
        for phase in Phase::ALL {
            let since = self.awaited_since.with_label_values(&[phase.word()]);
            if awaited != Some(phase) {
                since.set(0);
                continue;
            }
            if since.get() == 0 {
                since.set(now);
            }
            waited = now.saturating_sub(since.get());
        }
        Duration::from_secs(u64::try_from(waited).unwrap_or_default())
    }

    pub(crate) fn in_sync(&self, configuration: &str, in_sync: bool) {
        // There from the start, so that the first write is seen to increase it.
        let _ = self.writes.with_label_values(&[configuration]);
        self.in_sync.with_label_values(&[configuration]).set(i64::from(in_sync));
    }

    pub(crate) fn promoted(&self, configuration: &str, promoted: bool) {
        self.promoted.with_label_values(&[configuration]).set(i64::from(promoted));
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
        let _ = self.promoted.remove_label_values(&[configuration]);
        let _ = self.backoff.remove_label_values(&[configuration]);
    }

    /// The metrics of injection, which share the series of configurations.
    pub(crate) fn injection(&self) -> sallyport_ca_injection::Metrics {
        self.injection.clone()
    }

    pub(crate) fn failed(&self, task: &str) {
        self.failures.with_label_values(&[task]).inc();
    }
}
