//! A cluster, read as whoever is named in a kubeconfig, and written to in annotations alone.
//!
//! Objects are raw JSON. Every call is bounded in time and in bytes, lists come in pages, and what cannot be read
//! is a value like any other: who asks goes on with the rest and says what is missing.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bytes::Bytes;
use http::{StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::api::{GetParams, ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{Request, Status, request};
use sallyport_error_chain::format_chain;
use sallyport_pki::names::{dns_label, dns_subdomain};
use serde_json::{Value, json};

use super::clock;

/// What one call may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    time: Duration,
    bytes: usize,
}

/// Of a call that reads or writes objects.
const CALL: Bounds = Bounds { time: Duration::from_secs(10), bytes: 32 << 20 };
/// Of a look at what a process shows.
const LOOK: Bounds = Bounds { time: Duration::from_secs(5), bytes: 16 << 10 };
/// Objects in a page.
const PAGE: u32 = 250;
/// The most objects of one list.
const MAX_OBJECTS: usize = 20_000;
/// The most bytes of a message of the API server that are repeated.
const MAX_MESSAGE: usize = 500;
/// The name under which annotations are written.
const FIELD_MANAGER: &str = "sallyport";

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
        let answer = self.send(get("/version"), CALL).await?;
        // Half of the way back and forth is the best guess at when the answer was written.
        let middle = before + before.elapsed().unwrap_or_default() / 2;
        let date = answer.date;
        let version = match parse(&answer) {
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
        parse_optional(&self.send(get(path), CALL).await?)
    }

    /// The metadata of an object of a collection, or `None` if there is no such object.
    pub(crate) async fn get_metadata(&self, collection: &str, name: &str) -> Read<Option<Value>> {
        let request = Request::new(collection).get_metadata(name, &GetParams::default());
        parse_optional(&self.send(request, CALL).await?)
    }

    /// All objects of a collection that a label selector selects, each as `project` leaves it.
    pub(crate) async fn list(
        &self,
        collection: &str,
        selector: &str,
        project: fn(Value) -> Value,
    ) -> Read<Vec<Value>> {
        let collection = Request::new(collection);
        self.list_pages(selector, |page| collection.list(page), project).await
    }

    /// The metadata of all objects of a collection that a label selector selects.
    pub(crate) async fn list_metadata(&self, collection: &str, selector: &str) -> Read<Vec<Value>> {
        let collection = Request::new(collection);
        self.list_pages(selector, |page| collection.list_metadata(page), without_managed_fields).await
    }

    async fn list_pages(
        &self,
        selector: &str,
        request: impl Fn(&ListParams) -> Built,
        project: fn(Value) -> Value,
    ) -> Read<Vec<Value>> {
        let mut objects = Vec::new();
        let mut page = ListParams::default().labels(selector).limit(PAGE);
        loop {
            let answer = self.send(request(&page), CALL).await?;
            let mut list = parse(&answer)?;
            let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
                return Err(Unread::Failed("the API server answered something else than a list".to_owned()));
            };
            objects.extend(items.into_iter().map(project));
            let token = list.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
            if token.is_empty() {
                return Ok(objects);
            }
            if objects.len() >= MAX_OBJECTS {
                return Err(Unread::TooMuch);
            }
            page = page.continue_token(token);
        }
    }

    /// Reads a page of a pod's admin endpoint through the API server's proxy.
    pub(crate) async fn read_page(&self, namespace: &str, pod: &str, port: u16, page: &str) -> Read<Bytes> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{page}");
        let answer = self.send(get(&path), LOOK).await?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(refused(&answer)) }
    }

    /// Sets annotations of an object of a collection, or removes those that are null. Returns the object's metadata,
    /// or `None` if there is no such object.
    pub(crate) async fn annotate(
        &self,
        collection: &str,
        name: &str,
        annotations: &Value,
    ) -> Read<Option<Value>> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let change = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let request = Request::new(collection).patch_metadata(name, &params, &change);
        parse_optional(&self.send(request, CALL).await?)
    }

    async fn send(&self, request: Built, bounds: Bounds) -> Read<Answer> {
        let request = request.map_err(|error| Unread::Failed(format_chain(&error)))?;
        let answer = async {
            let response = self.client.send(request.map(Body::from)).await.map_err(|error| failed(&error))?;
            let status = response.status();
            let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(clock::parse_http_date);
            let body = Limited::new(response.into_body(), bounds.bytes).collect().await;
            let body = body.map_err(|error| {
                let is_long = error.is::<http_body_util::LengthLimitError>();
                if is_long { Unread::TooMuch } else { Unread::Failed(cut(&format_chain(error.as_ref()))) }
            })?;
            Ok(Answer { status, date, body: body.to_bytes() })
        };
        tokio::time::timeout(bounds.time, answer).await.unwrap_or(Err(Unread::TimedOut(bounds.time)))
    }
}

