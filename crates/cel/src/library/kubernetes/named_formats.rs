//! The format library: `format.dns1123Label().validate('a')`, and the other formats of Kubernetes by name.

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::named_format::named;
use crate::value::{Outcome, Text, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("format.named", 1, |meter, arguments| {
        let [Val::Str(name)] = arguments else {
            return Err(EvalError::no_such_overload("format.named", arguments));
        };
        meter.work(name.len())?;
        match named(name) {
            Some(format) => Val::optional(Val::Format(format)),
            None => Ok(Val::Optional(None)),
        }
    }),
    Function::member("validate", 2, validate),
    Function::global("format.dns1123Label", 0, |_, _| constant("dns1123Label")),
    Function::global("format.dns1123Subdomain", 0, |_, _| constant("dns1123Subdomain")),
    Function::global("format.dns1035Label", 0, |_, _| constant("dns1035Label")),
    Function::global("format.qualifiedName", 0, |_, _| constant("qualifiedName")),
    Function::global("format.dns1123LabelPrefix", 0, |_, _| constant("dns1123LabelPrefix")),
    Function::global("format.dns1123SubdomainPrefix", 0, |_, _| constant("dns1123SubdomainPrefix")),
    Function::global("format.dns1035LabelPrefix", 0, |_, _| constant("dns1035LabelPrefix")),
    Function::global("format.labelValue", 0, |_, _| constant("labelValue")),
    Function::global("format.uri", 0, |_, _| constant("uri")),
    Function::global("format.uuid", 0, |_, _| constant("uuid")),
    Function::global("format.byte", 0, |_, _| constant("byte")),
    Function::global("format.date", 0, |_, _| constant("date")),
    Function::global("format.datetime", 0, |_, _| constant("datetime")),
];

/// Longest message but for the text that it may repeat, escaped.
const MESSAGE_BYTES: usize = 1_024;
const BYTES_PER_BYTE: usize = 8;

fn constant<'a>(name: &'static str) -> Outcome<'a> {
    named(name).map(Val::Format).ok_or_else(|| EvalError::no_such_overload(name, &[]))
}

/// Nothing when the text is of the format, else what is wrong.
fn validate<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Format(format), Val::Str(text)] = arguments else {
        return Err(EvalError::no_such_overload("validate", arguments));
    };
    meter.produce(text.len().saturating_mul(BYTES_PER_BYTE).saturating_add(MESSAGE_BYTES))?;
    let faults = format.faults(text);
    if faults.is_empty() {
        return Ok(Val::Optional(None));
    }
    let faults = faults.into_iter().map(|fault| Val::Str(Text::Shared(fault.into()))).collect();
    Val::optional(Val::list(faults)?)
}
