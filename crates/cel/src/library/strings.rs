//! The strings library. Positions and lengths are in code points.

use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::library::lists;
use crate::meter::Meter;
use crate::value::{Outcome, Text, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::member("contains", 2, |meter, a| test("contains", meter, a, |text, part| text.contains(part))),
    Function::member("startsWith", 2, |meter, a| {
        test("startsWith", meter, a, |text, part| text.starts_with(part))
    }),
    Function::member("endsWith", 2, |meter, a| test("endsWith", meter, a, |text, part| text.ends_with(part))),
    Function::member("charAt", 2, char_at),
    Function::member("indexOf", 2, |meter, a| index_of("indexOf", false, meter, a)),
    Function::member("indexOf", 3, |meter, a| index_of("indexOf", false, meter, a)),
    Function::member("lastIndexOf", 2, |meter, a| index_of("lastIndexOf", true, meter, a)),
    Function::member("lastIndexOf", 3, |meter, a| index_of("lastIndexOf", true, meter, a)),
    Function::member("join", 1, join),
    Function::member("join", 2, join),
    Function::member("lowerAscii", 1, |meter, a| map("lowerAscii", meter, a, str::to_ascii_lowercase)),
    Function::member("upperAscii", 1, |meter, a| map("upperAscii", meter, a, str::to_ascii_uppercase)),
    Function::member("trim", 1, |meter, a| map("trim", meter, a, |text| text.trim().to_owned())),
    Function::member("replace", 3, replace),
    Function::member("replace", 4, replace),
    Function::member("split", 2, split),
    Function::member("split", 3, split),
    Function::member("substring", 2, substring),
    Function::member("substring", 3, substring),
    Function::global("strings.quote", 1, |meter, a| map("strings.quote", meter, a, quote)),
];

fn test<'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &[Val<'a>],
    holds: fn(&str, &str) -> bool,
) -> Outcome<'a> {
    let [Val::Str(text), Val::Str(part)] = arguments else {
        return Err(EvalError::no_such_overload(name, arguments));
    };
    meter.work(text.len() + part.len())?;
    Ok(Val::Bool(holds(text, part)))
}

fn map<'a>(name: &'static str, meter: &Meter, arguments: &[Val<'a>], map: fn(&str) -> String) -> Outcome<'a> {
    let [Val::Str(text)] = arguments else { return Err(EvalError::no_such_overload(name, arguments)) };
    meter.produce(text.len())?;
    Ok(Val::text(map(text)))
}

fn out_of_range(name: &'static str, index: i64) -> EvalError {
    EvalError::invalid(name, format!("index out of range: {index}"))
}

/// The byte at which the code point of this index begins; the length for the index after the last.
fn byte_offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(offset, _)| offset).chain([text.len()]).nth(index)
}

fn char_at<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Str(text), Val::Int(index)] = arguments else {
        return Err(EvalError::no_such_overload("charAt", arguments));
    };
    // Going from character to character takes longer than going over bytes.
    meter.work(text.len().saturating_mul(4))?;
    let offset = byte_offset(text, *index).ok_or_else(|| out_of_range("charAt", *index))?;
    let found = text.get(offset..).and_then(|rest| rest.chars().next());
    Ok(Val::text(found.map(String::from).unwrap_or_default()))
}

