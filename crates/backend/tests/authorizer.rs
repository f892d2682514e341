//! What policies ask of `authorizer`, answered by a real API server with RBAC: the decisions are those of the same
//! policies of the API server itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use sallyport_backend::{AuthorizerKind, Backend, Config, Reviewer};
use sallyport_pki::{Algorithm, Authority, LeafRequest, ServiceName};
use sallyport_policy::{Outcome, ValidationSet};
use sallyport_proto::v1alpha1::{GroupVersionKind, GroupVersionResource, Operation, ReviewRequest, UserInfo};
use sallyport_testkit::ControlPlane;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Request;

/// Rights of ann: to create what is reviewed, and a few to be asked about. Bob may create, and nothing else.
const RIGHTS: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: creator}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: creators}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: creator}
subjects:
  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}
  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cashier, namespace: shop}
rules:
  - {apiGroups: [example.com], resources: [tills], resourceNames: [front], verbs: [use]}
  - {apiGroups: [example.com], resources: [tills/drawer], verbs: ['*']}
  - {apiGroups: [''], resources: [configmaps], verbs: [seal]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: cashiers, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: cashier}
subjects:
  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}
  - {kind: ServiceAccount, name: robot, namespace: elsewhere}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: auditor}
rules:
  - {nonResourceURLs: [/audit/*], verbs: [get]}
  - {apiGroups: [apps], resources: [deployments], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: auditors}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: auditor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: auditors}]
";

/// Expressions that hold for some and not for others, and the check that they speak of.
const ROWS: [(&str, &str); 22] = [
    (
        "true",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    (
        "check.allowed()",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    (
        "!check.allowed()",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    (
        "check.allowed()",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('back').check('use')",
    ),
    ("check.allowed()", "authorizer.group('example.com').resource('tills').namespace('shop').check('use')"),
    (
        "check.allowed()",
        "authorizer.group('example.com').resource('tills').namespace('elsewhere').name('front').check('use')",
    ),
    (
        "check.allowed()",
        "authorizer.group('other.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    (
        "check.allowed()",
        "authorizer.group('example.com').resource('tills').subresource('drawer').namespace('shop').check('open')",
    ),
    ("check.allowed()", "authorizer.requestResource.check('create')"),
    ("check.allowed()", "authorizer.requestResource.check('seal')"),
    ("check.allowed()", "authorizer.path('/audit/today').check('get')"),
    ("check.allowed()", "authorizer.path('/audit/today').check('post')"),
    ("check.allowed()", "authorizer.path('/healthz').check('get')"),
    ("check.allowed()", "authorizer.group('apps').resource('deployments').check('list')"),
    (
        "check.allowed()",
        "authorizer.group('apps').resource('deployments').fieldSelector('a=b').labelSelector('c in (d)').check('list')",
    ),
    (
        "check.allowed() && !check.errored()",
        "authorizer.group('apps').resource('deployments').labelSelector('((').fieldSelector('==a').check('list')",
    ),
    ("!check.errored() && check.error() == ''", "authorizer.group('apps').resource('nothing').check('list')"),
    (
        "check.allowed()",
        "authorizer.serviceAccount('elsewhere', 'robot').group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    ("check.reason() == ''", "authorizer.group('').resource('pods').namespace('shop').check('get')"),
    (
        "check.reason() == 'RBAC: allowed by RoleBinding \"cashiers/shop\" of Role \"cashier\" to User \"ann\"'",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    (
        "check.allowed() || authorizer.path('/audit/x').check('get').allowed()",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
    (
        "check.allowed() ? authorizer.path('/audit/x').check('get').allowed() : true",
        "authorizer.group('example.com').resource('tills').namespace('shop').name('front').check('use')",
    ),
];

fn name(row: usize) -> String {
    format!("row-{row}")
}

/// One policy and its binding for each row, for the object that has its name. A few ask in their matchConditions.
fn policies() -> Vec<Value> {
    let policy = |row: usize, (expression, check): (&str, &str)| {
        let expression = expression.replace("check.", "variables.check.");
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name(row)},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
                    "resourceNames": [name(row)],
                }]},
                "variables": [{"name": "check", "expression": check}],
                "validations": [{"expression": expression}],
            },
        })
    };
    let mut policies: Vec<Value> = ROWS.into_iter().enumerate().map(|(row, it)| policy(row, it)).collect();
    let mut add = |expression: &str, change: fn(&mut Value)| {
        let mut policy = policy(policies.len(), (expression, ROWS[1].1));
        change(&mut policy["spec"]);
        policies.push(policy);
    };
    add("false", |spec| {
        spec["matchConditions"] = json!([{"name": "asks", "expression": format!("{}.allowed()", ROWS[1].1)}]);
    });
    // The API server has no authorizer for these two: the one falls back to the message, the other fails.
    add("false", |spec| {
        spec["validations"][0]["message"] = json!("fallen back");
        spec["validations"][0]["messageExpression"] = json!("'reason: ' + variables.check.reason()");
    });
    add("true", |spec| {
        spec["auditAnnotations"] =
            json!([{"key": "asked", "valueExpression": format!("string({}.allowed())", ROWS[1].1)}]);
    });
    policies
}

fn binding(policy: &Value) -> Value {
    let name = &policy["metadata"]["name"];
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    })
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Our kind of policy, which may also put into words what it was told.
fn own_policy() -> Value {
    let check = ROWS[1].1;
    json!({
        "apiVersion": "sallyport.dev/v1alpha1", "kind": "ValidationPolicy", "metadata": {"name": "own"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "resourceNames": ["own"],
            }]},
            "validations": [{
                "expression": format!("{check}.allowed()"),
                "messageExpression": format!("'no, ' + ({check}.errored() ? {check}.error() : 'not you')"),
            }],
        },
    })
}

/// A validator of these policies that asks the API server of this kubeconfig.
async fn start(policies: &[Value], kubeconfig: &Path) -> (Reviewer<ValidationSet>, TempDir) {
    let directory = TempDir::new().unwrap();
    let [certificates, files] = ["certificates", "policies"].map(|name| directory.path().join(name));
    fs::create_dir(&certificates).unwrap();
    fs::create_dir(&files).unwrap();
    for (index, policy) in policies.iter().enumerate() {
        fs::write(files.join(format!("{index}.json")), policy.to_string()).unwrap();
        fs::write(files.join(format!("{index}-binding.json")), binding(policy).to_string()).unwrap();
    }
    fs::write(files.join("own.json"), own_policy().to_string()).unwrap();
    let hour = Duration::from_secs(3600);
    let authority = Authority::generate(Algorithm::default(), SystemTime::now(), hour).unwrap();
    let service = ServiceName::new("validator", "sallyport", "cluster.local").unwrap();
    let leaf = authority.issue(&LeafRequest::for_service(&service), SystemTime::now(), hour).unwrap();
    fs::write(certificates.join("tls.crt"), &leaf.certificate_pem).unwrap();
    fs::write(certificates.join("tls.key"), &leaf.key_pem).unwrap();
    fs::write(certificates.join("ca.crt"), authority.key_pair().certificate_pem).unwrap();
    let mut config = Config::new(files, certificates, "front.sallyport.svc".to_owned());
    let any = "127.0.0.1:0".parse().unwrap();
    (config.listen, config.admin) = (any, any);
    (config.authorizer, config.kubeconfig) = (AuthorizerKind::ApiServer, Some(kubeconfig.to_owned()));
    let backend = Backend::<ValidationSet>::bind(config).await.unwrap();
    (backend.reviewer(), directory)
}

/// What this validator makes of a `ConfigMap` of this name.
async fn decide(validator: &Reviewer<ValidationSet>, name: &str, (user, groups): (&str, &[&str])) -> Outcome {
    let message = ReviewRequest {
        uid: "u".into(),
        kind: Some(GroupVersionKind {
            version: "v1".into(),
            kind: "ConfigMap".into(),
            ..GroupVersionKind::default()
        }),
        resource: Some(GroupVersionResource {
            version: "v1".into(),
            resource: "configmaps".into(),
            ..GroupVersionResource::default()
        }),
        operation: Operation::Create.into(),
        name: name.into(),
        namespace: "shop".into(),
        user_info: Some(UserInfo {
            username: user.into(),
            // What the API server adds to everybody that it knows.
            groups: groups.iter().copied().chain(["system:authenticated"]).map(Into::into).collect(),
            ..UserInfo::default()
        }),
        object:
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}})
                .to_string()
                .into(),
        ..ReviewRequest::default()
    };
    validator.review(Request::new(message)).await.unwrap()
}

fn message(outcome: &Outcome) -> Option<&str> {
    outcome.answer.status.as_ref().map(|status| status.message.as_str())
}

/// What the API server makes of it: nothing, or its refusal.
async fn upstream(plane: &ControlPlane, name: &str, (user, groups): (&str, &[&str])) -> Option<String> {
    let user = format!("--as={user}");
    let groups: Vec<String> = groups.iter().map(|group| format!("--as-group={group}")).collect();
    let mut arguments = vec!["create", "configmap", name, "--namespace=shop", "--dry-run=server", &user];
    arguments.extend(groups.iter().map(String::as_str));
    let output = plane.kubectl(&arguments, None).await.unwrap();
    (!output.success).then_some(output.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_those_of_the_api_servers_own_policies() {
    let mut plane = ControlPlane::start().await.unwrap();
    let policies = policies();
    let everything = [policies.clone(), policies.iter().map(binding).collect()].concat();
    plane.kubectl(&["apply", "-f", "-"], Some(RIGHTS)).await.unwrap().ok().unwrap();
    plane.kubectl(&["create", "-f", "-"], Some(&list(&everything))).await.unwrap().ok().unwrap();
    let (validator, directory) = start(&policies, plane.kubeconfig()).await;

    let users: [(&str, &[&str]); 3] = [("ann", &[]), ("bob", &[]), ("ann", &["auditors"])];
    let mut seen = [0, 0];
    for row in 0..policies.len() {
        for user in users {
            let ours = decide(&validator, &name(row), user).await;
            let patience = Instant::now() + Duration::from_secs(30);
            // Its policies and rights come into force a moment after they are stored.
            let theirs = loop {
                let theirs = upstream(&plane, &name(row), user).await;
                let same = match (message(&ours), &theirs) {
                    (None, None) => true,
                    (Some(ours), Some(theirs)) => theirs.trim_end().ends_with(ours),
                    _ => false,
                };
                if same || Instant::now() > patience {
                    break (same, theirs);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            };
            let row = ROWS.get(row);
            assert!(theirs.0, "{row:?} for {user:?}: ours {:?}, theirs {:?}", ours.answer.status, theirs.1);
            seen[usize::from(ours.answer.allowed)] += 1;
        }
    }
    // Neither side answers one way only.
    assert!(seen[0] >= 20 && seen[1] >= 20, "{seen:?}");

    let (ann, bob) = (("ann", &[] as &[&str]), ("bob", &[] as &[&str]));
    assert!(decide(&validator, "own", ann).await.answer.allowed);
    assert_eq!(message(&decide(&validator, "own", bob).await), Some("no, not you (policy own)"));
    // A right that is gone counts at once: no answer is kept.
    plane.kubectl(&["delete", "rolebinding", "cashiers", "-n", "shop"], None).await.unwrap().ok().unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    while decide(&validator, "own", ann).await.answer.allowed {
        assert!(Instant::now() < patience, "ann may still");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // Who may not ask gets no answer, and is told why.
    let mut kubeconfig: Value =
        serde_saphyr::from_str(&fs::read_to_string(plane.kubeconfig()).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["as"] = json!("nobody");
    let path = directory.path().join("kubeconfig");
    fs::write(&path, kubeconfig.to_string()).unwrap();
    let (powerless, _files) = start(&policies, &path).await;
    let outcome = decide(&powerless, "own", ann).await;
    let refused = "cannot create resource \"subjectaccessreviews\"";
    assert!(message(&outcome).unwrap().contains(refused), "{outcome:?}");

    // No answer in time, then none at all: an error of the check, and no decision.
    plane.api_server().suspend().unwrap();
    let begun = Instant::now();
    let outcome = decide(&validator, "own", ann).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let late = "no, the API server did not answer in time (policy own)";
    assert_eq!(message(&outcome), Some(late));
    plane.api_server().kill().unwrap();
    let outcome = decide(&validator, "own", ann).await;
    assert!(message(&outcome).unwrap().starts_with("no, failed to ask the API server: "), "{outcome:?}");
    for (row, allowed) in [(0, true), (1, false), (2, true), (16, false)] {
        let outcome = decide(&validator, &name(row), ann).await;
        assert_eq!(outcome.answer.allowed, allowed, "{:?}: {outcome:?}", ROWS[row]);
    }
}
