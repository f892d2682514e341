//! The tables of cases: reading the rows, and making policies, bindings and requests of them.
//!
//! A row of `cases/*.yaml` is short for policies of a case and the requests sent under them. `over` names lists of
//! values; the row stands for a case with each combination of them, in which `$NAME` is the value. `$CASE` is the
//! case's own name, which is also the name of its namespace. All policies match in that namespace alone, and no objects outside of namespaces, or, with
//! `apart: labels`, only objects with the case's label; with `apart: none` the row itself sees to that.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::subjects::Sent;

const FILES: &[&str] = &[
    include_str!("cases/matching.yaml"),
    include_str!("cases/selectors.yaml"),
    include_str!("cases/versions.yaml"),
    include_str!("cases/conditions.yaml"),
    include_str!("cases/validations.yaml"),
    include_str!("cases/params.yaml"),
    include_str!("cases/mutations.yaml"),
    include_str!("cases/requests.yaml"),
];
/// Makes an item of a list of its place and its short form.
type MakeItem = dyn Fn(usize, Value) -> Value;
/// Members of an entry that say what is matched.
const CONSTRAINTS: [&str; 5] = ["rules", "exclude", "namespaceSelector", "objectSelector", "matchPolicy"];

/// A row as written, without `over`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    apart: Apart,
    /// Labels of the case's namespace.
    #[serde(default)]
    labels: Map<String, Value>,
    /// Objects that exist, as path and object.
    #[serde(default)]
    objects: Vec<(String, Value)>,
    #[serde(default)]
    vap: OneOrMany,
    #[serde(default)]
    map: OneOrMany,
    requests: Vec<Value>,
}

/// What keeps the policies of a case from the requests of others.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Apart {
    #[default]
    Namespace,
    Labels,
    None,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    #[default]
    Nothing,
    Many(Vec<Value>),
    One(Value),
}

/// A case: policies, what they need, and what is sent under them.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub labels: Map<String, Value>,
    pub objects: Vec<(String, Value)>,
    pub policies: Vec<Value>,
    pub bindings: Vec<Value>,
    pub requests: Vec<Sent>,
}

/// All cases.
pub fn all() -> Vec<Case> {
    let rows = FILES.iter().flat_map(|text| {
        serde_saphyr::from_str::<Vec<Value>>(text).unwrap_or_else(|error| panic!("{error}"))
    });
    rows.flat_map(|row| combinations(&row)).map(|(name, row)| Case::read(name, row)).collect()
}

/// The rows that one with `over` stands for, each with its name.
fn combinations(row: &Value) -> Vec<(String, Value)> {
    let name = row["name"].as_str().unwrap_or_else(|| panic!("without a name: {row}"));
    let mut values: Vec<Vec<(&str, &Value)>> = vec![Vec::new()];
    for (variable, list) in row["over"].as_object().into_iter().flatten() {
        let list = list.as_array().unwrap_or_else(|| panic!("{name}: over.{variable} is no list"));
        values = values
            .iter()
            .flat_map(|chosen| {
                list.iter().map(move |value| [chosen.as_slice(), &[(variable.as_str(), value)]].concat())
            })
            .collect();
    }
    let many = values.len() > 1;
    let numbered = values.iter().enumerate().map(|(index, chosen)| {
        let name = if many { format!("{name}-{index}") } else { name.to_owned() };
        let own = Value::from(name.as_str());
        let mut row = row.clone();
        row.as_object_mut().unwrap().remove("over");
        substitute(&mut row, chosen);
        // Once more, for the values that were put in.
        substitute(&mut row, &[("CASE", &own)]);
        (name, row)
    });
    numbered.collect()
}

/// Puts values in place of `$NAME`: as they are where that is the whole text, as text within one.
fn substitute(value: &mut Value, chosen: &[(&str, &Value)]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, chosen)),
        Value::Object(fields) => fields.values_mut().for_each(|field| substitute(field, chosen)),
        Value::String(text) => {
            if let Some((_, whole)) =
                text.strip_prefix('$').and_then(|name| chosen.iter().find(|(variable, _)| *variable == name))
            {
                *value = (*whole).clone();
                return;
            }
            for (variable, part) in chosen {
                if let Some(part) = part.as_str() {
                    *text = text.replace(&format!("${variable}"), part);
                }
            }
        }
        _ => {}
    }
}

