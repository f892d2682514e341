//! Questions as JSON lines: an expression with its variables a line in, its answer a line out, in the same order.
//!
//! A line costs at most its own answer: whatever is wrong with it is said on its line, and the next one is
//! answered.

use std::io::{self, BufReader, BufWriter, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::evaluation::{Answer, Definition, Evaluator, Failure, Kind, Returns, Source, Vars};
use crate::input::lines::{Line, read_line};

/// Longest line, in bytes.
const MAX_LINE: u64 = 8 << 20;
/// Bytes read and written at once.
const BUFFER: usize = 64 << 10;

/// A line in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    id: Option<Json>,
    expr: String,
    mode: Option<Mode>,
    vars: Option<Vars>,
    variables: Option<Vec<Definition>>,
    returns: Option<Returns>,
}

/// Where the expression would stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Validation,
    Mutation,
}

/// What can be told of a line that is no question.
#[derive(Debug, Deserialize)]
struct Identified {
    id: Option<Json>,
}

/// A line out.
#[derive(Debug, Default, Serialize)]
struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Json>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
}

impl Reply {
    fn new(id: Option<Json>, outcome: Result<Answer, Failure>) -> Self {
        match outcome {
            Ok(Answer { value, type_name, cost }) => {
                let (value, type_name, cost) = (Some(value), Some(type_name), Some(cost));
                Self { id, value, type_name, cost, ..Self::default() }
            }
            Err(failure) => {
                Self { id, error: Some(failure.to_string()), kind: Some(failure.kind()), ..Self::default() }
            }
        }
    }
}

/// Answers lines until the input ends. Gives whether all of them could be read.
pub(crate) fn answer_lines(input: impl Read, output: impl Write) -> io::Result<bool> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let mut output = BufWriter::with_capacity(BUFFER, output);
    let mut evaluator = Evaluator::default();
    let (mut number, mut all_read) = (0_u64, true);
    loop {
        // Written through before waiting: who sends one line and waits is answered. Blank lines are no lines.
        if !input.buffer().trim_ascii_start().contains(&b'\n') {
            output.flush()?;
        }
        let Some(line) = read_line(&mut input, MAX_LINE)? else { break };
        number += 1;
        let (reply, read) = match line {
            Line::Text(text) => answer_line(&mut evaluator, number, &text),
            Line::TooLong => {
                let failure = Failure::Question(format!("line {number} is longer than {MAX_LINE} bytes"));
                (Reply::new(None, Err(failure)), false)
            }
        };
        all_read &= read;
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
    }
    output.flush()?;
    Ok(all_read)
}

