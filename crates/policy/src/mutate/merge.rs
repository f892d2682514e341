//! Merging an overlay into an object.
//!
//! Objects and maps merge field by field, those too that Kubernetes takes for one value; null removes a field;
//! list-map entries merge by their keys and new ones are appended; sets grow; other lists and all scalars are
//! replaced.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use sallyport_document::{Members, Part, Tree};
use serde_json::{Map, Value};

use crate::error::MergeError;
use crate::schema::{Key, List, Relation, Schema};

/// Most comparisons of items, from which on they are looked up instead.
const MAX_COMPARISONS: usize = 10_000;

/// Merges `overlay` into `target`. Returns whether `target` changed. After an error it may be half merged.
pub(crate) fn merge(
    target: &mut Tree<'_>,
    overlay: Map<String, Value>,
    schema: Schema<'_>,
) -> Result<bool, MergeError> {
    Merge { path: Vec::new() }.merge_object(target, overlay, Some(schema))
}

struct Merge {
    path: Vec<String>,
}

impl Merge {
    fn merge_object(
        &mut self,
        target: &mut Tree<'_>,
        overlay: Map<String, Value>,
        schema: Option<Schema<'_>>,
    ) -> Result<bool, MergeError> {
        let mut changed = false;
        if !target.part().is_object() {
            *target = Tree::Object(Members::new());
            changed = true;
        }
        let Some(fields) = target.members_mut() else { return Ok(changed) };
        for (name, value) in overlay {
            if value.is_null() {
                changed |= fields.remove(name.as_str()).is_some();
                continue;
            }
            let field = schema.and_then(|schema| schema.entry(&name));
            // A field that is absent or null is made only if the overlay has something for it.
            let absent = fields.get(name.as_str()).is_none_or(|field| field.part().is_null());
            let keyed = field.and_then(Schema::list).is_some_and(|list| list.relation != Relation::Atomic);
            if absent && (keyed && is_empty_list(&value) || only_removes(&value)) {
                continue;
            }
            let present = fields.contains_key(name.as_str());
            self.path.push(name.clone());
            let existing = fields.entry(Cow::Owned(name)).or_insert(Tree::Made(Value::Null));
            changed |= self.merge_field(existing, value, field)? || !present;
            self.path.pop();
        }
        Ok(changed)
    }

    fn merge_field(
        &mut self,
        target: &mut Tree<'_>,
        overlay: Value,
        schema: Option<Schema<'_>>,
    ) -> Result<bool, MergeError> {
        let list = schema.and_then(|schema| schema.list().map(|list| (schema, list)));
        match (list, overlay) {
            (_, Value::Object(overlay)) if !only_list(schema) => self.merge_object(target, overlay, schema),
            (Some((schema, list @ List { relation: Relation::Map(keys), .. })), overlay) => {
                self.merge_list(target, overlay, keys, schema.at(list.items))
            }
            (Some((_, List { relation: Relation::Set, .. })), overlay) => self.merge_set(target, overlay),
            (_, overlay) if target.part() == overlay => Ok(false),
            (_, overlay) => {
                *target = Tree::Made(overlay);
                Ok(true)
            }
        }
    }

    fn merge_list(
        &mut self,
        target: &mut Tree<'_>,
        overlay: Value,
        keys: &[Key],
        schema: Schema<'_>,
    ) -> Result<bool, MergeError> {
        let mut changed = target.part().is_null();
        let (entries, additions) = self.open_lists(target, overlay)?;
        let mut places = are_many(entries, &additions).then(|| {
            let keys_of = |entry: &Tree<'_>| identify(entry.part(), keys);
            entries.iter().map(keys_of).zip(0..).collect::<HashMap<_, usize>>()
        });
        for addition in additions {
            for key in keys.iter().filter(|key| key.meant().is_none()) {
                if addition.get(&*key.field).is_none_or(Value::is_null) {
                    return Err(MergeError::NoKey { path: self.path.join("."), key: key.field.to_string() });
                }
            }
            if !addition.is_object() {
                continue;
            }
            // Of entries that share a key the last one is in force, as with environment variables.
            let next = entries.len();
            let found = match &mut places {
                None => entries.iter().rposition(|entry| same_keys(entry.part(), &addition, keys)),
                Some(places) => {
                    let place = *places.entry(identify(Part::Made(&addition), keys)).or_insert(next);
                    Some(place).filter(|place| *place < next)
                }
            };
            let Value::Object(addition) = addition else { continue };
            let position = found.unwrap_or(next);
            if found.is_none() {
                entries.push(Tree::Object(Members::new()));
                changed = true;
            }
            if let Some(entry) = entries.get_mut(position) {
                self.path.push(position.to_string());
                changed |= self.merge_object(entry, addition, Some(schema))?;
                self.path.pop();
            }
        }
        Ok(changed)
    }

