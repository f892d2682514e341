//! `sallyport cel`: expressions tried without a policy, one for people or many as JSON lines.
//!
//! They are evaluated by the engine that decides reviews, with its limits; what is seen here is what a policy
//! would get. The invariant: no input ends the command but the end of the input.

mod encoding;
mod evaluation;
mod excerpt;
mod lines;

use std::borrow::Cow;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value as Json, json};

use self::evaluation::{Answer, Definition, Evaluator, Failure, Returns, Source, Vars};
use crate::input::manifest;
use crate::output::exit_status::ExitStatus;
use crate::output::terminal::{self, BAD, plain};
use crate::output::yaml;

const EXAMPLES: &str = "\
An expression sees object, oldObject, request and namespaceObject, which are null unless a file gives them,
params if a file gives them, and authorizer, which allows nothing unless a file says what. Each file holds one
document in YAML or JSON; - is standard input. An AdmissionReview in place of the object gives request, object
and oldObject.

What the authorizer allows:
  allow: [{user: me, verb: get, group: \"\", resource: pods, namespace: shop}]
A check passes when all members of a rule fit, of user, verb, group, resource, subresource, namespace, name and
path; * fits anything, as does a member that is absent. The user is request.userInfo, or a service account that
the expression names. Beside allow, reason and error are what every answer has as its reason() and error().

An expression may make what those of mutations make, Object{…} and JSONPatch{…}, which others may not.
A string is written as it is, other values as YAML; with -o json, an answer as `sallyport cel eval` writes it.
The cost is counted in the API server's units. It may be 1000000 for the expression and for each variable, and
10000000 for all of them.

Examples:
  sallyport cel '1 + 1'
  sallyport cel 'object.spec.containers.map(c, c.image)' -f pod.yaml
  kubectl get pod web -o yaml | sallyport cel 'has(object.spec.nodeName)' -f -
  sallyport cel 'variables.all > params.data.most' -f deploy.yaml --params limits.yaml \\
    --variable 'all=object.spec.replicas'
  sallyport cel \"authorizer.path('/healthz').check('get').allowed()\" --authorizer rights.yaml --cost

Exit status:
  0  it has a value, whichever
  1  it has none: the expression cannot be compiled or fails; or another error
  2  wrong usage";

const EVAL_EXAMPLES: &str = "\
A line in:
  id          any value; it is repeated in the answer
  expr        the expression
  mode        validation (default), or mutation
  vars        {object, oldObject, request, namespaceObject, params, authorizer}; what is absent is null, but
              params is not declared then, and the authorizer allows nothing. It is given as
              {allow: [rule], reason, error}, as `sallyport cel --help` says
  variables   [{name, expression}], in order: variables.NAME, evaluated when first used
  returns     any (default), bool, string, string|null; for mutation also Object and JSONPatch (a list of them)

A line out:
  {\"value\", \"type\", \"cost\"}
                     with bytes as base64, timestamps in RFC 3339, durations as 1.5s, types as {\"$type\"},
                     optionals as {\"$optional\": value or \"none\"}, maps with other keys than strings as
                     {\"$map\": [[key, value]]}, \"NaN\", \"Infinity\" and \"-Infinity\", quantities as their text.
                     The cost is in the API server's units, that of the variables that were evaluated included
  {\"error\", \"kind\"}  the kind is compile (also of a line that cannot be read), runtime, cost (more than the
                     1000000 that an expression may cost), or budget (more than the 10000000 that it may cost
                     with all its variables, or another limit: on work, size or depth)

Examples:
  echo '{\"expr\": \"object.a + 1\", \"vars\": {\"object\": {\"a\": 1}}}' | sallyport cel eval --stdin
  sallyport cel eval --stdin < questions.jsonl > answers.jsonl

Exit status:
  0  every line was answered, with a value or an error
  1  a line could not be read, or another error
  2  wrong usage";

/// Try a CEL expression, as policies have them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CelArgs {
    #[command(subcommand)]
    command: Option<CelCommand>,

    /// The expression.
    #[arg(value_name = "EXPR", required = true)]
    expression: Option<String>,

    /// The object, or an AdmissionReview.
    #[arg(long, short, env = "SALLYPORT_FILE", value_name = "FILE")]
    file: Option<PathBuf>,

    /// The object as it was, for oldObject.
    #[arg(long, env = "SALLYPORT_OLD", value_name = "FILE")]
    old: Option<PathBuf>,

    /// The request: what an AdmissionReview has under `request`.
    #[arg(long, env = "SALLYPORT_REQUEST", value_name = "FILE")]
    request: Option<PathBuf>,

    /// The Namespace of the object, for namespaceObject.
    #[arg(long, env = "SALLYPORT_NAMESPACE_OBJECT", value_name = "FILE")]
    namespace_object: Option<PathBuf>,

    /// The parameters of a policy.
    #[arg(long, env = "SALLYPORT_PARAMS", value_name = "FILE")]
    params: Option<PathBuf>,

    /// What the authorizer answers: {allow: [rule], reason, error}.
    #[arg(long, env = "SALLYPORT_AUTHORIZER", value_name = "FILE")]
    authorizer: Option<PathBuf>,

    /// A named expression for variables.NAME, which sees those before it; may be given repeatedly.
    #[arg(
        long = "variable",
        env = "SALLYPORT_VARIABLE",
        value_name = "NAME=EXPR",
        value_parser = parse_definition
    )]
    variables: Vec<Definition>,

    /// Say what it cost, too, on standard error. With -o json the answer always has it.
    #[arg(long, env = "SALLYPORT_COST")]
    cost: bool,

    /// How the value is written.
    #[arg(long, short, env = "SALLYPORT_OUTPUT", value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum CelCommand {
    Eval(EvalArgs),
}

/// Evaluate many expressions: JSON lines in, JSON lines out, in the same order.
#[derive(Debug, clap::Args)]
#[command(after_help = EVAL_EXAMPLES)]
struct EvalArgs {
    /// Read standard input, a question a line.
    #[arg(long, env = "SALLYPORT_STDIN", required = true)]
    stdin: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// A JSON object with value, type and cost, or with error and kind
    Json,
}

/// A definition that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not of the form NAME=EXPR")]
struct MalformedDefinition;

fn parse_definition(text: &str) -> Result<Definition, MalformedDefinition> {
    let (name, expression) = text.split_once('=').ok_or(MalformedDefinition)?;
    Ok(Definition { name: name.trim().to_owned(), expression: expression.to_owned() })
}

pub(crate) fn run(args: &CelArgs) -> anyhow::Result<ExitStatus> {
    if let Some(CelCommand::Eval(_)) = args.command {
        let all_read = lines::answer_lines(io::stdin().lock(), io::stdout().lock())?;
        return Ok(if all_read { ExitStatus::Success } else { ExitStatus::Failure });
    }
    let vars = args.vars()?;
    let source = Source {
        expression: args.expression.clone().unwrap_or_default(),
        variables: args.variables.clone(),
        has_params: vars.params.is_some(),
        is_mutation: true,
        returns: Returns::Any,
    };
    let outcome = Evaluator::default().evaluate(source, &vars);
    match args.output {
        Format::Json => {
            let answer = match &outcome {
                Ok(Answer { value, type_name, cost }) => {
                    json!({"value": value, "type": type_name, "cost": cost})
                }
                Err(failure) => json!({"error": failure.to_string(), "kind": failure.kind()}),
            };
            writeln!(io::stdout(), "{answer:#}")?;
        }
        Format::Text => match &outcome {
            Ok(answer) => {
                write!(io::stdout(), "{}", format_value(&answer.value)?)?;
                if args.cost {
                    terminal::print_note(&format!("cost: {}", answer.cost));
                }
            }
            Err(failure) => args.print_failure(failure),
        },
    }
    Ok(if outcome.is_ok() { ExitStatus::Success } else { ExitStatus::Failure })
}

impl CelArgs {
    fn vars(&self) -> anyhow::Result<Vars> {
        let files =
            [&self.file, &self.old, &self.request, &self.namespace_object, &self.params, &self.authorizer];
        let inputs = files.into_iter().flatten().filter(|file| file.as_os_str() == "-").count();
        ensure!(inputs <= 1, "standard input can be only one of the files");
        let read = |file: &Option<PathBuf>| file.as_deref().map(manifest::read_document).transpose();
        let mut vars = Vars { params: read(&self.params)?, ..Vars::default() };
        if let Some(table) = read(&self.authorizer)? {
            vars.authorizer = serde_json::from_value(table).context("--authorizer cannot be used")?;
        }
        vars.object = read(&self.file)?.unwrap_or_default();
        if vars.object.get("kind").and_then(Json::as_str) == Some("AdmissionReview") {
            vars.request = vars.object.get_mut("request").map(Json::take).unwrap_or_default();
            vars.object = vars.request.get("object").cloned().unwrap_or_default();
            vars.old_object = vars.request.get("oldObject").cloned().unwrap_or_default();
        }
        let others = [
            (&mut vars.old_object, &self.old),
            (&mut vars.request, &self.request),
            (&mut vars.namespace_object, &self.namespace_object),
        ];
        for (value, file) in others {
            if let Some(document) = read(file)? {
                *value = document;
            }
        }
        Ok(vars)
    }

    /// Says what is wrong; where, if it is known.
    fn print_failure(&self, failure: &Failure) {
        terminal::print_note(&format!("{BAD}error{BAD:#}: {}", plain(&failure.to_string())));
        let (source, error) = match failure {
            Failure::Expression(error) => (self.expression.as_deref(), error),
            Failure::Variable { index, error, .. } => {
                (self.variables.get(*index).map(|variable| variable.expression.as_str()), error)
            }
            _ => return,
        };
        terminal::print_note(&excerpt::quote_line(source.unwrap_or_default(), error.line, error.column));
    }
}

/// A value for people, with a line break at its end.
fn format_value(value: &Json) -> anyhow::Result<String> {
    let text: Cow<'_, str> = match value {
        Json::String(text) => plain(text),
        Json::Array(_) | Json::Object(_) => Cow::Owned(yaml::document(value)?),
        scalar => Cow::Owned(scalar.to_string()),
    };
    Ok(if text.ends_with('\n') && !value.is_string() { text.into_owned() } else { format!("{text}\n") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{format_value, parse_definition};

    #[test]
    fn values_are_written_for_people() {
        for (value, written) in [
            (json!(null), "null\n"),
            (json!(true), "true\n"),
            (json!(2.0), "2.0\n"),
            (json!("a: b"), "a: b\n"),
            (json!("two\n"), "two\n\n"),
            (json!("\u{1b}[2J"), "\\u{1b}[2J\n"),
            (json!([]), "[]\n"),
            (json!(["a", {"b": 1}]), "- a\n- b: 1\n"),
        ] {
            assert_eq!(format_value(&value).unwrap(), written, "{value}");
        }
    }

    #[test]
    fn a_variable_has_a_name_and_an_expression() {
        let variable = parse_definition("old = a == b").unwrap();
        assert_eq!((variable.name.as_str(), variable.expression.as_str()), ("old", " a == b"));
        assert!(parse_definition("a").is_err());
    }
}
