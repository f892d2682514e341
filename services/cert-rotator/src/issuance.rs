//! Making certificates good: takes the steps that [`crate::state`] names, until there is none.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sallyport_pki::names::Member;
use sallyport_pki::{
    Algorithm, Authority, Bundle, Certificate, Identity, IssueError, Renewal, Stored, check,
};
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::state::{self, Next, Observed, Phase, Step, Wanted};
use crate::store::{Content, Entry, Saved, Slot, Store, StoreError};

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

/// The outcome of a round: everything is good, or waits for somebody to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The bundle that everyone is to trust.
    pub bundle: Bundle,
    /// Serial numbers of the stored leaves, in hexadecimal.
    pub serials: BTreeMap<Member, String>,
    /// When the next certificate is due, if any.
    pub next_due: Option<SystemTime>,
    /// What has to be seen before the rotation under way goes on, and the step that follows.
    pub awaited: Option<(Phase, Step)>,
}

/// Reads the store and takes steps until everything is as `policy` wants it, or a step waits to be confirmed.
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
        let step = match state::next(&observed, &policy.wanted, now) {
            Next::Step(step) => step,
            Next::Confirm(phase, step) => {
                return Ok(settled(&observed, policy, metrics, Some((phase, step))));
            }
            Next::Done => return Ok(settled(&observed, policy, metrics, None)),
        };
        if take(store, policy, &entries, &observed, &step, now).await? == Saved::Overtaken {
            info!("somebody else wrote the same certificate first; reading again");
            // Two replicas in step would meet again.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(5..100))).await;
            continue;
        }
        metrics.step(&step);
        report(&step);
    }
    Err(IssuanceError::Unsettled)
}

/// Takes the step that was awaited, now that its phase has been seen to be complete. Whether it still is the one to
/// take is looked up once more, and the write is conditional on that look. Returns whether it was taken.
pub async fn advance(
    store: &Store,
    policy: &Policy,
    metrics: &Metrics,
    confirmed: &Settled,
    now: SystemTime,
) -> Result<bool, IssuanceError> {
    let Some((phase, step)) = &confirmed.awaited else { return Ok(false) };
    let entries = store.load().await?;
    let observed = observe(&entries);
    let is_same = state::next(&observed, &policy.wanted, now) == Next::Confirm(*phase, step.clone())
        && observed.authority.bundle == confirmed.bundle
        && serials(&observed) == confirmed.serials;
    if !is_same || take(store, policy, &entries, &observed, step, now).await? == Saved::Overtaken {
        return Ok(false);
    }
    metrics.step(step);
    report(step);
    Ok(true)
}

/// What is stored, if no step is due; the step that is due otherwise. Writes nothing.
pub async fn inspect(
    store: &Store,
    policy: &Policy,
    now: SystemTime,
) -> Result<Result<Bundle, Step>, IssuanceError> {
    let observed = observe(&store.load().await?);
    Ok(match state::next(&observed, &policy.wanted, now) {
        Next::Step(step) => Err(step),
        // A rotation under way is no fault.
        Next::Confirm(..) | Next::Done => Ok(observed.authority.bundle),
    })
}

