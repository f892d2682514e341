//! Constants of an expression as values.

use crate::meter::Limits;
use crate::syntax::ast::LiteralValue;
use crate::value::{Text, Val};

/// What converting one constant may cost.
pub(crate) const LIMITS: Limits = Limits { cost: 10_000, steps: 10_000, bytes: 64 << 10 };

pub(crate) fn constant(literal: &LiteralValue) -> Val<'static> {
    match literal {
        LiteralValue::Null => Val::Null,
        LiteralValue::Boolean(value) => Val::Bool(*value),
        LiteralValue::Int(value) => Val::Int(*value),
        LiteralValue::UInt(value) => Val::Uint(*value),
        LiteralValue::Double(value) => Val::Double(*value),
        LiteralValue::String(text) if text.is_empty() => Val::Str(Text::Borrowed("")),
        LiteralValue::String(text) => Val::Str(Text::Shared(text.as_str().into())),
        LiteralValue::Bytes(bytes) => Val::Bytes(bytes.as_slice().into()),
    }
}