    fn merge_set(&mut self, target: &mut Tree<'_>, overlay: Value) -> Result<bool, MergeError> {
        let mut changed = target.part().is_null();
        let (values, additions) = self.open_lists(target, overlay)?;
        let mut known = are_many(values, &additions)
            .then(|| values.iter().map(|value| value.part().to_value()).collect::<HashSet<Value>>());
        for addition in additions {
            let new = match &mut known {
                None => !values.iter().any(|value| value.part() == addition),
                Some(known) => known.insert(addition.clone()),
            };
            if new {
                values.push(Tree::Made(addition));
                changed = true;
            }
        }
        Ok(changed)
    }

    /// The target as a list, made so if null, and what the overlay has for it.
    fn open_lists<'t, 'd>(
        &self,
        target: &'t mut Tree<'d>,
        overlay: Value,
    ) -> Result<(&'t mut Vec<Tree<'d>>, Vec<Value>), MergeError> {
        if target.part().is_null() {
            *target = Tree::Array(Vec::new());
        }
        match (target.items_mut(), overlay) {
            (Some(target), Value::Array(overlay)) => Ok((target, overlay)),
            _ => Err(MergeError::NotAList(self.path.join("."))),
        }
    }
}

/// Returns whether a field can only be a list that merges item by item.
fn only_list(schema: Option<Schema<'_>>) -> bool {
    let Some(schema) = schema else { return false };
    schema.map().is_none() && schema.list().is_some_and(|list| list.relation != Relation::Atomic)
}

fn same_keys(entry: Part<'_>, addition: &Value, keys: &[Key]) -> bool {
    keys.iter().all(|key| {
        let of_entry = entry.get(&key.field).filter(|value| !value.is_null());
        let of_addition = addition.get(&*key.field).filter(|value| !value.is_null());
        match (of_entry, of_addition, key.meant()) {
            (Some(a), Some(b), _) => a == *b,
            (Some(one), None, Some(default)) => one == *default,
            (None, Some(one), Some(default)) => one == default,
            (None, None, default) => default.is_some(),
            (Some(_), None, None) | (None, Some(_), None) => false,
        }
    })
}

/// What tells an entry from the others: of each key its value, or what a missing one counts as.
fn identify(entry: Part<'_>, keys: &[Key]) -> Vec<Option<Value>> {
    let value = |key: &Key| {
        let own = entry.get(&key.field).filter(|value| !value.is_null());
        own.map(Part::to_value).or_else(|| key.meant().cloned())
    };
    keys.iter().map(value).collect()
}

