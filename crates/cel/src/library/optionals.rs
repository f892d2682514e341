//! Optional values.

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::comparison;
use crate::value::temporal;
use crate::value::{Key, Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("optional.of", 1, |_, arguments| match arguments {
        [value] => Val::optional(value.clone()),
        _ => Err(EvalError::no_such_overload("optional.of", arguments)),
    }),
    Function::global("optional.none", 0, |_, _| Ok(Val::Optional(None))),
    Function::global("optional.ofNonZeroValue", 1, |_, arguments| match arguments {
        [value] if is_zero(value) => Ok(Val::Optional(None)),
        [value] => Val::optional(value.clone()),
        _ => Err(EvalError::no_such_overload("optional.ofNonZeroValue", arguments)),
    }),
    Function::member("hasValue", 1, |_, arguments| match arguments {
        [Val::Optional(optional)] => Ok(Val::Bool(optional.is_some())),
        _ => Err(EvalError::no_such_overload("hasValue", arguments)),
    }),
    Function::member("value", 1, |_, arguments| match arguments {
        [Val::Optional(Some(optional))] => Ok(optional.value.clone()),
        [Val::Optional(None)] => Err(EvalError::NoValue),
        _ => Err(EvalError::no_such_overload("value", arguments)),
    }),
    Function::global("optional.unwrap", 1, |meter, arguments| unwrap("optional.unwrap", meter, arguments)),
    Function::member("unwrapOpt", 1, |meter, arguments| unwrap("unwrapOpt", meter, arguments)),
];

/// What the optionals of a list hold, those that hold something.
fn unwrap<'a>(name: &'static str, meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload(name, arguments);
    let [list] = arguments else { return Err(mismatch()) };
    let mut found = Vec::new();
    for item in list.as_list().ok_or_else(mismatch)?.iter() {
        meter.count_steps(1)?;
        match item {
            Val::Optional(Some(optional)) => {
                meter.produce_items(1)?;
                found.push(optional.value.clone());
            }
            Val::Optional(None) => {}
            _ => return Err(mismatch()),
        }
    }
    Val::list(found)
}

/// A field that may be missing, which it is of scalars too. An error for lists, which are asked for an index.
pub(crate) fn get_field<'a>(value: &Val<'a>, name: &str) -> Result<Option<Val<'a>>, EvalError> {
    if value.is_list() {
        return Err(EvalError::no_such_overload("_._", std::slice::from_ref(value)));
    }
    Ok(comparison::get_field(value, name))
}

/// What a value has at an index or under a key. What is neither list nor map has nothing.
pub(crate) fn get_element_if_any<'a>(
    meter: &Meter,
    value: &Val<'a>,
    key: &Val<'a>,
) -> Result<Option<Val<'a>>, EvalError> {
    let holds = value.is_list() || matches!(value, Val::JsonMap(_) | Val::Map(_));
    if holds { get_element(meter, value, key) } else { Ok(None) }
}

/// An error for what is no key of any map, as in Kubernetes.
pub(crate) fn check_key(key: &Val<'_>) -> Result<(), EvalError> {
    match key {
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Str(_) => Ok(()),
        key => Err(EvalError::no_such_overload("_[?_]", std::slice::from_ref(key))),
    }
}

/// What a value has at an index or under a key. An error for values that have neither.
pub(crate) fn get_element<'a>(
    meter: &Meter,
    value: &Val<'a>,
    key: &Val<'a>,
) -> Result<Option<Val<'a>>, EvalError> {
    let mismatch = || EvalError::no_such_overload("_[_]", &[value.clone(), key.clone()]);
    if value.is_list() {
        let index = match Key::from_value(key) {
            Some(Key::Int(index)) => usize::try_from(index).ok(),
            // One beyond the integers is no index of any list, in Kubernetes.
            Some(Key::Uint(index)) if i64::try_from(index).is_ok() => usize::try_from(index).ok(),
            _ => return Err(mismatch()),
        };
        return Ok(index.and_then(|index| value.item(index)));
    }
    match value {
        Val::JsonMap(_) | Val::Map(_) => comparison::get_value(meter, value, key),
        _ => Err(Key::from_value(key).map_or_else(mismatch, |key| EvalError::no_such_key(&key.text()))),
    }
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(value) => !value,
        Val::Int(value) | Val::Duration(value) => *value == 0,
        Val::Uint(value) => *value == 0,
        Val::Double(value) => *value == 0.0,
        Val::Str(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::Timestamp(instant) => temporal::is_zero(instant),
        Val::JsonList(items) => items.is_empty(),
        Val::List(items) => items.items.is_empty(),
        Val::JsonMap(entries) => entries.is_empty(),
        Val::Map(entries) => entries.entries.is_empty(),
        Val::Struct(made) => made.fields.is_empty(),
        Val::Optional(_)
        | Val::Type(_)
        | Val::Quantity(_)
        | Val::Version(_)
        | Val::Url(_)
        | Val::Ip(_)
        | Val::Cidr(_)
        | Val::Format(_)
        | Val::Authorization(_) => false,
    }
}
