//! The dashboard and the alerts against a real Prometheus that scrapes a running
//! suite: every expression is understood, finds series, and no metric is forgotten.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_testkit::ports::free_ports;
use sallyport_testkit::{ControlPlane, Process, Program, probe};
use sallyport_tests::suite::{in_force, pod};
use sallyport_tests::{Entry, Inspector, Options, Suite, root};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Names the folder with `prometheus` and `promtool`; else they are taken from `PATH`.
const BIN_DIR: &str = "SALLYPORT_PROMETHEUS_BIN";

const START: Duration = Duration::from_secs(30);

/// What the dashboard's variables stand for here, as a `PodMonitor` would label the release.
const NAMESPACE: &str = "sallyport";
const JOB: &str = "sallyport/sallyport";

/// Name of what is registered.
const REGISTRATION: &str = "sallyport";

fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os(BIN_DIR).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file()).unwrap_or_else(
        || panic!("{name} is not installed: run `tests/testbed/packages prometheus`, or set {BIN_DIR}"),
    )
}

fn promtool(arguments: &[&str]) {
    let output = std::process::Command::new(tool("promtool"))
        .args(arguments)
        .current_dir(root().join("dashboards"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "promtool {}:\n{}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn promtool_accepts_the_rules() {
    promtool(&["check", "rules", "rules.yaml"]);
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    promtool(&["test", "rules", "rules.test.yaml"]);
}

/// An expression, and where it stands.
#[derive(Clone, Debug)]
struct Expression {
    place: String,
    text: String,
}

fn overview() -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join("dashboards/overview.json")).unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row").collect()
}

/// The expressions of the panels, as Grafana would send them.
fn panel_expressions() -> Vec<Expression> {
    let dashboard = overview();
    let mut expressions = Vec::new();
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().unwrap() {
            let text = target["expr"].as_str().unwrap();
            let text = text.replace("$namespace", NAMESPACE).replace("$job", JOB);
            // Long enough for the whole test.
            let text = text.replace("$__rate_interval", "10m");
            assert!(!text.contains('$'), "{text}");
            expressions.push(Expression { place: panel["title"].as_str().unwrap().to_owned(), text });
        }
    }
    expressions
}

/// The metrics that expressions name, ours and the process's.
fn metrics_in<'a>(expressions: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let mut metrics = BTreeSet::new();
    for expression in expressions {
        for word in expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with("sallyport_") || word.starts_with("process_") {
                metrics.insert(family(word).to_owned());
            }
        }
    }
    metrics
}

/// The metric that a series of a histogram belongs to.
fn family(series: &str) -> &str {
    ["_bucket", "_count", "_sum"].iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series)
}

#[test]
fn every_panel_says_what_it_shows_and_has_a_place_of_its_own() {
    let dashboard = overview();
    let all = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), all.len(), "ids are given once");
    let mut taken = BTreeMap::new();
    for panel in all {
        let title = panel["title"].as_str().unwrap();
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}");
        for cell in (x..x + w).flat_map(|column| (y..y + h).map(move |line| (column, line))) {
            if let Some(other) = taken.insert(cell, title) {
                panic!("{title} lies on {other}");
            }
        }
    }
    let mut titles = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(titles.insert(title), "{title} is there twice");
        assert!(
            panel["description"].as_str().is_some_and(|text| text.ends_with('.')),
            "{title}: description"
        );
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: unit");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            // Every selector is narrowed to the chosen releases.
            let selectors = expression.matches('{').count();
            let narrowed = expression.matches(r#"{namespace=~"$namespace", job=~"$job""#).count();
            assert!(selectors > 0 && selectors == narrowed, "{title}: {expression}");
        }
    }
}

/// Prometheus, scraping a suite once a second.
struct Monitor {
    process: Process,
    url: String,
    _directory: TempDir,
}

