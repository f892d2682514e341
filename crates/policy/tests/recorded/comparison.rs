//! What is compared, and the names of what can differ.

/// In what an answer differs from the recorded one, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A policy of the set is not put in force.
    Unsupported,
    /// Allowed or not.
    Verdict,
    /// The object that comes out.
    Object,
    /// Code, reason, message or causes of a refusal.
    Message,
    /// Warnings or audit annotations.
    Notes,
    /// A set that the API server refuses.
    Accepted,
}

const NAMES: [(Difference, &str); 6] = [
    (Difference::Unsupported, "unsupported"),
    (Difference::Verdict, "verdict"),
    (Difference::Object, "object"),
    (Difference::Message, "message"),
    (Difference::Notes, "notes"),
    (Difference::Accepted, "accepted"),
];

impl Difference {
    pub fn as_str(self) -> &'static str {
        NAMES.iter().find(|(kind, _)| *kind == self).unwrap().1
    }

    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, other)| *other == name).map(|(kind, _)| *kind)
    }
}

/// How one request fared.
pub struct Answer {
    pub set: String,
    pub case: String,
    pub differences: Vec<(Difference, String)>,
}

impl Answer {
    pub fn worst(&self) -> Option<Difference> {
        self.differences.iter().map(|(kind, _)| *kind).min()
    }
}
