//! Making certificates good: takes the steps that [`crate::state`] names, until there is none.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sallyport_pki::{
    Algorithm, Authority, Bundle, Certificate, Identity, IssueError, Renewal, Stored, check,
};
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::state::{self, Observed, Step, Wanted};
use crate::store::{Entry, Saved, Slot, Store, StoreError};

/// Steps in one round. An orderly round takes at most nine; more means that others keep undoing ours.
const MAX_STEPS: usize = 32;

/// Why certificates are not good.
#[derive(Debug, thiserror::Error)]
pub enum IssuanceError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Making a certificate failed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Others write the same places again and again.
    #[error("giving up after {MAX_STEPS} steps: somebody else keeps changing the certificates")]
    Unsettled,
}

/// Lifetimes and kinds of what is made.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The wanted leaves and the rule of renewal.
    pub wanted: Wanted,
    /// The kind of keys.
    pub algorithm: Algorithm,
    /// How long an authority lives.
    pub authority_life: Duration,
    /// How long a leaf lives.
    pub leaf_life: Duration,
}

/// The outcome of a round: everything is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The bundle that everyone is to trust.
    pub bundle: Bundle,
    /// When the next certificate is due, if any.
    pub next_due: Option<SystemTime>,
}

/// Reads the store and takes steps until everything is as `policy` wants it.
pub async fn settle(
    store: &Store,
    policy: &Policy,
    metrics: &Metrics,
    clock: impl Fn() -> SystemTime,
) -> Result<Settled, IssuanceError> {
    for _ in 0..MAX_STEPS {
        let entries = store.load().await?;
        let now = clock();
        let observed = observe(&entries);
        let Some(step) = state::next(&observed, &policy.wanted, now) else {
            return Ok(settled(&observed, policy, metrics));
        };
        match take(store, policy, &entries, &observed, &step, now).await? {
            Saved::Done => {
                metrics.step(&step);
                report(&step);
            }
            Saved::Overtaken => {
                info!("somebody else wrote the same certificate first; reading again");
                // Two replicas in step would meet again.
                tokio::time::sleep(Duration::from_millis(fastrand::u64(5..100))).await;
            }
        }
    }
    Err(IssuanceError::Unsettled)
}

/// What is stored, if no step is due; the step that is due otherwise. Writes nothing.
pub async fn inspect(
    store: &Store,
    policy: &Policy,
    now: SystemTime,
) -> Result<Result<Bundle, Step>, IssuanceError> {
    let observed = observe(&store.load().await?);
    Ok(state::next(&observed, &policy.wanted, now).map_or(Ok(observed.authority.bundle), Err))
}

fn observe(entries: &BTreeMap<Slot, Entry>) -> Observed {
    let mut observed =
        Observed { authority: Identity::from_stored(&Stored::default()), members: BTreeMap::new() };
    for (slot, entry) in entries {
        match slot {
            Slot::Authority => observed.authority = entry.identity(),
            Slot::Member(member) => {
                observed.members.insert(*member, entry.identity());
            }
        }
    }
    observed
}

async fn take(
    store: &Store,
    policy: &Policy,
    entries: &BTreeMap<Slot, Entry>,
    observed: &Observed,
    step: &Step,
    now: SystemTime,
) -> Result<Saved, IssuanceError> {
    let (slot, identity) = match step {
        Step::ReplaceAuthority { kept, .. } => {
            let authority = Authority::generate(policy.algorithm, now, policy.authority_life)?;
            let mut bundle = Bundle::empty();
            bundle.add(authority.certificate().clone());
            for certificate in kept.certificates() {
                bundle.add(certificate.clone());
            }
            (Slot::Authority, Identity { pair: authority.key_pair(), bundle })
        }
        Step::PublishBundle { bundle } => {
            (Slot::Authority, Identity { pair: observed.authority.pair.clone(), bundle: bundle.clone() })
        }
        Step::IssueLeaf { member, .. } => {
            let Some(request) = policy.wanted.leaves.get(member) else { return Ok(Saved::Overtaken) };
            let authority = Authority::from_pem(&observed.authority.pair)?;
            let pair = authority.issue(request, now, policy.leaf_life)?;
            (Slot::Member(*member), Identity { pair, bundle: observed.authority.bundle.clone() })
        }
        Step::DistributeBundle { member } => {
            let Some(identity) = observed.members.get(member) else { return Ok(Saved::Overtaken) };
            let bundle = observed.authority.bundle.clone();
            (Slot::Member(*member), Identity { pair: identity.pair.clone(), bundle })
        }
    };
    let Some(entry) = entries.get(&slot) else { return Ok(Saved::Overtaken) };
    Ok(store.save(slot, entry, &identity).await?)
}

fn report(step: &Step) {
    match step {
        Step::ReplaceAuthority { defect: check::Defect::Absent, .. } => info!("made the first authority"),
        Step::ReplaceAuthority { defect, kept } => warn!(
            %defect,
            still_trusted = kept.certificates().len(),
            "replaced the authority; its predecessors stay in the bundle until they expire"
        ),
        Step::PublishBundle { bundle } => {
            info!(authorities = bundle.certificates().len(), "stored another trust bundle");
        }
        Step::IssueLeaf { member, defect } => {
            info!(certificate = member.word(), reason = %defect, "issued a certificate");
        }
        Step::DistributeBundle { member } => {
            info!(certificate = member.word(), "gave out the trust bundle");
        }
    }
}

fn settled(observed: &Observed, policy: &Policy, metrics: &Metrics) -> Settled {
    let members = observed.members.iter().map(|(member, identity)| (Slot::Member(*member), identity));
    let mut next_due: Option<SystemTime> = None;
    for (slot, identity) in members.chain([(Slot::Authority, &observed.authority)]) {
        if let Ok(certificate) = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()) {
            metrics.certificate(slot, certificate.not_after());
            let due = Renewal::due(policy.wanted.renewal, &certificate);
            next_due = [next_due, due].into_iter().flatten().min();
        }
    }
    Settled { bundle: observed.authority.bundle.clone(), next_due }
}