/// The reply to one line, and whether the line was a question.
fn answer_line(evaluator: &mut Evaluator, number: u64, text: &[u8]) -> (Reply, bool) {
    let text = text.trim_ascii();
    let Question { id, expr, mode, vars, variables, returns } = match serde_json::from_slice(text) {
        Ok(question) => question,
        Err(error) => {
            let id = serde_json::from_slice(text).ok().and_then(|Identified { id }| id);
            // It is always on the first line of the text that the reader had.
            let message = error.to_string().replace(" at line 1 column ", " at column ");
            let failure = Failure::Question(format!("line {number} is no question: {message}"));
            return (Reply::new(id, Err(failure)), false);
        }
    };
    let (vars, returns) = (vars.unwrap_or_default(), returns.unwrap_or_default());
    let is_mutation = mode.unwrap_or_default() == Mode::Mutation;
    if returns.is_mutation() && !is_mutation {
        let failure = Failure::Question("only a mutation returns Object or JSONPatch".to_owned());
        return (Reply::new(id, Err(failure)), true);
    }
    let has_params = vars.params.is_some();
    let variables = variables.unwrap_or_default();
    let source = Source { expression: expr, variables, has_params, is_mutation, returns };
    (Reply::new(id, evaluator.evaluate(source, &vars)), true)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{MAX_LINE, answer_lines};

    fn answers(input: &[u8]) -> (Vec<Json>, bool) {
        let mut output = Vec::new();
        let all_read = answer_lines(input, &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        (output.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), all_read)
    }

    #[test]
    fn a_question_has_these_fields_and_its_answer_those() {
        let dear = ["authorizer.path('/').check('get').allowed()"; 3].join(" || ");
        let pod = json!({"metadata": {"name": "a"}});
        for (question, expected) in [
            (json!({"expr": "1 + 1"}), json!({"value": 2, "type": "int", "cost": 1})),
            (
                json!({"id": 7, "expr": "null"}),
                json!({"id": 7, "value": null, "type": "null_type", "cost": 0}),
            ),
            (
                json!({"id": {"a": ["b"]}, "expr": "string(object.metadata.name)", "mode": "validation",
                       "vars": {"object": pod}, "variables": null, "returns": "string"}),
                json!({"id": {"a": ["b"]}, "value": "a", "type": "string", "cost": 4}),
            ),
            (
                json!({"expr": "[object, oldObject, dyn(request), dyn(namespaceObject), params]", "vars":
                    {"object": 1, "oldObject": 2, "request": 3, "namespaceObject": 4, "params": 5}}),
                json!({"value": [1, 2, 3, 4, 5], "type": "list", "cost": 17}),
            ),
            (
                json!({"expr": "[object, params]", "vars": {"object": null, "params": null}}),
                json!({"value": [null, null], "type": "list", "cost": 12}),
            ),
            (
                json!({"expr": "params", "vars": {"object": null}}),
                json!({"error": "1:1: undeclared reference to 'params' (in container '')", "kind": "compile"}),
            ),
            (
                json!({"expr": "variables.b", "variables":
                    [{"name": "a", "expression": "20"}, {"name": "b", "expression": "variables.a + 1"}]}),
                json!({"value": 21, "type": "int", "cost": 5}),
            ),
            (
                json!({"id": "x", "expr": "object.a", "vars": {"object": {}}}),
                json!({"id": "x", "error": "no such key: a", "kind": "runtime"}),
            ),
            (
                json!({"expr": "object.a", "vars": {"object": {"a": 1}}, "returns": "bool"}),
                json!({"error": "1:1: must evaluate to bool but got dyn", "kind": "compile"}),
            ),
            (
                json!({"expr": "1", "returns": "string|null"}),
                json!({"error": "1:1: must evaluate to one of [string null_type] but got int", "kind": "compile"}),
            ),
            (
                json!({"expr": "Object{a: 1}", "mode": "mutation", "returns": "Object"}),
                json!({"value": {"a": 1}, "type": "Object", "cost": 40}),
            ),
            (
                json!({"expr": "authorizer.requestResource.check('get').allowed()", "vars": {
                    "request": {"namespace": "shop", "resource": {"group": "", "version": "v1", "resource": "pods"}},
                    "authorizer": {"allow": [{"verb": "get", "resource": "pods", "namespace": "shop"}]}}}),
                json!({"value": true, "type": "bool", "cost": 350_002}),
            ),
            (
                json!({"expr": "authorizer.path('/').check('get').allowed()", "vars": {}}),
                json!({"value": false, "type": "bool", "cost": 350_003}),
            ),
            (
                json!({"expr": dear}),
                json!({"error": "operation cancelled: actual cost limit exceeded", "kind": "cost"}),
            ),
            (
                json!({"expr": "lists.range(1000).all(a, lists.range(1000).all(b, b >= 0))"}),
                json!({"error": "operation cancelled: the result is too large", "kind": "budget"}),
            ),
            (
                json!({"expr": "Object{a: 1}", "mode": "validation", "returns": "Object"}),
                json!({"error": "only a mutation returns Object or JSONPatch", "kind": "compile"}),
            ),
            (
                json!({"expr": "[JSONPatch{op: 'remove', path: '/a'}]", "mode": "mutation", "returns": "JSONPatch"}),
                json!({"value": [{"op": "remove", "path": "/a"}], "type": "list", "cost": 50}),
            ),
        ] {
            let (answers, all_read) = answers(question.to_string().as_bytes());
            assert_eq!((answers, all_read), (vec![expected], true), "{question}");
        }
    }

    #[test]
    fn what_is_no_question_costs_its_own_line_alone() {
        let deep = "[".repeat(100_000);
        for (line, id, message) in [
            ("no", None, "line 1 is no question: expected ident at column 2"),
            ("{\"expr\": \"1\"", None, "EOF"),
            ("[]", None, "line 1 is no question"),
            ("\"1\"", None, "line 1 is no question"),
            ("\u{fffd}", None, "line 1 is no question"),
            ("{}", None, "missing field `expr`"),
            ("{\"id\": 3, \"expr\": 1}", Some(json!(3)), "expected a string"),
            ("{\"id\": 3, \"expr\": \"1\", \"exp\": 1}", Some(json!(3)), "unknown field `exp`"),
            ("{\"expr\": \"1\", \"mode\": \"mutate\"}", None, "unknown variant `mutate`"),
            ("{\"expr\": \"1\", \"returns\": \"int\"}", None, "unknown variant `int`"),
            ("{\"expr\": \"1\", \"vars\": {\"x\": 1}}", None, "unknown field `x`"),
            ("{\"expr\": \"1\", \"vars\": {\"authorizer\": {\"x\": 1}}}", None, "unknown field `x`"),
            ("{\"expr\": \"1\", \"variables\": [{\"name\": \"a\"}]}", None, "missing field `expression`"),
            (&deep, None, "recursion limit exceeded"),
        ] {
            let (answers, all_read) = answers(format!("{line}\r\n\n{{\"expr\": \"2\"}}").as_bytes());
            let start = line.chars().take(40).collect::<String>();
            let [wrong, right] = answers.as_slice() else { panic!("{start}: {answers:?}") };
            assert_eq!(wrong.get("id"), id.as_ref(), "{start}");
            assert!(wrong["error"].as_str().unwrap().contains(message), "{start}: {wrong}");
            assert_eq!((&wrong["kind"], &right["value"], all_read), (&json!("compile"), &json!(2), false));
        }
        // Neither text nor JSON.
        assert_eq!(answers(b"\xff\xfe\n{\"expr\": \"2\"}\n").0.len(), 2);
    }

    #[test]
    fn a_line_without_end_is_refused_and_passed_over() {
        let mut input = vec![b' '; usize::try_from(MAX_LINE).unwrap()];
        input.extend(b"1\n{\"expr\": \"2\"}\n");
        let (answers, all_read) = answers(&input);
        assert_eq!(answers[0]["error"], format!("line 1 is longer than {MAX_LINE} bytes"));
        assert_eq!((answers.len(), &answers[1]["value"], all_read), (2, &json!(2), false));
    }
}
