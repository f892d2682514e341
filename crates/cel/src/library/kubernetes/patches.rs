//! `jsonpatch.escapeKey`, for the paths of `JSONPatch{…}`.

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[Function::global("jsonpatch.escapeKey", 1, escape_key)];

/// RFC 6901: `~` becomes `~0` and `/` becomes `~1`.
fn escape_key<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Str(key)] = arguments else {
        return Err(EvalError::no_such_overload("jsonpatch.escapeKey", arguments));
    };
    meter.produce(key.len().saturating_mul(2))?;
    Ok(Val::text(key.replace('~', "~0").replace('/', "~1")))
}
