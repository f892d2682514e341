//! Whether a JSON Patch (RFC 6902) will apply to an object.
//!
//! The API server answers a patch that does not apply with an internal error,
//! whatever the failurePolicy (C-31), so a patch is tried here first. The
//! object stays raw text: only the containers along the touched paths are
//! taken apart, and everything else is passed over.
//!
//! Stricter than RFC 6902 in one point: the whole document (path "") cannot be
//! touched, because the library that the API server uses cannot do it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use crate::node::{Node, index};
use crate::object::{Object, fault};
use crate::scan::{self, Ways};

/// Most operations of one patch; the API server's own bound for JSON patches.
pub const MAX_OPERATIONS: usize = 10_000;

/// Deepest path, in reference tokens, and deepest container that a patch may build.
pub const MAX_DEPTH: usize = 256;

/// Most bytes that `copy` may multiply, all operations together.
pub const MAX_COPIED: usize = 8 << 20;

/// Most memory that copies may take while a patch is tried, in bytes.
pub const MAX_MEMORY: usize = 32 << 20;

/// Most work that a patch may cost, in bytes read or moved: a tenth of a second or so. Ten thousand honest
/// operations on the largest object stay far below; ten thousand inserts before a million items do not.
pub const MAX_WORK: usize = 256 << 20;

/// Most operations whose ways into the object are followed while it is taken apart, and how deep: the rest of what
/// they lead to is taken apart when they come to it.
const FORESEEN: usize = 64;
const FORESEEN_DEPTH: usize = 16;

/// What moving one item of a list along costs, in bytes.
const ITEM: usize = size_of::<Node<'_>>();

/// What an object that is taken apart takes at least, in bytes: the map makes room for some entries at once.
const OBJECT: usize = 11 * (size_of::<Cow<'_, str>>() + ITEM);

/// Why a patch would not apply. Operations are counted from 0.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// Not an RFC 6902 array.
    #[error("the patch is not a JSON Patch array: {}", fault(.0))]
    Malformed(#[from] serde_json::Error),
    /// More than [`MAX_OPERATIONS`].
    #[error("the patch has {0} operations; at most {MAX_OPERATIONS} are allowed")]
    TooLong(usize),
    /// There is no object to apply it to.
    #[error("the patch has nothing to apply to: the request has no object")]
    NoObject,
    /// The object is not a JSON object.
    #[error("the object is not a JSON object: {}", fault(.0))]
    NotAnObject(serde_json::Error),
    /// One operation does not apply.
    #[error("operation {index} ({operation} {path:?}) does not apply: {fault}")]
    Operation {
        /// Position in the patch.
        index: usize,
        /// Its `op`.
        operation: &'static str,
        /// Its `path`.
        path: String,
        /// What is wrong.
        fault: Fault,
    },
}

/// Why an operation does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The path does not begin with `/` or has a bad `~`.
    #[error("the path is not a JSON pointer below the document's root")]
    Pointer,
    /// The path is deeper than [`MAX_DEPTH`], or the result would be.
    #[error("it is nested deeper than {MAX_DEPTH}")]
    Depth,
    /// `from` is missing or no pointer.
    #[error("`from` is missing or not a JSON pointer below the document's root")]
    From,
    /// `value` is missing.
    #[error("`value` is missing")]
    Value,
    /// A container on the way is missing or a scalar.
    #[error("a parent is missing or is not an object or list")]
    Parent,
    /// What the path names is missing.
    #[error("the path does not exist")]
    Missing,
    /// No index of this list.
    #[error("not an index of the list")]
    Index,
    /// A value would be moved into itself.
    #[error("a value cannot be moved into itself")]
    IntoItself,
    /// `test` failed.
    #[error("the value differs from the one tested for")]
    Differs,
    /// A value tested is too deep to be compared.
    #[error("the value cannot be compared")]
    Incomparable,
    /// `copy` multiplies more than [`MAX_COPIED`] bytes, or takes more than [`MAX_MEMORY`].
    #[error("copies add up to more than {MAX_COPIED} bytes, or take more than {MAX_MEMORY} to try")]
    Copies,
    /// Trying the patch costs more than [`MAX_WORK`].
    #[error("trying the patch would take too much work")]
    Work,
}

/// A parsed patch, borrowed from its text.
#[derive(Debug)]
pub struct Patch<'a> {
    operations: Vec<Operation<'a>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Test => "test",
        }
    }
}

#[derive(Debug, Deserialize)]
struct Operation<'a> {
    op: Kind,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    from: Option<Cow<'a, str>>,
    // `null` is a value: a plain Option would read it as absent.
    #[serde(borrow, default, deserialize_with = "raw")]
    value: Option<&'a RawValue>,
}

