//! The variables of admission policies, with the types that Kubernetes declares.
//!
//! Where a declared type and the object differ, the declared one rules what compiles: a Namespace's
//! `creationTimestamp` is declared a timestamp and is a string when evaluated, its `uid` is not declared at all.

use std::sync::LazyLock;

use crate::check::cel_type::Type;

fn structure(name: &str, fields: &[(&'static str, Type)]) -> Type {
    Type::declared(name, fields.iter().cloned().collect())
}

fn strings(names: &[&'static str]) -> Vec<(&'static str, Type)> {
    names.iter().map(|name| (*name, Type::String)).collect()
}

/// The type of `request`.
pub(crate) fn request() -> Type {
    static REQUEST: LazyLock<Type> = LazyLock::new(|| {
        let kind = structure("kubernetes.GroupVersionKind", &strings(&["group", "version", "kind"]));
        let resource =
            structure("kubernetes.GroupVersionResource", &strings(&["group", "version", "resource"]));
        let extra = Type::map(Type::String, Type::list(Type::String));
        let user = structure(
            "kubernetes.UserInfo",
            &[
                ("username", Type::String),
                ("uid", Type::String),
                ("groups", Type::list(Type::String)),
                ("extra", extra),
            ],
        );
        let mut fields = strings(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
        fields.extend([
            ("kind", kind.clone()),
            ("requestKind", kind),
            ("resource", resource.clone()),
            ("requestResource", resource),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ]);
        structure("kubernetes.AdmissionRequest", &fields)
    });
    REQUEST.clone()
}

/// The type of `namespaceObject`.
pub(crate) fn namespace() -> Type {
    static NAMESPACE: LazyLock<Type> = LazyLock::new(|| {
        let texts = Type::map(Type::String, Type::String);
        let mut metadata = strings(&["name", "generateName", "namespace", "UID", "resourceVersion"]);
        metadata.extend([
            ("labels", texts.clone()),
            ("annotations", texts),
            ("creationTimestamp", Type::Timestamp),
            ("deletionTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("generation", Type::Int),
            ("finalizers", Type::list(Type::String)),
        ]);
        let mut condition = strings(&["status", "type", "message", "reason"]);
        condition.push(("lastTransitionTime", Type::Timestamp));
        let conditions = Type::list(structure("kubernetes.NamespaceCondition", &condition));
        let spec = [("finalizers", Type::list(Type::String))];
        let status = [("conditions", conditions), ("phase", Type::String)];
        structure(
            "kubernetes.Namespace",
            &[
                ("metadata", structure("kubernetes.NamespaceMetadata", &metadata)),
                ("spec", structure("kubernetes.NamespaceSpec", &spec)),
                ("status", structure("kubernetes.NamespaceStatus", &status)),
            ],
        )
    });
    NAMESPACE.clone()
}

/// The type of `authorizer`.
pub(crate) fn authorizer() -> Type {
    Type::hidden("kubernetes.authorization.Authorizer")
}

/// The type of `authorizer.requestResource`.
pub(crate) fn resource_check() -> Type {
    Type::hidden("kubernetes.authorization.ResourceCheck")
}
