//! The values of the authorizer library.

use std::sync::Arc;

use sallyport_admission::UserInfo;

use crate::authorizer::{Authorizer, Decision, Resource};

/// An authorizer, a question that is being put together, or an answer.
#[derive(Clone, Debug)]
pub(crate) enum Authorization<'a> {
    Authorizer(Caller<'a>),
    Path(Caller<'a>, String),
    Group(Caller<'a>, String),
    Resource(Caller<'a>, Resource),
    Decision(Decision),
}

impl Authorization<'_> {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::Path(..) => "kubernetes.authorization.PathCheck",
            Self::Group(..) => "kubernetes.authorization.GroupCheck",
            Self::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

/// Who asks whom.
#[derive(Clone, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) authorizer: &'a dyn Authorizer,
    pub(crate) user: Arc<UserInfo>,
}
