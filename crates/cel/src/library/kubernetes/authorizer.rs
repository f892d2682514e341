//! The authorizer library: `authorizer.group('').resource('pods').namespace('a').check('get').allowed()`.
//!
//! The questions are put together here and asked through a trait. A check is synchronous; what it costs allows two
//! in an expression.

use std::sync::Arc;

use sallyport_admission::UserInfo;

use crate::authorizer::{Attributes, Decision, Resource, Target};
use crate::cost::CHECK;
use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::named_format;
use crate::value::{Authorization, Caller, Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::member("path", 2, path),
    Function::member("group", 2, group),
    Function::member("serviceAccount", 3, service_account),
    Function::member("resource", 2, resource),
    Function::member("subresource", 2, |meter, a| {
        narrowed("subresource", meter, a, |it| &mut it.subresource)
    }),
    Function::member("namespace", 2, |meter, a| narrowed("namespace", meter, a, |it| &mut it.namespace)),
    Function::member("name", 2, |meter, a| narrowed("name", meter, a, |it| &mut it.name)),
    Function::member("fieldSelector", 2, |meter, a| {
        narrowed("fieldSelector", meter, a, |it| &mut it.field_selector)
    }),
    Function::member("labelSelector", 2, |meter, a| {
        narrowed("labelSelector", meter, a, |it| &mut it.label_selector)
    }),
    Function::member("check", 2, check),
    Function::member("allowed", 1, |_, a| Ok(Val::Bool(decision("allowed", a)?.allowed))),
    Function::member("errored", 1, |_, a| Ok(Val::Bool(decision("errored", a)?.error.is_some()))),
    Function::member("reason", 1, |meter, a| text(meter, &decision("reason", a)?.reason)),
    Function::member("error", 1, |meter, a| {
        text(meter, decision("error", a)?.error.as_deref().unwrap_or_default())
    }),
];

fn value(authorization: Authorization<'_>) -> Val<'_> {
    Val::Authorization(Arc::new(authorization))
}

fn text<'a>(meter: &Meter, text: &str) -> Outcome<'a> {
    meter.produce(text.len())?;
    Ok(Val::text(text.to_owned()))
}

/// The receiver and a text, the copying of which is counted.
fn receiver_and_text<'v, 'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &'v [Val<'a>],
) -> Result<(&'v Authorization<'a>, &'v str), EvalError> {
    match arguments {
        [Val::Authorization(receiver), Val::Str(text)] => {
            meter.produce(text.len())?;
            Ok((receiver, text))
        }
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn path<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match receiver_and_text("path", meter, arguments)? {
        (Authorization::Authorizer(_), path) if path.trim().is_empty() => {
            Err(EvalError::Authorization("path must not be empty"))
        }
        (Authorization::Authorizer(caller), path) => {
            Ok(value(Authorization::Path(caller.clone(), path.to_owned())))
        }
        _ => Err(EvalError::no_such_overload("path", arguments)),
    }
}

fn group<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match receiver_and_text("group", meter, arguments)? {
        (Authorization::Authorizer(caller), group) => {
            Ok(value(Authorization::Group(caller.clone(), group.to_owned())))
        }
        _ => Err(EvalError::no_such_overload("group", arguments)),
    }
}

fn service_account<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Authorization(receiver), Val::Str(namespace), Val::Str(name)] = arguments else {
        return Err(EvalError::no_such_overload("serviceAccount", arguments));
    };
    let Authorization::Authorizer(caller) = &**receiver else {
        return Err(EvalError::no_such_overload("serviceAccount", arguments));
    };
    meter.produce(namespace.len() + name.len())?;
    if !named_format::is_of("dns1123Subdomain", name) {
        return Err(EvalError::Authorization("Invalid service account name"));
    }
    if !named_format::is_of("dns1123Label", namespace) {
        return Err(EvalError::Authorization("Invalid service account namespace"));
    }
    let user = Arc::new(UserInfo::service_account(namespace, name));
    Ok(value(Authorization::Authorizer(Caller { authorizer: caller.authorizer, user })))
}

fn resource<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    match receiver_and_text("resource", meter, arguments)? {
        (Authorization::Group(..), resource) if resource.trim().is_empty() => {
            Err(EvalError::Authorization("resource must not be empty"))
        }
        (Authorization::Group(caller, group), resource) => {
            let resource =
                Resource { group: group.clone(), resource: resource.to_owned(), ..Resource::default() };
            Ok(value(Authorization::Resource(caller.clone(), resource)))
        }
        _ => Err(EvalError::no_such_overload("resource", arguments)),
    }
}

/// The same question about less.
fn narrowed<'a>(
    name: &'static str,
    meter: &Meter,
    arguments: &[Val<'a>],
    field: fn(&mut Resource) -> &mut String,
) -> Outcome<'a> {
    match receiver_and_text(name, meter, arguments)? {
        (Authorization::Resource(caller, resource), text) => {
            let Resource {
                group,
                resource: plural,
                subresource,
                namespace,
                name,
                field_selector,
                label_selector,
            } = resource;
            for copied in [group, plural, subresource, namespace, name, field_selector, label_selector] {
                meter.produce(copied.len())?;
            }
            let mut resource = resource.clone();
            text.clone_into(field(&mut resource));
            Ok(value(Authorization::Resource(caller.clone(), resource)))
        }
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn check<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (receiver, verb) = receiver_and_text("check", meter, arguments)?;
    let (caller, target) = match receiver {
        Authorization::Path(caller, path) => (caller, Target::Path(path)),
        Authorization::Resource(caller, resource) => (caller, Target::Resource(resource)),
        _ => return Err(EvalError::no_such_overload("check", arguments)),
    };
    // An expression that has no room for another check does not make it.
    meter.afford(CHECK)?;
    let attributes = Attributes { user: &caller.user, verb, target };
    let decision = caller.authorizer.check(&attributes).ok_or(EvalError::Undecided)?;
    Ok(value(Authorization::Decision(decision)))
}

fn decision<'v>(name: &'static str, arguments: &'v [Val<'_>]) -> Result<&'v Decision, EvalError> {
    if let [Val::Authorization(receiver)] = arguments
        && let Authorization::Decision(decision) = &**receiver
    {
        return Ok(decision);
    }
    Err(EvalError::no_such_overload(name, arguments))
}
