//! The authorizer library: `authorizer.group('').resource('pods').namespace('a').check('get').allowed()`.
//!
//! The questions are put together here and asked through a trait: in a cluster the API server answers them, for
//! tests and on the command line a [`AuthorizerTable`]. A check is synchronous; what it costs allows two in an
//! expression.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use sallyport_admission::UserInfo;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::meter::Meter;
use crate::named_formats;
use crate::value::Val;

/// Most rules of a table.
const MAX_RULES: usize = 10_000;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::member("path", 2, path),
    Function::member("group", 2, group),
    Function::member("serviceAccount", 3, service_account),
    Function::member("resource", 2, resource),
    Function::member("subresource", 2, |meter, a| {
        narrowed("subresource", meter, a, |it| &mut it.subresource)
    }),
    Function::member("namespace", 2, |meter, a| narrowed("namespace", meter, a, |it| &mut it.namespace)),
    Function::member("name", 2, |meter, a| narrowed("name", meter, a, |it| &mut it.name)),
    Function::member("fieldSelector", 2, |meter, a| {
        narrowed("fieldSelector", meter, a, |it| &mut it.field_selector)
    }),
    Function::member("labelSelector", 2, |meter, a| {
        narrowed("labelSelector", meter, a, |it| &mut it.label_selector)
    }),
    Function::member("check", 2, check),
    Function::member("allowed", 1, |_, a| Ok(Val::Bool(decision("allowed", a)?.allowed))),
    Function::member("errored", 1, |_, a| Ok(Val::Bool(decision("errored", a)?.error.is_some()))),
    Function::member("reason", 1, |meter, a| text(meter, &decision("reason", a)?.reason)),
    Function::member("error", 1, |meter, a| {
        text(meter, decision("error", a)?.error.as_deref().unwrap_or_default())
    }),
];

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
    /// `None` while there is no answer yet: the evaluation ends with [`EvalError::Undecided`], which nothing in
    /// an expression absorbs. Whoever has the question answered then evaluates again.
    fn check(&self, attributes: &Attributes<'_>) -> Option<Decision>;
}

impl fmt::Debug for dyn Authorizer + '_ {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Authorizer")
    }
}

/// Answers from a table, for tests and for use without a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct AuthorizerTable {
    /// What is allowed: that to which every member of one of these rules fits. At most 10,000 are read.
    #[serde(default, deserialize_with = "rules")]
    pub allow: Vec<AuthorizerRule>,
    /// The reason given with every answer.
    #[serde(default)]
    pub reason: Option<String>,
    /// The error of every answer; an empty one is read as none.
    #[serde(default, deserialize_with = "not_empty")]
    pub error: Option<String>,
}

/// A rule of a table. A member that is absent, or `*`, fits anything; a null is no member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(remote = "Self", default, deny_unknown_fields)]
pub struct AuthorizerRule {
    /// The user's name.
    #[serde(deserialize_with = "given")]
    pub user: Option<String>,
    /// The verb.
    #[serde(deserialize_with = "given")]
    pub verb: Option<String>,
    /// The API group.
    #[serde(deserialize_with = "given")]
    pub group: Option<String>,
    /// The resource.
    #[serde(deserialize_with = "given")]
    pub resource: Option<String>,
    /// The subresource.
    #[serde(deserialize_with = "given")]
    pub subresource: Option<String>,
    /// The namespace.
    #[serde(deserialize_with = "given")]
    pub namespace: Option<String>,
    /// The object's name.
    #[serde(deserialize_with = "given")]
    pub name: Option<String>,
    /// The path.
    #[serde(deserialize_with = "given")]
    pub path: Option<String>,
}

/// Read from a mapping alone: nothing and a list are no rule, for that would allow everything.
trait Members<'de>: Sized {
    const EXPECTED: &'static str;

    fn read<A: MapAccess<'de>>(members: A) -> Result<Self, A::Error>;
}

impl<'de> Members<'de> for AuthorizerTable {
    const EXPECTED: &'static str = "a table {allow: [rule], reason, error}";

    fn read<A: MapAccess<'de>>(members: A) -> Result<Self, A::Error> {
        Self::deserialize(MapAccessDeserializer::new(members))
    }
}

impl<'de> Members<'de> for AuthorizerRule {
    const EXPECTED: &'static str = "a rule {user, verb, group, resource, …}";

    fn read<A: MapAccess<'de>>(members: A) -> Result<Self, A::Error> {
        Self::deserialize(MapAccessDeserializer::new(members))
    }
}

struct Mapping<T>(PhantomData<T>);

impl<'de, T: Members<'de>> Visitor<'de> for Mapping<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::read(members)
    }
}

impl<'de> Deserialize<'de> for AuthorizerTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Mapping(PhantomData))
    }
}

impl<'de> Deserialize<'de> for AuthorizerRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Mapping(PhantomData))
    }
}

/// A rule takes far more memory than its text, so their number is bounded.
fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AuthorizerRule>, D::Error> {
    struct Rules;
    impl<'de> Visitor<'de> for Rules {
        type Value = Vec<AuthorizerRule>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "a list of at most {MAX_RULES} rules")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut rules = Vec::new();
            while let Some(rule) = items.next_element()? {
                if rules.len() == MAX_RULES {
                    return Err(A::Error::invalid_length(MAX_RULES + 1, &self));
                }
                rules.push(rule);
            }
            Ok(rules)
        }
    }
    deserializer.deserialize_seq(Rules)
}

/// What is written is there: read as an absent member, a null would allow everything.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|text: &String| !text.is_empty()))
}