fn observe(entries: &BTreeMap<Slot, Entry>) -> Observed {
    let mut observed = Observed {
        authority: Identity::from_stored(&Stored::default()),
        successor: None,
        is_asked_for: false,
        members: BTreeMap::new(),
    };
    for (slot, entry) in entries {
        match slot {
            Slot::Authority => {
                observed.authority = entry.identity();
                observed.successor = entry.stored.successor();
                observed.is_asked_for = entry.is_asked_for();
            }
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
    let Some((slot, content)) = content(policy, observed, step, now)? else { return Ok(Saved::Overtaken) };
    let Some(entry) = entries.get(&slot) else { return Ok(Saved::Overtaken) };
    Ok(store.save(slot, entry, &content).await?)
}

/// What a step writes, and where; `None` if what it is about is not there any more.
pub(crate) fn content(
    policy: &Policy,
    observed: &Observed,
    step: &Step,
    now: SystemTime,
) -> Result<Option<(Slot, Content)>, IssueError> {
    let with = |bundle: &Bundle| Identity { pair: observed.authority.pair.clone(), bundle: bundle.clone() };
    let given = &observed.authority.bundle;
    Ok(match step {
        Step::ReplaceAuthority { kept, .. } => {
            let authority = Authority::generate(policy.algorithm, now, policy.authority_life)?;
            let mut bundle = kept.clone();
            bundle.add(authority.certificate().clone());
            Some((Slot::Authority, Content::of(Identity { pair: authority.key_pair(), bundle })))
        }
        Step::StageSuccessor { kept, .. } => {
            let successor = Authority::generate(policy.algorithm, now, policy.authority_life)?;
            let mut bundle = kept.clone();
            bundle.add(successor.certificate().clone());
            let content = Content { identity: with(&bundle), successor: Some(successor.key_pair()) };
            Some((Slot::Authority, content))
        }
        Step::Promote => observed
            .successor
            .clone()
            .map(|pair| (Slot::Authority, Content::of(Identity { pair, bundle: given.clone() }))),
        Step::PublishBundle { bundle } => {
            Some((Slot::Authority, Content { identity: with(bundle), successor: observed.successor.clone() }))
        }
        Step::DropFormer { bundle } => Some((Slot::Authority, Content::of(with(bundle)))),
        Step::IssueLeaf { member, .. } => match policy.wanted.leaves.get(member) {
            Some(request) => {
                let authority = Authority::from_pem(&observed.authority.pair)?;
                let pair = authority.issue(request, now, policy.leaf_life)?;
                Some((Slot::Member(*member), Content::of(Identity { pair, bundle: given.clone() })))
            }
            None => None,
        },
        Step::DistributeBundle { member } => observed.members.get(member).map(|identity| {
            let identity = Identity { pair: identity.pair.clone(), bundle: given.clone() };
            (Slot::Member(*member), Content::of(identity))
        }),
    })
}

fn report(step: &Step) {
    match step {
        Step::ReplaceAuthority { defect: check::Defect::Absent, .. } => info!("made the first authority"),
        Step::ReplaceAuthority { defect, kept } => {
            warn!(%defect, still_trusted = kept.certificates().len(), "replaced the authority");
        }
        Step::StageSuccessor { reason, .. } => {
            info!(%reason, "rotation: made a successor of the authority; waiting until everybody trusts it");
        }
        Step::Promote => {
            info!("rotation: the successor is in office; waiting until everybody serves its certificates");
        }
        Step::DropFormer { .. } => info!("rotation: former authorities are trusted no more"),
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

fn serials(observed: &Observed) -> BTreeMap<Member, String> {
    let serial = |(member, identity): (&Member, &Identity)| {
        let leaf = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()).ok()?;
        Some((*member, leaf.serial()))
    };
    observed.members.iter().filter_map(serial).collect()
}

fn settled(
    observed: &Observed,
    policy: &Policy,
    metrics: &Metrics,
    awaited: Option<(Phase, Step)>,
) -> Settled {
    metrics.awaited(awaited.as_ref().map(|(phase, _)| *phase));
    let members = observed.members.iter().map(|(member, identity)| (Slot::Member(*member), identity));
    let mut next_due: Option<SystemTime> = None;
    for (slot, identity) in members.chain([(Slot::Authority, &observed.authority)]) {
        if let Ok(certificate) = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()) {
            metrics.certificate(slot, certificate.not_after());
            let due = Renewal::due(policy.wanted.renewal, &certificate);
            next_due = [next_due, due].into_iter().flatten().min();
        }
    }
    Settled { bundle: observed.authority.bundle.clone(), serials: serials(observed), next_due, awaited }
}
