//! One expression and what it is evaluated over, to an answer.
//!
//! Programs are kept, since those who ask often ask the same of many objects. What is kept is bounded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sallyport_admission::UserInfo;
use sallyport_cel::{
    Activation, AuthorizerTable, Budget, CompileError, EvalError, Limits, Program, Resource, Scope, Type,
    Value,
};
use sallyport_document::Document;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use super::encoding;

/// What every expression may use.
const VARIABLES: [&str; 4] = ["object", "oldObject", "request", "namespaceObject"];
const PARAMS: &str = "params";
const AUTHORIZER: &str = "authorizer";
const REQUEST_RESOURCE: &str = "authorizer.requestResource";
/// Most named expressions of one question.
const MAX_DEFINITIONS: usize = 1000;
/// Most source text whose programs are kept, in bytes.
const MAX_KEPT: usize = 4 << 20;
/// What a kept program counts besides its source.
const PROGRAM_BYTES: usize = 256;

/// An expression, and the names that it may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) expression: String,
    /// In order; each sees those before it.
    pub(crate) variables: Vec<Definition>,
    /// Whether `params` is declared.
    pub(crate) has_params: bool,
    /// Whether there are `Object{…}` and `JSONPatch{…}`, as in mutations.
    pub(crate) is_mutation: bool,
    /// The type that the result must have.
    pub(crate) returns: Returns,
}

impl Source {
    fn bytes(&self) -> usize {
        let variables = self.variables.iter();
        let variables = variables.map(|one| PROGRAM_BYTES + one.name.len() + one.expression.len());
        PROGRAM_BYTES + self.expression.len() + variables.sum::<usize>()
    }
}

/// A named expression: `variables.NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) expression: String,
}

/// What an expression is evaluated over. What is not given is null; `params` is not declared then, and an
/// `authorizer` that is not given allows nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Vars {
    pub(crate) object: Json,
    pub(crate) old_object: Json,
    pub(crate) request: Json,
    pub(crate) namespace_object: Json,
    #[serde(deserialize_with = "given")]
    pub(crate) params: Option<Json>,
    #[serde(deserialize_with = "or_nothing")]
    pub(crate) authorizer: AuthorizerTable,
}

/// A table; null for one that allows nothing.
fn or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AuthorizerTable, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A null that is given is a null, not an absence.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// The type that a result must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub(crate) enum Returns {
    #[default]
    #[serde(rename = "any")]
    Any,
    #[serde(rename = "bool")]
    Bool,
    #[serde(rename = "string")]
    String,
    #[serde(rename = "string|null")]
    StringOrNull,
    Object,
    /// A list of them.
    #[serde(rename = "JSONPatch")]
    JsonPatch,
}

impl Returns {
    /// Whether only mutations have such a type.
    pub(crate) fn is_mutation(self) -> bool {
        matches!(self, Self::Object | Self::JsonPatch)
    }

    /// The types that are taken; `None` for all.
    fn types(self) -> Option<Vec<Type>> {
        Some(match self {
            Self::Any => return None,
            Self::Bool => vec![Type::Bool],
            Self::String => vec![Type::String],
            Self::StringOrNull => vec![Type::String, Type::Null],
            Self::Object => vec![Type::apply_configuration()],
            Self::JsonPatch => vec![Type::list(Type::json_patch())],
        })
    }
}

/// The value of an expression, encoded.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) value: Json,
    pub(crate) type_name: String,
    /// In the API server's units, with that of the named expressions that were evaluated.
    pub(crate) cost: u64,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The expression does not compile.
    #[error("{0}")]
    Expression(CompileError),
    /// A named expression does not compile.
    #[error("variables.{name}: {error}")]
    Variable { index: usize, name: String, error: CompileError },
    /// The question itself cannot be.
    #[error("{0}")]
    Question(String),
    /// The evaluation failed.
    #[error("{0}")]
    Evaluation(#[from] EvalError),
}

/// What a failure is, for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Found before anything was evaluated.
    Compile,
    Runtime,
    /// The expression, or a named one, cost more than the API server lets one cost.
    Cost,
    /// Another limit was reached: the API server's on the cost of all of them together, or our own on steps,
    /// size and depth.
    Budget,
}

impl Kind {
    fn of(mut error: &EvalError) -> Self {
        while let EvalError::Definition { source, .. } = error {
            error = source;
        }
        match error {
            EvalError::CostExceeded => Self::Cost,
            EvalError::BudgetExceeded
            | EvalError::WorkExceeded
            | EvalError::SizeExceeded
            | EvalError::TooDeep => Self::Budget,
            _ => Self::Runtime,
        }
    }
}

