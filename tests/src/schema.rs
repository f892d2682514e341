//! The policy engine's table of Kubernetes' types (`crates/policy/src/schema/table.txt`), made from what an API
//! server serves: discovery says which resources there are, its `OpenAPI` v3 documents what their objects are.
//!
//! Everything that is built in is in the table, alpha and beta included, and nothing else that the documents say:
//! no descriptions, no lists of kinds, no options. One line a kind, a resource or a type; the same API server
//! always gives the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use sallyport_testkit::ControlPlane;
use serde_json::Value;

/// Where the table is committed.
///
/// # Panics
/// When this crate does not lie in the repository.
pub fn path() -> PathBuf {
    crate::root().join("crates/policy/src/schema/table.txt")
}

/// The table of an API server of this release with every API switched on.
pub async fn generate() -> Result<String> {
    let plane = ControlPlane::builder().api_server_arg("--runtime-config=api/all=true").start().await?;
    let version: Value = get(&plane, "/version").await?;
    let version = text(&version, "gitVersion")?.to_owned();
    let mut table = Table::default();
    for (group, version, path) in groups(&plane).await? {
        table.resources(&group, &version, &get(&plane, &path).await?)?;
        let document = get(&plane, &format!("/openapi/v3{path}")).await?;
        table.types(&document)?;
    }
    plane.stop()?;
    table.render(&version)
}

async fn get(plane: &ControlPlane, path: &str) -> Result<Value> {
    let answer = plane.kubectl(&["get", "--raw", path], None).await?.ok()?;
    serde_json::from_str(&answer).with_context(|| format!("{path} is no JSON"))
}

