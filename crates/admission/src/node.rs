//! JSON of which only a part is taken apart.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Part of a document: its JSON text until a path leads into it.
#[derive(Clone, Debug)]
pub(crate) enum Node<'a> {
    Raw(&'a str),
    Object(BTreeMap<Cow<'a, str>, Node<'a>>),
    Array(Vec<Node<'a>>),
}

impl Node<'_> {
    pub(crate) fn value(&self) -> serde_json::Result<serde_json::Value> {
        Ok(match self {
            Self::Raw(text) => serde_json::from_str(text)?,
            Self::Object(members) => members
                .iter()
                .map(|(key, node)| Ok((key.clone().into_owned(), node.value()?)))
                .collect::<serde_json::Result<serde_json::Map<_, _>>>()?
                .into(),
            Self::Array(items) => {
                items.iter().map(Node::value).collect::<serde_json::Result<Vec<_>>>()?.into()
            }
        })
    }
}

/// A list index: digits without a leading zero.
pub(crate) fn index(token: &str) -> Option<usize> {
    let digits = token.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (token.len() > 1 && token.starts_with('0')) { None } else { token.parse().ok() }
}
