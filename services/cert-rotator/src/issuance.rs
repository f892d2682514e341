//! Making certificates good: takes the steps that [`crate::state`] names, until there is none.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sallyport_leadership::Events;
use sallyport_pki::names::Member;
use sallyport_pki::{Algorithm, Authority, Bundle, Certificate, Identity, IssueError, Stored, check};
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::offers::Offers;
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
    /// Why rotations and renewals are held, if they are. What is broken is mended all the same.
    pub frozen: Option<String>,
    /// What somebody else has to issue and has not, a line each.
    pub missing: Vec<String>,
}

/// Makes certificates good.
#[derive(Debug)]
pub struct Issuance<'a> {
    /// Where they are kept.
    pub store: &'a Store,
    /// What somebody else issues, where that is who issues.
    pub offers: Option<&'a Offers>,
    /// Which certificates.
    pub policy: &'a Policy,
    /// Where steps are counted.
    pub metrics: &'a Metrics,
    /// Where steps are told of.
    pub events: &'a Events,
}

impl Issuance<'_> {
    /// Reads the store and takes steps until everything is as the policy wants it, or a step waits to be confirmed.
    pub async fn settle(&self, clock: impl Fn() -> SystemTime) -> Result<Settled, IssuanceError> {
        for _ in 0..MAX_STEPS {
            let (entries, observed) = self.observe().await?;
            let now = clock();
            let step = match state::next(&observed, &self.policy.wanted, now) {
                Next::Step(step) => step,
                Next::Confirm(phase, step) => {
                    return Ok(self.settled(&observed, &entries, Some((phase, step)), now));
                }
                Next::Done => return Ok(self.settled(&observed, &entries, None, now)),
            };
            if self.take(&entries, &observed, &step, now).await? == Saved::Overtaken {
                info!("somebody else wrote the same certificate first; reading again");
                // Two replicas in step would meet again.
                tokio::time::sleep(Duration::from_millis(fastrand::u64(5..100))).await;
                continue;
            }
            self.report(&step).await;
        }
        Err(IssuanceError::Unsettled)
    }

    /// Takes the step that was awaited, now that its phase has been seen to be complete. Whether it still is the one
    /// to take is looked up once more, and the write is conditional on that look. Returns whether it was taken.
    pub async fn advance(&self, confirmed: &Settled, now: SystemTime) -> Result<bool, IssuanceError> {
        let Some((phase, step)) = &confirmed.awaited else { return Ok(false) };
        let (entries, observed) = self.observe().await?;
        let is_same = state::next(&observed, &self.policy.wanted, now) == Next::Confirm(*phase, step.clone())
            && observed.authority.bundle == confirmed.bundle
            && serials(&observed) == confirmed.serials;
        if !is_same || self.take(&entries, &observed, step, now).await? == Saved::Overtaken {
            return Ok(false);
        }
        self.report(step).await;
        Ok(true)
    }

    /// What is stored, if no step is due; what is due or missing otherwise. Writes nothing.
    pub async fn inspect(&self, now: SystemTime) -> Result<Result<Bundle, Vec<String>>, IssuanceError> {
        let (_, observed) = self.observe().await?;
        let missing = state::missing(&observed, &self.policy.wanted, now);
        Ok(match state::next(&observed, &self.policy.wanted, now) {
            Next::Step(step) => Err([vec![step.to_string()], missing].concat()),
            _ if !missing.is_empty() => Err(missing),
            // A rotation under way is no fault.
            Next::Confirm(..) | Next::Done => Ok(observed.authority.bundle),
        })
    }

    async fn observe(&self) -> Result<(BTreeMap<Slot, Entry>, Observed), IssuanceError> {
        let offered = match self.offers {
            Some(offers) => Some(offers.load().await.map_err(StoreError::from)?),
            None => None,
        };
        let entries = self.store.load().await?;
        let mut observed = Observed {
            authority: Identity::from_stored(&Stored::default()),
            successor: None,
            is_asked_for: false,
            members: BTreeMap::new(),
            offered,
            is_frozen: false,
        };
        for (slot, entry) in &entries {
            match slot {
                Slot::Authority => {
                    observed.authority = entry.identity();
                    observed.successor = entry.stored.successor();
                    observed.is_asked_for = entry.is_asked_for();
                    observed.is_frozen = entry.freeze().is_some();
                }
                Slot::Member(member) => {
                    observed.members.insert(*member, entry.identity());
                }
            }
        }
        Ok((entries, observed))
    }

    async fn take(
        &self,
        entries: &BTreeMap<Slot, Entry>,
        observed: &Observed,
        step: &Step,
        now: SystemTime,
    ) -> Result<Saved, IssuanceError> {
        let Some((slot, content)) = content(self.policy, observed, step, now)? else {
            return Ok(Saved::Overtaken);
        };
        let Some(entry) = entries.get(&slot) else { return Ok(Saved::Overtaken) };
        Ok(self.store.save(slot, entry, &content).await?)
    }

    /// Counts a step that was taken, and tells of it in the log and in an Event.
    async fn report(&self, step: &Step) {
        self.metrics.step(step);
        match step {
            Step::ReplaceAuthority { defect: check::Defect::Absent, .. } => info!("made the first authority"),
            Step::ReplaceAuthority { defect, kept } => {
                warn!(%defect, still_trusted = kept.certificates().len(), "replaced the authority");
                let note = format!("replaced the authority at once, as nobody was served by it: {defect}");
                self.events.warning("AuthorityReplaced", note, None).await;
            }
            Step::StageSuccessor { reason, .. } => {
                info!(%reason, "rotation: made a successor of the authority; waiting until everybody trusts it");
                let note = format!("made a successor of the authority: {reason}");
                self.events.normal("RotationStarted", note).await;
            }
            Step::Promote => {
                info!(
                    "rotation: the successor is in office; waiting until everybody serves its certificates"
                );
                self.events.normal("AuthorityPromoted", "the successor is in office".to_owned()).await;
            }
            Step::DropFormer { .. } => {
                info!("rotation: former authorities are trusted no more");
                let note = "former authorities are trusted no more".to_owned();
                self.events.normal("RotationFinished", note).await;
            }
            Step::PublishBundle { bundle } => {
                info!(authorities = bundle.certificates().len(), "stored another trust bundle");
            }
            Step::IssueLeaf { member, defect } => {
                let word = if self.offers.is_some() { "gave out" } else { "issued" };
                info!(certificate = member.word(), reason = %defect, "{word} a certificate");
                let note = format!("{word} a certificate for the {}: {defect}", member.word());
                self.events.normal("CertificateIssued", note).await;
            }
            Step::DistributeBundle { member } => {
                info!(certificate = member.word(), "gave out the trust bundle");
            }
        }
    }

    fn settled(
        &self,
        observed: &Observed,
        entries: &BTreeMap<Slot, Entry>,
        awaited: Option<(Phase, Step)>,
        now: SystemTime,
    ) -> Settled {
        let certificate =
            |identity: &Identity| Certificate::from_pem(identity.pair.certificate_pem.as_bytes()).ok();
        let members = observed.members.iter().map(|(member, identity)| (Slot::Member(*member), identity));
        let mut shown: Vec<(Slot, Certificate)> =
            members.filter_map(|(slot, identity)| Some((slot, certificate(identity)?))).collect();
        // Of authorities that are not ours, the one that stays longest counts.
        let brought = observed.authority.bundle.certificates().iter().max_by_key(|each| each.not_after());
        let authority =
            if self.offers.is_some() { brought.cloned() } else { certificate(&observed.authority) };
        shown.extend(authority.map(|authority| (Slot::Authority, authority)));
        for (slot, certificate) in &shown {
            self.metrics.certificate(*slot, certificate);
        }
        // Somebody else renews what is brought, and what is frozen stays as it is.
        let renews = self.offers.is_none() && !observed.is_frozen;
        let due = |(_, certificate): &(Slot, Certificate)| self.policy.wanted.renewal.due(certificate);
        Settled {
            bundle: observed.authority.bundle.clone(),
            serials: serials(observed),
            next_due: shown.iter().filter(|_| renews).filter_map(due).min(),
            awaited,
            frozen: entries.get(&Slot::Authority).and_then(Entry::freeze).map(str::to_owned),
            missing: state::missing(observed, &self.policy.wanted, now),
        }
    }
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
        Step::IssueLeaf { member, .. } if observed.offered.is_some() => {
            observed.offered.as_ref().and_then(|offered| offered.get(member)).map(|offer| {
                let identity = Identity { pair: offer.pair.clone(), bundle: given.clone() };
                (Slot::Member(*member), Content::of(identity))
            })
        }
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

fn serials(observed: &Observed) -> BTreeMap<Member, String> {
    let serial = |(member, identity): (&Member, &Identity)| {
        let leaf = Certificate::from_pem(identity.pair.certificate_pem.as_bytes()).ok()?;
        Some((*member, leaf.serial()))
    };
    observed.members.iter().filter_map(serial).collect()
}