impl OneOrMany {
    fn into_vec(self) -> Vec<Value> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Many(values) => values,
            Self::One(value) => vec![value],
        }
    }
}

impl Case {
    fn read(name: String, row: Value) -> Self {
        let row: Row = serde_json::from_value(row).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(row.name == row.name.to_lowercase(), "{name}: names of objects are in lower case");
        let mut case = Self {
            labels: row.labels,
            objects: row.objects,
            policies: Vec::new(),
            bindings: Vec::new(),
            requests: row.requests.iter().map(Sent::read).collect(),
            name,
        };
        for (kind, entries) in [("Validating", row.vap.into_vec()), ("Mutating", row.map.into_vec())] {
            for entry in entries {
                case.add(kind, entry, row.apart);
            }
        }
        case
    }

    fn add(&mut self, kind: &str, mut entry: Value, apart: Apart) {
        let number = self.policies.len();
        let name = format!("{}.{number}", self.name);
        let fields = entry.as_object_mut().unwrap_or_else(|| panic!("{}: a policy is a mapping", self.name));
        let bindings = match fields.remove("bindings") {
            None => vec![json!({})],
            Some(Value::Array(bindings)) => bindings,
            Some(other) => panic!("{}: bindings are a list, not {other}", self.name),
        };
        let mut spec = spec(kind, fields);
        let mut constraints = constraints(fields);
        if !constraints.contains_key("resourceRules") {
            let written = if kind == "Mutating" { "* * * CREATE,UPDATE" } else { "* * */* *" };
            constraints.insert("resourceRules".to_owned(), rules(&json!(written)));
        }
        let (field, selector) = match apart {
            Apart::Namespace => {
                ("namespaceSelector", json!({"matchLabels": {"kubernetes.io/metadata.name": self.name}}))
            }
            Apart::Labels => ("objectSelector", json!({"matchLabels": {"case": self.name}})),
            Apart::None => ("", Value::Null),
        };
        if apart == Apart::Namespace {
            namespaced(&mut constraints);
        }
        // In the binding where the policy has a selector of its own.
        let by_policy = !constraints.contains_key(field);
        if by_policy && !field.is_empty() {
            constraints.insert(field.to_owned(), selector.clone());
        }
        spec.insert("matchConstraints".to_owned(), Value::Object(constraints));
        assert!(fields.is_empty(), "{}: unknown members {fields:?}", self.name);
        self.policies.push(object(kind, "Policy", &name, &spec));
        for (index, mut binding) in bindings.into_iter().enumerate() {
            let fields = binding.as_object_mut().unwrap();
            let mut matched = self::constraints(fields);
            if !by_policy {
                assert!(!matched.contains_key(field), "{}: two selectors of its own", self.name);
                matched.insert(field.to_owned(), selector.clone());
            }
            let mut spec = Map::new();
            spec.insert("policyName".to_owned(), json!(name));
            if !matched.is_empty() {
                spec.insert("matchResources".to_owned(), Value::Object(matched));
            }
            if let Some(reference) = fields.remove("ref") {
                spec.insert("paramRef".to_owned(), reference);
            }
            if kind == "Validating" {
                let actions = fields.remove("actions").unwrap_or_else(|| json!(["Deny"]));
                spec.insert("validationActions".to_owned(), actions);
            }
            assert!(fields.is_empty(), "{}: unknown members {fields:?}", self.name);
            self.bindings.push(object(kind, "PolicyBinding", &format!("{name}.{index}"), &spec));
        }
    }
}

fn object(kind: &str, what: &str, name: &str, spec: &Map<String, Value>) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}Admission{what}"),
           "metadata": {"name": name}, "spec": spec})
}

