//! The objects besides the one under review that policies may see: Namespaces, and the objects that hold
//! policies' settings (params).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sallyport_api::ParamKind;
use sallyport_document::{Document, Node};
use serde_json::Value;

use crate::matching::selector::Selector;
use crate::review::namespaces::Namespaces;
use crate::schema::{ObjectProblem, Schemas, split};

/// Where `kubectl apply` puts an object that names no namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// Kinds of Kubernetes itself that have no namespace, as group and kind.
const CLUSTER_SCOPED: &[(&str, &str)] = &[
    ("", "ComponentStatus"),
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("certificates.k8s.io", "ClusterTrustBundle"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

/// Namespaces and other objects that a source knows. An object is found under the apiVersion that it is
/// written in. `CustomResourceDefinition` objects among them make custom kinds known.
#[derive(Debug, Default)]
pub struct Objects {
    namespaces: Arc<Namespaces>,
    /// By apiVersion and kind.
    kinds: HashMap<(String, String), BTreeMap<Name, Document<'static>>>,
    /// What `CustomResourceDefinition` objects declare, by group and kind.
    declared: HashMap<(String, String), Declared>,
    schemas: Schemas,
    problems: Vec<ObjectProblem>,
}

/// A custom kind.
#[derive(Debug)]
struct Declared {
    namespaced: bool,
    /// Versions in which it is served; none if that is not said.
    versions: Vec<String>,
}

/// Namespace, empty where there is none, and name.
type Name = (String, String);

/// The objects of one kind.
pub(crate) struct Kind<'o> {
    /// Whether they stand in namespaces.
    pub(crate) namespaced: bool,
    objects: Option<&'o BTreeMap<Name, Document<'static>>>,
    /// For the kind Namespace, whose objects are kept apart.
    namespaces: Option<&'o Namespaces>,
}

impl Objects {
    /// Takes Namespaces and other objects. An object without apiVersion, kind or name, or of immense size, is left
    /// out; the last of several equally named ones counts.
    pub fn new(namespaces: Arc<Namespaces>, others: impl IntoIterator<Item = Value>) -> Self {
        let others: Vec<Value> = others.into_iter().collect();
        let (schemas, problems) = Schemas::with_definitions(&others);
        let mut objects = Self { namespaces, schemas, problems, ..Self::default() };
        for definition in &others {
            objects.declare(definition);
        }
        for object in others {
            objects.insert(&object);
        }
        objects
    }

    /// Which definitions of custom kinds could not be used, and why. Objects of such kinds are treated as those
    /// of a kind without a definition.
    pub fn problems(&self) -> &[ObjectProblem] {
        &self.problems
    }

    /// The built-in kinds and the custom ones.
    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }

    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The objects of a kind; `None` for a kind that nobody has heard of: it is not built in, no definition
    /// declares it in this version, and there are no objects of it.
    pub(crate) fn kind(&self, kind: &ParamKind) -> Option<Kind<'_>> {
        let objects = self.kinds.get(&(kind.api_version.clone(), kind.kind.clone()));
        let (group, version) = split(&kind.api_version);
        let known = || match self.declared.get(&key(group, &kind.kind)) {
            Some(Declared { versions, .. }) => {
                versions.is_empty() || versions.iter().any(|served| served == version)
            }
            None => Schemas::is_built_in(group, version, &kind.kind),
        };
        if objects.is_none() && !known() {
            return None;
        }
        let namespaces = (group.is_empty() && kind.kind == "Namespace").then_some(&*self.namespaces);
        Some(Kind { namespaced: self.is_namespaced(group, &kind.kind, objects), objects, namespaces })
    }

    /// By its definition, for Kubernetes' own kinds by the list, else by how its objects are written.
    fn is_namespaced(&self, group: &str, kind: &str, objects: Option<&BTreeMap<Name, Document<'_>>>) -> bool {
        if let Some(declared) = self.declared.get(&key(group, kind)) {
            return declared.namespaced;
        }
        if !group.contains('.') || group.ends_with(".k8s.io") {
            return !CLUSTER_SCOPED.contains(&(group, kind));
        }
        objects.is_some_and(|objects| objects.keys().any(|(namespace, _)| !namespace.is_empty()))
    }

    fn declare(&mut self, object: &Value) {
        if text(object, "/kind") != "CustomResourceDefinition"
            || split(text(object, "/apiVersion")).0 != "apiextensions.k8s.io"
        {
            return;
        }
        let names = (text(object, "/spec/group"), text(object, "/spec/names/kind"));
        let versions = object.pointer("/spec/versions").and_then(Value::as_array);
        let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
        let declared = Declared {
            namespaced: text(object, "/spec/scope") == "Namespaced",
            versions: served.map(|version| text(version, "/name").to_owned()).collect(),
        };
        self.declared.insert(key(names.0, names.1), declared);
    }

    fn insert(&mut self, object: &Value) {
        let (api_version, kind) = (text(object, "/apiVersion").to_owned(), text(object, "/kind").to_owned());
        let name = text(object, "/metadata/name").to_owned();
        if api_version.is_empty() || kind.is_empty() || name.is_empty() {
            return;
        }
        let (group, _) = split(&api_version);
        let mut namespace = text(object, "/metadata/namespace").to_owned();
        if namespace.is_empty() && self.is_namespaced(group, &kind, None) {
            DEFAULT_NAMESPACE.clone_into(&mut namespace);
        }
        let Ok(object) = Document::of(object) else { return };
        self.kinds.entry((api_version, kind)).or_default().insert((namespace, name), object);
    }
}

impl<'o> Kind<'o> {
    /// The object with this name; `namespace` is ignored for kinds without one.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Node<'o>> {
        if let Some(namespaces) = self.namespaces {
            return namespaces.get(name);
        }
        let namespace = if self.namespaced { namespace } else { "" };
        self.objects?.get(&(namespace.to_owned(), name.to_owned())).map(Document::root)
    }

    /// The objects with such labels, in the order of their names.
    pub(crate) fn select(&self, namespace: &str, selector: &Selector) -> Vec<Node<'o>> {
        if let Some(namespaces) = self.namespaces {
            return namespaces.iter().filter(|object| selector.matches_object(*object)).collect();
        }
        let namespace = if self.namespaced { namespace } else { "" };
        let objects = self.objects.into_iter().flatten();
        objects
            .filter(|((of, _), _)| of == namespace)
            .map(|(_, object)| object.root())
            .filter(|object| selector.matches_object(*object))
            .collect()
    }
}

fn key(group: &str, kind: &str) -> (String, String) {
    (group.to_owned(), kind.to_owned())
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
