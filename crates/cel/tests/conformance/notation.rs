//! Values written so that those of two engines can be compared, in the form of `sallyport cel eval`.

use sallyport_cel::Value;
use serde_json::{Map, Value as Json, json};

/// The value's JSON: doubles always with a fraction or an exponent, so that they differ from integers.
pub(crate) fn write(value: &Value<'_>) -> Result<Json, String> {
    if let Some(items) = value.as_list() {
        return items.map(|item| write(&item)).collect();
    }
    if let Some(entries) = value.as_map() {
        let mut named = Map::new();
        let mut pairs = Vec::new();
        for (key, value) in &entries {
            let written = write(value)?;
            pairs.push(json!([write(key)?, written.clone()]));
            if let Some(name) = key.as_str() {
                named.insert(name.to_owned(), written);
            }
        }
        return Ok(if named.len() == pairs.len() { Json::Object(named) } else { json!({"$map": pairs}) });
    }
    if let Some(optional) = value.as_optional() {
        return Ok(match optional {
            Some(held) => json!({"$optional": write(&held)?}),
            None => json!({"$optional": "none"}),
        });
    }
    if let Some(name) = value.as_type() {
        return Ok(json!({"$type": name}));
    }
    if let Some(double) = value.as_double() {
        return Ok(crate::notation::double(double));
    }
    match value.to_text() {
        Some(text) => Ok(json!(text)),
        None => value.to_json().map_err(|error| error.to_string()),
    }
}

pub(crate) fn double(value: f64) -> Json {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(value)
    }
}
