//! A real API server to hold the policy engine against: a control plane, and a client that gives whole answers,
//! with status, warnings and what stands in the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use sallyport_testkit::ControlPlane;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long policies and definitions may take until they are in force. Definitions of custom kinds become known to
/// policies' params within half a minute.
pub const IN_FORCE: Duration = Duration::from_secs(60);
/// How often it is looked whether they are.
pub const POLL: Duration = Duration::from_millis(100);

/// How often it is asked, if need be.
const ATTEMPTS: usize = 3;
/// How a request ends in the audit log.
const ENDS: [&str; 2] = ["ResponseComplete", "Panic"];

/// Where custom kinds are defined.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where Namespaces are.
pub const NAMESPACES: &str = "/api/v1/namespaces";
/// Annotations by which the API server says who let a request in, what its webhooks did, and what took long.
const OTHERS: [&str; 5] = [
    "apiserver.latency.k8s.io/",
    "authorization.k8s.io/",
    "pod-security.kubernetes.io/",
    "mutation.webhook.",
    "validation.webhook.",
];

/// A running API server.
pub struct Oracle {
    /// It itself.
    pub plane: ControlPlane,
    client: Client,
    audit: TempDir,
}

/// What is asked of it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The verb.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The object, if any.
    pub body: Option<Value>,
    /// On whose behalf, if there is an id; the administrator's unless given.
    pub user: Option<String>,
    /// The id of its user in reviews, by which it is found again.
    pub id: Option<String>,
    /// Whether it has that id in the audit log, too.
    pub audited: bool,
}

impl Call {
    /// A call by the administrator.
    pub fn new(method: Method, path: impl Into<String>, body: Option<Value>) -> Self {
        Self { method, path: path.into(), body, user: None, id: None, audited: false }
    }

    /// Whether it changes nothing.
    fn is_safe(&self) -> bool {
        self.method == Method::GET || self.path.ends_with("?dryRun=All")
    }
}

/// What it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// The object, or a `Status`.
    pub body: Value,
    /// For the client to show.
    pub warnings: BTreeSet<String>,
}

impl Answer {
    /// Whether it is an error.
    pub fn is_refusal(&self) -> bool {
        self.code >= 400
    }

    /// The object, or code and message.
    pub fn into_result(self) -> Result<Value, (u16, String)> {
        if !self.is_refusal() {
            return Ok(self.body);
        }
        let message = self.body["message"].as_str().unwrap_or_default().to_owned();
        Err((self.code, message))
    }
}