/// Group, version and path of everything served.
async fn groups(plane: &ControlPlane) -> Result<Vec<(String, String, String)>> {
    let mut found = vec![(String::new(), "v1".to_owned(), "/api/v1".to_owned())];
    let groups = get(plane, "/apis").await?;
    for group in list(&groups, "groups") {
        for version in list(group, "versions") {
            let path = format!("/apis/{}", text(version, "groupVersion")?);
            found.push((text(group, "name")?.to_owned(), text(version, "version")?.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

/// Group, version and kind.
type Kind = (String, String, String);

#[derive(Default)]
struct Table {
    /// By group, version and name (with a subresource); the kind of its objects.
    resources: BTreeMap<(String, String, String), Kind>,
    /// Group and name of the resources that are stored in one place.
    stored: BTreeMap<String, BTreeSet<(String, String)>>,
    /// The name of each kind's type.
    kinds: BTreeMap<Kind, String>,
    /// Every type's schema by its name.
    schemas: BTreeMap<String, Value>,
}

impl Table {
    fn resources(&mut self, group: &str, version: &str, discovered: &Value) -> Result<()> {
        for resource in list(discovered, "resources") {
            let name = text(resource, "name")?;
            let own = |field: &str, otherwise: &str| {
                resource.get(field).and_then(Value::as_str).unwrap_or(otherwise).to_owned()
            };
            let kind = (
                if resource.get("version").is_some() { own("group", "") } else { group.to_owned() },
                own("version", version),
                text(resource, "kind")?.to_owned(),
            );
            if let Some(hash) = resource.get("storageVersionHash").and_then(Value::as_str) {
                self.stored.entry(hash.to_owned()).or_default().insert((group.to_owned(), name.to_owned()));
            }
            self.resources.insert((group.to_owned(), version.to_owned(), name.to_owned()), kind);
        }
        Ok(())
    }

    fn types(&mut self, document: &Value) -> Result<()> {
        let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
        for (name, schema) in schemas.context("an OpenAPI document without schemas")? {
            for kind in list(schema, "x-kubernetes-group-version-kind") {
                let key = |field: &str| text(kind, field).map(str::to_owned);
                self.kinds.insert((key("group")?, key("version")?, key("kind")?), name.clone());
            }
            self.schemas.insert(name.clone(), schema.clone());
        }
        Ok(())
    }

    fn render(&self, version: &str) -> Result<String> {
        let mut out = format!(
            "# The types of Kubernetes {version}, as its API server describes them. Made by `make schema`; not to be \
             edited.\n"
        );
        let mut kinds: BTreeSet<&Kind> = BTreeSet::new();
        for ((group, version, name), kind) in &self.resources {
            let (of, at, kind_name) = kind;
            writeln!(out, "resource {} {version} {name} {} {at} {kind_name}", dash(group), dash(of))?;
            if self.kinds.contains_key(kind) {
                kinds.insert(kind);
            }
        }
        for together in self.stored.values().filter(|together| together.len() > 1) {
            let names: Vec<String> =
                together.iter().map(|(group, name)| format!("{} {name}", dash(group))).collect();
            writeln!(out, "together {}", names.join(" "))?;
        }
        let mut pending: BTreeSet<String> = BTreeSet::new();
        for kind in kinds {
            let (group, version, name) = kind;
            let Some(of) = self.kinds.get(kind) else { continue };
            writeln!(out, "kind {} {version} {name} {}", dash(group), short(of))?;
            pending.insert(of.clone());
        }
        let mut written: BTreeMap<String, String> = BTreeMap::new();
        while let Some(name) = pending.pop_first() {
            if written.contains_key(&name) {
                continue;
            }
            let schema = self.schemas.get(&name).with_context(|| format!("no schema of {name}"))?;
            let mut writer = Writer { table: self, referred: BTreeSet::new() };
            let text = writer.definition(&name, schema).with_context(|| format!("in {name}"))?;
            pending.extend(writer.referred);
            written.insert(name, text);
        }
        for text in written.values() {
            out.push_str(text);
        }
        Ok(out)
    }
}

/// Writes one type and notes those it refers to.
struct Writer<'t> {
    table: &'t Table,
    referred: BTreeSet<String>,
}

impl Writer<'_> {
    fn definition(&mut self, name: &str, schema: &Value) -> Result<String> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let Some(properties) = properties.filter(|_| !is_special(name)) else {
            return Ok(format!("type {} {}\n", short(name), self.expression(name, schema)?));
        };
        ensure!(schema.get("additionalProperties").is_none(), "both properties and additionalProperties");
        ensure!(kind_of(schema) == "object", "properties of what is no object");
        let mut text = format!("type {} {{}}{}\n", short(name), relation_of_map(schema)?);
        for (field, schema) in properties {
            let expression = self.reference(schema).with_context(|| format!("in field {field}"))?;
            writeln!(text, " {field} {expression}")?;
        }
        Ok(text)
    }

    /// What stands where a type is used.
    fn reference(&mut self, schema: &Value) -> Result<String> {
        let all_of = list(schema, "allOf");
        let direct = schema.get("$ref").and_then(Value::as_str);
        let reference = match (direct, all_of) {
            (Some(reference), _) => Some(reference),
            (None, [only]) => only.get("$ref").and_then(Value::as_str),
            (None, []) => None,
            (None, _) => bail!("several schemas in allOf"),
        };
        let Some(reference) = reference else {
            ensure!(schema.get("properties").is_none(), "an object without a name");
            return self.expression("", schema);
        };
        let name = reference.rsplit('/').next().context("an empty reference")?;
        self.referred.insert(name.to_owned());
        Ok(format!("{}{}", short(name), relation_of_map(schema)?))
    }

    /// The expression of a type that is not a structure.
    fn expression(&mut self, name: &str, schema: &Value) -> Result<String> {
        let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
        Ok(match (kind_of(schema), format) {
            _ if name.ends_with(".api.resource.Quantity") => "quantity".to_owned(),
            _ if name.ends_with(".pkg.runtime.RawExtension") => "untyped".to_owned(),
            ("integer", "int32") => "int32".to_owned(),
            ("integer", _) => "int64".to_owned(),
            ("number", _) => "number".to_owned(),
            ("boolean", _) => "boolean".to_owned(),
            ("string", "") => "string".to_owned(),
            ("string", "byte") => "bytes".to_owned(),
            ("string", "date-time") if name.ends_with(".MicroTime") => "microTime".to_owned(),
            ("string", "date-time") => "time".to_owned(),
            ("string", other) => bail!("strings of the format {other}"),
            ("", "int-or-string") => "intOrString".to_owned(),
            ("", _) => "any".to_owned(),
            ("object", _) => match schema.get("additionalProperties") {
                None | Some(Value::Bool(true)) => format!("{{any}}{}", relation_of_map(schema)?),
                Some(values @ Value::Object(_)) => {
                    format!("{{{}}}{}", self.reference(values)?, relation_of_map(schema)?)
                }
                Some(other) => bail!("additionalProperties: {other}"),
            },
            ("array", _) => {
                let items = schema.get("items").context("a list without items")?;
                format!("[{}]{}", self.reference(items)?, self.relation_of_list(schema, items)?)
            }
            (other, _) => bail!("the type {other}"),
        })
    }

    /// How a list merges; keys come with what a missing one counts as.
    fn relation_of_list(&self, schema: &Value, items: &Value) -> Result<String> {
        let mark = |name: &str| schema.get(name).and_then(Value::as_str);
        let keys: Vec<&str> = match (mark("x-kubernetes-list-type"), mark("x-kubernetes-patch-strategy")) {
            (Some("atomic"), _) | (None, None | Some("retainKeys")) => return Ok(String::new()),
            (Some("set"), _) => return Ok("=".to_owned()),
            (Some("map"), _) => {
                list(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str).collect()
            }
            (None, Some("merge" | "merge,retainKeys")) => match mark("x-kubernetes-patch-merge-key") {
                Some(key) => vec![key],
                None => return Ok("=".to_owned()),
            },
            (list, strategy) => bail!("the list type {list:?} or patch strategy {strategy:?}"),
        };
        ensure!(!keys.is_empty(), "a list map without keys");
        let properties = self.properties(items)?;
        let mut written = Vec::new();
        for key in keys {
            written.push(match properties.get(key).and_then(|property| property.get("default")) {
                Some(default) => format!("{key}={default}"),
                None => key.to_owned(),
            });
        }
        Ok(written.join(","))
    }

    /// The properties of what a list holds.
    fn properties(&self, items: &Value) -> Result<&Value> {
        let reference = list(items, "allOf").first().unwrap_or(items).get("$ref").and_then(Value::as_str);
        let name = reference.and_then(|reference| reference.rsplit('/').next()).context("unnamed entries")?;
        self.table
            .schemas
            .get(name)
            .and_then(|schema| schema.get("properties"))
            .context("entries without fields")
    }
}

/// Types whose merging is not what their schema says.
fn is_special(name: &str) -> bool {
    name.ends_with(".api.resource.Quantity") || name.ends_with(".pkg.runtime.RawExtension")
}

fn relation_of_map(schema: &Value) -> Result<&'static str> {
    Ok(match schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        None => "",
        Some("atomic") => "!",
        Some("granular") => "~",
        Some(other) => bail!("the map type {other}"),
    })
}

fn kind_of(schema: &Value) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or("")
}

/// Names without what they all begin with.
fn short(name: &str) -> &str {
    let name = name.strip_prefix("io.k8s.").unwrap_or(name);
    name.strip_prefix("api.").unwrap_or(name)
}

/// A group as a word; the core group has no name.
fn dash(group: &str) -> &str {
    if group.is_empty() { "-" } else { group }
}

fn text<'v>(value: &'v Value, field: &str) -> Result<&'v str> {
    value.get(field).and_then(Value::as_str).with_context(|| format!("{field} is missing in {value}"))
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
