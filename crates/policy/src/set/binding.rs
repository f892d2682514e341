//! What puts a policy in force: where, with which settings and to what effect.
//!
//! One of our policies is its own binding. One of the API server's has any number of them, and is evaluated for
//! each that matches a request, once with each object that holds settings.

use std::borrow::Cow;

use sallyport_api::{
    MatchConstraints, OperationType, ParamKind, ParamRef, ParameterNotFoundAction, ResourceRule,
    ValidationAction,
};
use sallyport_document::{Document, Node};
use serde_json::{Map, Value};

use crate::error::{DefinitionError, ParamError, PolicyError};
use crate::matching::labels::Labels;
use crate::matching::matcher::Matcher;
use crate::matching::selector::Selector;
use crate::review::documents::Documents;
use crate::schema::{Schemas, split};
use crate::set::objects::{Kind, Objects};

/// A binding as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BindingSource {
    /// `None` for a policy that is its own binding.
    pub(crate) name: Option<String>,
    pub(crate) constraints: Option<MatchConstraints>,
    pub(crate) actions: Vec<ValidationAction>,
    pub(crate) param_ref: Option<ParamRef>,
    /// Settings written out.
    pub(crate) params: Option<Map<String, Value>>,
}

/// A compiled binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) name: Option<String>,
    matcher: Option<Matcher>,
    pub(crate) actions: Vec<ValidationAction>,
    params: Params,
}

/// Where settings come from.
#[derive(Debug)]
enum Params {
    /// There are none: `params` is not declared, or null.
    None,
    Inline(Document<'static>),
    Referenced {
        kind: ParamKind,
        namespace: Option<String>,
        which: Which,
        required: bool,
    },
}

#[derive(Debug)]
enum Which {
    Named(String),
    Labelled(Selector),
}

impl BindingSource {
    /// What a policy says that is its own binding.
    pub(crate) fn of_policy(
        actions: &[ValidationAction],
        param_ref: Option<&ParamRef>,
        params: Option<&Map<String, Value>>,
    ) -> Self {
        Self {
            actions: actions.to_vec(),
            param_ref: param_ref.cloned(),
            params: params.cloned(),
            ..Self::default()
        }
    }

    /// An error of this binding, with its name.
    pub(crate) fn locate_error(&self, error: DefinitionError) -> DefinitionError {
        match &self.name {
            Some(name) => DefinitionError::Binding(name.clone(), Box::new(error)),
            None => error,
        }
    }
}

/// Compiles the bindings of a policy with this `paramKind`; rules without operations get `operations`.
pub(crate) fn compile(
    sources: &[BindingSource],
    kind: Option<&ParamKind>,
    operations: &[OperationType],
) -> Result<Vec<Binding>, DefinitionError> {
    let compile = |source: &BindingSource| {
        Binding::compile(source, kind, operations).map_err(|error| source.locate_error(error))
    };
    sources.iter().map(compile).collect()
}

/// One of our policies says both or neither of `paramKind` and `paramRef`.
pub(crate) fn check_params(
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
) -> Result<(), DefinitionError> {
    match (kind, reference) {
        (Some(_), None) => Err(DefinitionError::field("paramRef", "is missing: paramKind needs it")),
        (None, Some(_)) => Err(DefinitionError::field("paramKind", "is missing: paramRef needs it")),
        _ => Ok(()),
    }
}

/// The objects of a `paramKind`, unless nobody has heard of it. That is a fault of the policy, whichever of its
/// bindings names what.
pub(crate) fn find_kind<'o>(kind: &ParamKind, objects: &'o Objects) -> Result<Kind<'o>, ParamError> {
    objects.kind(kind).ok_or_else(|| {
        let (group, version) = split(&kind.api_version);
        ParamError::UnknownKind(format!("{group}/{version}, Kind={}", kind.kind))
    })
}

