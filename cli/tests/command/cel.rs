//! `sallyport cel`: one expression for people, many as JSON lines.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{run, run_with_input, sallyport};

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{image: a}, {image: b}]}\n";

#[test]
fn an_expression_is_tried_on_a_file() {
    let directory = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pod = file("pod.yaml", POD);
    let request = file("request.yaml", "operation: UPDATE\n");
    let params = file("params.json", "{\"data\": {\"most\": 2}}");
    let review = file(
        "review.yaml",
        "{apiVersion: admission.k8s.io/v1, kind: AdmissionReview, request: {operation: UPDATE, object: {a: 1}, oldObject: {a: 0}}}",
    );
    for (arguments, written) in [
        (&["1 + 1"] as &[&str], "2\n"),
        (&["object"], "null\n"),
        (&["object.metadata.name", "-f", &pod], "web\n"),
        (&["object.spec.containers.map(c, c.image)", "--file", &pod], "- a\n- b\n"),
        (&["object.kind + '/' + oldObject.kind", "-f", &pod, "--old", &pod], "Pod/Pod\n"),
        (&["namespaceObject.metadata.name", "--namespace-object", &pod], "web\n"),
        (&["request.operation", "--request", &request], "UPDATE\n"),
        (&["[request.operation, string(object.a - oldObject.a)]", "-f", &review], "- UPDATE\n- '1'\n"),
        (
            &[
                "variables.twice > params.data.most",
                "-f",
                &pod,
                "--params",
                &params,
                "--variable",
                "n=object.spec.containers.size()",
                "--variable",
                "twice=variables.n * 2",
            ],
            "true\n",
        ),
    ] {
        let stdout = run(["cel"].iter().chain(arguments)).ended(0).stdout;
        // Quotes are the YAML writer's choice.
        assert_eq!(stdout.replace('"', "'"), written, "{arguments:?}");
    }
    let rights = file(
        "rights.yaml",
        "allow:\n- {user: me, verb: approve, group: '', resource: pods, namespace: shop, name: web}\nreason: so\n",
    );
    let asked = file(
        "asked.yaml",
        "{userInfo: {username: me}, resource: {version: v1, resource: pods}, namespace: shop, name: web}",
    );
    let approve = "authorizer.requestResource.check('approve').allowed()";
    for (arguments, written) in [
        (&[approve] as &[&str], "false\n"),
        (&[approve, "--authorizer", &rights], "false\n"),
        (&[approve, "--authorizer", &rights, "--request", &asked], "true\n"),
        (&["authorizer.path('/').check('get').reason()", "--authorizer", &rights], "so\n"),
    ] {
        let run = run(["cel"].iter().chain(arguments)).ended(0);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (written, ""), "{arguments:?}");
    }
    let dear = run(["cel", approve, "--cost"]).ended(0);
    assert_eq!((dear.stdout.as_str(), dear.stderr.as_str()), ("false\n", "cost: 350002\n"));
    let piped = run_with_input(["cel", "object.metadata.name", "-f", "-"], POD.into()).ended(0);
    assert_eq!(piped.stdout, "web\n");
    let json = run(["cel", "duration('90s')", "-o", "json"]).ended(0).stdout;
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer, json!({"value": "90s", "type": "google.protobuf.Duration", "cost": 0}));
}

