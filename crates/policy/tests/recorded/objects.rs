//! Comparing resulting objects.
//!
//! The API server fills in defaults after each mutation, drops empty values and writes quantities in their
//! canonical form; what a webhook answers is treated so afterwards. All this makes no difference here.

use serde_json::{Map, Value};

/// Fields that the API server fills in.
const DEFAULTED: &[&str] = &[
    "allocateLoadBalancerNodePorts",
    "apiVersion",
    "defaultMode",
    "divisor",
    "dnsPolicy",
    "enableServiceLinks",
    "externalTrafficPolicy",
    "failureThreshold",
    "hostPort",
    "imagePullPolicy",
    "immediate",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "kind",
    "maxSurge",
    "maxUnavailable",
    "nodeAffinityPolicy",
    "nodePort",
    "nodeTaintsPolicy",
    "path",
    "pathType",
    "periodSeconds",
    "preemptionPolicy",
    "priority",
    "progressDeadlineSeconds",
    "protocol",
    "replicas",
    "requests",
    "restartPolicy",
    "restartPolicyRules",
    "revisionHistoryLimit",
    "rollingUpdate",
    "schedulerName",
    "scheme",
    "securityContext",
    "service",
    "serviceAccount",
    "sessionAffinity",
    "strategy",
    "successThreshold",
    "targetPort",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "timeoutSeconds",
    "tolerations",
    "type",
];
/// Fields whose values, or whose members' values, are quantities.
const QUANTITIES: &[&str] =
    &["limits", "requests", "overhead", "capacity", "hard", "sizeLimit", "divisor", "storage"];

/// Where the objects differ, and how.
pub fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(ours, theirs, "", &mut found);
    found
}

fn compare(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    if is_empty(ours) && is_empty(theirs) {
        return;
    }
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => members(ours, theirs, path, found),
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(ours, theirs, &format!("{path}/{index}"), found);
            }
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => {}
        _ if ours == theirs => {}
        _ if [ours, theirs].iter().all(|value| value.is_null() || *value == "") => {}
        _ if is_quantity(path) && same_quantity(ours, theirs) => {}
        _ => found.push(format!("{path}: {}, the API server {}", short(ours), short(theirs))),
    }
}

fn members(ours: &Map<String, Value>, theirs: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    for (name, value) in ours {
        let path = format!("{path}/{name}");
        match theirs.get(name) {
            _ if path == "/metadata/managedFields" => {}
            Some(other) => compare(value, other, &path, found),
            None if is_empty(value) => {}
            None => found.push(format!("{path}: only ours: {}", short(value))),
        }
    }
    for (name, value) in theirs.iter().filter(|(name, _)| !ours.contains_key(*name)) {
        let path = format!("{path}/{name}");
        if path == "/metadata/managedFields" || is_empty(value) || value == "" || is_default(name, value) {
            continue;
        }
        found.push(format!("{path}: missing, the API server {}", short(value)));
    }
}

/// Whether a member that is missing is one that the API server fills in, or holds nothing else.
fn is_default(name: &str, value: &Value) -> bool {
    DEFAULTED.contains(&name)
        || value
            .as_object()
            .is_some_and(|members| members.iter().all(|(name, value)| is_default(name, value)))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

fn is_quantity(path: &str) -> bool {
    path.split('/').any(|part| QUANTITIES.contains(&part))
}

fn same_quantity(ours: &Value, theirs: &Value) -> bool {
    match (quantity(ours), quantity(theirs)) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= f64::EPSILON * ours.abs(),
        _ => false,
    }
}

fn quantity(value: &Value) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 14] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("", 1.0),
    ];
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (suffix, factor) = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix))?;
    text.strip_suffix(suffix)?.parse::<f64>().ok().map(|number| number * factor)
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(160).collect()
}
