//! The authorizer library over a table.

use std::sync::Arc;

use sallyport_admission::UserInfo;
use sallyport_cel::{
    Activation, Attributes, Authorizer, AuthorizerTable, Decision, Limits, Program, Resource, Scope, Value,
};
use serde_json::{Value as Json, json};

fn evaluate(source: &str, authorizer: &dyn Authorizer) -> Result<(Json, u64), String> {
    let mut scope = Scope::default();
    scope.declare_authorizer();
    let program = Program::compile(source, &scope).map_err(|error| error.to_string())?;
    let user = Arc::new(UserInfo { username: "alice".to_owned(), ..UserInfo::default() });
    let resource = Resource {
        resource: "pods".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        ..Resource::default()
    };
    let mut activation = Activation::new(&scope, Limits::default());
    activation.bind("authorizer", Value::authorizer(authorizer, Arc::clone(&user)));
    activation.bind("authorizer.requestResource", Value::resource_authorizer(authorizer, user, resource));
    let value = program.evaluate(&activation).and_then(|value| value.to_json());
    value.map(|value| (value, activation.cost())).map_err(|error| error.to_string())
}

#[test]
fn a_check_passes_when_every_member_of_one_rule_fits() {
    let pods = "authorizer.group('').resource('pods')";
    let rows: Vec<(Json, String, bool)> = vec![
        (json!([]), format!("{pods}.check('get')"), false),
        (json!([{}]), format!("{pods}.check('get')"), true),
        (json!([{"verb": "*"}]), format!("{pods}.check('get')"), true),
        (json!([{"verb": "get"}]), format!("{pods}.check('list')"), false),
        (json!([{"verb": "get"}, {"verb": "list"}]), format!("{pods}.check('list')"), true),
        (json!([{"user": "alice", "resource": "pods"}]), format!("{pods}.check('get')"), true),
        (json!([{"user": "bob", "resource": "pods"}]), format!("{pods}.check('get')"), false),
        (json!([{"group": "", "resource": "pods"}]), format!("{pods}.check('get')"), true),
        (json!([{"group": "apps"}]), format!("{pods}.check('get')"), false),
        (json!([{"namespace": "a"}]), format!("{pods}.namespace('a').check('get')"), true),
        (json!([{"namespace": "a"}]), format!("{pods}.check('get')"), false),
        (json!([{"namespace": "*", "name": "x"}]), format!("{pods}.name('x').check('get')"), true),
        (json!([{"subresource": "exec"}]), format!("{pods}.subresource('exec').check('create')"), true),
        (json!([{"subresource": "exec"}]), format!("{pods}.check('create')"), false),
        (
            json!([{"name": "x"}]),
            format!("{pods}.fieldSelector('a=b').labelSelector('c').check('list')"),
            false,
        ),
        (json!([{"path": "/healthz"}]), "authorizer.path('/healthz').check('get')".to_owned(), true),
        (json!([{"path": "/healthz"}]), "authorizer.path('/readyz').check('get')".to_owned(), false),
        (json!([{"path": "/healthz"}]), format!("{pods}.check('get')"), false),
        (json!([{"resource": "pods"}]), "authorizer.path('/healthz').check('get')".to_owned(), false),
        (
            json!([{"user": "system:serviceaccount:shop:robot"}]),
            "authorizer.serviceAccount('shop', 'robot').path('/').check('get')".to_owned(),
            true,
        ),
        (
            json!([{"user": "alice"}]),
            "authorizer.serviceAccount('a', 'b').path('/').check('get')".to_owned(),
            false,
        ),
        (
            json!([{"resource": "pods", "namespace": "shop", "name": "web", "verb": "approve"}]),
            "authorizer.requestResource.check('approve')".to_owned(),
            true,
        ),
        (
            json!([{"name": "web"}]),
            "authorizer.requestResource.name('other').check('approve')".to_owned(),
            false,
        ),
    ];
    for (allow, source, allowed) in rows {
        let table: AuthorizerTable = serde_json::from_value(json!({"allow": allow.clone()})).unwrap();
        let (value, _) = evaluate(&format!("{source}.allowed()"), &table).unwrap();
        assert_eq!(value, Json::Bool(allowed), "{allow} {source}");
    }
}

#[test]
fn reason_and_error_are_told() {
    let table = json!({"reason": "because", "error": "the server is away"});
    let table: AuthorizerTable = serde_json::from_value(table).unwrap();
    for (source, expected) in [
        ("authorizer.path('/').check('get').allowed()", json!(false)),
        ("authorizer.path('/').check('get').reason()", json!("because")),
        ("authorizer.path('/').check('get').errored()", json!(true)),
        ("authorizer.path('/').check('get').error()", json!("the server is away")),
    ] {
        assert_eq!(evaluate(source, &table).unwrap().0, expected, "{source}");
        let silent = match expected {
            Json::String(_) => json!(""),
            _ => json!(false),
        };
        assert_eq!(evaluate(source, &AuthorizerTable::default()).unwrap().0, silent, "{source}");
    }
}

