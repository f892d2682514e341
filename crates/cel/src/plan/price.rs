//! Prices: how the cost of a call follows from its arguments and its result.
//!
//! A call's price may depend on the overload that the check of types settles on; a call whose overload only shows
//! at run time costs one.

use sallyport_document::Node;

use crate::check::{Overload, Type};
use crate::cost::{CHECK, LIST, TRAVERSAL, UNIT, float, matched, pattern, traversed, up};
use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::network::prefix_bytes;
use crate::value::{Key, MAX_NESTING, Operator, Val};

/// A text up to here is gone through at once.
const LONG_BYTES: usize = 64;
/// What a requirement of a selector costs, a list in a struct; there may be one in two characters.
const REQUIREMENT: f64 = 50.0;
const REQUIREMENTS: f64 = 0.5;

/// How the cost of a call follows from its arguments and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// Nothing: the answer is looked up in a set made beforehand.
    Free,
    /// One.
    Unit,
    /// A question to the authorizer.
    Check,
    /// The first argument gone through once.
    Text,
    /// The first argument gone through twice.
    TextTwice,
    /// The result gone through twice.
    Result,
    /// The shorter argument gone through once.
    Shorter,
    /// The same, but one for values of Kubernetes' own types.
    Equal,
    /// Both arguments copied.
    Concatenation,
    /// One for each item of the second argument.
    Items,
    /// A text looked for in another.
    Search,
    /// A pattern applied to a text.
    Pattern,
    /// Whatever is inside the first argument, gone through. Which of several functions it is may be open until
    /// it runs.
    Traversal { open: bool },
    /// A selector read.
    Selector,
    /// An address looked for in a network; a text has to be read first.
    ContainsAddress { text: bool },
    /// A network looked for in another.
    ContainsNetwork { text: bool },
    /// A format's pattern applied to a text.
    Validate,
    /// A list made, of the result's length.
    MadeList,
    /// A list made of another, once for each level.
    Flatten,
    /// Each item of the first argument compared with each.
    SelfComparison,
    /// Each item of one list compared with each of the other, so many times.
    Sets(u64),
}

impl Price {
    /// The price of an operator.
    #[allow(clippy::match_same_arms)] // a row a sort of operators
    pub(crate) fn of_operator(operator: Operator, overload: Option<&Overload>) -> Self {
        let operands = overload.map(|overload| overload.arguments.as_slice());
        match (operator, operands) {
            (Operator::Equal, _) => Self::Equal,
            (Operator::NotEqual, _) => Self::Shorter,
            (Operator::Add, Some([Type::String | Type::Bytes, _])) => Self::Concatenation,
            (
                Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual,
                Some([Type::String | Type::Bytes, _]),
            ) => Self::Shorter,
            (Operator::In, Some([_, Type::List(_)])) => Self::Items,
            _ => Self::Unit,
        }
    }

    /// The price of a function of the table.
    #[allow(clippy::match_same_arms)] // rows that can be read
    pub(crate) fn of(name: &str, member: bool, overload: Option<&Overload>) -> Self {
        let argument = |index: usize| overload.and_then(|overload| overload.arguments.get(index));
        match name {
            "startsWith" | "endsWith" | "strings.quote" | "format" => Self::Text,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => Self::Text,
            "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => Self::Text,
            "ip" if !member => Self::Text,
            "string" if argument(0) == Some(&Type::Bytes) => Self::Text,
            "bytes" if argument(0) == Some(&Type::String) => Self::Text,
            "replace" | "split" | "ip.isCanonical" => Self::TextTwice,
            "join" => Self::Result,
            "contains" => Self::Search,
            // The pattern as a global function has an overload of its own that nobody gave a price.
            "matches" if !member => Self::Unit,
            "matches" | "find" | "findAll" => Self::Pattern,
            "indexOf" | "lastIndexOf" => Self::Traversal { open: overload.is_none() },
            "isSorted" | "sum" | "max" | "min" => Self::Traversal { open: false },
            "fieldSelector" | "labelSelector" => Self::Selector,
            "check" => Self::Check,
            "containsIP" => Self::ContainsAddress { text: argument(1) == Some(&Type::String) },
            "containsCIDR" => Self::ContainsNetwork { text: argument(1) == Some(&Type::String) },
            "validate" => Self::Validate,
            "slice" | "reverse" | "lists.range" => Self::MadeList,
            "flatten" => Self::Flatten,
            "distinct" => Self::SelfComparison,
            "sort" if overload.is_some() => Self::SelfComparison,
            "sets.contains" | "sets.intersects" => Self::Sets(1),
            "sets.equivalent" => Self::Sets(2),
            _ => Self::Unit,
        }
    }

