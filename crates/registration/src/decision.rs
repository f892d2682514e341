//! What to do next about one registered object: a pure function from what is known to one action.
//!
//! The cert-rotator reads an object, asks [`decide`], does what it says, and asks again with what it learned, until
//! the answer is to keep the object or to wait. Nothing is asked of anybody before it is needed: [`Action::Prove`] and
//! [`Action::Probe`] are the two looks that cost something.
//!
//! # Guarantees
//!
//! - An object is created only while its owner exists, and a configuration only after every ready webhook was seen to
//!   serve a certificate that the API server will accept: an installation that does not come up blocks nobody.
//! - Nothing is written that does not differ, and nothing is removed that was not applied under [`FIELD_MANAGER`].
//! - Where entries are promoted, one becomes Fail only after a probe was really refused through the API server (R-07).
//! - A `caBundle` is repaired without a look at the webhook: it cannot be reached until then.
//!
//! [`FIELD_MANAGER`]: crate::FIELD_MANAGER

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use sallyport_pki::Bundle;
use serde_json::Value;

use crate::description::{Described, Kind};
use crate::difference::{Difference, difference};
use crate::live::{FIELD_MANAGER, Live};
use crate::promotion::held;
use crate::target::Target;

/// How soon to look again while the webhook is not proven or another writer was faster.
pub const SOON: Duration = Duration::from_secs(2);

/// How long a webhook behind a Service has to be proven before it is first registered. The proof is of its pods;
/// until kube-proxy has heard of them on the nodes of the API servers, the Service refuses connections.
pub const ROUTABLE: Duration = Duration::from_secs(5);

/// The owners that an object is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owners {
    /// None were asked for.
    Unowned,
    /// These, as owner references.
    Present(Vec<Value>),
    /// One was asked for and is not there: the release is being removed.
    Absent,
}

impl Owners {
    fn references(&self) -> &[Value] {
        match self {
            Self::Present(references) => references,
            Self::Unowned | Self::Absent => &[],
        }
    }
}

/// What is known of the webhook that a configuration's entries call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Nothing yet.
    Unknown,
    /// It serves nothing, or not what the API server will accept.
    Lacking,
    /// Every ready replica serves a certificate that verifies, for as long as this.
    Proven(Duration),
}

/// Whether entries that are described with failurePolicy Fail begin with Ignore (R-07).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promotion {
    /// They are Fail from the start.
    Off,
    /// They are held at Ignore unless they are in force as Fail already.
    Unproven,
    /// A probe has just proven them.
    Proven,
}

/// What is known of one described object.
#[derive(Debug)]
pub struct Observed<'a> {
    described: &'a Described,
    live: Option<&'a Live>,
    owners: &'a Owners,
    full: Value,
    wanted: Value,
    found: Difference,
    /// What is known of the webhook.
    pub proof: Proof,
    /// How long a repair has to wait because another writer keeps changing the object.
    pub contest: Duration,
}

/// Why an object is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No entry is described any more.
    NoEntries,
    /// It hangs on the owner of a former release of that name, and would be collected at any time.
    FormerRelease,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoEntries => "removed the configuration: it has no entries any more",
            Self::FormerRelease => "removed the configuration of a former release of that name",
        })
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The owner.
    NoOwner,
    /// The webhook.
    Unproven,
    /// The nodes, which may not know the Service yet.
    Settling,
    /// Another writer, who keeps changing the object.
    Contested,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoOwner => "the ClusterRole that is to own it does not exist",
            Self::Unproven => "the webhook is not proven",
            Self::Settling => "its Service may not be known on every node yet",
            Self::Contested => "somebody else keeps changing it",
        })
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Nothing: it is as described, or it is not there and not to be.
    Keep,
    /// Nothing: the object is about to be collected with its owner, and a write would prolong its life.
    Leave,
    /// Look whether the webhook is proven, then decide again.
    Prove,
    /// Send a probe, then decide again with [`Promotion::Proven`] if it proves the entries that are held.
    Probe,
    /// Look again after this time.
    Wait(Hold, Duration),
    /// Remove this very object.
    Remove(Cause),
    /// Write this over what was read.
    Write(Value),
}

impl<'a> Observed<'a> {
    /// What is known once the object was read. `bundle` is to be in every entry.
    pub fn new(
        described: &'a Described,
        live: Option<&'a Live>,
        bundle: &Bundle,
        owners: &'a Owners,
        promotion: Promotion,
    ) -> Self {
        let full = described.complete(bundle, owners.references());
        let wanted = if promotion == Promotion::Unproven { held(&full, live) } else { full.clone() };
        let found = live.map_or(Difference::Fields, |live| difference(&wanted, &live.object, FIELD_MANAGER));
        Self { described, live, owners, full, wanted, found, proof: Proof::Unknown, contest: Duration::ZERO }
    }

    /// Whether what is there is what is to be there now.
    pub fn is_in_sync(&self) -> bool {
        self.found == Difference::None
    }