impl Binding {
    fn compile(
        source: &BindingSource,
        kind: Option<&ParamKind>,
        operations: &[OperationType],
    ) -> Result<Self, DefinitionError> {
        let params = match (&source.params, kind, &source.param_ref) {
            (Some(params), None, None) => {
                let params = Document::of(&Value::Object(params.clone()))
                    .map_err(|error| DefinitionError::field("params", error.to_string()))?;
                Params::Inline(params)
            }
            (Some(_), ..) => {
                return Err(DefinitionError::field("params", "excludes paramKind and paramRef"));
            }
            (None, Some(kind), Some(reference)) => Params::of_reference(kind, reference)?,
            (None, ..) => Params::None,
        };
        let matcher = match &source.constraints {
            None => None,
            Some(constraints) => Some(compile_matcher(constraints, operations)?),
        };
        Ok(Self { name: source.name.clone(), matcher, actions: source.actions.clone(), params })
    }

    /// The settings for a request that the binding covers; `None` for one that it does not.
    pub(crate) fn select<'s>(
        &'s self,
        documents: &Documents<'_>,
        objects: &'s Objects,
    ) -> Result<Option<Cow<'s, [Option<Node<'s>>]>>, PolicyError> {
        if !self.matches(documents, objects.schemas())? {
            return Ok(None);
        }
        Ok(Some(self.find_params(objects, &documents.review.request.namespace)?))
    }

    fn matches(&self, documents: &Documents<'_>, schemas: &Schemas) -> Result<bool, PolicyError> {
        match &self.matcher {
            None => Ok(true),
            Some(matcher) => {
                let covered = matcher.rules.matches(documents.review.request, schemas).is_some();
                Ok(covered && matcher.selectors.match_labels(&Labels::new(documents))?)
            }
        }
    }

    /// The settings, one set for each evaluation: none at all if there are no objects and that is allowed;
    /// `None` for a policy without settings.
    fn find_params<'s>(
        &'s self,
        objects: &'s Objects,
        namespace: &str,
    ) -> Result<Cow<'s, [Option<Node<'s>>]>, ParamError> {
        let (kind, own, which, required) = match &self.params {
            Params::None => return Ok(Cow::Borrowed(&[None])),
            Params::Inline(params) => return Ok(Cow::Owned(vec![Some(params.root())])),
            Params::Referenced { kind, namespace, which, required } => (kind, namespace, which, *required),
        };
        let found = find_kind(kind, objects)?;
        let namespace = match own.as_deref() {
            Some(_) if !found.namespaced => return Err(ParamError::NeedlessNamespace),
            Some(own) => own,
            None if found.namespaced && namespace.is_empty() => return Err(ParamError::NoNamespace),
            None => namespace,
        };
        let objects: Vec<_> = match which {
            Which::Named(name) => found.get(namespace, name).into_iter().collect(),
            Which::Labelled(selector) => found.select(namespace, selector),
        };
        if objects.is_empty() && required {
            return Err(ParamError::NotFound);
        }
        Ok(objects.into_iter().map(Some).collect::<Vec<_>>().into())
    }
}

impl Params {
    fn of_reference(kind: &ParamKind, reference: &ParamRef) -> Result<Self, DefinitionError> {
        let name = reference.name.as_deref().filter(|name| !name.is_empty());
        let which = match (name, &reference.selector) {
            (Some(name), None) => Which::Named(name.to_owned()),
            (None, Some(selector)) => {
                Which::Labelled(Selector::compile("paramRef.selector", Some(selector))?)
            }
            _ => return Err(DefinitionError::field("paramRef", "needs either a name or a selector")),
        };
        Ok(Self::Referenced {
            kind: kind.clone(),
            namespace: reference.namespace.clone().filter(|namespace| !namespace.is_empty()),
            which,
            required: reference.parameter_not_found_action != Some(ParameterNotFoundAction::Allow),
        })
    }
}

/// The rules of a binding may be empty and then cover everything.
fn compile_matcher(
    constraints: &MatchConstraints,
    operations: &[OperationType],
) -> Result<Matcher, DefinitionError> {
    let mut constraints = constraints.clone();
    if constraints.resource_rules.is_empty() {
        constraints.resource_rules.push(ResourceRule {
            api_groups: vec!["*".to_owned()],
            api_versions: vec!["*".to_owned()],
            operations: vec![OperationType::All],
            resources: vec!["*/*".to_owned()],
            ..ResourceRule::default()
        });
    }
    Matcher::compile(&constraints, operations).map_err(|error| match error {
        DefinitionError::Field { field, problem } => {
            DefinitionError::Field { field: field.replacen("matchConstraints", "matchResources", 1), problem }
        }
        other => other,
    })
}
