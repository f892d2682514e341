//! The recordings as they are read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use sallyport_policy::{Mutations, Namespaces, Objects, PolicyState, Validations};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The recordings of one source.
pub struct Corpus {
    objects: HashMap<String, Value>,
    pub sets: Vec<Recorded>,
    /// Sets that the API server refuses, with its message.
    pub refused: Vec<(Recorded, String)>,
}

/// A set of policies and the requests made under it.
pub struct Recorded {
    pub name: String,
    pub mutates: bool,
    policies: Vec<String>,
    objects: Vec<String>,
    pub cases: Vec<Value>,
}

/// The policies of a set, read as a source reads them.
#[derive(Default, Clone)]
pub struct Policies {
    pub validations: Validations,
    pub mutations: Mutations,
}

impl Corpus {
    pub fn read(source: &str) -> Self {
        let objects = lines(source, "objects")
            .into_iter()
            .map(|mut line| (line["h"].as_str().unwrap().to_owned(), line["o"].take()));
        let objects = objects.collect();
        let mut cases: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for case in lines(source, "cases") {
            cases.entry(case["set"].as_str().unwrap().to_owned()).or_default().push(case);
        }
        let sets = lines(source, "sets").into_iter().map(|line| {
            let name = line["set"].as_str().unwrap();
            Recorded::read(&line, name, cases.remove(name).unwrap_or_default())
        });
        let sets = sets.collect();
        let refused = lines(source, "refused").into_iter().map(|line| {
            let set = Recorded::read(&line, line["id"].as_str().unwrap(), Vec::new());
            (set, line["refused"].as_str().unwrap().to_owned())
        });
        let refused = refused.collect();
        Self { objects, sets, refused }
    }

    /// What a `$ref` stands for.
    pub fn resolve<'v>(&'v self, value: &'v Value) -> &'v Value {
        match value.get("$ref").and_then(Value::as_str) {
            Some(hash) => &self.objects[hash],
            None => value,
        }
    }

    /// The policies and bindings of a set, or why one cannot be read.
    pub fn policies(&self, set: &Recorded) -> Result<Policies, String> {
        let mut policies = Policies::default();
        for hash in &set.policies {
            let object = &self.objects[hash];
            match object["kind"].as_str().unwrap() {
                "ValidatingAdmissionPolicy" => policies.validations.admission_policies.push(typed(object)?),
                "ValidatingAdmissionPolicyBinding" => policies.validations.bindings.push(typed(object)?),
                "MutatingAdmissionPolicy" => policies.mutations.admission_policies.push(typed(object)?),
                "MutatingAdmissionPolicyBinding" => policies.mutations.bindings.push(typed(object)?),
                other => panic!("a {other} among the policies"),
            }
        }
        Ok(policies)
    }

    /// The objects that the API server had, with the Namespaces that it makes by itself.
    pub fn surroundings(&self, set: &Recorded) -> Arc<Objects> {
        let (mut namespaces, others): (Vec<&Value>, Vec<&Value>) = set
            .objects
            .iter()
            .map(|hash| &self.objects[hash])
            .partition(|object| object["kind"] == "Namespace");
        namespaces.dedup();
        let mut names: BTreeSet<&str> =
            ["default", "kube-system", "kube-public", "kube-node-lease"].into_iter().collect();
        names.extend(set.cases.iter().filter_map(|case| case["review"]["request"]["namespace"].as_str()));
        names.extend(others.iter().filter_map(|object| object["metadata"]["namespace"].as_str()));
        let made = names
            .into_iter()
            .filter(|name| !name.is_empty())
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        let complete = |mut namespace: Value| {
            let fields = namespace.as_object_mut().unwrap();
            for (field, value) in
                [("spec", json!({"finalizers": ["kubernetes"]})), ("status", json!({"phase": "Active"}))]
            {
                let present = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
                for (key, value) in value.as_object().unwrap() {
                    present.as_object_mut().unwrap().entry(key).or_insert_with(|| value.clone());
                }
            }
            namespace
        };
        // The last of several with one name counts.
        let namespaces: Namespaces = made.chain(namespaces.into_iter().cloned()).map(complete).collect();
        Arc::new(Objects::new(Arc::new(namespaces), others.into_iter().cloned()))
    }

    /// Sets that the API server refuses and we do not.
    pub fn accepted_though_refused(&self) -> Vec<(String, String)> {
        let mut accepted = Vec::new();
        for (set, why) in &self.refused {
            let Ok(policies) = self.policies(set) else { continue };
            let (validations, mutations) = policies.compile(&self.surroundings(set));
            let mut statuses = validations.policies().iter().chain(mutations.policies());
            if statuses.all(|status| status.state == PolicyState::Active) {
                accepted.push((set.name.clone(), why.chars().take(300).collect()));
            }
        }
        accepted
    }
}

impl Recorded {
    fn read(line: &Value, name: &str, cases: Vec<Value>) -> Self {
        let hashes = |field: &str| {
            let list = line[field].as_array().unwrap();
            list.iter().map(|hash| hash.as_str().unwrap().to_owned()).collect()
        };
        Self {
            name: name.to_owned(),
            mutates: line["kind"] == "MAP",
            policies: hashes("policies"),
            objects: hashes("objects"),
            cases,
        }
    }
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    // Through text, as a source reads it.
    serde_json::from_str(&object.to_string()).map_err(|error| error.to_string())
}

/// The lines of a file of recordings; none where there is no such file.
fn lines(source: &str, what: &str) -> Vec<Value> {
    let root = std::env::var_os("SALLYPORT_CORPORA").expect(
        "SALLYPORT_CORPORA must name the directory of third-party conformance data, see tests/README.md",
    );
    let folder = PathBuf::from(root).join("recorded/data");
    assert!(folder.is_dir(), "{} is missing", folder.display());
    let path = folder.join(format!("{source}.{what}.jsonl.gz"));
    if !path.exists() {
        return Vec::new();
    }
    let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip must be installed");
    assert!(output.status.success(), "{} cannot be read", path.display());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
