//! Values written as JSON.

use base64::Engine as _;
use serde_json::{Map, Number, Value as Json};

use crate::error::EvalError;
use crate::value::temporal;
use crate::value::{MAX_NESTING, Val};

/// Most that a value may take, counting the text and a node's own size.
const MAX_BYTES: usize = 8 << 20;
/// What a node counts besides its text.
const NODE_BYTES: usize = 32;

pub(crate) fn write(value: &Val<'_>) -> Result<Json, EvalError> {
    Writer { left: MAX_BYTES }.value(value, 0)
}

struct Writer {
    left: usize,
}

impl Writer {
    fn spend(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.left = self.left.checked_sub(bytes).ok_or(EvalError::SizeExceeded)?;
        Ok(())
    }

    fn value(&mut self, value: &Val<'_>, depth: usize) -> Result<Json, EvalError> {
        if depth > MAX_NESTING {
            return Err(EvalError::TooDeep);
        }
        self.spend(NODE_BYTES)?;
        Ok(match value {
            Val::Null => Json::Null,
            Val::Bool(value) => Json::Bool(*value),
            Val::Int(value) => Json::from(*value),
            Val::Uint(value) => Json::from(*value),
            Val::Double(number) => {
                Json::Number(Number::from_f64(*number).ok_or(EvalError::NotJson(value.type_name()))?)
            }
            Val::Str(text) => {
                self.spend(text.len())?;
                Json::String(text.to_string())
            }
            Val::Bytes(bytes) => {
                self.spend(bytes.len().saturating_mul(2))?;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Val::Duration(nanoseconds) => Json::String(temporal::duration_text(*nanoseconds)),
            Val::Timestamp(instant) => Json::String(temporal::timestamp_text(instant)?),
            Val::JsonList(_) | Val::List(_) => self.list(value, depth)?,
            Val::JsonMap(map) => {
                self.map(map.entries().map(|(k, v)| (k.to_owned(), Val::from_json(v))), depth)?
            }
            Val::Map(map) => {
                self.map(map.entries.iter().map(|(k, v)| (k.text().into_owned(), v.clone())), depth)?
            }
            Val::Struct(made) => {
                self.map(made.fields.iter().map(|(k, v)| (k.to_string(), v.clone())), depth)?
            }
            Val::Optional(_)
            | Val::Type(_)
            | Val::Quantity(_)
            | Val::Version(_)
            | Val::Url(_)
            | Val::Ip(_)
            | Val::Cidr(_)
            | Val::Format(_)
            | Val::Authorization(_) => {
                return Err(EvalError::NotJson(value.type_name()));
            }
        })
    }

    fn list(&mut self, value: &Val<'_>, depth: usize) -> Result<Json, EvalError> {
        let items = value.as_list().ok_or(EvalError::NotJson("list"))?;
        let mut written = Vec::new();
        for item in items.iter() {
            written.push(self.value(&item, depth + 1)?);
        }
        Ok(Json::Array(written))
    }

    fn map<'a>(
        &mut self,
        entries: impl Iterator<Item = (String, Val<'a>)>,
        depth: usize,
    ) -> Result<Json, EvalError> {
        let mut written = Map::new();
        for (key, value) in entries {
            self.spend(key.len())?;
            let value = self.value(&value, depth + 1)?;
            written.insert(key, value);
        }
        Ok(Json::Object(written))
    }
}