impl Oracle {
    /// Starts one that keeps an audit log.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        crate::install_tls_provider();
        let audit = TempDir::with_prefix("sallyport-audit-").unwrap();
        let policy = audit.path().join("policy.json");
        let rules = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": ["administrator"]}, {"level": "None"}]});
        std::fs::write(&policy, rules.to_string()).unwrap();
        let plane = ControlPlane::builder()
            .api_server_arg(format!("--audit-policy-file={}", policy.display()))
            .api_server_arg(format!("--audit-log-path={}", audit.path().join("log").display()))
            .start()
            .await
            .unwrap();
        let client = crate::release::client(plane.kubeconfig()).await.unwrap();
        Self { plane, client, audit }
    }

    /// Asks it something.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send(&self, call: &Call) -> Answer {
        self.try_send(call).await.unwrap_or_else(|error| panic!("{} {}: {error}", call.method, call.path))
    }

    /// Asks it something. What changes nothing is asked more than once if there is no answer: connections end.
    ///
    /// # Errors
    /// When there is no answer: the API server closes the connection when it panics.
    pub async fn try_send(&self, call: &Call) -> kube::Result<Answer> {
        let attempts = if call.is_safe() { ATTEMPTS } else { 1 };
        let mut answer = self.ask(call).await;
        for _ in 1..attempts {
            if answer.is_ok() {
                break;
            }
            answer = self.ask(call).await;
        }
        answer
    }

    async fn ask(&self, call: &Call) -> kube::Result<Answer> {
        let mut request = Request::builder().method(call.method.clone()).uri(&call.path);
        if call.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(id) = &call.id {
            let user = call.user.as_deref().unwrap_or("administrator");
            if call.audited {
                request = request.header("audit-id", id);
            }
            request = request
                .header("impersonate-user", user)
                .header("impersonate-uid", id)
                .header("impersonate-group", "system:masters");
        }
        let body = call.body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(Body::from(body)).unwrap();
        let (parts, body) = self.client.send(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        Ok(Answer {
            code: parts.status.as_u16(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            warnings: parts.headers.get_all("warning").iter().map(warning).collect(),
        })
    }

    /// The object at a path.
    ///
    /// # Panics
    /// When there is none.
    pub async fn get(&self, path: &str) -> Value {
        self.send(&Call::new(Method::GET, path, None))
            .await
            .into_result()
            .unwrap_or_else(|error| panic!("{path}: {error:?}"))
    }

    /// Creates an object; gives it as it is then, or code and message.
    pub async fn post(&self, path: &str, object: &Value) -> Result<Value, (u16, String)> {
        self.send(&Call::new(Method::POST, path, Some(object.clone()))).await.into_result()
    }

    /// Creates an object.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.post(path, object).await.unwrap_or_else(|error| panic!("{path}: {error:?}: {object}"))
    }

    /// Defines custom kinds, and waits until they are served.
    ///
    /// # Panics
    /// When they are refused, or not served in time.
    pub async fn define(&self, definitions: &[Value]) {
        for definition in definitions {
            self.create(DEFINITIONS, definition).await;
        }
        let wait = ["wait", "--for=condition=Established", "--all", "crd", "--timeout=30s"];
        self.plane.kubectl(&wait, None).await.unwrap().ok().unwrap();
    }

    /// What the audit log says of requests with such ids, once it has them all: the annotations of policies.
    ///
    /// # Panics
    /// When one does not appear in time.
    pub async fn audited(&self, ids: &BTreeSet<String>) -> BTreeMap<String, BTreeMap<String, String>> {
        let deadline = Instant::now() + IN_FORCE;
        loop {
            let log = std::fs::read_to_string(self.audit.path().join("log")).unwrap();
            // The last line may be half written.
            let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
            for event in events.filter(|event| ENDS.contains(&event["stage"].as_str().unwrap_or_default())) {
                let id = event["auditID"].as_str().unwrap_or_default();
                if ids.contains(id) {
                    found.insert(id.to_owned(), annotations(&event["annotations"]));
                }
            }
            if found.len() == ids.len() {
                return found;
            }
            let missing: Vec<_> = ids.iter().filter(|id| !found.contains_key(*id)).take(5).collect();
            assert!(Instant::now() < deadline, "the audit log lacks {missing:?} and perhaps more");
            sleep(POLL).await;
        }
    }
}

/// An object without what an API server makes anew for each.
pub fn cleaned(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "creationTimestamp",
            "deletionTimestamp",
            "generation",
            "managedFields",
            "namespace",
            "resourceVersion",
            "uid",
        ] {
            metadata.remove(field);
        }
    }
    object
}

fn annotations(of: &Value) -> BTreeMap<String, String> {
    let all = of.as_object().into_iter().flatten();
    all.filter(|(key, _)| !OTHERS.iter().any(|prefix| key.starts_with(prefix)))
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// The text of a `Warning` header: `299 - "text"`, with `"` and `\` escaped.
fn warning(header: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
    let quoted =
        text.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"')).map_or("", |(text, _)| text);
    let mut plain = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_taken_out_of_their_quotes() {
        let header = HeaderValue::from_static(r#"299 - "say \"a\\b\" to 'c'""#);
        assert_eq!(warning(&header), r#"say "a\b" to 'c'"#);
    }
}