    /// Whether no entry is held at Ignore.
    pub fn is_promoted(&self) -> bool {
        self.wanted == self.full
    }

    /// What the object is to be in the end, as a number that tells it from others within this process. An entry that is
    /// held and the same entry promoted are two steps to one end, so that whoever undoes both meets the same patience.
    pub fn intent(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.full.to_string().hash(&mut hasher);
        hasher.finish()
    }

    /// What is not as described, in words; `None` if nothing is.
    pub fn fault(&self) -> Option<&'static str> {
        let is_ours = self.live.is_some_and(Live::is_ours);
        match (self.described.is_wanted(), self.live) {
            (false, Some(_)) if is_ours => Some("is there, though it has no entries"),
            (false, _) => None,
            (true, None) => Some("does not exist"),
            (true, Some(_)) => match self.found {
                Difference::None if self.is_promoted() => None,
                Difference::None => Some("has entries that are not promoted to Fail"),
                Difference::Bundle => Some("has another caBundle"),
                Difference::Fields => Some("is not as described"),
            },
        }
    }

    fn is_configuration(&self) -> bool {
        self.described.kind != Kind::Service
    }
}

/// Decides what to do next. The first guard that has something to say decides.
///
/// ```
/// use std::time::Duration;
///
/// use sallyport_pki::Bundle;
/// use sallyport_registration::{Action, Description, Observed, Owners, Promotion, Proof, decide};
///
/// let description = Description::parse(
///     "apiVersion: admissionregistration.k8s.io/v1
/// kind: ValidatingWebhookConfiguration
/// metadata: {name: sallyport}
/// webhooks: [{name: a.example.com, clientConfig: {url: 'https://webhook.example/validate/fail'}}]",
///     "sallyport",
/// )?;
/// let described = &description.configurations[0];
/// let mut observed = Observed::new(described, None, &Bundle::empty(), &Owners::Unowned, Promotion::Off);
/// assert_eq!(decide(&observed), Action::Prove);
/// observed.proof = Proof::Proven(Duration::ZERO);
/// assert!(matches!(decide(&observed), Action::Write(_)));
/// # Ok::<(), sallyport_registration::DescriptionError>(())
/// ```
pub fn decide(observed: &Observed<'_>) -> Action {
    const GUARDS: [fn(&Observed<'_>) -> Option<Action>; 6] =
        [unwanted, unowned, of_former_release, as_described, unproven, contested];
    let decided = GUARDS.iter().find_map(|guard| guard(observed));
    decided.unwrap_or_else(|| Action::Write(observed.wanted.clone()))
}

/// A configuration without entries is not to be there; what others made stays.
fn unwanted(observed: &Observed<'_>) -> Option<Action> {
    if observed.described.is_wanted() {
        return None;
    }
    let is_ours = observed.live.is_some_and(Live::is_ours);
    Some(if is_ours { Action::Remove(Cause::NoEntries) } else { Action::Keep })
}

/// Without its owner nothing is created: the release is being removed, or not yet whole.
fn unowned(observed: &Observed<'_>) -> Option<Action> {
    if *observed.owners != Owners::Absent {
        return None;
    }
    let is_new = observed.live.is_none() && observed.is_configuration();
    Some(if is_new { Action::Wait(Hold::NoOwner, SOON) } else { Action::Leave })
}

/// Under an owner with a new UID a configuration is made again, never edited.
fn of_former_release(observed: &Observed<'_>) -> Option<Action> {
    let live = observed.live.filter(|live| observed.is_configuration() && live.is_ours())?;
    let former = live.owners_of_kind("ClusterRole");
    let mut present = observed.owners.references().iter().filter_map(|owner| owner.get("uid")?.as_str());
    let is_former = !former.is_empty() && present.next().is_some_and(|uid| !former.contains(&uid));
    is_former.then_some(Action::Remove(Cause::FormerRelease))
}

fn as_described(observed: &Observed<'_>) -> Option<Action> {
    if !observed.is_in_sync() {
        return None;
    }
    Some(if observed.is_promoted() { Action::Keep } else { Action::Probe })
}

/// What decides whom the API server calls is written only while somebody answers there.
fn unproven(observed: &Observed<'_>) -> Option<Action> {
    if !observed.is_configuration() || observed.found == Difference::Bundle {
        return None;
    }
    match observed.proof {
        Proof::Unknown => Some(Action::Prove),
        Proof::Lacking => Some(Action::Wait(Hold::Unproven, SOON)),
        Proof::Proven(since) => {
            let is_first =
                observed.live.is_none() && observed.described.targets.iter().any(Target::is_service);
            let remaining = ROUTABLE.saturating_sub(since);
            (is_first && !remaining.is_zero()).then_some(Action::Wait(Hold::Settling, remaining))
        }
    }
}

fn contested(observed: &Observed<'_>) -> Option<Action> {
    (!observed.contest.is_zero()).then_some(Action::Wait(Hold::Contested, observed.contest))
}

#[cfg(test)]
mod tests;
