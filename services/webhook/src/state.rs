//! What the handlers of all connections share.

use std::sync::Arc;
use std::time::Duration;

use sallyport_net::{Balancer, ByteBudget};
use tokio::sync::Semaphore;

use crate::door::Side;
use crate::metrics::Metrics;

/// Backends, bounds and metrics.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) mutator: Option<Arc<Balancer>>,
    pub(crate) validator: Option<Arc<Balancer>>,
    pub(crate) permits: Semaphore,
    pub(crate) budget: ByteBudget,
    pub(crate) metrics: Metrics,
    pub(crate) max_body_bytes: usize,
    pub(crate) max_message_bytes: usize,
    pub(crate) default_timeout: Duration,
}

impl State {
    pub(crate) fn backend(&self, side: Side) -> Option<&Arc<Balancer>> {
        match side {
            Side::Mutate => self.mutator.as_ref(),
            Side::Validate => self.validator.as_ref(),
        }
    }
}
