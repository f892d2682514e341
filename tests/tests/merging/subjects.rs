//! The objects that policies change.

use sallyport_policy::{GroupVersionKind, GroupVersionResource};
use serde_json::{Value, json};

/// A kind with an object of it.
pub struct Subject {
    pub name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub resource: &'static str,
    fields: Value,
}

impl Subject {
    /// Its object, as a user writes it, for a case.
    pub fn object(&self, case: &str) -> Value {
        let api_version = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        let mut object = self.fields.clone();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(self.kind);
        object["metadata"]["name"] = json!("subject");
        object["metadata"]["labels"]["case"] = json!(case);
        object
    }

    pub fn path(&self, namespace: &str) -> String {
        let base = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        format!("{base}/namespaces/{namespace}/{}", self.resource)
    }

    pub fn kind(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            kind: self.kind.to_owned(),
        }
    }

    pub fn gvr(&self) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            resource: self.resource.to_owned(),
        }
    }
}

pub fn all() -> Vec<Subject> {
    let subject = |name, group, version, kind, resource, fields| Subject {
        name,
        group,
        version,
        kind,
        resource,
        fields,
    };
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
    vec![
        subject(
            "pod",
            "",
            "v1",
            "Pod",
            "pods",
            json!({
            "metadata": {"finalizers": ["example.dev/first"], "annotations": {"old": "1"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"}]},
            "spec": {
                "containers": [
                    {"name": "a", "image": "i", "args": ["x"],
                     "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}],
                     "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP", "name": "dns"}],
                     "resources": {"limits": {"cpu": "1"}},
                     "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                    {"name": "b", "image": "j"},
                ],
                "initContainers": [{"name": "i", "image": "i"}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "m"}}],
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "imagePullSecrets": [{"name": "s"}],
                "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["h"]}],
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}}}],
                "securityContext": {"runAsUser": 1000, "sysctls": [{"name": "net.core.somaxconn", "value": "1"}]},
                "schedulingGates": [{"name": "example.dev/gate"}],
                "readinessGates": [{"conditionType": "example.dev/ready"}],
            }}),
        ),
        subject(
            "twice",
            "",
            "v1",
            "Pod",
            "pods",
            json!({
            "metadata": {},
            "spec": {"containers": [{"name": "a", "image": "i",
                "env": [{"name": "E", "value": "1"}, {"name": "G", "value": "0"}, {"name": "E", "value": "2"}]}]}}),
        ),
        subject(
            "deployment",
            "apps",
            "v1",
            "Deployment",
            "deployments",
            json!({
            "metadata": {}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}}),
        ),
        subject(
            "cronjob",
            "batch",
            "v1",
            "CronJob",
            "cronjobs",
            json!({
            "metadata": {}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}}}}}),
        ),
        subject(
            "service",
            "",
            "v1",
            "Service",
            "services",
            json!({
            "metadata": {}, "spec": {"clusterIP": "None", "selector": {"app": "a"}, "externalIPs": ["192.0.2.7"],
                "ports": [{"name": "web", "port": 80}, {"name": "dns", "port": 80, "protocol": "UDP"}]}}),
        ),
        subject(
            "role",
            "rbac.authorization.k8s.io",
            "v1",
            "Role",
            "roles",
            json!({
            "metadata": {}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        subject(
            "configmap",
            "",
            "v1",
            "ConfigMap",
            "configmaps",
            json!({
            "metadata": {}, "data": {"a": "1"}, "binaryData": {"b": "AAEC"}}),
        ),
        subject("secret", "", "v1", "Secret", "secrets", json!({"metadata": {}, "data": {"a": "AAEC"}})),
        subject(
            "networkpolicy",
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
            json!({
            "metadata": {}, "spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"],
                "ingress": [{"ports": [{"port": 80}]}]}}),
        ),
        subject(
            "ingress",
            "networking.k8s.io",
            "v1",
            "Ingress",
            "ingresses",
            json!({
            "metadata": {}, "spec": {"rules": [{"host": "a.example.dev", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
        ),
        subject(
            "autoscaler",
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            json!({
            "metadata": {}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
        ),
        subject(
            "claim",
            "",
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            json!({
            "metadata": {}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        subject(
            "serviceaccount",
            "",
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            json!({
            "metadata": {}, "secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "p"}]}),
        ),
        subject(
            "lease",
            "coordination.k8s.io",
            "v1",
            "Lease",
            "leases",
            json!({
            "metadata": {}, "spec": {"holderIdentity": "a"}}),
        ),
        subject(
            "gadget",
            "example.dev",
            "v1",
            "Gadget",
            "gadgets",
            json!({
            "metadata": {},
            "spec": {
                "atomicList": ["a"], "plainList": [{"x": "1"}], "set": ["a", "b"],
                "keyed": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
                "defaulted": [{"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"}],
                "atomicMap": {"a": "1"}, "granularMap": {"a": "1"}, "number": 1, "either": 5,
                "free": {"any": {"deep": [1]}}, "list": [1], "half": {"known": "k", "other": {"x": 1}},
                "embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "e", "finalizers": ["e.dev/f"]}, "data": {"a": "b"}},
            }}),
        ),
    ]
}

/// The versions of one custom kind.
pub fn things() -> Vec<Subject> {
    [("thing-1", "v1"), ("thing-2", "v2")]
        .map(|(name, version)| Subject {
            name,
            group: "example.dev",
            version,
            kind: "Thing",
            resource: "things",
            fields: json!({"metadata": {}, "spec": {"a": "x"}}),
        })
        .into()
}

/// A custom kind with every kind of list and map, and one in two versions.
pub fn definitions() -> Vec<Value> {
    let text = json!({"type": "string"});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let with = |mut schema: Value, mark: &str, value: Value| {
        schema[format!("x-kubernetes-{mark}")] = value;
        schema
    };
    let list = |items: Value| json!({"type": "array", "items": items});
    let keyed =
        |items: Value, keys: Value| with(with(list(items), "list-type", json!("map")), "list-map-keys", keys);
    let mut pair =
        object(json!({"name": text, "value": text, "nested": object(json!({"a": text, "b": text}))}));
    pair["required"] = json!(["name"]);
    let mut port = object(
        json!({"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "note": text}),
    );
    port["required"] = json!(["port", "protocol"]);
    let any_map = json!({"type": "object", "additionalProperties": text});
    let open = |schema| with(schema, "preserve-unknown-fields", json!(true));
    let spec = object(json!({
        "atomicList": with(list(text.clone()), "list-type", json!("atomic")),
        "plainList": list(object(json!({"x": text}))),
        "set": with(list(text.clone()), "list-type", json!("set")),
        "keyed": keyed(pair, json!(["name"])),
        "defaulted": keyed(port, json!(["port", "protocol"])),
        "atomicMap": with(any_map.clone(), "map-type", json!("atomic")),
        "granularMap": any_map,
        "atomicObject": with(object(json!({"a": text})), "map-type", json!("atomic")),
        "number": {"type": "integer"},
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "text": text,
        "time": {"type": "string", "format": "date-time"},
        "either": with(json!({}), "int-or-string", json!(true)),
        "free": open(json!({"type": "object"})),
        "half": open(object(json!({"known": text}))),
        "list": list(json!({"type": "integer"})),
        "nothing": {"type": "string", "nullable": true},
        "embedded": open(with(json!({"type": "object"}), "embedded-resource", json!(true))),
    }));
    let schema = |spec: Value| json!({"openAPIV3Schema": object(json!({"spec": spec}))});
    let definition = |plural: &str, kind: &str, versions: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": format!("{plural}.example.dev")},
               "spec": {"group": "example.dev", "scope": "Namespaced",
                        "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                        "versions": versions}})
    };
    let version = |name: &str, spec: Value| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema(spec)});
    vec![
        definition("gadgets", "Gadget", json!([version("v1", spec)])),
        definition(
            "things",
            "Thing",
            json!([
                version("v1", object(json!({"a": text, "b": text}))),
                version("v2", object(json!({"a": text, "b": text}))),
            ]),
        ),
    ]
}
