//! What is stored, what is wanted, and the steps between.

use std::collections::BTreeMap;
use std::fmt;

use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Defect, Identity, KeyPair, LeafRequest, Renewal};

/// What is stored: the authority and the leaf of every member, empty where there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The authority; its bundle is the one that all members are to have.
    pub authority: Identity,
    /// The authority that is to follow, while it is not yet trusted everywhere.
    pub successor: Option<KeyPair>,
    /// Whether somebody asked for another authority, and it was not begun.
    pub is_asked_for: bool,
    /// What each member is given.
    pub members: BTreeMap<Member, Identity>,
    /// What somebody else issued for each member, where that is who issues.
    pub offered: Option<BTreeMap<Member, Identity>>,
    /// Whether somebody holds rotations and renewals. What is broken is mended all the same.
    pub is_frozen: bool,
}

/// What is to be stored.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The leaf of each member.
    pub leaves: BTreeMap<Member, LeafRequest>,
    /// When an authority or leaf is renewed.
    pub renewal: Renewal,
}

/// Why an authority is to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Something is wrong with the one that is stored, or it is due.
    Defect(Defect),
    /// Somebody asked for it.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defect(defect) => defect.fmt(f),
            Self::Asked => f.write_str("somebody asked for another"),
        }
    }
}

/// One step towards what is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make an authority and put it in office at once, as nobody is served by another. `kept` are the authorities
    /// that stay trusted besides it.
    ReplaceAuthority {
        /// What is wrong with the one that is stored.
        defect: Defect,
        /// The bundle to store, without the new authority.
        kept: Bundle,
    },
    /// Make a successor of the authority and have it trusted besides `kept`.
    StageSuccessor {
        /// Why.
        reason: Reason,
        /// The bundle to store, without the successor.
        kept: Bundle,
    },
    /// Put the successor in office.
    Promote,
    /// Store another bundle with the authority: one that holds it and its successor, without those whose time is
    /// over.
    PublishBundle {
        /// The bundle to store.
        bundle: Bundle,
    },
    /// Issue a leaf for a member, or take the one that somebody else issued, and give it the bundle.
    IssueLeaf {
        /// Whose.
        member: Member,
        /// What is wrong with the one that is stored.
        defect: Defect,
    },
    /// Give a member, whose leaf is good, the bundle.
    DistributeBundle {
        /// To whom.
        member: Member,
    },
    /// Trust former authorities no more.
    DropFormer {
        /// The bundle to store.
        bundle: Bundle,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReplaceAuthority { defect, .. } => write!(f, "the authority is to be replaced: {defect}"),
            Self::StageSuccessor { reason, .. } => {
                write!(f, "a successor of the authority is to be made: {reason}")
            }
            Self::Promote => f.write_str("the successor of the authority is to take office"),
            Self::PublishBundle { .. } => f.write_str("the trust bundle is to be stored anew"),
            Self::IssueLeaf { member, defect } => {
                write!(f, "the certificate of the {} is to be issued: {defect}", member.word())
            }
            Self::DistributeBundle { member } => {
                write!(f, "the {} is to be given the trust bundle", member.word())
            }
            Self::DropFormer { .. } => f.write_str("former authorities are to leave the trust bundle"),
        }
    }
}

impl Step {
    /// The words for steps in `sallyport_certificate_rotations_total{phase}`.
    pub const PHASES: [&'static str; 6] = ["authority", "staged", "promoted", "bundle", "leaf", "dropped"];

    /// The word for the step.
    pub fn phase(&self) -> &'static str {
        match self {
            Self::ReplaceAuthority { .. } => "authority",
            Self::StageSuccessor { .. } => "staged",
            Self::Promote => "promoted",
            Self::PublishBundle { .. } | Self::DistributeBundle { .. } => "bundle",
            Self::IssueLeaf { .. } => "leaf",
            Self::DropFormer { .. } => "dropped",
        }
    }
}

/// What has to be seen before a rotation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Every webhook configuration and every process trusts the successor.
    Published,
    /// Every process serves its stored leaf.
    Switched,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Self; 2] = [Self::Published, Self::Switched];

    /// The word for it in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Switched => "switched",
        }
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A step that can be taken.
    Step(Step),
    /// A step that can be taken once a phase has been seen to be complete.
    Confirm(Phase, Step),
    /// Nothing: everything is as wanted.
    Done,
}