impl Failure {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Expression(_) | Self::Variable { .. } | Self::Question(_) => Kind::Compile,
            Self::Evaluation(error) => Kind::of(error),
        }
    }
}

/// Evaluates expressions, and keeps their programs.
#[derive(Debug, Default)]
pub(crate) struct Evaluator {
    programs: HashMap<Source, Kept>,
    kept: usize,
}

type Kept = Arc<Result<Compiled, Failure>>;

#[derive(Debug)]
struct Compiled {
    scope: Scope,
    program: Program,
}

impl Evaluator {
    pub(crate) fn evaluate(&mut self, source: Source, vars: &Vars) -> Result<Answer, Failure> {
        let compiled = self.compiled(source);
        let compiled = match &*compiled {
            Ok(compiled) => compiled,
            Err(failure) => return Err(failure.clone()),
        };
        let document =
            |value: &Json| Document::of(value).map_err(|error| Failure::Question(error.to_string()));
        let values = [&vars.object, &vars.old_object, &vars.request, &vars.namespace_object];
        let documents = values.into_iter().map(document).collect::<Result<Vec<_>, _>>()?;
        let params = vars.params.as_ref().map(document).transpose()?;
        let mut activation = Activation::new(&compiled.scope, Limits::default());
        activation.set_budget(Budget::POLICY);
        for (name, document) in VARIABLES.into_iter().zip(&documents) {
            activation.bind(name, Value::from(document));
        }
        if let Some(params) = &params {
            activation.bind(PARAMS, Value::from(params));
        }
        if compiled.program.uses(AUTHORIZER) || compiled.program.uses(REQUEST_RESOURCE) {
            let user = Arc::new(user(&vars.request));
            let resource = resource(&vars.request);
            activation.bind(AUTHORIZER, Value::authorizer(&vars.authorizer, Arc::clone(&user)));
            let resource = Value::resource_authorizer(&vars.authorizer, user, resource);
            activation.bind(REQUEST_RESOURCE, resource);
        }
        let value = compiled.program.evaluate(&activation)?;
        let cost = activation.cost().saturating_add(activation.definitions_cost());
        Ok(Answer { value: encoding::encode(&value)?, type_name: value.type_name().to_owned(), cost })
    }

    fn compiled(&mut self, source: Source) -> Kept {
        if let Some(kept) = self.programs.get(&source) {
            return Arc::clone(kept);
        }
        let compiled = Arc::new(compile(&source));
        let bytes = source.bytes();
        if bytes <= MAX_KEPT {
            if self.kept + bytes > MAX_KEPT {
                self.programs.clear();
                self.kept = 0;
            }
            self.kept += bytes;
            self.programs.insert(source, Arc::clone(&compiled));
        }
        compiled
    }
}

fn compile(source: &Source) -> Result<Compiled, Failure> {
    let mut scope = Scope::admission();
    scope.declare_authorizer();
    scope.compose();
    if source.has_params {
        scope.declare_params();
    }
    if !source.is_mutation {
        scope.forbid_patches();
    }
    if source.variables.len() > MAX_DEFINITIONS {
        return Err(Failure::Question(format!("there are more than {MAX_DEFINITIONS} variables")));
    }
    let mut names = HashSet::new();
    for (index, Definition { name, expression }) in source.variables.iter().enumerate() {
        if !is_identifier(name) {
            return Err(Failure::Question(format!("variables[{index}].name is not an identifier of CEL")));
        }
        if !names.insert(name) {
            return Err(Failure::Question(format!("variables.{name} is defined twice")));
        }
        let program = Program::compile(expression, &scope).map_err(|error| Failure::Variable {
            index,
            name: name.clone(),
            error,
        })?;
        scope.define(name, program);
    }
    let program = Program::compile(&source.expression, &scope).map_err(Failure::Expression)?;
    if let Some(types) = source.returns.types() {
        program.demand(&types).map_err(Failure::Expression)?;
    }
    Ok(Compiled { scope, program })
}

/// Who makes a request: whose rights `authorizer` asks for.
fn user(request: &Json) -> UserInfo {
    let extra = request.pointer("/userInfo/extra").and_then(Json::as_object);
    let extra = extra.into_iter().flatten().map(|(key, values)| (key.clone(), texts(Some(values))));
    UserInfo {
        username: text(request, "/userInfo/username"),
        uid: text(request, "/userInfo/uid"),
        groups: texts(request.pointer("/userInfo/groups")),
        extra: extra.collect(),
    }
}

