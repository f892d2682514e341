//! The lists library, Kubernetes' part and cel-go's.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::arithmetic;
use crate::value::comparison;
use crate::value::{List, Operator, Outcome, Val};

/// Longest list that `lists.range` makes.
const MAX_RANGE: i64 = 100_000;
/// Deepest nesting that `flatten` takes apart.
const MAX_FLATTEN: i64 = 512;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::member("isSorted", 1, is_sorted),
    Function::member("sum", 1, |meter, a| sum(meter, a, Val::Int(0))),
    Function::member("min", 1, |meter, a| extreme("min", Ordering::Less, meter, a)),
    Function::member("max", 1, |meter, a| extreme("max", Ordering::Greater, meter, a)),
    Function::member("slice", 3, slice),
    Function::member("flatten", 1, flatten),
    Function::member("flatten", 2, flatten),
    Function::member("sort", 1, sort),
    Function::member("distinct", 1, distinct),
    Function::member("reverse", 1, reverse),
    Function::member("first", 1, |_, a| end("first", a, |_| 0)),
    Function::member("last", 1, |_, a| end("last", a, |length| length.saturating_sub(1))),
    Function::global("lists.range", 1, range),
];

fn only_list<'a>(name: &'static str, arguments: &[Val<'a>]) -> Result<List<'a>, EvalError> {
    match arguments {
        [list] => list.as_list(),
        _ => None,
    }
    .ok_or_else(|| EvalError::no_such_overload(name, arguments))
}

/// Whether values of its type have an order.
fn is_ordered(value: &Val<'_>) -> bool {
    matches!(
        value,
        Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::Str(_)
            | Val::Bytes(_)
            | Val::Duration(_)
            | Val::Timestamp(_)
    )
}

/// The order of two items, `None` when they have none: a NaN, or values of different types.
fn order<'a>(
    name: &'static str,
    meter: &Meter,
    left: &Val<'a>,
    right: &Val<'a>,
) -> Result<Option<Ordering>, EvalError> {
    meter.count_steps(1)?;
    match comparison::partial_order(meter, name, left, right) {
        Err(EvalError::NoSuchOverload(_)) => Ok(None),
        other => other,
    }
}

fn is_sorted<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let items = only_list("isSorted", arguments)?;
    let mut earlier: Option<Val<'a>> = None;
    for item in items.iter() {
        if !is_ordered(&item) {
            return Err(EvalError::no_such_overload("isSorted", arguments));
        }
        if let Some(earlier) = earlier
            && order("isSorted", meter, &earlier, &item)? == Some(Ordering::Greater)
        {
            return Ok(Val::Bool(false));
        }
        earlier = Some(item);
    }
    Ok(Val::Bool(true))
}

/// `sum` of a list whose items are known to be of another type than `int`, which shows when it is empty.
pub(crate) static SUM_OF_UINTS: Function = Function::member("sum", 1, |meter, a| sum(meter, a, Val::Uint(0)));
pub(crate) static SUM_OF_DOUBLES: Function =
    Function::member("sum", 1, |meter, a| sum(meter, a, Val::Double(0.0)));
pub(crate) static SUM_OF_DURATIONS: Function =
    Function::member("sum", 1, |meter, a| sum(meter, a, Val::Duration(0)));

fn sum<'a>(meter: &Meter, arguments: &[Val<'a>], zero: Val<'a>) -> Outcome<'a> {
    let items = only_list("sum", arguments)?;
    let mut total: Option<Val<'a>> = None;
    for item in items.iter() {
        meter.count_steps(1)?;
        if !matches!(item, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) {
            return Err(EvalError::no_such_overload("sum", arguments));
        }
        total = Some(match total {
            Some(total) => arithmetic::apply(meter, Operator::Add, total, &item)?,
            // Kubernetes begins with a zero, which makes a positive one of a negative.
            None => match item {
                Val::Double(number) => Val::Double(number + 0.0),
                item => item,
            },
        });
    }
    Ok(total.unwrap_or(zero))
}

fn extreme<'a>(name: &'static str, wanted: Ordering, meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let items = only_list(name, arguments)?;
    let mut found: Option<Val<'a>> = None;
    for item in items.iter() {
        meter.count_steps(1)?;
        if !is_ordered(&item) {
            return Err(EvalError::no_such_overload(name, arguments));
        }
        found = Some(match found {
            Some(found) if order(name, meter, &item, &found)? != Some(wanted) => found,
            _ => item,
        });
    }
    found.ok_or_else(|| EvalError::invalid(name, format!("{name} called on empty list")))
}

/// The first or last index of an item, or -1. Shares its name with the function of strings.
pub(crate) fn index_of<'a>(meter: &Meter, backwards: bool, items: &Val<'a>, item: &Val<'a>) -> Outcome<'a> {
    let mut found = Val::Int(-1);
    if let Some(items) = items.as_list() {
        for (index, candidate) in items.iter().enumerate() {
            if comparison::equal(meter, &candidate, item)? {
                found = Val::size(index);
                if !backwards {
                    break;
                }
            }
        }
    }
    Ok(found)
}