impl Monitor {
    /// `targets` are pods: service, name and admin address.
    async fn start(targets: &[(&str, String, String)]) -> Self {
        let directory = TempDir::with_prefix("sallyport-prometheus-").unwrap();
        let pods: Vec<_> = targets
            .iter()
            .map(|(service, pod, address)| {
                let labels = json!({"namespace": NAMESPACE, "pod": pod, "container": service});
                json!({"targets": [address], "labels": labels})
            })
            .collect();
        // YAML, of which JSON is a part.
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [root().join("dashboards/rules.yaml")],
            "scrape_configs": [{"job_name": JOB, "static_configs": pods}],
        });
        let file = directory.path().join("prometheus.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        let [port] = free_ports::<1>().unwrap();
        let process = Program::new(tool("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=warn")
            .start()
            .unwrap();
        let mut monitor = Self { process, url: format!("http://127.0.0.1:{port}"), _directory: directory };
        let everything = format!("count(up == 1) == {}", targets.len());
        monitor.until(&everything, "every target is scraped").await;
        monitor
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = probe::get(&format!("{}{path}", self.url), Duration::from_secs(10)).await;
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        let body: Value = serde_json::from_str(&answer.body).map_err(|_| answer.body.clone())?;
        if answer.status == 200 && body["status"] == "success" {
            Ok(body["data"].clone())
        } else {
            Err(answer.body)
        }
    }

    /// The samples of an instant query.
    async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let data = self.get(&format!("/api/v1/query?query={}", escaped(expression))).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until `expression` has a result.
    async fn until(&mut self, expression: &str, what: &str) {
        let path = format!("{}/api/v1/query?query={}", self.url, escaped(expression));
        let found = async || {
            let answer = probe::get(&path, Duration::from_secs(5)).await.ok()?;
            let body: Value = serde_json::from_str(&answer.body).ok()?;
            body["data"]["result"].as_array().is_some_and(|samples| !samples.is_empty()).then_some(())
        };
        self.process.wait_until(what, START, found).await.unwrap();
    }

    /// The loaded rules, once all have been evaluated.
    async fn rules(&mut self) -> Vec<Value> {
        let path = format!("{}/api/v1/rules", self.url);
        let loaded = async || {
            let answer = probe::get(&path, Duration::from_secs(5)).await.ok()?;
            let body: Value = serde_json::from_str(&answer.body).ok()?;
            let groups = body["data"]["groups"].as_array()?;
            let rules: Vec<Value> =
                groups.iter().filter_map(|group| group["rules"].as_array().cloned()).flatten().collect();
            (!rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")).then_some(rules)
        };
        self.process.wait_until("every rule is evaluated", START, loaded).await.unwrap()
    }
}

/// Percent-encoded, for a query string.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").unwrap();
        }
        escaped
    })
}

struct World {
    plane: ControlPlane,
    suite: Suite,
    // The way from the API server to the front leads through it.
    _inspector: Inspector,
    monitor: Monitor,
}

impl World {
    async fn start() -> Self {
        sallyport_tests::install_tls_provider();
        let plane = ControlPlane::start().await.unwrap();
        let recipes = vec!["sidecar-nginx", "hello-file", "deny-env"];
        let mut suite = Suite::start(&Options { recipes, mutators: 2, ..Options::default() }).await.unwrap();
        let inspector = suite.inspector().await.unwrap();
        plane.kubectl(&["create", "namespace", "sallyport"], None).await.unwrap().ok().unwrap();
        let entries = ["mutate", "validate"]
            .map(|side| [Entry::pods(side, "Fail", ("sidecar-injector", "enabled")), Entry::probe(side)]);
        suite.register(&plane, REGISTRATION, &inspector.url(), &entries.concat()).await.unwrap();
        for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
            suite.promoted(&plane, kind, REGISTRATION, "Fail Ignore").await.unwrap();
        }
        plane.kubectl(&["create", "namespace", "demo"], None).await.unwrap().ok().unwrap();
        let label = ["label", "namespace", "demo", "sidecar-injector=enabled"];
        plane.kubectl(&label, None).await.unwrap().ok().unwrap();
        in_force(&plane, &inspector, "demo").await.unwrap();

        let mut targets = vec![("cert-rotator", "rotator".to_owned(), address(&suite.rotator_admin))];
        let services = [("webhook", &suite.fronts), ("mutator", &suite.mutators)];
        for (service, pods) in services {
            for (number, pod) in pods.iter().enumerate() {
                targets.push((service, format!("{service}-{number}"), address(&pod.admin)));
            }
        }
        targets.push(("validator", "validator-0".to_owned(), address(&suite.validator.admin)));
        let monitor = Monitor::start(&targets).await;
        Self { plane, suite, _inspector: inspector, monitor }
    }

    /// Whether a pod with these labels and variables is let in.
    async fn create(&self, labels: &Value, variables: &Value) -> bool {
        let mut manifest: Value = serde_json::from_str(&pod("p", labels, &json!({}))).unwrap();
        manifest["spec"]["containers"][0]["env"] = variables.clone();
        let arguments = ["-n", "demo", "create", "--dry-run=server", "--request-timeout=3s", "-f", "-"];
        self.plane.kubectl(&arguments, Some(&manifest.to_string())).await.unwrap().success
    }

    /// Reviews of every kind that is decided: patched, denied, allowed.
    async fn decided(&self) {
        let variable = json!([{"name": "A", "value": "b"}]);
        assert!(self.create(&json!({"hello": "true"}), &json!([])).await);
        assert!(!self.create(&json!({}), &variable).await);
        assert!(self.create(&json!({}), &json!([])).await);
    }

    /// Waits until Prometheus knows of at least so many reviews with this outcome.
    async fn counted(&mut self, outcome: &str, least: usize) {
        let expression =
            format!("sum(sallyport_review_duration_seconds_count{{outcome={outcome:?}}}) >= {least}");
        self.monitor.until(&expression, &expression).await;
    }
}

