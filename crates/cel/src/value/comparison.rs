//! Equality, order and membership.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::meter::Meter;
use crate::value::{Key, MAX_NESTING, StructVal, Text, Val};

/// Steps of an item of a list that is compared, and of an entry of a map that is looked up, besides what is in it.
const ITEM_STEPS: u64 = 2;
const ENTRY_STEPS: u64 = 16;
/// Fields of a struct that are passed over in a step, on the way to one.
const FIELDS_PER_STEP: u64 = 16;
/// Bytes of a text that a key is looked up with are gone through so many times: for the fingerprint, and beside
/// those keys that begin alike.
const KEY_PASSES: usize = 4;

/// CEL's `==`: numbers compare across their types, values of other different types are not equal.
pub(crate) fn equal(meter: &Meter, left: &Val<'_>, right: &Val<'_>) -> Result<bool, EvalError> {
    nested_equal(meter, left, right, 0)
}

/// Whether `left == right` is an error rather than false: Kubernetes' own values are only equal to their like, and
/// the one on the left is asked.
pub(crate) fn is_incomparable(left: &Val<'_>, right: &Val<'_>) -> bool {
    // These are not even equal to themselves.
    if matches!(left, Val::Authorization(_)) {
        return !matches!(right, Val::Null);
    }
    left.is_own() && !matches!(right, Val::Null) && left.type_name() != right.type_name()
}

fn nested_equal(meter: &Meter, left: &Val<'_>, right: &Val<'_>, depth: usize) -> Result<bool, EvalError> {
    if depth > MAX_NESTING {
        return Err(EvalError::TooDeep);
    }
    meter.count_steps(1)?;
    Ok(match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        (Val::Str(left), Val::Str(right)) => {
            meter.work(left.len().min(right.len()))?;
            **left == **right
        }
        (Val::Bytes(left), Val::Bytes(right)) => {
            meter.work(left.len().min(right.len()))?;
            left == right
        }
        (Val::Duration(left), Val::Duration(right)) => left == right,
        (Val::Timestamp(left), Val::Timestamp(right)) => left == right,
        (Val::Type(left), Val::Type(right)) => left == right,
        (Val::Quantity(left), Val::Quantity(right)) => left.compare(right).is_eq(),
        (Val::Version(left), Val::Version(right)) => left.compare(meter, right)?.is_eq(),
        (Val::Url(left), Val::Url(right)) => {
            meter.work(left.text.len().min(right.text.len()))?;
            left.text == right.text
        }
        (Val::Ip(left), Val::Ip(right)) => left == right,
        (Val::Cidr(left), Val::Cidr(right)) => left == right,
        (Val::Format(left), Val::Format(right)) => left.name == right.name,
        (Val::Optional(left), Val::Optional(right)) => match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => nested_equal(meter, &left.value, &right.value, depth + 1)?,
            _ => false,
        },
        (Val::Struct(left), Val::Struct(right)) => structs_equal(meter, left, right, depth)?,
        (Val::JsonList(_) | Val::List(_), Val::JsonList(_) | Val::List(_)) => {
            lists_equal(meter, left, right, depth)?
        }
        (Val::JsonMap(_) | Val::Map(_), Val::JsonMap(_) | Val::Map(_)) => {
            maps_equal(meter, left, right, depth)?
        }
        _ => matches!(numbers(left, right), Ok(Some(Ordering::Equal))),
    })
}

