//! A cluster, read as whoever is named in a kubeconfig, and written to in annotations alone.
//!
//! Objects are raw JSON. Every call is bounded in time and in bytes, lists come in pages, and what cannot be read
//! is a value like any other: who asks goes on with the rest and says what is missing.

use crate::cluster::clock;
use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use sallyport_pki::names::{dns_label, dns_subdomain};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of one answer.
const MAX_ANSWER: usize = 32 << 20;
/// Objects in a page.
const PAGE: usize = 250;
/// The most objects of one list.
const MAX_OBJECTS: usize = 20_000;
/// The most bytes of what a process shows.
const MAX_SHOWN: usize = 16 << 10;
/// How long a process may take to show something.
const SHOW_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a message of the API server that are repeated.
const MAX_MESSAGE: usize = 500;
/// The name under which annotations are written.
const FIELD_MANAGER: &str = "sallyport";
/// Without contents: keys of Secrets stay where they are.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";

/// Which cluster, as whom.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Access {
    /// Kubeconfig [default: as for kubectl].
    #[arg(long, env = "SALLYPORT_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one].
    #[arg(long, env = "SALLYPORT_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

/// Why something could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// A right is missing.
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// The API server does not know who asks.
    #[error("the API server does not accept the kubeconfig's credentials")]
    Unauthorized,
    /// The API server refused for another reason, or could not do it.
    #[error("the API server says {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// There was no answer, or none that can be understood.
    #[error("{0}")]
    Failed(String),
    /// No answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// More than is read.
    #[error("there is more than this command reads")]
    TooMuch,
}

/// What was read.
pub(crate) type Read<T> = Result<T, Unread>;

/// An API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    url: String,
}

/// What a process answered through the API server.
struct Answer {
    status: StatusCode,
    date: Option<SystemTime>,
    body: Bytes,
}

/// Who answers, and what time it is there.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// Kubernetes' version, such as `v1.34.1`.
    pub(crate) version: String,
    /// The API server's clock, and ours when it was read.
    pub(crate) clock: Option<(SystemTime, SystemTime)>,
}

impl Cluster {
    /// A client; nothing is asked yet.
    pub(crate) async fn connect(access: &Access) -> anyhow::Result<Self> {
        let options = KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &access.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("failed to read --kubeconfig {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .with_context(|| format!("failed to use --kubeconfig {}", path.display()))?
            }
            None if access.context.is_some() => {
                kube::Config::from_kubeconfig(&options).await.context("failed to use --context")?
            }
            None => kube::Config::infer()
                .await
                .context("failed to find a cluster: there is neither a kubeconfig nor a ServiceAccount")?,
        };
        // Every call is bounded here, and what fails is said instead of tried again.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).context("failed to make a client of the API server")?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned() })
    }

    /// The API server's address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Asks for the version, and looks at the clock.
    pub(crate) async fn greet(&self) -> Read<Greeting> {
        let before = SystemTime::now();
        let answer = self.call(Method::GET, "/version", JSON, None, CALL_TIMEOUT, MAX_ANSWER).await?;
        // Half of the way back and forth is the best guess at when the answer was written.
        let middle = before + before.elapsed().unwrap_or_default() / 2;
        let date = answer.date;
        let version = match parsed(&answer) {
            Ok(version) => version.get("gitVersion").and_then(Value::as_str).map(str::to_owned),
            // It answers, and does not tell everybody.
            Err(Unread::Forbidden(_)) => None,
            Err(unread) => return Err(unread),
        };
        let version = version.unwrap_or_else(|| "an unknown version".to_owned());
        Ok(Greeting { version, clock: date.map(|date| (date, middle)) })
    }

    /// An object, or `None` if there is none.
    pub(crate) async fn get(&self, path: &str) -> Read<Option<Value>> {
        self.optional(path, JSON).await
    }

    /// An object's metadata, or `None` if there is none.
    pub(crate) async fn metadata(&self, path: &str) -> Read<Option<Value>> {
        self.optional(path, METADATA).await
    }

    async fn optional(&self, path: &str, accept: &str) -> Read<Option<Value>> {
        let answer = self.call(Method::GET, path, accept, None, CALL_TIMEOUT, MAX_ANSWER).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        parsed(&answer).map(Some)
    }

    /// All objects of a collection that a label selector selects, each as `project` leaves it.
    pub(crate) async fn list(
        &self,
        path: &str,
        selector: &str,
        project: fn(Value) -> Value,
    ) -> Read<Vec<Value>> {
        self.pages(path, selector, JSON, project).await
    }

    /// The metadata of all objects of a collection.
    pub(crate) async fn list_metadata(&self, path: &str, selector: &str) -> Read<Vec<Value>> {
        self.pages(path, selector, METADATA_LIST, without_managed_fields).await
    }

    async fn pages(
        &self,
        path: &str,
        selector: &str,
        accept: &str,
        project: fn(Value) -> Value,
    ) -> Read<Vec<Value>> {
        let mut objects = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!("{path}?limit={PAGE}&labelSelector={selector}&continue={token}");
            let answer = self.call(Method::GET, &path, accept, None, CALL_TIMEOUT, MAX_ANSWER).await?;
            let mut list = parsed(&answer)?;
            let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
                return Err(Unread::Failed("the API server answered something else than a list".to_owned()));
            };
            objects.extend(items.into_iter().map(project));
            list.pointer("/metadata/continue")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .clone_into(&mut token);
            if token.is_empty() {
                return Ok(objects);
            }
            let is_plain =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=' | b'.');
            if objects.len() >= MAX_OBJECTS || !token.bytes().all(is_plain) {
                return Err(Unread::TooMuch);
            }
        }
    }

    /// What a pod shows on its admin port, through the API server's proxy.
    pub(crate) async fn shown(&self, namespace: &str, pod: &str, port: u16, page: &str) -> Read<Bytes> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{page}");
        let answer = self.call(Method::GET, &path, JSON, None, SHOW_TIMEOUT, MAX_SHOWN).await?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(refused(&answer)) }
    }

    /// Sets annotations, or removes those that are null. Returns the object's metadata.
    pub(crate) async fn annotate(&self, path: &str, annotations: &Value) -> Read<Option<Value>> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}");
        let change = json!({"metadata": {"annotations": annotations}}).to_string();
        let answer =
            self.call(Method::PATCH, &path, METADATA, Some(change), CALL_TIMEOUT, MAX_ANSWER).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        parsed(&answer).map(Some)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        change: Option<String>,
        limit: Duration,
        bytes: usize,
    ) -> Read<Answer> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
        if change.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        }
        let body = change.map_or_else(Body::empty, |change| Body::from(change.into_bytes()));
        let request = request.body(body).map_err(|error| Unread::Failed(error.to_string()))?;
        let asked = async {
            let response = self.client.send(request).await.map_err(|error| failed(&error))?;
            let status = response.status();
            let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(clock::parse_http);
            let body = Limited::new(response.into_body(), bytes).collect().await;
            let body = body.map_err(|error| {
                let is_long = error.is::<http_body_util::LengthLimitError>();
                if is_long { Unread::TooMuch } else { Unread::Failed(error.to_string()) }
            })?;
            Ok(Answer { status, date, body: body.to_bytes() })
        };
        tokio::time::timeout(limit, asked).await.unwrap_or(Err(Unread::TimedOut(limit)))
    }
}

