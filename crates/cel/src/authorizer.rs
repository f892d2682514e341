//! The authorizer: who asks, what is asked, and who answers.
//!
//! In a cluster the API server answers, for tests and on the command line an [`AuthorizerTable`].

mod table;

use std::fmt;

use sallyport_admission::UserInfo;
pub use table::{AuthorizerRule, AuthorizerTable};

/// What is asked: about a resource, or about a path. What is empty was not given.
#[derive(Clone, Debug)]
pub struct Attributes<'q> {
    /// Who asks.
    pub user: &'q UserInfo,
    /// A verb of the API, or of HTTP for a path.
    pub verb: &'q str,
    /// About what.
    pub target: Target<'q>,
}

/// What a question is about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'q> {
    /// A path that is no resource, such as `/healthz`.
    Path(&'q str),
    /// A resource.
    Resource(&'q Resource),
}

/// A resource, narrowed down as far as it was. What is empty was not given; a namespace that is empty means the
/// cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// A field selector, as it was written.
    pub field_selector: String,
    /// A label selector, as it was written.
    pub label_selector: String,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed. Neither a refusal nor having no opinion is.
    pub allowed: bool,
    /// Why, as far as the authorizer says.
    pub reason: String,
    /// What went wrong when asking.
    pub error: Option<String>,
}

/// Who answers.
pub trait Authorizer: Send + Sync {
    /// The answer to a question. Never panics; what goes wrong is part of the answer.
    ///
    /// `None` while there is no answer yet: the evaluation ends with [`crate::EvalError::Undecided`], which nothing in
    /// an expression absorbs. Whoever has the question answered then evaluates again.
    fn check(&self, attributes: &Attributes<'_>) -> Option<Decision>;
}

impl fmt::Debug for dyn Authorizer + '_ {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authorizer")
    }
}
