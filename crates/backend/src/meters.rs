//! The backend's metrics. Children are resolved when policies are loaded or a
//! code first occurs, never per request.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use sallyport_policy::ResultKind;
use sallyport_telemetry::buckets;
use tonic::Code;

/// How many gRPC codes there are; they are numbered from 0.
const CODES: usize = 17;

/// What a policy can do with a request.
const RESULTS: [ResultKind; 8] = [
    ResultKind::Applied,
    ResultKind::Unchanged,
    ResultKind::Allowed,
    ResultKind::Denied,
    ResultKind::Warned,
    ResultKind::Audited,
    ResultKind::Skipped,
    ResultKind::Error,
];

/// Calls in flight, and how long they took by how they ended.
#[derive(Clone, Debug)]
pub(crate) struct CallMeters {
    in_flight: IntGauge,
    durations: HistogramVec,
    by_code: Arc<[OnceLock<Histogram>; CODES]>,
}

impl CallMeters {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let durations = HistogramOpts::new(
            "sallyport_backend_request_duration_seconds",
            "Time from the headers of a call to its answer, by gRPC code.",
        );
        Ok(Self {
            in_flight: IntGauge::new("sallyport_reviews_in_flight", "Reviews that are being answered.")?,
            durations: HistogramVec::new(durations.buckets(buckets::LATENCY.to_vec()), &["code"])?,
            by_code: Arc::default(),
        })
    }

    pub(crate) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.in_flight.clone()))?;
        registry.register(Box::new(self.durations.clone()))
    }

    /// Counts a call until the guard is dropped. A call that is dropped before it ends was cancelled.
    pub(crate) fn begin(&self) -> Call {
        self.in_flight.inc();
        Call { meters: self.clone(), begun: Instant::now(), code: Code::Cancelled }
    }

    fn observe(&self, code: Code, duration: Duration) {
        if let Some(child) = self.by_code.get(code as usize) {
            child
                .get_or_init(|| self.durations.with_label_values(&[&format!("{code:?}")]))
                .observe(duration.as_secs_f64());
        }
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct Call {
    meters: CallMeters,
    begun: Instant,
    code: Code,
}

impl Call {
    /// The call has its answer.
    pub(crate) fn end(&mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.meters.in_flight.dec();
        self.meters.observe(self.code, self.begun.elapsed());
    }
}

/// How a `SubjectAccessReview` ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessReviewResult {
    Allowed,
    Denied,
    NoOpinion,
    Error,
    Timeout,
}

/// How long questions to the API server took, by how they ended.
#[derive(Clone, Debug)]
pub(crate) struct AccessReviewMeters {
    durations: HistogramVec,
    allowed: Histogram,
    denied: Histogram,
    no_opinion: Histogram,
    error: Histogram,
    timeout: Histogram,
}

impl AccessReviewMeters {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let durations = HistogramOpts::new(
            "sallyport_subject_access_review_duration_seconds",
            "Time until the API server had answered what a policy asks of the authorizer, by result.",
        );
        let durations = HistogramVec::new(durations.buckets(buckets::LATENCY.to_vec()), &["result"])?;
        let child = |result| durations.with_label_values(&[result]);
        Ok(Self {
            allowed: child("allowed"),
            denied: child("denied"),
            no_opinion: child("no_opinion"),
            error: child("error"),
            timeout: child("timeout"),
            durations,
        })
    }

    pub(crate) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.durations.clone()))
    }

    pub(crate) fn observe(&self, result: AccessReviewResult, duration: Duration) {
        let child = match result {
            AccessReviewResult::Allowed => &self.allowed,
            AccessReviewResult::Denied => &self.denied,
            AccessReviewResult::NoOpinion => &self.no_opinion,
            AccessReviewResult::Error => &self.error,
            AccessReviewResult::Timeout => &self.timeout,
        };
        child.observe(duration.as_secs_f64());
    }
}

/// What one policy's evaluations are counted by.
#[derive(Clone, Debug)]
pub(crate) struct PolicyMeter {
    duration: Histogram,
    /// In the order of [`RESULTS`].
    results: [IntCounter; RESULTS.len()],
}

impl PolicyMeter {
    pub(crate) fn observe(&self, result: ResultKind, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
        let known = RESULTS.iter().zip(&self.results).find(|(kind, _)| **kind == result);
        if let Some((_, counter)) = known {
            counter.inc();
        }
    }
}

/// The metrics of the policies in force.
#[derive(Debug)]
pub(crate) struct PolicyMeters {
    durations: HistogramVec,
    results: IntCounterVec,
    states: IntGaugeVec,
}

/// How many policies are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct States {
    /// In force as written.
    pub(crate) active: usize,
    /// In force as written, but without the authorizer that they ask.
    pub(crate) unconnected: usize,
    /// In force in their last good form.
    pub(crate) stale: usize,
    /// Never good.
    pub(crate) broken: usize,
}

impl PolicyMeters {
    pub(crate) fn new() -> prometheus::Result<Self> {
        let durations = HistogramOpts::new(
            "sallyport_policy_evaluation_duration_seconds",
            "Time that the evaluation of a policy took.",
        );
        let results = Opts::new(
            "sallyport_policy_results_total",
            "Requests that a policy was evaluated for, by result.",
        );
        let states = Opts::new(
            "sallyport_policies",
            "Policies by state: active, unconnected (they ask an authorizer, and none is connected), stale (last good form), broken.",
        );
        Ok(Self {
            durations: HistogramVec::new(durations.buckets(buckets::EVALUATION.to_vec()), &["policy"])?,
            results: IntCounterVec::new(results, &["policy", "result"])?,
            states: IntGaugeVec::new(states, &["state"])?,
        })
    }

    pub(crate) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.durations.clone()))?;
        registry.register(Box::new(self.results.clone()))?;
        registry.register(Box::new(self.states.clone()))
    }

    /// The meter of a policy; it makes the policy's series appear.
    pub(crate) fn policy_meter(&self, name: &str) -> PolicyMeter {
        PolicyMeter {
            duration: self.durations.with_label_values(&[name]),
            results: RESULTS.map(|result| self.results.with_label_values(&[name, result.as_str()])),
        }
    }

    /// Removes the series of policies that are gone.
    pub(crate) fn remove_policies(&self, names: &BTreeSet<String>) {
        // Errors mean that a series was never there.
        for name in names {
            let _ = self.durations.remove_label_values(&[name]);
            for result in RESULTS {
                let _ = self.results.remove_label_values(&[name, result.as_str()]);
            }
        }
    }

    pub(crate) fn set_states(&self, states: States) {
        for (state, count) in [
            ("active", states.active),
            ("unconnected", states.unconnected),
            ("stale", states.stale),
            ("broken", states.broken),
        ] {
            self.states.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::CallMeters;

    #[test]
    fn a_call_counts_while_it_lives_and_by_how_it_ended() {
        let meters = CallMeters::new().unwrap();
        let mut call = meters.begin();
        let dropped = meters.begin();
        assert_eq!(meters.in_flight.get(), 2);
        call.end(Code::Ok);
        drop((call, dropped));
        assert_eq!(meters.in_flight.get(), 0);
        for (code, count) in [("Ok", 1), ("Cancelled", 1), ("Internal", 0)] {
            assert_eq!(meters.durations.with_label_values(&[code]).get_sample_count(), count, "{code}");
        }
    }
}