/// What a request is about: what `authorizer.requestResource` asks for.
fn resource(request: &Json) -> Resource {
    Resource {
        group: text(request, "/resource/group"),
        resource: text(request, "/resource/resource"),
        subresource: text(request, "/subResource"),
        namespace: text(request, "/namespace"),
        name: text(request, "/name"),
        ..Resource::default()
    }
}

fn text(document: &Json, pointer: &str) -> String {
    document.pointer(pointer).and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn texts(list: Option<&Json>) -> Vec<String> {
    let items = list.and_then(Json::as_array).into_iter().flatten();
    items.filter_map(Json::as_str).map(str::to_owned).collect()
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|other| other.is_ascii_alphanumeric() || other == '_')
}

#[cfg(test)]
mod tests {
    use sallyport_cel::AuthorizerTable;
    use serde_json::{Value as Json, json};

    use super::{Definition, Evaluator, Kind, MAX_KEPT, Returns, Source, Vars};

    fn source(expression: &str) -> Source {
        Source {
            expression: expression.to_owned(),
            variables: Vec::new(),
            has_params: false,
            is_mutation: true,
            returns: Returns::Any,
        }
    }

    fn vars() -> Vars {
        Vars { object: json!({"a": 1, "text": "t", "list": []}), ..Vars::default() }
    }

    #[test]
    fn failures_are_of_their_kinds() {
        let many = format!("[{}]", vec!["1"; 200].join(","));
        let slow = format!("{many}.all(a, {many}.all(b, {many}.all(c, a + b + c > 0)))");
        let large = "[0,1,2,3,4,5,6,7,8,9].map(a, object.list + [a]).map(l, ['xxxxxxxx'].map(t, t+t+t+t+t+t+t+t).map(t, t+t+t+t+t+t+t+t).map(t, t+t+t+t+t+t+t+t).map(t, t+t+t+t+t+t+t+t).map(t, t+t+t+t+t+t+t+t).map(t, t+t+t+t+t+t+t+t))";
        for (expression, kind, message) in [
            ("1 +", Kind::Compile, "1:"),
            ("object.a\n  + nothing", Kind::Compile, "2:5: undeclared reference to 'nothing'"),
            ("nothing(1)", Kind::Compile, "undeclared reference to 'nothing'"),
            ("authorizer.paht('/')", Kind::Compile, "undeclared reference"),
            ("authorizer.path('')", Kind::Runtime, "path must not be empty"),
            ("params.a", Kind::Compile, "undeclared reference to 'params'"),
            ("'a'.matches('(')", Kind::Compile, "1:"),
            ("variables.a", Kind::Compile, "undefined field 'a'"),
            ("object.b", Kind::Runtime, "no such key: b"),
            ("oldObject.a", Kind::Runtime, "no such key: a"),
            ("1 / (object.a - 1)", Kind::Runtime, "division by zero"),
            ("object.a + 'x'", Kind::Runtime, "no such overload"),
            ("object.list[0]", Kind::Runtime, "index out of bounds: 0"),
            (&slow, Kind::Cost, "cost limit exceeded"),
            (large, Kind::Budget, "too large"),
        ] {
            let failure = Evaluator::default().evaluate(source(expression), &vars()).unwrap_err();
            assert_eq!(failure.kind(), kind, "{expression}: {failure}");
            assert!(failure.to_string().contains(message), "{expression}: {failure}");
        }
    }

    #[test]
    fn results_are_of_the_type_asked_for() {
        let patch = "[JSONPatch{op: 'remove', path: '/a'}]";
        let rows: [(Returns, &[&str], &[&str]); 6] = [
            (Returns::Any, &["1", "null", "Object{}", "object"], &[]),
            (Returns::Bool, &["true", "object.a == 1"], &["1", "null", "'true'", "object.a"]),
            (Returns::String, &["'a'", "string(object.text)"], &["1", "null", "object.text"]),
            (Returns::StringOrNull, &["'a'", "null"], &["1", "object.text"]),
            (Returns::Object, &["Object{}", "Object{a: object.a}"], &["{}", "Object.a{}", "null", "object"]),
            (
                Returns::JsonPatch,
                &[patch, "object.a == 1 ? [] : [JSONPatch{op: 'remove', path: '/a'}]"],
                &["1", "[1]", "[]", "JSONPatch{op: 'remove', path: '/a'}", "[object]", "object"],
            ),
        ];
        for (returns, right, wrong) in rows {
            let evaluate = |expression: &str| {
                let source = Source { returns, ..source(expression) };
                Evaluator::default().evaluate(source, &vars()).map_err(|failure| failure.kind())
            };
            for expression in right {
                assert!(evaluate(expression).is_ok(), "{returns:?}: {expression}");
            }
            for expression in wrong {
                assert_eq!(evaluate(expression), Err(Kind::Compile), "{returns:?}: {expression}");
            }
        }
        let validation = Source { is_mutation: false, ..source("Object{}") };
        let failure = Evaluator::default().evaluate(validation, &vars()).unwrap_err();
        assert_eq!(failure.kind(), Kind::Compile);
    }

