//! Merging a partial object into an object by Kubernetes' rules.
//!
//! Objects and maps merge field by field; null removes a field; list-map entries merge by their keys and new
//! ones are appended; sets grow; other lists and all scalars are replaced.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::schema::{Field, Key, Schema};

/// A partial object that does not fit.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum MergeError {
    #[error("{0} must be a list")]
    NotAList(String),
    #[error("an entry of {path} lacks its key {key}")]
    NoKey { path: String, key: &'static str },
}

/// Merges `overlay` into `target`; whether that changed anything. After an error `target` may be half merged.
pub(crate) fn merge(
    target: &mut Value,
    overlay: Map<String, Value>,
    schema: &'static Schema,
) -> Result<bool, MergeError> {
    Merge { path: Vec::new() }.object(target, overlay, Some(schema))
}

struct Merge {
    path: Vec<String>,
}

impl Merge {
    fn object(
        &mut self,
        target: &mut Value,
        overlay: Map<String, Value>,
        schema: Option<&'static Schema>,
    ) -> Result<bool, MergeError> {
        let mut changed = false;
        if !target.is_object() {
            *target = Value::Object(Map::new());
            changed = true;
        }
        let Some(fields) = target.as_object_mut() else { return Ok(changed) };
        for (name, value) in overlay {
            if value.is_null() {
                changed |= fields.remove(&name).is_some();
                continue;
            }
            let field = schema.and_then(|schema| schema.field(&name));
            // A field that is absent or null is made only if the overlay has something for it.
            let absent = fields.get(&name).is_none_or(Value::is_null);
            let keyed = matches!(field, Some(Field::Map(..) | Field::Set));
            if absent && (keyed && is_empty_list(&value) || only_removes(&value)) {
                continue;
            }
            let present = fields.contains_key(&name);
            self.path.push(name.clone());
            let existing = fields.entry(name).or_insert(Value::Null);
            changed |= self.field(existing, value, field)? || !present;
            self.path.pop();
        }
        Ok(changed)
    }

    fn field(
        &mut self,
        target: &mut Value,
        overlay: Value,
        field: Option<Field>,
    ) -> Result<bool, MergeError> {
        match (field, overlay) {
            (Some(Field::Map(keys, schema)), overlay) => self.list(target, overlay, keys, schema),
            (Some(Field::Set), overlay) => self.set(target, overlay),
            (Some(Field::Object(schema)), Value::Object(overlay)) => {
                self.object(target, overlay, Some(schema))
            }
            (None, Value::Object(overlay)) => self.object(target, overlay, None),
            (_, overlay) if *target == overlay => Ok(false),
            (_, overlay) => {
                *target = overlay;
                Ok(true)
            }
        }
    }

    fn list(
        &mut self,
        target: &mut Value,
        overlay: Value,
        keys: &'static [Key],
        schema: &'static Schema,
    ) -> Result<bool, MergeError> {
        let (entries, additions) = self.lists(target, overlay)?;
        let mut changed = false;
        for addition in additions {
            for key in keys.iter().filter(|key| key.default.is_none()) {
                if addition.get(key.field).is_none_or(Value::is_null) {
                    return Err(MergeError::NoKey { path: self.path.join("."), key: key.field });
                }
            }
            let Value::Object(addition) = addition else { continue };
            // Of entries that share a key the last one is in force, as with environment variables.
            let found = entries.iter().rposition(|entry| same_keys(entry, &addition, keys));
            let position = found.unwrap_or(entries.len());
            if found.is_none() {
                entries.push(Value::Object(Map::new()));
                changed = true;
            }
            if let Some(entry) = entries.get_mut(position) {
                self.path.push(position.to_string());
                changed |= self.object(entry, addition, Some(schema))?;
                self.path.pop();
            }
        }
        Ok(changed)
    }

    fn set(&mut self, target: &mut Value, overlay: Value) -> Result<bool, MergeError> {
        let (values, additions) = self.lists(target, overlay)?;
        let mut changed = false;
        for addition in additions {
            if !values.contains(&addition) {
                values.push(addition);
                changed = true;
            }
        }
        Ok(changed)
    }

    /// The target as a list, made so if null, and what the overlay has for it.
    fn lists<'t>(
        &self,
        target: &'t mut Value,
        overlay: Value,
    ) -> Result<(&'t mut Vec<Value>, Vec<Value>), MergeError> {
        if target.is_null() {
            *target = Value::Array(Vec::new());
        }
        match (target, overlay) {
            (Value::Array(target), Value::Array(overlay)) => Ok((target, overlay)),
            _ => Err(MergeError::NotAList(self.path.join("."))),
        }
    }
}

fn same_keys(entry: &Value, addition: &Map<String, Value>, keys: &[Key]) -> bool {
    keys.iter().all(|key| {
        let of_entry = entry.get(key.field).filter(|value| !value.is_null());
        let of_addition = addition.get(key.field).filter(|value| !value.is_null());
        match (of_entry, of_addition, key.default) {
            (Some(a), Some(b), _) => a == b,
            (Some(one), None, Some(default)) | (None, Some(one), Some(default)) => {
                one.as_str() == Some(default)
            }
            (None, None, default) => default.is_some(),
            (Some(_), None, None) | (None, Some(_), None) => false,
        }
    })
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Whether there is nothing in an object but fields to be removed.
fn only_removes(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => !fields.is_empty() && fields.values().all(only_removes),
        _ => false,
    }
}