/// A label selector in a URL, of keys and values that the caller knows.
pub(crate) fn selector<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let labels = labels.into_iter().map(|(key, value)| format!("{}%3D{value}", key.replace('/', "%2F")));
    labels.collect::<Vec<_>>().join("%2C")
}

/// Whether a Service's name and namespace, as somebody wrote them, can be asked for.
pub(crate) fn is_name(namespace: &str, name: &str) -> bool {
    dns_label("namespace", namespace).is_ok() && dns_subdomain("name", name).is_ok()
}

/// An object without the record of who wrote what.
pub(crate) fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn parsed(answer: &Answer) -> Read<Value> {
    if !answer.status.is_success() {
        return Err(refused(answer));
    }
    serde_json::from_slice(&answer.body)
        .map_err(|_| Unread::Failed("the API server's answer is not JSON".to_owned()))
}

fn refused(answer: &Answer) -> Unread {
    let status: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let said = status.as_ref().and_then(|status| status.get("message")?.as_str());
    let said = said.map_or_else(|| String::from_utf8_lossy(&answer.body).trim().to_owned(), str::to_owned);
    let message = cut(&said);
    match answer.status {
        StatusCode::UNAUTHORIZED => Unread::Unauthorized,
        StatusCode::FORBIDDEN => Unread::Forbidden(message),
        status => Unread::Refused { status: status.as_u16(), message },
    }
}

fn cut(text: &str) -> String {
    let end = text.char_indices().map(|(index, _)| index).find(|index| *index >= MAX_MESSAGE);
    end.map_or_else(|| text.to_owned(), |end| format!("{}…", text.get(..end).unwrap_or_default()))
}

fn failed(error: &kube::Error) -> Unread {
    let mut parts: Vec<String> = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(match error {
        // Its own text says nothing.
        kube::Error::Service(inner) => inner.as_ref(),
        other => other,
    });
    while let Some(error) = next.filter(|_| parts.len() < 8) {
        let text = error.to_string();
        // Many wrappers repeat what they wrap.
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    Unread::Failed(cut(&parts.join(": ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_for_a_url() {
        let text = selector([("app.kubernetes.io/name", "sallyport"), ("a", "b")]);
        assert_eq!(text, "app.kubernetes.io%2Fname%3Dsallyport%2Ca%3Db");
    }

    #[test]
    fn names_that_would_leave_their_place_are_not_asked_for() {
        for (namespace, name, good) in [
            ("prod", "hook", true),
            ("prod", "..", false),
            ("prod", "a/b", false),
            ("../x", "hook", false),
            ("", "hook", false),
            ("prod", "a?b", false),
        ] {
            assert_eq!(is_name(namespace, name), good, "{namespace}/{name}");
        }
    }

    #[test]
    fn a_refusal_says_what_the_server_said_and_no_more() {
        let answer = |status, body: &str| Answer {
            status: StatusCode::from_u16(status).unwrap(),
            date: None,
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        let forbidden = refused(&answer(403, r#"{"kind": "Status", "message": "no right"}"#));
        assert_eq!(forbidden, Unread::Forbidden("no right".to_owned()));
        assert_eq!(refused(&answer(401, "")), Unread::Unauthorized);
        let Unread::Refused { status: 503, message } = refused(&answer(503, &"é".repeat(600))) else {
            panic!("503 is a refusal")
        };
        assert_eq!(message.chars().count(), 251, "{message}");
    }
}
