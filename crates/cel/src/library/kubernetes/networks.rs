//! The CIDR library: `cidr('10.0.0.0/8')` and what lies in a network.

use std::sync::Arc;

use ipnet::IpNet;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::library::kubernetes::addresses;
use crate::meter::Meter;
use crate::value::address;
use crate::value::network::parse;
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("cidr", 1, |meter, arguments| {
        let text = addresses::text("cidr", meter, arguments)?;
        parse_for("cidr", text).map(|network| Val::Cidr(Arc::new(network)))
    }),
    Function::global("isCIDR", 1, |meter, arguments| {
        Ok(Val::Bool(parse(addresses::text("isCIDR", meter, arguments)?).is_ok()))
    }),
    Function::member("containsIP", 2, contains_ip),
    Function::member("containsCIDR", 2, contains_cidr),
    Function::member("ip", 1, |_, arguments| Ok(addresses::value(only_network("ip", arguments)?.addr()))),
    Function::member("masked", 1, |_, arguments| {
        Ok(Val::Cidr(Arc::new(only_network("masked", arguments)?.trunc())))
    }),
    Function::member("prefixLength", 1, |_, arguments| {
        Ok(Val::Int(only_network("prefixLength", arguments)?.prefix_len().into()))
    }),
];

fn only_network(name: &'static str, arguments: &[Val<'_>]) -> Result<IpNet, EvalError> {
    match arguments {
        [Val::Cidr(network)] => Ok(**network),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn parse_for(name: &'static str, text: &str) -> Result<IpNet, EvalError> {
    const PREFIX: &str = "network address parse error during conversion from string";
    parse(text).map_err(|reason| EvalError::invalid(name, format!("{PREFIX}: {reason}")))
}

/// Of an address, or of a text that is one. About any other text Kubernetes says that there is no overload.
fn contains_ip<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload("containsIP", arguments);
    let (network, address) = match arguments {
        [Val::Cidr(network), Val::Ip(address)] => (network, **address),
        [Val::Cidr(network), Val::Str(text)] => {
            meter.work(text.len())?;
            (network, address::parse(text).map_err(|_| mismatch())?)
        }
        _ => return Err(mismatch()),
    };
    // Networks of the other family contain nothing, `::/0` not even `0.0.0.0`.
    Ok(Val::Bool(network.contains(&address)))
}

fn contains_cidr<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let (network, other) = match arguments {
        [Val::Cidr(network), Val::Cidr(other)] => (network, **other),
        [Val::Cidr(network), Val::Str(text)] => {
            meter.work(text.len())?;
            (network, parse_for("containsCIDR", text)?)
        }
        _ => return Err(EvalError::no_such_overload("containsCIDR", arguments)),
    };
    Ok(Val::Bool(network.contains(&other)))
}