/// Takes what says what is evaluated out of an entry.
fn spec(kind: &str, fields: &mut Map<String, Value>) -> Map<String, Value> {
    let mut spec = Map::new();
    for name in ["failurePolicy", "auditAnnotations", "reinvocationPolicy"] {
        if let Some(value) = fields.remove(name) {
            spec.insert(name.to_owned(), value);
        }
    }
    if kind == "Mutating" && !spec.contains_key("reinvocationPolicy") {
        spec.insert("reinvocationPolicy".to_owned(), json!("Never"));
    }
    let list = |value: Option<Value>, item: &MakeItem| {
        let items = match value {
            None => return None,
            Some(Value::Array(items)) => items,
            Some(single) => vec![single],
        };
        let items = items.into_iter().enumerate();
        Some(items.map(|(index, value)| if value.is_string() { item(index, value) } else { value }).collect())
    };
    let texts = |_: usize, expression: Value| json!({"expression": expression});
    let named =
        |index: usize, expression: Value| json!({"name": format!("c{index}"), "expression": expression});
    let variable = |_: usize, text: Value| {
        let (name, expression) =
            text.as_str().and_then(|text| text.split_once(" = ")).expect("NAME = EXPRESSION");
        json!({"name": name, "expression": expression})
    };
    let mutation = |_: usize, text: Value| {
        let configures = text.as_str().is_some_and(|text| text.trim_start().starts_with("Object"));
        let (kind, field) = if configures {
            ("ApplyConfiguration", "applyConfiguration")
        } else {
            ("JSONPatch", "jsonPatch")
        };
        json!({"patchType": kind, field: {"expression": text}})
    };
    let lists: [(&str, &str, &MakeItem); 4] = [
        ("conditions", "matchConditions", &named),
        ("variables", "variables", &variable),
        ("validations", "validations", &texts),
        ("mutations", "mutations", &mutation),
    ];
    for (short, long, item) in lists {
        if let Some(items) = list(fields.remove(short), item) {
            spec.insert(long.to_owned(), Value::Array(items));
        }
    }
    if let Some(kind) = fields.remove("params") {
        let (version, kind) = kind.as_str().and_then(|text| text.split_once(' ')).expect("VERSION KIND");
        spec.insert("paramKind".to_owned(), json!({"apiVersion": version, "kind": kind}));
    }
    spec
}

/// Selectors of namespaces let objects without one pass, which the objects of other cases are.
fn namespaced(constraints: &mut Map<String, Value>) {
    for rule in constraints["resourceRules"].as_array_mut().unwrap() {
        let resources = rule["resources"].as_array().unwrap();
        let is_wide = resources.iter().any(|resource| resource.as_str().unwrap().starts_with('*'));
        if is_wide && rule.get("scope").is_none() {
            rule["scope"] = json!("Namespaced");
        }
    }
}

/// Takes what says what is matched out of an entry.
fn constraints(fields: &mut Map<String, Value>) -> Map<String, Value> {
    let mut constraints = Map::new();
    for name in CONSTRAINTS {
        let Some(value) = fields.remove(name) else { continue };
        let (name, value) = match (name, value) {
            ("rules", value) => ("resourceRules", rules(&value)),
            ("exclude", value) => ("excludeResourceRules", rules(&value)),
            (name, value) => (name, value),
        };
        constraints.insert(name.to_owned(), value);
    }
    constraints
}

fn rules(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(rule).collect(),
        single => json!([rule(single)]),
    }
}

/// A rule, written as `GROUPS VERSIONS RESOURCES OPERATIONS [SCOPE [NAMES]]`, with `core` for the group without a
/// name.
fn rule(value: &Value) -> Value {
    let Some(text) = value.as_str() else { return value.clone() };
    let parts: Vec<&str> = text.split(' ').collect();
    let list = |index: usize| -> Vec<&str> {
        let part = parts.get(index).unwrap_or_else(|| panic!("no rule: {text}"));
        part.split(',').map(|item| if item == "core" { "" } else { item }).collect()
    };
    let mut rule =
        json!({"apiGroups": list(0), "apiVersions": list(1), "resources": list(2), "operations": list(3)});
    if let Some(scope) = parts.get(4) {
        rule["scope"] = json!(scope);
    }
    if parts.len() > 5 {
        rule["resourceNames"] = json!(list(5));
    }
    rule
}
