//! Constants of an expression as values.

use cel::common::ast::LiteralValue;

use crate::meter::Limits;
use crate::value::{Text, Val};

/// What converting one constant may cost.
pub(crate) const LIMITS: Limits = Limits { cost: 10_000, steps: 10_000, bytes: 64 << 10 };

pub(crate) fn constant(literal: &LiteralValue) -> Val<'static> {
    match literal {
        LiteralValue::Null => Val::Null,
        LiteralValue::Boolean(value) => Val::Bool(*value.inner()),
        LiteralValue::Int(value) => Val::Int(*value.inner()),
        LiteralValue::UInt(value) => Val::Uint(*value.inner()),
        LiteralValue::Double(value) => Val::Double(*value.inner()),
        LiteralValue::String(text) if text.inner().is_empty() => Val::Str(Text::Borrowed("")),
        LiteralValue::String(text) => Val::Str(Text::Shared(text.inner().into())),
        LiteralValue::Bytes(bytes) => Val::Bytes(bytes.inner().into()),
    }
}