impl AuthorizerRule {
    fn fits(&self, attributes: &Attributes<'_>) -> bool {
        let nothing = Resource::default();
        let (path, resource) = match attributes.target {
            Target::Path(path) => (path, &nothing),
            Target::Resource(resource) => ("", resource),
        };
        [
            (&self.user, attributes.user.username.as_str()),
            (&self.verb, attributes.verb),
            (&self.group, &resource.group),
            (&self.resource, &resource.resource),
            (&self.subresource, &resource.subresource),
            (&self.namespace, &resource.namespace),
            (&self.name, &resource.name),
            (&self.path, path),
        ]
        .into_iter()
        .all(|(member, value)| member.as_deref().is_none_or(|member| member == "*" || member == value))
    }
}

impl Authorizer for AuthorizerTable {
    fn check(&self, attributes: &Attributes<'_>) -> Option<Decision> {
        Some(Decision {
            allowed: self.allow.iter().any(|rule| rule.fits(attributes)),
            reason: self.reason.clone().unwrap_or_default(),
            error: self.error.clone(),
        })
    }
}

/// The values of the library.
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

fn value(authorization: Authorization<'_>) -> Val<'_> {
    Val::Authorization(Arc::new(authorization))
}

fn text<'a>(meter: &Meter, text: &str) -> Outcome<'a> {
    meter.produce(text.len())?;
    Ok(Val::text(text.to_owned()))
}

/// The receiver and a text, the copying of which is counted.
fn receiver_and_text<'v, 'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &'v [Val<'a>],
) -> Result<(&'v Authorization<'a>, &'v str), EvalError> {
    match arguments {
        [Val::Authorization(receiver), Val::Str(text)] => {
            meter.produce(text.len())?;
            Ok((receiver, text))
        }
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn path<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match receiver_and_text("path", meter, arguments)? {
        (Authorization::Authorizer(_), path) if path.trim().is_empty() => {
            Err(EvalError::Authorization("path must not be empty"))
        }
        (Authorization::Authorizer(caller), path) => {
            Ok(value(Authorization::Path(caller.clone(), path.to_owned())))
        }
        _ => Err(EvalError::no_such_overload("path", arguments)),
    }
}

fn group<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match receiver_and_text("group", meter, arguments)? {
        (Authorization::Authorizer(caller), group) => {
            Ok(value(Authorization::Group(caller.clone(), group.to_owned())))
        }
        _ => Err(EvalError::no_such_overload("group", arguments)),
    }
}

fn service_account<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Authorization(receiver), Val::Str(namespace), Val::Str(name)] = arguments else {
        return Err(EvalError::no_such_overload("serviceAccount", arguments));
    };
    let Authorization::Authorizer(caller) = &**receiver else {
        return Err(EvalError::no_such_overload("serviceAccount", arguments));
    };
    meter.produce(namespace.len() + name.len())?;
    if !named_formats::is_of("dns1123Subdomain", name) {
        return Err(EvalError::Authorization("Invalid service account name"));
    }
    if !named_formats::is_of("dns1123Label", namespace) {
        return Err(EvalError::Authorization("Invalid service account namespace"));
    }
    let user = Arc::new(UserInfo::service_account(namespace, name));
    Ok(value(Authorization::Authorizer(Caller { authorizer: caller.authorizer, user })))
}

fn resource<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match receiver_and_text("resource", meter, arguments)? {
        (Authorization::Group(..), resource) if resource.trim().is_empty() => {
            Err(EvalError::Authorization("resource must not be empty"))
        }
        (Authorization::Group(caller, group), resource) => {
            let resource =
                Resource { group: group.clone(), resource: resource.to_owned(), ..Resource::default() };
            Ok(value(Authorization::Resource(caller.clone(), resource)))
        }
        _ => Err(EvalError::no_such_overload("resource", arguments)),
    }
}

/// The same question about less.
fn narrowed<'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &[Val<'a>],
    field: fn(&mut Resource) -> &mut String,
) -> Outcome<'a> {
    match receiver_and_text(name, meter, arguments)? {
        (Authorization::Resource(caller, resource), text) => {
            let Resource {
                group,
                resource: plural,
                subresource,
                namespace,
                name,
                field_selector,
                label_selector,
            } = resource;
            for copied in [group, plural, subresource, namespace, name, field_selector, label_selector] {
                meter.produce(copied.len())?;
            }
            let mut resource = resource.clone();
            text.clone_into(field(&mut resource));
            Ok(value(Authorization::Resource(caller.clone(), resource)))
        }
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn check<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (receiver, verb) = receiver_and_text("check", meter, arguments)?;
    let (caller, target) = match receiver {
        Authorization::Path(caller, path) => (caller, Target::Path(path)),
        Authorization::Resource(caller, resource) => (caller, Target::Resource(resource)),
        _ => return Err(EvalError::no_such_overload("check", arguments)),
    };
    // An expression that has no room for another check does not make it.
    meter.afford(crate::cost::CHECK)?;
    let attributes = Attributes { user: &caller.user, verb, target };
    let decision = caller.authorizer.check(&attributes).ok_or(EvalError::Undecided)?;
    Ok(value(Authorization::Decision(decision)))
}

fn decision<'v>(name: &'static str, arguments: &'v [Val<'_>]) -> Result<&'v Decision, EvalError> {
    if let [Val::Authorization(receiver)] = arguments
        && let Authorization::Decision(decision) = &**receiver
    {
        return Ok(decision);
    }
    Err(EvalError::no_such_overload(name, arguments))
}