/// A request, if it can be made.
type Built = Result<http::Request<Vec<u8>>, request::Error>;

fn get(path: &str) -> Built {
    http::Request::get(path).body(Vec::new()).map_err(request::Error::BuildRequest)
}

/// A label selector for all of these.
pub(crate) fn selector<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let labels = labels.into_iter().map(|(key, value)| format!("{key}={value}"));
    labels.collect::<Vec<_>>().join(",")
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

fn parse(answer: &Answer) -> Read<Value> {
    if !answer.status.is_success() {
        return Err(refused(answer));
    }
    serde_json::from_slice(&answer.body)
        .map_err(|_| Unread::Failed("the API server's answer is not JSON".to_owned()))
}

fn parse_optional(answer: &Answer) -> Read<Option<Value>> {
    if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { parse(answer).map(Some) }
}

fn refused(answer: &Answer) -> Unread {
    let status: Option<Status> = serde_json::from_slice(&answer.body).ok();
    let message = status.map(|status| status.message).filter(|message| !message.is_empty());
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).trim().to_owned());
    let message = cut(&message);
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
    let error: &dyn Error = match error {
        // Its own text says nothing.
        kube::Error::Service(inner) => inner.as_ref(),
        other => other,
    };
    Unread::Failed(cut(&format_chain(error)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use parking_lot::Mutex;
    use tempfile::TempDir;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_selector_asks_for_all_of_its_labels() {
        let text = selector([("app.kubernetes.io/name", "sallyport"), ("a", "b")]);
        assert_eq!(text, "app.kubernetes.io/name=sallyport,a=b");
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

    /// What the fake API server was asked.
    #[derive(Clone, Debug)]
    struct Asked {
        method: String,
        uri: String,
        accept: String,
        authorization: String,
        content_type: String,
        body: Bytes,
    }

    type Script = Arc<dyn Fn(&Asked) -> (u16, String) + Send + Sync>;

    /// An API server on loopback that answers as it is told, and the kubeconfig that leads to it.
    struct Fake {
        asked: Arc<Mutex<Vec<Asked>>>,
        directory: TempDir,
        url: String,
    }

    impl Fake {
        async fn start(answer: impl Fn(&Asked) -> (u16, String) + Send + Sync + 'static) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let asked = Arc::new(Mutex::new(Vec::new()));
            let (answer, record): (Script, _) = (Arc::new(answer), Arc::clone(&asked));
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (answer, record) = (Arc::clone(&answer), Arc::clone(&record));
                    let service = service_fn(move |request: http::Request<Incoming>| {
                        let (answer, record) = (Arc::clone(&answer), Arc::clone(&record));
                        async move {
                            let header = |name| {
                                let value = request.headers().get(name).map(|value| value.to_str().unwrap());
                                value.unwrap_or_default().to_owned()
                            };
                            let asked = Asked {
                                method: request.method().to_string(),
                                uri: request.uri().to_string(),
                                accept: header(header::ACCEPT),
                                authorization: header(header::AUTHORIZATION),
                                content_type: header(header::CONTENT_TYPE),
                                body: request.into_body().collect().await.unwrap().to_bytes(),
                            };
                            let (status, body) = answer(&asked);
                            record.lock().push(asked);
                            let answer = http::Response::builder()
                                .status(status)
                                .header(header::DATE, "Tue, 15 Nov 1994 08:12:31 GMT");
                            Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body))).unwrap())
                        }
                    });
                    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                }
            });
            Self { asked, directory: TempDir::new().unwrap(), url }
        }

        fn access(&self, user: &Value) -> Access {
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": user}],
            });
            let path = self.directory.path().join("kubeconfig");
            std::fs::write(&path, kubeconfig.to_string()).unwrap();
            Access { kubeconfig: Some(path), context: None }
        }

        async fn connect(&self, user: &Value) -> Cluster {
            Cluster::connect(&self.access(user)).await.unwrap()
        }

        fn asked(&self) -> Vec<Asked> {
            self.asked.lock().clone()
        }
    }

    #[tokio::test]
    async fn lists_come_in_pages_and_ask_for_what_the_selector_says() {
        let fake = Fake::start(|asked| {
            let is_first = !asked.uri.contains("continue=");
            let token = if is_first { "a+b/c==" } else { "" };
            let item = json!({"metadata": {"name": if is_first { "a" } else { "b" }, "managedFields": []}});
            (200, json!({"metadata": {"continue": token}, "items": [item]}).to_string())
        })
        .await;
        let cluster = fake.connect(&json!({"token": "t"})).await;
        let selector = selector([("app.kubernetes.io/name", "sallyport"), ("a", "b")]);
        let wanted = [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}})];
        assert_eq!(cluster.list("/api/v1/pods", &selector, without_managed_fields).await.unwrap(), wanted);
        assert_eq!(cluster.list_metadata("/api/v1/namespaces", "").await.unwrap(), wanted);
        let asked = fake.asked();
        let query = "labelSelector=app.kubernetes.io%2Fname%3Dsallyport%2Ca%3Db&limit=250";
        assert_eq!(asked[0].uri, format!("/api/v1/pods?&{query}"));
        assert_eq!(asked[1].uri, format!("/api/v1/pods?&{query}&continue=a%2Bb%2Fc%3D%3D"));
        assert!(asked.iter().all(|asked| asked.authorization == "Bearer t"), "{asked:?}");
        assert!(asked[2].accept.contains("as=PartialObjectMetadataList"), "{asked:?}");
    }

    #[tokio::test]
    async fn only_annotations_are_written_and_only_metadata_comes_back() {
        let fake = Fake::start(|asked| {
            if asked.uri.contains("/none") {
                (404, String::new())
            } else {
                (200, json!({"metadata": {"name": "ca"}}).to_string())
            }
        })
        .await;
        let cluster = fake.connect(&json!({})).await;
        let secrets = "/api/v1/namespaces/n/secrets";
        assert!(cluster.get_metadata(secrets, "ca").await.unwrap().is_some());
        assert!(cluster.annotate(secrets, "ca", &json!({"a": null})).await.unwrap().is_some());
        assert_eq!(cluster.get_metadata(secrets, "none").await, Ok(None));
        assert_eq!(cluster.annotate(secrets, "none", &json!({})).await, Ok(None));
        assert_eq!(cluster.get("/api/v1/none").await, Ok(None));
        let asked = fake.asked();
        assert!(
            asked[..4].iter().all(|asked| asked.accept.contains("as=PartialObjectMetadata")),
            "{asked:?}"
        );
        let Asked { method, uri, content_type, body, .. } = &asked[1];
        assert_eq!((method.as_str(), content_type.as_str()), ("PATCH", "application/merge-patch+json"));
        assert_eq!(uri, "/api/v1/namespaces/n/secrets/ca?&fieldManager=sallyport");
        assert_eq!(body.as_ref(), br#"{"metadata":{"annotations":{"a":null}}}"#);
    }

    #[tokio::test]
    async fn what_cannot_be_read_says_why() {
        let status = |code: u16, message: &str| json!({"kind": "Status", "code": code, "message": message});
        let fake = Fake::start(move |asked| match asked.uri.as_str() {
            "/forbidden" => (403, status(403, "no right").to_string()),
            "/unauthorized" => (401, status(401, "who?").to_string()),
            // The code is the response's, whatever the body says.
            "/busy" => (503, status(0, "later").to_string()),
            "/proxy" => (502, "bad gateway\n".to_owned()),
            "/text" => (200, "hello".to_owned()),
            "/version" => (403, String::new()),
            "/api/v1/namespaces/n/pods/p:9090/proxy/tls" => (200, "x".repeat(LOOK.bytes + 1)),
            _ => (200, "{}".to_owned()),
        })
        .await;
        let cluster = fake.connect(&json!({})).await;
        let refused = |status, message: &str| Unread::Refused { status, message: message.to_owned() };
        for (path, wanted) in [
            ("/forbidden", Unread::Forbidden("no right".to_owned())),
            ("/unauthorized", Unread::Unauthorized),
            ("/busy", refused(503, "later")),
            ("/proxy", refused(502, "bad gateway")),
            ("/text", Unread::Failed("the API server's answer is not JSON".to_owned())),
        ] {
            assert_eq!(cluster.get(path).await, Err(wanted), "{path}");
        }
        assert_eq!(cluster.read_page("n", "p", 9090, "/tls").await, Err(Unread::TooMuch));
        assert_eq!(cluster.read_page("n", "p", 9090, "/other").await.unwrap(), "{}");
        let not_a_list = cluster.list("/api/v1/pods", "", without_managed_fields).await.unwrap_err();
        assert!(not_a_list.to_string().contains("something else than a list"), "{not_a_list}");
        let greeting = cluster.greet().await.unwrap();
        assert_eq!(greeting.version, "an unknown version");
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_887_151);
        assert_eq!(greeting.clock.map(|(there, _)| there), Some(then));
    }

    #[tokio::test]
    async fn credentials_come_from_plugins_too_and_a_broken_one_is_named() {
        let fake = Fake::start(|_| (200, "{}".to_owned())).await;
        let exec = |command: &str, arguments: &[&str]| {
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command,
                            "args": arguments, "interactiveMode": "Never"}})
        };
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                                "status": {"token": "from-plugin"}});
        let cluster = fake.connect(&exec("echo", &[&credential.to_string()])).await;
        cluster.get("/x").await.unwrap();
        assert_eq!(fake.asked()[0].authorization, "Bearer from-plugin");
        let broken = Cluster::connect(&fake.access(&exec("/nonexistent-plugin", &[]))).await.err().unwrap();
        let message = format_chain(broken.as_ref());
        assert!(message.contains("auth exec"), "{message}");
        assert!(message.contains("No such file"), "{message}");

        let mut access = fake.access(&json!({}));
        access.context = Some("other".to_owned());
        let absent = Cluster::connect(&access).await.err().unwrap();
        let message = format_chain(absent.as_ref());
        assert!(message.starts_with("failed to use --kubeconfig") && message.contains("other"), "{message}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_down_to_the_cause() {
        let fake = Fake::start(|_| (200, String::new())).await;
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Fake { url: format!("http://{}", closed.local_addr().unwrap()), ..fake };
        drop(closed);
        let cluster = fake.connect(&json!({})).await;
        let Err(Unread::Failed(message)) = cluster.get("/x").await else { panic!("nobody is there") };
        assert!(message.contains("Connection refused"), "{message}");
    }
}