    fn with_variables(expression: &str, variables: &[(&str, &str)]) -> Source {
        let variables = variables
            .iter()
            .map(|(name, expression)| Definition { name: (*name).into(), expression: (*expression).into() });
        Source { variables: variables.collect(), ..source(expression) }
    }

    #[test]
    fn variables_see_those_before_them_and_are_evaluated_when_used() {
        let mut evaluator = Evaluator::default();
        let mut evaluate = |expression: &str, variables: &[(&str, &str)]| {
            let answer = evaluator.evaluate(with_variables(expression, variables), &vars());
            answer.map(|answer| answer.value).map_err(|failure| (failure.kind(), failure.to_string()))
        };
        let of_bad = "composited variable \"bad\" fails to evaluate: no such key: nothing";
        let chain = [("a", "object.a + 1"), ("b", "variables.a * 2"), ("bad", "object.nothing")];
        assert_eq!(evaluate("variables.b", &chain), Ok(json!(4)));
        assert_eq!(evaluate("variables.bad", &chain), Err((Kind::Runtime, of_bad.into())));
        let many = vec![("a", "1"); 1001];
        for (variables, message) in [
            (&[("b", "variables.a"), ("a", "1")] as &[_], "variables.b: 1:10: undefined field 'a'"),
            (&[("a", "1"), ("a", "2")], "variables.a is defined twice"),
            (&[("a b", "1")], "variables[0].name is not an identifier of CEL"),
            (&[("", "1")], "variables[0].name is not an identifier of CEL"),
            (&[("1a", "1")], "variables[0].name is not an identifier of CEL"),
            (&many, "there are more than 1000 variables"),
        ] {
            assert_eq!(evaluate("1", variables), Err((Kind::Compile, message.to_owned())));
        }
    }

    #[test]
    fn the_authorizer_answers_from_its_table_for_the_user_of_the_request() {
        let request = json!({
            "userInfo": {"username": "alice", "groups": ["dev"]}, "namespace": "shop", "name": "web",
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "subResource": "scale",
        });
        let pods = "authorizer.group('').resource('pods').namespace('shop').check('get')";
        let own = "authorizer.requestResource.check('approve')";
        let robot = "authorizer.serviceAccount('shop', 'robot').path('/healthz').check('get')";
        let about_own = json!({"group": "apps", "resource": "deployments", "subresource": "scale",
                               "namespace": "shop", "name": "web", "user": "alice", "verb": "approve"});
        for (table, check, allowed) in [
            (json!(null), pods, false),
            (json!({}), pods, false),
            (json!({"allow": []}), own, false),
            (json!({"allow": [{}]}), pods, true),
            (json!({"allow": [{"verb": "*"}]}), own, true),
            (json!({"allow": [{"user": "alice", "resource": "pods"}]}), pods, true),
            (json!({"allow": [{"user": "bob"}, {"user": "alice", "verb": "list"}]}), pods, false),
            (json!({"allow": [about_own]}), own, true),
            (json!({"allow": [{"name": "other"}]}), own, false),
            (json!({"allow": [{"user": "alice"}]}), robot, false),
            (
                json!({"allow": [{"user": "system:serviceaccount:shop:robot", "path": "/healthz"}]}),
                robot,
                true,
            ),
        ] {
            let vars: Vars =
                serde_json::from_value(json!({"request": request, "authorizer": table})).unwrap();
            let answer = Evaluator::default().evaluate(source(&format!("{check}.allowed()")), &vars).unwrap();
            assert_eq!(answer.value, json!(allowed), "{table} {check}");
        }
        let table = json!({"reason": "because", "error": "the server is away"});
        let vars: Vars = serde_json::from_value(json!({"authorizer": table})).unwrap();
        for (expression, value) in [
            ("authorizer.path('/').check('get').reason()", json!("because")),
            ("authorizer.path('/').check('get').errored()", json!(true)),
            ("authorizer.path('/').check('get').error()", json!("the server is away")),
        ] {
            let answer = Evaluator::default().evaluate(source(expression), &vars).unwrap();
            assert_eq!(answer.value, value, "{expression}");
        }
    }