fn raw<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Patch<'a> {
    /// Parses the JSON text of a patch.
    ///
    /// # Errors
    /// When it is no array of operations, or has too many.
    pub fn parse(text: &'a [u8]) -> Result<Self, PatchError> {
        let operations: Vec<Object<Operation<'a>>> = serde_json::from_slice(text)?;
        if operations.len() > MAX_OPERATIONS {
            return Err(PatchError::TooLong(operations.len()));
        }
        Ok(Self { operations: operations.into_iter().map(|Object(operation)| operation).collect() })
    }

    /// Whether it changes nothing: an empty array is legal (C-28).
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Tries the patch on an object.
    ///
    /// ```
    /// use sallyport_admission::Patch;
    /// use serde_json::value::RawValue;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pod: &RawValue = serde_json::from_str(r#"{"metadata": {"labels": {}}}"#)?;
    /// let patch = Patch::parse(br#"[{"op": "add", "path": "/metadata/labels/team", "value": "a"}]"#)?;
    /// assert!(patch.verify(Some(pod)).is_ok());
    ///
    /// let patch = Patch::parse(br#"[{"op": "remove", "path": "/metadata/annotations"}]"#)?;
    /// let error = patch.verify(Some(pod)).unwrap_err();
    /// assert!(error.to_string().contains("operation 0 (remove \"/metadata/annotations\") does not apply"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Which operation does not apply, and why.
    pub fn verify(&self, object: Option<&RawValue>) -> Result<(), PatchError> {
        if self.is_empty() {
            return Ok(());
        }
        let object = object.ok_or(PatchError::NoObject)?;
        let root = self.take_apart(object.get())?;
        let mut document = Document { root, copied: 0, memory: 0, work: Work(object.get().len()) };
        for (index, operation) in self.operations.iter().enumerate() {
            document.apply(operation).map_err(|fault| PatchError::Operation {
                index,
                operation: operation.op.as_str(),
                path: operation.path.chars().take(200).collect(),
                fault,
            })?;
        }
        Ok(())
    }

    /// The object, with what the first operations lead into.
    fn take_apart<'o>(&self, object: &'o str) -> Result<Node<'o>, PatchError> {
        let foreseen = self.operations.iter().take(FORESEEN);
        let foreseen = foreseen.flat_map(|operation| [Some(&operation.path), operation.from.as_ref()]);
        let foreseen: Vec<_> = foreseen.flatten().filter_map(|path| pointer(path)).collect();
        let mut ways = Ways::default();
        for path in &foreseen {
            if let Some((_, parents)) = path.split_last() {
                ways.add(parents.get(..FORESEEN_DEPTH).unwrap_or(parents));
            }
        }
        if let Some(root @ Node::Object(_)) = scan::container(object, &ways) {
            return Ok(root);
        }
        let members = serde_json::from_str::<BTreeMap<Key<'_>, &RawValue>>(object);
        Err(PatchError::NotAnObject(members.err().unwrap_or_else(|| serde_json::Error::custom("unreadable"))))
    }
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// What copying a node costs.
#[derive(Clone, Copy, Default)]
struct Extent {
    /// About how long its text is.
    bytes: usize,
    /// How much memory a copy takes: texts are not copied, only keys and what was taken apart.
    memory: usize,
    depth: usize,
}

impl Node<'_> {
    /// Makes a container's members reachable; scalars stay as they are.
    fn expand(&mut self, work: &mut Work) -> Result<(), Fault> {
        let Self::Raw(text) = *self else { return Ok(()) };
        work.spend(text.len())?;
        if let Some(container) = scan::container(text, &Ways::default()) {
            *self = container;
        }
        Ok(())
    }

    fn child(&mut self, token: &str, work: &mut Work) -> Result<Option<&mut Self>, Fault> {
        self.expand(work)?;
        Ok(match self {
            Self::Raw(_) => None,
            Self::Object(members) => members.get_mut(token),
            Self::Array(items) => index(token).and_then(|at| items.get_mut(at)),
        })
    }

    /// Recursion is bounded: no expanded container is deeper than [`MAX_DEPTH`].
    fn extent(&self) -> Extent {
        let under = |extent: Extent, key: usize, node: &Self| {
            let inner = node.extent();
            Extent {
                bytes: extent.bytes.saturating_add(inner.bytes).saturating_add(key + 1),
                memory: extent.memory.saturating_add(inner.memory).saturating_add(key + ITEM),
                depth: extent.depth.max(inner.depth + 1),
            }
        };
        match self {
            Self::Raw(text) => Extent { bytes: text.len(), ..Extent::default() },
            Self::Object(members) => {
                let empty = Extent { memory: OBJECT, ..Extent::default() };
                members.iter().fold(empty, |extent, (key, node)| under(extent, key.len(), node))
            }
            Self::Array(items) => items.iter().fold(Extent::default(), |extent, node| under(extent, 0, node)),
        }
    }
}

/// The work done so far, in bytes; bounded by [`MAX_WORK`].
struct Work(usize);

impl Work {
    fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.0 = self.0.saturating_add(bytes);
        if self.0 > MAX_WORK { Err(Fault::Work) } else { Ok(()) }
    }
}

struct Document<'a> {
    root: Node<'a>,
    copied: usize,
    memory: usize,
    work: Work,
}

