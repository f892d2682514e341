//! Which lists of Kubernetes' objects are maps in disguise, and by which keys.
//!
//! The table holds what differs from the default: objects and maps merge field by field, lists are replaced as
//! a whole. It follows the `x-kubernetes-list-*` marks of Kubernetes' `OpenAPI` documents, except where noted.

/// The fields of an object that are not merged in the default way.
#[derive(Debug)]
pub(crate) struct Schema {
    fields: &'static [(&'static str, Field)],
}

/// How a field is merged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// An object with fields of its own.
    Object(&'static Schema),
    /// A list whose entries are told apart by keys.
    Map(&'static [Key], &'static Schema),
    /// A list in which every value stands once.
    Set,
}

/// A key of a list's entries.
#[derive(Debug)]
pub(crate) struct Key {
    /// Name of the field.
    pub(crate) field: &'static str,
    /// What a missing field counts as.
    pub(crate) default: Option<&'static str>,
}

impl Schema {
    /// How `field` is merged, if not in the default way.
    pub(crate) fn field(&self, field: &str) -> Option<Field> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, field)| *field)
    }
}

/// The schema of a kind; of unknown kinds that of what all have.
pub(crate) fn of_kind(group: &str, kind: &str) -> &'static Schema {
    match (group, kind) {
        ("", "Pod") => &POD,
        ("", "PodTemplate") => &POD_TEMPLATE_OBJECT,
        ("", "Service") => &SERVICE,
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => &WORKLOAD,
        ("batch", "CronJob") => &CRON_JOB,
        _ => &ANY,
    }
}

/// The schema of a resource named in a rule, if it is one of those that have more than [`of_kind`]'s default.
pub(crate) fn of_resource(group: &str, resource: &str) -> &'static Schema {
    let kind = match resource {
        "pods" => "Pod",
        "podtemplates" => "PodTemplate",
        "services" => "Service",
        "replicationcontrollers" => "ReplicationController",
        "deployments" => "Deployment",
        "replicasets" => "ReplicaSet",
        "statefulsets" => "StatefulSet",
        "daemonsets" => "DaemonSet",
        "jobs" => "Job",
        "cronjobs" => "CronJob",
        _ => "",
    };
    of_kind(group, kind)
}

const fn key(field: &'static str) -> Key {
    Key { field, default: None }
}

const PROTOCOL: Key = Key { field: "protocol", default: Some("TCP") };
const NAME: &[Key] = &[key("name")];

static LEAF: Schema = Schema { fields: &[] };

static METADATA: Schema =
    Schema { fields: &[("finalizers", Field::Set), ("ownerReferences", Field::Map(&[key("uid")], &LEAF))] };

static STATUS: Schema = Schema { fields: &[("conditions", Field::Map(&[key("type")], &LEAF))] };

static RESOURCES: Schema = Schema { fields: &[("claims", Field::Map(NAME, &LEAF))] };

static CONTAINER: Schema = Schema {
    fields: &[
        ("env", Field::Map(NAME, &LEAF)),
        ("ports", Field::Map(&[key("containerPort"), PROTOCOL], &LEAF)),
        ("resources", Field::Object(&RESOURCES)),
        ("volumeDevices", Field::Map(&[key("devicePath")], &LEAF)),
        ("volumeMounts", Field::Map(&[key("mountPath")], &LEAF)),
    ],
};

static POD_SPEC: Schema = Schema {
    fields: &[
        ("containers", Field::Map(NAME, &CONTAINER)),
        ("ephemeralContainers", Field::Map(NAME, &CONTAINER)),
        ("hostAliases", Field::Map(&[key("ip")], &LEAF)),
        ("imagePullSecrets", Field::Map(NAME, &LEAF)),
        ("initContainers", Field::Map(NAME, &CONTAINER)),
        ("resourceClaims", Field::Map(NAME, &LEAF)),
        ("schedulingGates", Field::Map(NAME, &LEAF)),
        ("topologySpreadConstraints", Field::Map(&[key("topologyKey"), key("whenUnsatisfiable")], &LEAF)),
        ("volumes", Field::Map(NAME, &LEAF)),
    ],
};

static POD: Schema = Schema {
    fields: &[
        ("metadata", Field::Object(&METADATA)),
        ("spec", Field::Object(&POD_SPEC)),
        ("status", Field::Object(&STATUS)),
    ],
};

static POD_TEMPLATE: Schema =
    Schema { fields: &[("metadata", Field::Object(&METADATA)), ("spec", Field::Object(&POD_SPEC))] };

static POD_TEMPLATE_OBJECT: Schema =
    Schema { fields: &[("metadata", Field::Object(&METADATA)), ("template", Field::Object(&POD_TEMPLATE))] };

static WORKLOAD_SPEC: Schema = Schema { fields: &[("template", Field::Object(&POD_TEMPLATE))] };

static WORKLOAD: Schema = Schema {
    fields: &[
        ("metadata", Field::Object(&METADATA)),
        ("spec", Field::Object(&WORKLOAD_SPEC)),
        ("status", Field::Object(&STATUS)),
    ],
};

static JOB_TEMPLATE: Schema =
    Schema { fields: &[("metadata", Field::Object(&METADATA)), ("spec", Field::Object(&WORKLOAD_SPEC))] };

static CRON_JOB_SPEC: Schema = Schema { fields: &[("jobTemplate", Field::Object(&JOB_TEMPLATE))] };

static CRON_JOB: Schema =
    Schema { fields: &[("metadata", Field::Object(&METADATA)), ("spec", Field::Object(&CRON_JOB_SPEC))] };

static SERVICE_SPEC: Schema = Schema { fields: &[("ports", Field::Map(&[key("port"), PROTOCOL], &LEAF))] };

static SERVICE: Schema = Schema {
    fields: &[
        ("metadata", Field::Object(&METADATA)),
        ("spec", Field::Object(&SERVICE_SPEC)),
        ("status", Field::Object(&STATUS)),
    ],
};

static ANY: Schema =
    Schema { fields: &[("metadata", Field::Object(&METADATA)), ("status", Field::Object(&STATUS))] };