#[test]
fn errors_have_their_place_and_end_with_1() {
    for (arguments, stderr) in [
        (
            &["object.a ||\n  nothing"] as &[&str],
            "error: 2:3: undeclared reference to 'nothing' (in container '')\n    nothing\n    ^\n",
        ),
        (
            &["1", "--variable", "a=1 + x"],
            "error: variables.a: 1:5: undeclared reference to 'x' (in container '')\n  1 + x\n      ^\n",
        ),
        (&["object.a"], "error: no such key: a\n"),
    ] {
        let run = run(["cel"].iter().chain(arguments)).ended(1);
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", stderr), "{arguments:?}");
    }
    let run_json = run(["cel", "object.a", "-o", "json"]).ended(1);
    let answer: Value = serde_json::from_str(&run_json.stdout).unwrap();
    assert_eq!(answer, json!({"error": "no such key: a", "kind": "runtime"}));
    assert_eq!(run_json.stderr, "");

    for (arguments, input, message) in [
        (&["object", "-f", "/nonexistent/file"] as &[&str], "", "failed to read"),
        (&["object", "-f", "-"], "a: 1\n---\nb: 2\n", "there are 2"),
        (&["object", "-f", "-"], "", "there are 0"),
        (&["object", "-f", "-", "--params", "-"], "", "only one of the files"),
        (&["object", "-f", "-", "--authorizer", "-"], "", "only one of the files"),
        (&["object", "--authorizer", "-"], "alow: []\n", "--authorizer cannot be used: unknown field `alow`"),
    ] {
        let run = run_with_input(["cel"].iter().chain(arguments), input.into()).ended(1);
        assert!(run.stderr.contains(message), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn wrong_usage_ends_with_2_and_help_explains_the_lines() {
    for arguments in
        [&["cel"] as &[&str], &["cel", "eval"], &["cel", "1", "-o", "yaml"], &["cel", "1", "--variable", "a"]]
    {
        run(arguments).ended(2);
    }
    let help = run(["cel", "--help"]).ended(0).stdout;
    let eval_help = run(["cel", "eval", "--help"]).ended(0).stdout;
    for (help, texts) in [
        (help, &["Exit status:", "--params", "oldObject", "--authorizer", "allow: [{user: me,", "--cost"]),
        (eval_help, &["Exit status:", "$optional", "kind", "authorizer", "\"cost\"", "budget"]),
    ] {
        for text in texts {
            assert!(help.contains(text), "{text}: {help}");
        }
    }
}

#[test]
fn lines_are_answered_in_order() {
    const COUNT: usize = 5_000;
    let question = |number: usize| {
        let expression =
            if number.is_multiple_of(10) { format!("object.n - {number}") } else { "object.n".to_owned() };
        json!({"id": number, "expr": expression, "vars": {"object": {"n": number}}}).to_string() + "\n"
    };
    let input: String = (0..COUNT).map(question).collect();
    let output = run_with_input(["cel", "eval", "--stdin"], input.into()).ended(0).stdout;
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), COUNT);
    for (number, answer) in answers.iter().enumerate() {
        let value = if number.is_multiple_of(10) { 0 } else { number };
        let cost = if number.is_multiple_of(10) { 3 } else { 2 };
        assert_eq!(answer, &json!({"id": number, "value": value, "type": "int", "cost": cost}));
    }

    // Errors of expressions are answers; a line that is no question is not.
    run_with_input(["cel", "eval", "--stdin"], "{\"expr\": \"1 +\"}\n".into()).ended(0);
    run_with_input(["cel", "eval", "--stdin"], Vec::new()).ended(0);
    let broken = run_with_input(["cel", "eval", "--stdin"], "no\n{\"expr\": \"1\"}\n".into()).ended(1);
    assert_eq!((broken.stdout.lines().count(), broken.stderr.as_str()), (2, ""));
}

#[test]
fn who_sends_one_line_and_waits_is_answered() {
    let mut child = sallyport().args(["cel", "eval", "--stdin"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for number in 0..3 {
        // A blank line behind it is no line to wait for.
        writeln!(stdin, "{{\"expr\": \"{number}\"}}\n").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("{{\"value\":{number},\"type\":\"int\",\"cost\":0}}\n"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// Each line of docs/policies.md that says what an expression equals.
#[test]
fn the_documentation_of_the_language_is_true() {
    let docs = include_str!("../../../docs/policies.md");
    let blocks =
        docs.split("```cel\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block);
    let lines: Vec<_> = blocks.flat_map(str::lines).collect();
    let object = json!({
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}},
        "spec": {"containers": [
            {"name": "web", "image": "nginx:1.29"},
            {"name": "log", "image": "registry.example/log:2"},
        ]},
    });
    let questions = lines.iter().map(|line| {
        let (expression, value) = line.rsplit_once("  // ").expect(line);
        json!({"id": line, "expr": format!("({expression}) == ({value})"), "vars": {"object": object}})
            .to_string()
    });
    let input = questions.collect::<Vec<_>>().join("\n");
    let answers = run_with_input(["cel", "eval", "--stdin"], input.into_bytes()).ended(0).stdout;
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answers.len() == lines.len() && lines.len() > 30, "{}", answers.len());
    for answer in answers {
        assert_eq!(answer["value"], true, "{answer}");
    }
}