fn lists_equal(meter: &Meter, left: &Val<'_>, right: &Val<'_>, depth: usize) -> Result<bool, EvalError> {
    let (Some(left), Some(right)) = (left.as_list(), right.as_list()) else { return Ok(false) };
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right.iter()) {
        meter.count_steps(ITEM_STEPS)?;
        if !nested_equal(meter, &left, &right, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps_equal(meter: &Meter, left: &Val<'_>, right: &Val<'_>, depth: usize) -> Result<bool, EvalError> {
    if map_len(left) != map_len(right) {
        return Ok(false);
    }
    match left {
        Val::JsonMap(entries) => {
            for (key, value) in entries.members() {
                meter.count_steps(ENTRY_STEPS)?;
                count_lookup(meter, key.len())?;
                match get_field(right, key) {
                    Some(other) if nested_equal(meter, &Val::from_json(value), &other, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
        }
        Val::Map(entries) => {
            for (key, value) in &entries.entries {
                meter.count_steps(ENTRY_STEPS)?;
                count_lookup(meter, key.text_len())?;
                match get_entry(right, key) {
                    Some(other) if nested_equal(meter, value, &other, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// A field is looked for among all of the other.
fn structs_equal(
    meter: &Meter,
    left: &StructVal<'_>,
    right: &StructVal<'_>,
    depth: usize,
) -> Result<bool, EvalError> {
    if left.type_name != right.type_name || left.fields.len() != right.fields.len() {
        return Ok(false);
    }
    for (name, value) in &left.fields {
        meter.count_steps(right.fields.len() as u64 / FIELDS_PER_STEP)?;
        match right.get(name) {
            Some(other) if nested_equal(meter, value, other, depth + 1)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn map_len(map: &Val<'_>) -> Option<usize> {
    match map {
        Val::JsonMap(entries) => Some(entries.len()),
        Val::Map(entries) => Some(entries.entries.len()),
        _ => None,
    }
}

/// The value under a name, in a map or a struct.
pub(crate) fn get_field<'a>(map: &Val<'a>, name: &str) -> Option<Val<'a>> {
    match map {
        Val::JsonMap(entries) => entries.get(name).map(Val::from_json),
        Val::Map(entries) => entries.get(&Key::Str(Text::Borrowed(name))).cloned(),
        Val::Struct(made) => made.get(name).cloned(),
        _ => None,
    }
}

/// Counts a look-up with a key of so many bytes. Names in an expression are too short to matter.
fn count_lookup(meter: &Meter, key: usize) -> Result<(), EvalError> {
    meter.work(key.saturating_mul(KEY_PASSES))
}

/// The value that a map has under a key made at run time.
pub(crate) fn get_value<'a>(
    meter: &Meter,
    map: &Val<'a>,
    key: &Val<'a>,
) -> Result<Option<Val<'a>>, EvalError> {
    let Some(key) = Key::to_find(key) else { return Ok(None) };
    count_lookup(meter, key.text_len())?;
    Ok(get_entry(map, &key))
}

/// The value under a key, in a map.
fn get_entry<'a>(map: &Val<'a>, key: &Key<'_>) -> Option<Val<'a>> {
    match (map, key) {
        (Val::JsonMap(_) | Val::Struct(_), Key::Str(name)) => get_field(map, name),
        (Val::Map(entries), key) => entries.get(key).cloned(),
        _ => None,
    }
}

/// CEL's `in`: an item of a list, or a key of a map. `None` when the right side is neither.
pub(crate) fn contains<'a>(
    meter: &Meter,
    item: &Val<'a>,
    container: &Val<'a>,
) -> Result<Option<bool>, EvalError> {
    Ok(match container {
        Val::JsonList(items) => {
            for candidate in *items {
                if equal(meter, &Val::from_json(candidate), item)? {
                    return Ok(Some(true));
                }
            }
            Some(false)
        }
        Val::List(list) => {
            for candidate in &list.items {
                if equal(meter, candidate, item)? {
                    return Ok(Some(true));
                }
            }
            Some(false)
        }
        Val::JsonMap(_) | Val::Map(_) => Some(get_value(meter, container, item)?.is_some()),
        _ => None,
    })
}

/// The order of two values: numbers among themselves, strings, bytes, bools, timestamps, durations. A NaN, which
/// has no place in it, is an error, as in Kubernetes; `function` is for the errors.
pub(crate) fn order<'a>(
    meter: &Meter,
    function: &'static str,
    left: &Val<'a>,
    right: &Val<'a>,
) -> Result<Ordering, EvalError> {
    if is_nan(left) || is_nan(right) {
        return Err(EvalError::invalid(function, "NaN values cannot be ordered"));
    }
    Ok(partial_order(meter, function, left, right)?.unwrap_or(Ordering::Equal))
}

fn is_nan(value: &Val<'_>) -> bool {
    matches!(value, Val::Double(number) if number.is_nan())
}

/// The order of two values, `None` when one is a NaN.
pub(crate) fn partial_order<'a>(
    meter: &Meter,
    function: &'static str,
    left: &Val<'a>,
    right: &Val<'a>,
) -> Result<Option<Ordering>, EvalError> {
    let bytes = match (left, right) {
        (Val::Str(left), Val::Str(right)) => left.len().min(right.len()),
        (Val::Bytes(left), Val::Bytes(right)) => left.len().min(right.len()),
        (Val::Bool(_), Val::Bool(_))
        | (Val::Duration(_), Val::Duration(_))
        | (Val::Timestamp(_), Val::Timestamp(_)) => 0,
        _ => {
            return numbers(left, right)
                .map_err(|NotNumbers| EvalError::no_such_overload(function, &[left.clone(), right.clone()]));
        }
    };
    meter.work(bytes)?;
    Ok(Some(total(left, right)))
}

/// The order of two values that are known to have one, such as the keys of a sort. Costs nothing here: the
/// caller has paid.
pub(crate) fn total(left: &Val<'_>, right: &Val<'_>) -> Ordering {
    let order = match (left, right) {
        (Val::Str(left), Val::Str(right)) => Some((**left).cmp(&**right)),
        (Val::Bytes(left), Val::Bytes(right)) => Some(Arc::as_ref(left).cmp(Arc::as_ref(right))),
        (Val::Bool(left), Val::Bool(right)) => Some(left.cmp(right)),
        (Val::Duration(left), Val::Duration(right)) => Some(left.cmp(right)),
        (Val::Timestamp(left), Val::Timestamp(right)) => Some(left.cmp(right)),
        _ => numbers(left, right).unwrap_or(None),
    };
    order.unwrap_or(Ordering::Equal)
}

/// One of two values is not a number.
struct NotNumbers;

/// The order of two numbers of any types; `None` when one is a NaN.
fn numbers(left: &Val<'_>, right: &Val<'_>) -> Result<Option<Ordering>, NotNumbers> {
    fn integer(value: &Val<'_>) -> Result<i128, NotNumbers> {
        match value {
            Val::Int(value) => Ok(i128::from(*value)),
            Val::Uint(value) => Ok(i128::from(*value)),
            _ => Err(NotNumbers),
        }
    }
    Ok(match (left, right) {
        (Val::Double(left), Val::Double(right)) => left.partial_cmp(right),
        (Val::Double(left), right) => left.partial_cmp(&rounded(right)?),
        (left, Val::Double(right)) => rounded(left)?.partial_cmp(right),
        (left, right) => Some(integer(left)?.cmp(&integer(right)?)),
    })
}

/// An integer as the nearest double: what cel-go compares with a double, so that integers beyond 2^53 equal one
/// that is near.
#[allow(clippy::cast_precision_loss)] // see above
fn rounded(value: &Val<'_>) -> Result<f64, NotNumbers> {
    match value {
        Val::Int(value) => Ok(*value as f64),
        Val::Uint(value) => Ok(*value as f64),
        _ => Err(NotNumbers),
    }
}