    /// The figures are the API server's.
    #[test]
    fn values_have_their_cost_and_limits_their_kinds() {
        let check = "authorizer.path('/').check('get').allowed()";
        let costs = |count: usize| vec![check; count].join(" || ");
        let dear = (0..15).map(|number| (format!("d{number}"), costs(2))).collect::<Vec<_>>();
        let dear: Vec<_> = dear.iter().map(|(name, source)| (name.as_str(), source.as_str())).collect();
        let sum = |count: usize| {
            (0..count).map(|number| format!("variables.d{number}")).collect::<Vec<_>>().join(" || ")
        };
        let evaluate = |source: Source| {
            let answer = Evaluator::default().evaluate(source, &vars());
            answer.map(|answer| answer.cost).map_err(|failure| failure.kind())
        };
        let beyond = costs(3);
        for (expression, variables, expected) in [
            ("1", &[] as &[_], Ok(0)),
            ("object.a + 1", &[], Ok(3)),
            ("[1, 2].all(e, e > object.a - 1)", &[], Ok(17)),
            (check, &[], Ok(350_003)),
            (&costs(2), &[], Ok(700_006)),
            (&beyond, &[], Err(Kind::Cost)),
            // That of variables counts once, and only if they are used.
            ("variables.a + variables.a", &[("a", "object.a + 1"), ("b", "object.a")], Ok(8)),
            ("variables.a", &[("a", &beyond)], Err(Kind::Cost)),
            (&sum(14), &dear, Ok(9_800_112)),
            (&sum(15), &dear, Err(Kind::Budget)),
        ] {
            assert_eq!(evaluate(with_variables(expression, variables)), expected, "{expression}");
        }
    }

    #[test]
    fn programs_are_kept_apart_by_the_names_that_they_may_use() {
        let mut evaluator = Evaluator::default();
        let mut value =
            |source: Source, vars: &Vars| evaluator.evaluate(source, vars).map(|answer| answer.value).ok();
        let params = |value: Json| Vars { params: Some(value), ..Vars::default() };
        let declared = |expression: &str| Source { has_params: true, ..source(expression) };
        assert_eq!(value(source("params"), &Vars::default()), None);
        assert_eq!(value(declared("params"), &params(json!(1))), Some(json!(1)));
        assert_eq!(value(declared("params"), &params(json!(null))), Some(json!(null)));
        assert_eq!(value(source("params"), &Vars::default()), None);
        assert_eq!(value(with_variables("variables.x", &[("x", "1")]), &Vars::default()), Some(json!(1)));
        assert_eq!(value(with_variables("variables.x", &[("x", "2")]), &Vars::default()), Some(json!(2)));
        assert_eq!(value(source("object"), &vars()), Some(vars().object));
        assert_eq!(value(source("object"), &Vars::default()), Some(json!(null)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut evaluator = Evaluator::default();
        let mut most = 0;
        // Too long to compile, which is kept too, and cheap.
        for number in 0..200 {
            let expression = format!("{number}{}", " ".repeat(50_000));
            assert!(evaluator.evaluate(source(&expression), &vars()).is_err());
            assert!(evaluator.kept <= MAX_KEPT);
            most = most.max(evaluator.programs.len());
        }
        assert!((50..200).contains(&most), "{most}");
        let kept = evaluator.programs.len();
        let expression = " ".repeat(MAX_KEPT);
        assert!(evaluator.evaluate(source(&expression), &vars()).is_err());
        assert_eq!(evaluator.programs.len(), kept);
    }

    #[test]
    fn null_params_are_given_and_unknown_variables_refused() {
        let read = |vars: Json| serde_json::from_value::<Vars>(vars);
        let vars = read(json!({"params": null, "authorizer": null})).unwrap();
        assert_eq!((vars.params, vars.authorizer), (Some(json!(null)), AuthorizerTable::default()));
        let vars = read(json!({})).unwrap();
        assert_eq!((vars.params, vars.authorizer), (None, AuthorizerTable::default()));
        for wrong in [json!({"objekt": {}}), json!({"authorizer": []}), json!({"authorizer": {"alow": []}})] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
