//! What the front counts. Children are made when first used and then held:
//! no label is looked up for a review.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Opts, Registry};
use sallyport_admission::Operation;
use sallyport_telemetry::buckets::LATENCY;
use tonic::Code;

use crate::door::{DOORS, Door, Side};
use crate::outcome::Outcome;

const OPERATIONS: usize = Operation::ALL.len();
const CODES: usize = 17;

/// The front's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    reviews: HistogramVec,
    review: Vec<OnceLock<Histogram>>,
    calls: HistogramVec,
    call: Vec<OnceLock<Histogram>>,
    calls_in_flight: [IntGauge; 2],
    pub(crate) reviews_in_flight: IntGauge,
    pub(crate) dropped_annotations: IntCounter,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let reviews = HistogramVec::new(
            HistogramOpts::new(
                "sallyport_review_duration_seconds",
                "Time to answer a review, body included.",
            )
            .buckets(LATENCY.to_vec()),
            &["door", "operation", "outcome"],
        )?;
        let backend_calls = HistogramVec::new(
            HistogramOpts::new(
                "sallyport_backend_call_duration_seconds",
                "Time of a call to a backend, retry included.",
            )
            .buckets(LATENCY.to_vec()),
            &["backend", "code"],
        )?;
        let in_flight = IntGaugeVec::new(
            Opts::new("sallyport_backend_in_flight", "Calls to a backend that are being waited for."),
            &["backend"],
        )?;
        let reviews_in_flight =
            IntGauge::new("sallyport_reviews_in_flight", "Reviews that are being answered.")?;
        let dropped_annotations = IntCounter::new(
            "sallyport_audit_annotations_dropped_total",
            "Audit annotations of backends that were dropped because their key is not valid.",
        )?;
        let collectors: [Box<dyn Collector>; 5] = [
            Box::new(reviews.clone()),
            Box::new(backend_calls.clone()),
            Box::new(in_flight.clone()),
            Box::new(reviews_in_flight.clone()),
            Box::new(dropped_annotations.clone()),
        ];
        for collector in collectors {
            registry.register(collector)?;
        }
        let empty = |count| (0..count).map(|_| OnceLock::new()).collect();
        Ok(Self {
            review: empty(DOORS.len() * OPERATIONS * Outcome::ALL.len()),
            reviews,
            call: empty(2 * CODES),
            calls: backend_calls,
            calls_in_flight: [Side::Mutate, Side::Validate]
                .map(|side| in_flight.with_label_values(&[side.backend()])),
            reviews_in_flight,
            dropped_annotations,
        })
    }

    pub(crate) fn record_review(&self, door: &Door, operation: Operation, outcome: Outcome, took: Duration) {
        let cell = (door.index * OPERATIONS + operation as usize) * Outcome::ALL.len() + outcome as usize;
        let operation = if operation == Operation::Unknown { "unknown" } else { operation.as_str() };
        let labels = [door.name, operation, outcome.as_str()];
        if let Some(cell) = self.review.get(cell) {
            cell.get_or_init(|| self.reviews.with_label_values(&labels)).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn record_call(&self, side: Side, code: Code, took: Duration) {
        let number = i32::from(code);
        let cell = side as usize * CODES + usize::try_from(number).unwrap_or_default();
        if let Some(cell) = self.call.get(cell) {
            cell.get_or_init(|| self.calls.with_label_values(&[side.backend(), &format!("{code:?}")]))
                .observe(took.as_secs_f64());
        }
    }

    pub(crate) fn calls_in_flight(&self, side: Side) -> &IntGauge {
        &self.calls_in_flight[side as usize]
    }
}

/// A gauge that is up by one as long as this lives.
pub(crate) struct Up(IntGauge);

impl Up {
    pub(crate) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Gauges that are read off when they are scraped.
pub(crate) struct Sampled<F> {
    gauges: IntGaugeVec,
    sample: F,
}

impl<F: Fn(&IntGaugeVec) + Send + Sync + 'static> Sampled<F> {
    pub(crate) fn register(
        registry: &Registry,
        name: &str,
        help: &str,
        labels: &[&str],
        sample: F,
    ) -> Result<(), prometheus::Error> {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
        registry.register(Box::new(Self { gauges, sample }))
    }
}

impl<F: Fn(&IntGaugeVec) + Send + Sync> Collector for Sampled<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.sample)(&self.gauges);
        self.gauges.collect()
    }
}