fn address(url: &str) -> String {
    url.trim_start_matches("http://").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_finds_series_of_a_running_suite() {
    let mut world = World::start().await;
    let rules = world.monitor.rules().await;

    // Twice, with a scrape between: a rate needs two points of a series.
    for round in 1..=2 {
        world.decided().await;
        for outcome in ["patched", "denied", "allowed"] {
            world.counted(outcome, round).await;
        }
    }
    nothing_is_wrong_with_a_healthy_suite(&world, &rules).await;
    failures_are_seen(&mut world, &rules).await;
    panels_have_data(&world).await;
    metrics_are_known(&world, &rules).await;
    rules_are_whole(&rules);
}

/// What a person who is woken up needs.
fn rules_are_whole(rules: &[Value]) {
    let runbook = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let tests = std::fs::read_to_string(root().join("dashboards/rules.test.yaml")).unwrap();
    for rule in rules {
        let name = rule["name"].as_str().unwrap();
        assert_eq!(rule["health"], "ok", "{name}: {rule}");
        assert_eq!(rule["type"], "alerting", "{name}");
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        for annotation in ["summary", "description"] {
            assert!(
                rule["annotations"][annotation].as_str().is_some_and(|text| text.ends_with('.')),
                "{name}"
            );
        }
        let anchor = format!("docs/operations.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"], anchor, "{name}");
        assert!(runbook.contains(&format!("\n### {name}\n")), "docs/operations.md does not explain {name}");
        assert!(tests.contains(name), "rules.test.yaml does not test {name}");
    }
}

fn rule<'a>(rules: &'a [Value], name: &str) -> &'a str {
    let rule = rules.iter().find(|rule| rule["name"] == name);
    rule.unwrap_or_else(|| panic!("no rule {name}"))["query"].as_str().unwrap()
}

async fn nothing_is_wrong_with_a_healthy_suite(world: &World, rules: &[Value]) {
    for rule in rules {
        let name = rule["name"].as_str().unwrap();
        let samples = world.monitor.query(rule["query"].as_str().unwrap()).await.unwrap();
        // How long a review takes here says nothing: the machine is shared with everything else.
        assert!(samples.is_empty() || name == "SallyportReviewsSlow", "{name}: {samples:?}");
    }
}

async fn failures_are_seen(world: &mut World, rules: &[Value]) {
    for mutator in &mut world.suite.mutators {
        mutator.process.kill().unwrap();
    }
    assert!(!world.create(&json!({}), &json!([])).await, "nobody decided");
    world.counted("unavailable", 1).await;
    for name in ["SallyportBackendDown", "SallyportBackendReplicaSilent"] {
        world.monitor.until(rule(rules, name), name).await;
    }
    assert!(!world.create(&json!({}), &json!([])).await, "nobody decided");
    for name in ["SallyportReviewsFailing", "SallyportManyReviewsFailing"] {
        world.monitor.until(rule(rules, name), name).await;
    }
    for mutator in &mut world.suite.mutators {
        mutator.restart().await.unwrap();
    }
    let back = "min(sallyport_backend_replicas{backend=\"mutator\", state=\"answering\"}) == 2";
    world.monitor.until(back, "the mutators answer again").await;
    // Both have calls to balance, and each series two points.
    for round in 3..=4 {
        world.decided().await;
        world.counted("patched", round).await;
    }

    // Another way to fail: a description of the registration that is none.
    let description = world.suite.policies().with_file_name(format!("{REGISTRATION}.yaml"));
    std::fs::write(description, "{").unwrap();
    world
        .monitor
        .until("sallyport_rotator_failures_total{task=\"registration\"} >= 2", "the rotator fails")
        .await;
}

async fn panels_have_data(world: &World) {
    let mut empty = panel_expressions();
    // A rate needs a second scrape, which may be about to come.
    for _ in 0..20 {
        let mut still = Vec::new();
        for expression in empty {
            let Expression { place, text } = &expression;
            let samples = world.monitor.query(text).await;
            let samples = samples.unwrap_or_else(|error| panic!("{place}: {text}: {error}"));
            if !samples.iter().any(|sample| sample["value"][1].as_str().is_some_and(|value| value != "NaN")) {
                still.push(expression);
            }
        }
        if still.is_empty() {
            return;
        }
        empty = still;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("panels without data: {empty:#?}");
}

async fn metrics_are_known(world: &World, rules: &[Value]) {
    let names = world.monitor.get("/api/v1/label/__name__/values").await.unwrap();
    let scraped: BTreeSet<_> =
        names.as_array().unwrap().iter().map(|name| family(name.as_str().unwrap()).to_owned()).collect();
    let panels = panel_expressions();
    let queries = rules.iter().map(|rule| rule["query"].as_str().unwrap());
    let used = metrics_in(panels.iter().map(|expression| expression.text.as_str()).chain(queries));
    let unknown: Vec<_> = used.difference(&scraped).collect();
    assert!(unknown.is_empty(), "nobody exports {unknown:?}");
    let ours: BTreeSet<_> = scraped.iter().filter(|name| name.starts_with("sallyport_")).collect();
    let forgotten: Vec<_> = ours.iter().filter(|name| !used.contains(**name)).collect();
    assert!(forgotten.is_empty(), "neither panel nor alert shows {forgotten:?}");
    let manual = std::fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let untold: Vec<_> = ours.iter().filter(|name| !manual.contains(&format!("| `{name}` |"))).collect();
    assert!(untold.is_empty(), "the table in docs/operations.md lacks {untold:?}");
}