/// Returns whether comparing every addition with every item takes too long.
fn are_many(items: &[Tree<'_>], additions: &[Value]) -> bool {
    let all = items.len().saturating_add(additions.len());
    additions.len().saturating_mul(all) > MAX_COMPARISONS
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Returns whether there is nothing in an object but fields to be removed.
fn only_removes(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => !fields.is_empty() && fields.values().all(only_removes),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sallyport_document::{Document, Tree};
    use serde_json::{Value, json};

    use super::merge;
    use crate::request::GroupVersionKind;
    use crate::schema::Schemas;

    fn merged(group: &str, kind: &str, target: &Value, overlay: &Value) -> Result<Value, String> {
        let schemas = Schemas::default();
        let kind =
            GroupVersionKind { group: group.to_owned(), version: "v1".to_owned(), kind: kind.to_owned() };
        let schema = schemas.of_kind_or_other(&kind);
        let fields = overlay.as_object().unwrap().clone();
        let document = Document::of(target).unwrap();
        // As it was read, and as something that was made before.
        let results = [Tree::Read(document.root()), Tree::Made(target.clone())].map(|mut tree| {
            let changed = merge(&mut tree, fields.clone(), schema).map_err(|error| error.to_string())?;
            let once = tree.part().to_value();
            assert_eq!(changed, once != *target, "{target} {overlay}");
            assert_eq!(document.root() == tree.part(), once == *target, "{target} {overlay}");
            assert_eq!(tree.document().unwrap().root(), Document::of(&once).unwrap().root());
            assert_eq!(merge(&mut tree, fields.clone(), schema), Ok(false), "{once}");
            assert_eq!(tree.part(), once);
            Ok(once)
        });
        let [read, made] = results;
        assert_eq!(read, made, "{target} {overlay}");
        read
    }

    #[test]
    fn lists_of_pods_merge_by_their_keys() {
        // Below `spec` of a pod: before, overlay, after.
        let rows = [
            (json!({}), json!({"volumes": []}), json!({})),
            (
                json!({"volumes": null}),
                json!({"volumes": [{"name": "v"}]}),
                json!({"volumes": [{"name": "v"}]}),
            ),
            (
                json!({"containers": [{"name": "a", "image": "x"}]}),
                json!({"containers": [{"name": "b"}, {"name": "a", "image": "y"}]}),
                json!({"containers": [{"name": "a", "image": "y"}, {"name": "b"}]}),
            ),
            (
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}]}),
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]}]}),
                json!({"containers": [{"name": "a", "ports": [
                    {"containerPort": 80, "protocol": "TCP", "name": "web"}, {"containerPort": 80, "protocol": "UDP"}]}]}),
            ),
            (
                json!({"containers": [{"name": "a", "volumeMounts": [{"name": "x", "mountPath": "/m"}]}]}),
                json!({"containers": [{"name": "a", "volumeMounts": [{"name": "y", "mountPath": "/m"}, {"name": "x", "mountPath": "/n"}]}]}),
                json!({"containers": [{"name": "a", "volumeMounts": [{"name": "y", "mountPath": "/m"}, {"name": "x", "mountPath": "/n"}]}]}),
            ),
            (
                json!({"containers": [{"name": "a", "env": [{"name": "E", "value": "1"}, {"name": "E", "value": "2"}]}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "E", "value": "3"}]}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "E", "value": "1"}, {"name": "E", "value": "3"}]}]}),
            ),
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
                json!({"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]}),
                json!({"topologySpreadConstraints": [
                    {"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
                    {"topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]}),
            ),
            (
                json!({"tolerations": [{"key": "a"}]}),
                json!({"tolerations": [{"key": "b"}]}),
                json!({"tolerations": [{"key": "b"}]}),
            ),
            (
                json!({"nodeSelector": {"a": "x"}}),
                json!({"nodeSelector": {"b": "y"}}),
                json!({"nodeSelector": {"a": "x", "b": "y"}}),
            ),
            (
                json!({"a": 1, "b": {"c": 1, "d": 2}}),
                json!({"a": null, "b": {"c": null}, "e": {"f": null}}),
                json!({"b": {"d": 2}}),
            ),
            (json!({}), json!({"v": {"emptyDir": {}}}), json!({"v": {"emptyDir": {}}})),
            (
                json!({"imagePullSecrets": [{"name": "a"}], "hostAliases": [{"ip": "::1", "hostnames": ["x"]}]}),
                json!({"imagePullSecrets": [{"name": "b"}], "hostAliases": [{"ip": "::1", "hostnames": ["y"]}]}),
                json!({"imagePullSecrets": [{"name": "a"}, {"name": "b"}], "hostAliases": [{"ip": "::1", "hostnames": ["y"]}]}),
            ),
        ];
        for (before, overlay, after) in rows {
            let spec = |value: &Value| json!({"spec": value});
            assert_eq!(merged("", "Pod", &spec(&before), &spec(&overlay)), Ok(spec(&after)));
            let template = |value: &Value| json!({"spec": {"template": {"spec": value}}});
            assert_eq!(
                merged("apps", "StatefulSet", &template(&before), &template(&overlay)),
                Ok(template(&after))
            );
            let job =
                |value: &Value| json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": value}}}}});
            assert_eq!(merged("batch", "CronJob", &job(&before), &job(&overlay)), Ok(job(&after)));
        }
    }

    #[test]
    fn other_kinds_have_their_metadata_and_conditions() {
        let target = json!({"metadata": {"finalizers": ["a"]}, "status": {"conditions": [{"type": "Ready", "status": "x"}]},
                            "spec": {"containers": [{"name": "a"}]}});
        let overlay = json!({"metadata": {"finalizers": ["b", "a"]}, "status": {"conditions": [{"type": "Ready", "status": "y"}]},
                             "spec": {"containers": [{"name": "b"}]}});
        assert_eq!(
            merged("example.dev", "Pod", &target, &overlay),
            Ok(
                json!({"metadata": {"finalizers": ["a", "b"]}, "status": {"conditions": [{"type": "Ready", "status": "y"}]},
                      "spec": {"containers": [{"name": "b"}]}})
            )
        );
        let service = json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}]}});
        assert_eq!(
            merged("", "Service", &service, &json!({"spec": {"ports": [{"port": 53}]}})),
            Ok(json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]}}))
        );
    }

    /// Long lists are merged by looking their items up, which must mean the same and end soon.
    #[test]
    fn long_lists_merge_as_short_ones_do() {
        let entries = |count: usize, entry: &dyn Fn(usize) -> Value| (0..count).map(entry).collect::<Value>();
        for count in [10, 5_000] {
            let env = |list: Value| json!({"spec": {"containers": [{"name": "a", "env": list}]}});
            // Every second one is there already, twice.
            let before =
                entries(count, &|n| json!({"name": format!("E{}", n / 2 * 4), "value": n.to_string()}));
            let overlay = entries(count, &|n| json!({"name": format!("E{}", n * 2), "value": "new"}));
            let after = (0..count)
                .map(|n| if n % 2 == 0 { json!(n.to_string()) } else { json!("new") })
                .zip(before.as_array().unwrap())
                .map(|(value, entry)| json!({"name": entry["name"], "value": value}))
                .chain(
                    overlay
                        .as_array()
                        .unwrap()
                        .iter()
                        .enumerate()
                        .filter(|(n, _)| n % 2 == 1)
                        .map(|(_, entry)| entry.clone()),
                )
                .collect::<Value>();
            assert_eq!(merged("", "Pod", &env(before), &env(overlay)), Ok(env(after)), "{count} variables");

            let ports = |list: Value| json!({"spec": {"containers": [{"name": "a", "ports": list}]}});
            let plain = entries(count, &|n| json!({"containerPort": n}));
            let udp = entries(count, &|n| json!({"containerPort": n, "protocol": "UDP"}));
            let tcp = entries(count, &|n| json!({"containerPort": n, "protocol": "TCP"}));
            assert_eq!(
                merged("", "Pod", &ports(plain.clone()), &ports(tcp.clone())),
                Ok(ports(tcp)),
                "{count} ports of the default protocol"
            );
            let both: Value =
                plain.as_array().unwrap().iter().chain(udp.as_array().unwrap()).cloned().collect();
            assert_eq!(
                merged("", "Pod", &ports(plain), &ports(udp)),
                Ok(ports(both)),
                "{count} ports of another protocol"
            );

            let finalizers = |from: usize, to: usize| -> Value {
                let names = (from..to).map(|n| json!(format!("example.dev/{n}"))).collect::<Value>();
                json!({"metadata": {"finalizers": names}})
            };
            assert_eq!(
                merged("", "Pod", &finalizers(0, count), &finalizers(count / 2, count * 2)),
                Ok(finalizers(0, count * 2)),
                "{count} members of a set"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_with_its_path() {
        let rows = [
            (
                json!({"spec": {"containers": "x"}}),
                json!({"spec": {"containers": [{"name": "a"}]}}),
                "spec.containers must be a list",
            ),
            (json!({}), json!({"spec": {"containers": {"name": "a"}}}), "spec.containers must be a list"),
            (
                json!({}),
                json!({"spec": {"containers": [{"image": "a"}]}}),
                "an entry of spec.containers lacks its key name",
            ),
            (
                json!({}),
                json!({"spec": {"containers": ["a"]}}),
                "an entry of spec.containers lacks its key name",
            ),
        ];
        for (target, overlay, expected) in rows {
            assert_eq!(merged("", "Pod", &target, &overlay), Err(expected.to_owned()));
        }
        let hostile = json!({"metadata": "text", "spec": {"containers": [1, null, {"name": 7}]}});
        let overlay = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a"}]}});
        assert_eq!(
            merged("", "Pod", &hostile, &overlay),
            Ok(
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [1, null, {"name": 7}, {"name": "a"}]}})
            )
        );
    }
}
