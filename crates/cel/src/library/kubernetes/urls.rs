//! The URL library: `url('https://example.com/')` and its parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::url::{Url, check, parse};
use crate::value::{Key, Outcome, Text, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("url", 1, |meter, arguments| {
        let text = source("url", meter, arguments)?;
        parse(text).map(|url| Val::Url(Arc::new(url))).map_err(|fault| {
            let message = fault.shortened();
            EvalError::invalid("url", format!("URL parse error during conversion from string: {message}"))
        })
    }),
    Function::global("isURL", 1, |meter, arguments| {
        Ok(Val::Bool(check(source("isURL", meter, arguments)?).is_ok()))
    }),
    Function::member("getScheme", 1, |meter, a| part("getScheme", meter, a, Url::scheme)),
    Function::member("getHost", 1, |meter, a| part("getHost", meter, a, Url::host)),
    Function::member("getHostname", 1, |meter, a| {
        host_part("getHostname", meter, a, |url| url.host_and_port().0)
    }),
    Function::member("getPort", 1, |meter, a| host_part("getPort", meter, a, |url| url.host_and_port().1)),
    Function::member("getEscapedPath", 1, |meter, a| part("getEscapedPath", meter, a, Url::path)),
    Function::member("getQuery", 1, query),
];

/// What the parts and the text of a URL take, for a byte of its source.
const BYTES_PER_BYTE: usize = 8;

fn source<'v>(name: &'static str, meter: &Meter, arguments: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    let [Val::Str(text)] = arguments else { return Err(EvalError::no_such_overload(name, arguments)) };
    meter.produce(text.len().saturating_mul(BYTES_PER_BYTE))?;
    Ok(text)
}

fn part<'a>(name: &'static str, meter: &Meter, arguments: &[Val<'a>], of: fn(&Url) -> &str) -> Outcome<'a> {
    let [Val::Url(url)] = arguments else { return Err(EvalError::no_such_overload(name, arguments)) };
    let part = of(url);
    meter.produce(part.len())?;
    Ok(Val::Str(Text::Shared(part.into())))
}

/// A part of the host, for which that is searched.
fn host_part<'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &[Val<'a>],
    of: fn(&Url) -> &str,
) -> Outcome<'a> {
    if let [Val::Url(url)] = arguments {
        meter.work(url.host().len())?;
    }
    part(name, meter, arguments, of)
}

/// The parameters of the query: what is not written as one is left out.
fn query<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Url(url)] = arguments else { return Err(EvalError::no_such_overload("getQuery", arguments)) };
    meter.produce(url.query().len())?;
    let mut parameters: BTreeMap<String, Vec<Val<'a>>> = BTreeMap::new();
    for (key, value) in url.parameters() {
        meter.produce_items(2)?;
        parameters.entry(key).or_default().push(Val::text(value));
    }
    let entries = parameters
        .into_iter()
        .map(|(key, values)| Ok((Key::Str(Text::Shared(key.into())), Val::list(values)?)))
        .collect::<Result<_, EvalError>>()?;
    Val::map(meter, entries)
}