impl<'a> Document<'a> {
    fn apply(&mut self, operation: &Operation<'a>) -> Result<(), Fault> {
        let path = pointer(&operation.path).ok_or(Fault::Pointer)?;
        if path.len() > MAX_DEPTH {
            return Err(Fault::Depth);
        }
        let value = || operation.value.map(|value| Node::Raw(value.get())).ok_or(Fault::Value);
        let from = || {
            let from = operation.from.as_deref().and_then(pointer).ok_or(Fault::From)?;
            if from.len() > MAX_DEPTH { Err(Fault::Depth) } else { Ok(from) }
        };
        match operation.op {
            Kind::Add => self.add(&path, value()?),
            Kind::Replace => {
                let value = value()?;
                *self.find(&path)? = value;
                Ok(())
            }
            Kind::Remove => self.remove(&path).map(drop),
            Kind::Test => {
                let expected = value()?;
                // Both are read whole, so both are paid for first.
                let bytes = expected.extent().bytes.saturating_add(self.find(&path)?.extent().bytes);
                self.work.spend(bytes)?;
                let found = self.find(&path)?.value().map_err(|_| Fault::Incomparable)?;
                let expected = expected.value().map_err(|_| Fault::Incomparable)?;
                if found == expected { Ok(()) } else { Err(Fault::Differs) }
            }
            Kind::Move => {
                let from = from()?;
                if from == path {
                    return self.find(&from).map(drop);
                }
                if path.starts_with(&from) {
                    return Err(Fault::IntoItself);
                }
                let moved = self.remove(&from)?;
                let extent = moved.extent();
                self.work.spend(extent.bytes)?;
                check_depth(&path, extent)?;
                self.add(&path, moved)
            }
            Kind::Copy => {
                let from = from()?;
                let extent = self.find(&from)?.extent();
                self.copied = self.copied.saturating_add(extent.bytes);
                self.memory = self.memory.saturating_add(extent.memory);
                if self.copied > MAX_COPIED || self.memory > MAX_MEMORY {
                    return Err(Fault::Copies);
                }
                check_depth(&path, extent)?;
                let copy = self.find(&from)?.clone();
                self.add(&path, copy)
            }
        }
    }

    fn find(&mut self, path: &[Cow<'_, str>]) -> Result<&mut Node<'a>, Fault> {
        let (last, parents) = path.split_last().ok_or(Fault::Pointer)?;
        let (parent, work) = self.parent(parents)?;
        parent.child(last, work)?.ok_or(Fault::Missing)
    }

    /// The container at `path`, expanded, and the account for what is done to it.
    fn parent(&mut self, path: &[Cow<'_, str>]) -> Result<(&mut Node<'a>, &mut Work), Fault> {
        let (mut node, work) = (&mut self.root, &mut self.work);
        for token in path {
            node = node.child(token, work)?.ok_or(Fault::Parent)?;
        }
        node.expand(work)?;
        if matches!(node, Node::Raw(_)) { Err(Fault::Parent) } else { Ok((node, work)) }
    }

    fn add(&mut self, path: &[Cow<'_, str>], value: Node<'a>) -> Result<(), Fault> {
        let (last, parents) = path.split_last().ok_or(Fault::Pointer)?;
        let (parent, work) = self.parent(parents)?;
        match parent {
            Node::Object(members) => {
                members.insert(Cow::Owned(last.clone().into_owned()), value);
            }
            Node::Array(items) if last == "-" => items.push(value),
            Node::Array(items) => {
                let at = index(last).filter(|at| *at <= items.len()).ok_or(Fault::Index)?;
                work.spend((items.len() - at).saturating_mul(ITEM))?;
                items.insert(at, value);
            }
            Node::Raw(_) => return Err(Fault::Parent),
        }
        Ok(())
    }

    fn remove(&mut self, path: &[Cow<'_, str>]) -> Result<Node<'a>, Fault> {
        let (last, parents) = path.split_last().ok_or(Fault::Pointer)?;
        let (parent, work) = self.parent(parents)?;
        match parent {
            Node::Object(members) => members.remove(last.as_ref()).ok_or(Fault::Missing),
            Node::Array(items) => {
                let at = index(last).filter(|at| *at < items.len()).ok_or(Fault::Index)?;
                work.spend((items.len() - at).saturating_mul(ITEM))?;
                Ok(items.remove(at))
            }
            Node::Raw(_) => Err(Fault::Parent),
        }
    }
}

fn check_depth(path: &[Cow<'_, str>], extent: Extent) -> Result<(), Fault> {
    if path.len() + extent.depth > MAX_DEPTH { Err(Fault::Depth) } else { Ok(()) }
}

/// The tokens of a JSON pointer (RFC 6901) other than the whole document; of one that is deeper than
/// [`MAX_DEPTH`], one token more than that.
fn pointer(text: &str) -> Option<Vec<Cow<'_, str>>> {
    text.strip_prefix('/')?.split('/').take(MAX_DEPTH + 1).map(unescape).collect()
}

fn unescape(token: &str) -> Option<Cow<'_, str>> {
    if !token.contains('~') {
        return Some(Cow::Borrowed(token));
    }
    let mut plain = String::with_capacity(token.len());
    let mut characters = token.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '~' => match characters.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(Cow::Owned(plain))
}
