//! An authorizer that answers from a table, for tests and for use without a cluster.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::authorizer::{Attributes, Authorizer, Decision, Resource, Target};

/// Most rules of a table.
const MAX_RULES: usize = 10_000;

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