/// Strings: the code point at which a part begins, or -1; from, or up to, an index. Lists: see `lists`.
fn index_of<'a>(name: &'static str, backwards: bool, meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (text, part, bound) = match arguments {
        [list, item] if list.as_list().is_some() => {
            return lists::index_of(meter, backwards, list, item);
        }
        [Val::Str(text), Val::Str(part)] => (text, part, None),
        [Val::Str(text), Val::Str(part), Val::Int(bound)] => (text, part, Some(*bound)),
        _ => return Err(EvalError::no_such_overload(name, arguments)),
    };
    meter.work(text.len() + part.len())?;
    let bound = match bound {
        // Nothing is found everywhere, beyond the ends too.
        Some(bound) if part.is_empty() => return Ok(Val::Int(bound)),
        Some(bound) if bound < 0 => return Err(out_of_range(name, bound)),
        Some(bound) => match byte_offset(text, bound).filter(|offset| *offset < text.len()) {
            Some(offset) => Some(offset),
            None => return Ok(Val::Int(-1)),
        },
        None => None,
    };
    let found = if backwards {
        // The last that begins at the bound or before.
        let end = bound.map_or(text.len(), |bound| bound.saturating_add(part.len()).min(text.len()));
        let end = (0..=end).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let searched = text.get(..end).unwrap_or_default();
        searched.rfind(&**part).filter(|offset| bound.is_none_or(|bound| *offset <= bound))
    } else {
        let start = bound.unwrap_or(0);
        text.get(start..).and_then(|rest| rest.find(&**part)).map(|offset| start + offset)
    };
    Ok(match found.and_then(|offset| text.get(..offset)) {
        Some(before) => Val::size(before.chars().count()),
        None => Val::Int(-1),
    })
}

fn join<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload("join", arguments);
    let (list, separator) = match arguments {
        [list] => (list, ""),
        [list, Val::Str(separator)] => (list, &**separator),
        _ => return Err(mismatch()),
    };
    let items = list.as_list().ok_or_else(mismatch)?;
    let mut joined = String::new();
    for (index, item) in items.iter().enumerate() {
        let Val::Str(text) = item else { return Err(mismatch()) };
        meter.count_steps(1)?;
        meter.produce(text.len() + separator.len())?;
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&text);
    }
    Ok(Val::text(joined))
}

/// At most this many when not negative.
fn at_most(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn replace<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (text, old, new, limit) = match arguments {
        [Val::Str(text), Val::Str(old), Val::Str(new)] => (text, old, new, usize::MAX),
        [Val::Str(text), Val::Str(old), Val::Str(new), Val::Int(limit)] => (text, old, new, at_most(*limit)),
        _ => return Err(EvalError::no_such_overload("replace", arguments)),
    };
    // Counted before anything is copied: this is how a short expression grows a long string.
    meter.work(text.len())?;
    let places = text.matches(&**old).take(limit).count();
    meter.count_steps(places as u64)?;
    meter.produce(text.len().saturating_add(places.saturating_mul(new.len())))?;
    Ok(Val::text(text.replacen(&**old, new, places)))
}

fn split<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (text, separator, limit) = match arguments {
        [Val::Str(text), Val::Str(separator)] => (text, separator, usize::MAX),
        [Val::Str(text), Val::Str(separator), Val::Int(limit)] => (text, separator, at_most(*limit)),
        _ => return Err(EvalError::no_such_overload("split", arguments)),
    };
    let mut parts = Vec::new();
    let mut push = |part: &str| {
        meter.produce_items(1)?;
        meter.produce(part.len())?;
        parts.push(Val::Str(Text::Shared(Arc::from(part))));
        Ok::<(), EvalError>(())
    };
    if separator.is_empty() {
        // Every code point for itself, the rest in one piece when the limit is reached.
        let mut rest: &str = text;
        for _ in 1..limit {
            let Some(first) = rest.chars().next() else { break };
            let (part, after) = rest.split_at(first.len_utf8());
            push(part)?;
            rest = after;
        }
        if limit > 0 && !rest.is_empty() {
            push(rest)?;
        }
    } else {
        for part in text.splitn(limit, &**separator) {
            push(part)?;
        }
    }
    Val::list(parts)
}

fn substring<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (text, start, end) = match arguments {
        [Val::Str(text), Val::Int(start)] => (text, *start, None),
        [Val::Str(text), Val::Int(start), Val::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvalError::no_such_overload("substring", arguments)),
    };
    meter.work(text.len())?;
    if let Some(end) = end
        && end < start
    {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::invalid("substring", message));
    }
    let offset = |index| byte_offset(text, index).ok_or_else(|| out_of_range("substring", index));
    let from = offset(start)?;
    let to = end.map_or(Ok(text.len()), offset)?;
    let part = text.get(from..to).unwrap_or_default();
    meter.produce(part.len())?;
    Ok(Val::text(part.to_owned()))
}

/// As a literal of CEL.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