    /// Whether a call with two arguments evaluates the second after the first has failed.
    pub(crate) fn goes_on(self) -> bool {
        !matches!(self, Self::Traversal { open: true })
    }

    /// What an operator costs between these.
    #[inline]
    pub(crate) fn charge_pair(self, meter: &Meter, left: &Val<'_>, right: &Val<'_>) -> Result<(), EvalError> {
        meter.charge(match self {
            Self::Free => return Ok(()),
            Self::Equal if left.is_own() => UNIT,
            Self::Equal | Self::Shorter => traversed(smaller(left, right)),
            Self::Concatenation => traversed(size(left).saturating_add(size(right))),
            Self::Items => size(right),
            _ => UNIT,
        })
    }

    /// What sorting by so many keys costs.
    pub(crate) fn charge_sorted(
        self,
        meter: &Meter,
        length: usize,
        first: Option<&Val<'_>>,
    ) -> Result<(), EvalError> {
        meter.charge(match self {
            Self::SelfComparison => compared_with_itself(length as u64, first),
            _ => UNIT,
        })
    }

    /// What a call costs that was made with these arguments, null in place of those that failed.
    pub(crate) fn charge(
        self,
        meter: &Meter,
        arguments: &[Val<'_>],
        result: Option<&Val<'_>>,
    ) -> Result<(), EvalError> {
        let argument = |index: usize| arguments.get(index).map_or(1, size);
        let made = || result.map_or(1, size);
        meter.charge(match self {
            Self::Free | Self::Equal | Self::Shorter | Self::Concatenation | Self::Items => {
                let (left, right) = (arguments.first(), arguments.get(1));
                return self.charge_pair(meter, left.unwrap_or(&Val::Null), right.unwrap_or(&Val::Null));
            }
            Self::Unit => UNIT,
            Self::Check => CHECK,
            Self::Text => traversed(argument(0)),
            Self::TextTwice => up(float(argument(0)) * 2.0 * TRAVERSAL),
            Self::Result => up(float(made()) * 2.0 * TRAVERSAL),
            Self::Search => traversed(argument(0)).saturating_mul(traversed(argument(1))),
            Self::Pattern => matched(argument(0), pattern(argument(1))),
            Self::Traversal { .. } => arguments.first().map_or(Ok(UNIT), |value| inside(meter, value, 0))?,
            Self::Selector => {
                let length = float(argument(1));
                let requirements = up(length * REQUIREMENTS);
                LIST + up(length * TRAVERSAL) + up(float(requirements) * REQUIREMENT)
            }
            Self::ContainsAddress { text } => {
                let network = traversed(argument(0).saturating_mul(2));
                network + if text { traversed(argument(1)) } else { 0 }
            }
            Self::ContainsNetwork { text } => {
                let network = traversed(argument(0).saturating_mul(2)) + traversed(argument(0)) + UNIT;
                network + if text { traversed(argument(1)) } else { 0 }
            }
            Self::Validate => {
                let format = match arguments.first() {
                    Some(Val::Format(format)) => format.pattern_length,
                    _ => return meter.charge(UNIT),
                };
                matched(argument(1), pattern(format))
            }
            Self::MadeList => made().saturating_add(UNIT + LIST),
            Self::Flatten => {
                let levels = match arguments.get(1) {
                    Some(Val::Int(levels)) => u64::try_from(*levels).unwrap_or(0),
                    _ => 1,
                };
                levels.saturating_mul(argument(0)).saturating_add(UNIT + LIST)
            }
            Self::SelfComparison => {
                let first = arguments.first().and_then(Val::as_list).and_then(|items| items.get(0));
                compared_with_itself(argument(0), first.as_ref())
            }
            Self::Sets(times) => {
                argument(0).saturating_mul(argument(1)).saturating_mul(times).saturating_add(UNIT)
            }
        })
    }
}

/// How large a value is: characters, bytes, items or entries, else one.
pub(crate) fn size(value: &Val<'_>) -> u64 {
    match value {
        Val::Str(text) => text.chars().count() as u64,
        Val::Bytes(bytes) => bytes.len() as u64,
        Val::JsonList(items) => items.len() as u64,
        Val::List(items) => items.items.len() as u64,
        Val::JsonMap(entries) => entries.len() as u64,
        Val::Map(entries) => entries.entries.len() as u64,
        Val::Ip(address) => {
            if address.is_ipv4() {
                4
            } else {
                16
            }
        }
        Val::Cidr(network) => prefix_bytes(network),
        // Values nest a hundred levels deep at most.
        Val::Optional(Some(optional)) => size(&optional.value),
        _ => 1,
    }
}

/// The size of the smaller of two values. A long text beside something small is not gone through.
fn smaller(left: &Val<'_>, right: &Val<'_>) -> u64 {
    if !is_long(left) && !is_long(right) {
        return size(left).min(size(right));
    }
    let ((left_least, left_most), (right_least, right_most)) = (bounds(left), bounds(right));
    if left_most <= right_least {
        size(left)
    } else if right_most <= left_least {
        size(right)
    } else {
        size(left).min(size(right))
    }
}

/// Whether its size may take long to find.
fn is_long(value: &Val<'_>) -> bool {
    match value {
        Val::Str(text) => text.len() > LONG_BYTES,
        Val::Optional(Some(_)) => true,
        _ => false,
    }
}

/// What the size is at least and at most, without going through a text: a character takes one byte to four.
fn bounds(value: &Val<'_>) -> (u64, u64) {
    match value {
        Val::Str(text) => ((text.len() as u64).div_ceil(4), text.len() as u64),
        Val::Optional(Some(optional)) => bounds(&optional.value),
        value => {
            let size = size(value);
            (size, size)
        }
    }
}

/// Each item against each; texts cost a little more.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // as in `up`
fn compared_with_itself(length: u64, first: Option<&Val<'_>>) -> u64 {
    let texts = matches!(first, Some(Val::Str(_) | Val::Bytes(_)));
    let factor = if texts { 2.0 + TRAVERSAL } else { 2.0 };
    ((float(length.saturating_mul(length)) * factor) as u64).saturating_add(UNIT + LIST)
}

/// Everything inside a value: the tenth part of the bytes of texts, one for anything else.
fn inside(meter: &Meter, value: &Val<'_>, depth: usize) -> Result<u64, EvalError> {
    meter.count_steps(1)?;
    if depth > MAX_NESTING {
        return Err(EvalError::TooDeep);
    }
    let mut cost = 0_u64;
    let mut add = |more: u64| cost = cost.saturating_add(more);
    match value {
        Val::Str(text) => add(tenth(text.len())),
        Val::Bytes(bytes) => add(tenth(bytes.len())),
        Val::JsonList(items) => {
            for item in *items {
                add(inside_json(meter, item, depth + 1)?);
            }
        }
        Val::List(items) => {
            for item in &items.items {
                add(inside(meter, item, depth + 1)?);
            }
        }
        Val::JsonMap(entries) => {
            for (key, value) in entries.members() {
                add(tenth(key.len()).saturating_add(inside_json(meter, value, depth + 1)?));
            }
        }
        Val::Map(entries) => {
            for (key, value) in &entries.entries {
                add(match key {
                    Key::Str(key) => tenth(key.len()),
                    _ => UNIT,
                });
                add(inside(meter, value, depth + 1)?);
            }
        }
        _ => add(UNIT),
    }
    Ok(cost)
}

fn inside_json(meter: &Meter, value: Node<'_>, depth: usize) -> Result<u64, EvalError> {
    inside(meter, &Val::from_json(value), depth)
}

/// Cut off, not rounded.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // as in `up`
fn tenth(bytes: usize) -> u64 {
    (float(bytes as u64) * TRAVERSAL) as u64
}

#[cfg(test)]
mod tests {
    use super::{size, smaller};
    use crate::value::Val;

    #[test]
    fn the_smaller_of_two_is_the_one_that_going_through_both_would_find() {
        let texts =
            ["", "a", "é", "ab", "éé", "\u{1f600}", "\u{1f600}\u{1f600}", "abcd", "abcdefgh", "éééé", "aéa"];
        let texts = texts.iter().flat_map(|text| [1, 30, 100].map(|times| Val::text(text.repeat(times))));
        let mut values: Vec<Val<'_>> = texts.chain([Val::Null, Val::Int(7)]).collect();
        values.push(Val::optional(Val::text("éé".repeat(50))).unwrap());
        values.push(Val::list(vec![Val::Null; 3]).unwrap());
        values.push(Val::list(Vec::new()).unwrap());
        for left in &values {
            for right in &values {
                assert_eq!(smaller(left, right), size(left).min(size(right)), "{left:?} {right:?}");
            }
        }
    }
}