fn slice<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload("slice", arguments);
    let [list, Val::Int(start), Val::Int(end)] = arguments else { return Err(mismatch()) };
    let items = list.as_list().ok_or_else(mismatch)?;
    let range = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
    let refuse =
        |reason: String| EvalError::invalid("slice", format!("cannot slice({start}, {end}), {reason}"));
    let (from, to) = range.ok_or_else(|| refuse("negative indexes not supported".to_owned()))?;
    if from > to {
        return Err(refuse("start index must be less than or equal to end index".to_owned()));
    }
    if to > items.len() {
        return Err(refuse(format!("list is length {}", items.len())));
    }
    meter.produce_items(to - from)?;
    Val::list((from..to).map_while(|index| items.get(index)).collect())
}

fn flatten<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload("flatten", arguments);
    let (list, depth) = match arguments {
        [list] => (list, 1),
        [list, Val::Int(depth)] if (0..=MAX_FLATTEN).contains(depth) => (list, *depth),
        [_, Val::Int(..0)] => return Err(EvalError::invalid("flatten", "level must be non-negative")),
        // Nothing nests as deep.
        [list, Val::Int(_)] => (list, MAX_FLATTEN),
        _ => return Err(mismatch()),
    };
    let mut flat = Vec::new();
    // Lists being taken apart: the items, the next index, and how many levels may still be opened.
    let mut open = vec![(list.as_list().ok_or_else(mismatch)?, 0, depth)];
    while let Some((items, next, levels)) = open.last_mut() {
        meter.count_steps(1)?;
        let Some(item) = items.get(*next) else {
            open.pop();
            continue;
        };
        *next += 1;
        let levels = *levels;
        if let Some(inner) = item.as_list().filter(|_| levels > 0) {
            open.push((inner, 0, levels - 1));
        } else {
            meter.produce_items(1)?;
            flat.push(item);
        }
    }
    Val::list(flat)
}

fn sort<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let items = only_list("sort", arguments)?;
    meter.produce_items(items.len())?;
    let pairs = items.iter().map(|item| (item.clone(), item)).collect();
    sorted(meter, "sort", pairs)
}

/// Sorts items by keys; they alternate in `items`.
pub(crate) fn sort_pairs<'a>(meter: &Meter, items: Vec<Val<'a>>) -> Outcome<'a> {
    let mut items = items.into_iter();
    let mut pairs = Vec::with_capacity(items.len() / 2);
    while let (Some(item), Some(key)) = (items.next(), items.next()) {
        pairs.push((item, key));
    }
    sorted(meter, "sortBy", pairs)
}

/// Keys must all be of one type. That is seen to beforehand, and the work paid for, so that the order the sort
/// is given is total and cannot fail.
fn sorted<'a>(meter: &Meter, name: &'static str, mut pairs: Vec<(Val<'a>, Val<'a>)>) -> Outcome<'a> {
    let rounds = u64::from(usize::BITS - pairs.len().leading_zeros());
    let mut first: Option<&Val<'a>> = None;
    let mut has_nan = false;
    for (_, key) in &pairs {
        let first = *first.get_or_insert(key);
        if !is_ordered(first) {
            return Err(EvalError::invalid(name, "list elements must be comparable"));
        }
        if first.type_name() != key.type_name() {
            return Err(EvalError::invalid(name, "list elements must have the same type"));
        }
        has_nan |= matches!(key, Val::Double(number) if number.is_nan());
        let length = match key {
            Val::Str(text) => text.len(),
            Val::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        meter.count_steps(rounds.saturating_mul(1 + (length / 64) as u64))?;
    }
    if has_nan {
        sort_around_nan(meter, &mut pairs)?;
    } else {
        pairs.sort_by(|(_, left), (_, right)| comparison::total(left, right));
    }
    Val::list(pairs.into_iter().map(|(item, _)| item).collect())
}

/// A NaN is neither before nor after anything, so that nothing moves past it: what Kubernetes' sort makes of short
/// lists, those of up to twelve items.
fn sort_around_nan<'a>(meter: &Meter, pairs: &mut [(Val<'a>, Val<'a>)]) -> Result<(), EvalError> {
    for sorted in 1..pairs.len() {
        let mut at = sorted;
        while let Some([(_, left), (_, right)]) = at.checked_sub(1).and_then(|before| pairs.get(before..=at))
            && order("sort", meter, right, left)? == Some(Ordering::Less)
        {
            pairs.swap(at - 1, at);
            at -= 1;
        }
    }
    Ok(())
}

fn distinct<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let items = only_list("distinct", arguments)?;
    let mut found: Vec<Val<'a>> = Vec::new();
    'items: for item in items.iter() {
        for earlier in &found {
            if comparison::equal(meter, earlier, &item)? {
                continue 'items;
            }
        }
        meter.produce_items(1)?;
        found.push(item);
    }
    Val::list(found)
}

fn reverse<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let items = only_list("reverse", arguments)?;
    meter.produce_items(items.len())?;
    let mut reversed: Vec<Val<'a>> = items.iter().collect();
    reversed.reverse();
    Val::list(reversed)
}

fn end<'a>(name: &'static str, arguments: &[Val<'a>], index: fn(usize) -> usize) -> Outcome<'a> {
    let items = only_list(name, arguments)?;
    match items.get(index(items.len())) {
        Some(item) => Val::optional(item),
        None => Ok(Val::Optional(None)),
    }
}

fn range<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Int(length)] = arguments else {
        return Err(EvalError::no_such_overload("lists.range", arguments));
    };
    if *length > MAX_RANGE {
        return Err(EvalError::SizeExceeded);
    }
    meter.produce_items(usize::try_from(*length).unwrap_or(0))?;
    Val::list((0..*length).map(Val::Int).collect())
}