#[test]
fn tables_are_read_strictly() {
    let read = |table: Json| serde_json::from_value::<AuthorizerTable>(table);
    assert_eq!(read(json!({})).unwrap(), AuthorizerTable::default());
    assert_eq!(read(json!({"reason": null, "error": ""})).unwrap(), AuthorizerTable::default());
    assert_eq!(read(json!({"allow": vec![json!({}); 10_000]})).unwrap().allow.len(), 10_000);
    for (table, message) in [
        (json!({"alow": []}), "unknown field `alow`"),
        (json!({"allow": null}), "a list of at most 10000 rules"),
        (json!({"allow": [{"users": "x"}]}), "unknown field `users`"),
        (json!([]), "a table {allow: [rule], reason, error}"),
        (json!({"allow": [[]]}), "a rule {user, verb"),
        (json!({"allow": [null]}), "a rule {user, verb"),
        // A member that fits anything by mistake would allow everything.
        (json!({"allow": [{"user": null}]}), "expected a string"),
        (json!({"allow": [{"verb": ["get"]}]}), "expected a string"),
        (json!({"allow": vec![json!({}); 10_001]}), "a list of at most 10000 rules"),
    ] {
        let error = read(table.clone()).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn questions_that_cannot_be_asked_are_errors() {
    let rows = [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        (
            "authorizer.serviceAccount('a', 'B!').path('/').check('get').allowed()",
            "Invalid service account name",
        ),
        (
            "authorizer.serviceAccount('a.b', 'c').path('/').check('get').allowed()",
            "Invalid service account namespace",
        ),
        ("authorizer == authorizer", "no such overload"),
        ("dyn(authorizer.group('')).check('get').allowed()", "no such overload"),
        ("authorizer.group('').check('get').allowed()", "found no matching overload for 'check'"),
    ];
    for (source, message) in rows {
        let error = evaluate(source, &AuthorizerTable::default()).unwrap_err();
        assert!(error.contains(message), "{source}: {error}");
    }
}

/// Counts how often it is asked.
struct Counting(std::sync::atomic::AtomicUsize);

impl Authorizer for Counting {
    fn check(&self, _: &Attributes<'_>) -> Option<Decision> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Some(Decision { allowed: true, ..Decision::default() })
    }
}

#[test]
fn an_expression_asks_twice_at_most() {
    let check = "authorizer.group('').resource('pods').namespace('a').check('get').allowed()";
    let selected =
        "authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c=d,e=f').check('get')";
    let counting = Counting(0.into());
    assert_eq!(evaluate(check, &counting), Ok((json!(true), 350_005)));
    assert_eq!(evaluate(&format!("{selected}.allowed()"), &counting), Ok((json!(true), 350_326)));
    counting.0.store(0, std::sync::atomic::Ordering::Relaxed);
    let error = evaluate(&format!("{check} && {check} && {check}"), &counting).unwrap_err();
    assert!(error.contains("cost limit exceeded"), "{error}");
    assert_eq!(counting.0.into_inner(), 2);
}

/// Has no answer yet.
struct Pending;

impl Authorizer for Pending {
    fn check(&self, _: &Attributes<'_>) -> Option<Decision> {
        None
    }
}

/// Nothing in an expression makes a value of a question that is open.
#[test]
fn an_open_question_leaves_the_expression_undecided() {
    let check = "authorizer.path('/a').check('get')";
    for source in [
        "CHECK.allowed()",
        "CHECK.errored()",
        "CHECK.allowed() || true",
        "false || CHECK.allowed() || true",
        "CHECK.allowed() && false",
        "CHECK.allowed() ? 1 : 1",
        "[1, 2].all(it, it > 3 && CHECK.allowed() || CHECK.allowed())",
        "[1, 2].exists(it, CHECK.allowed() || it == 2)",
        "[1].map(it, CHECK.allowed()) == [] || true",
        "optional.of(CHECK.allowed()).orValue(true)",
        "{'a': CHECK.reason()}.?b.orValue('c')",
    ] {
        let source = source.replace("CHECK", check);
        let error = evaluate(&source, &Pending).unwrap_err();
        assert!(error.contains("not answered yet"), "{source}: {error}");
    }
    assert_eq!(evaluate(&format!("true || {check}.allowed()"), &Pending).unwrap().0, json!(true));
}
