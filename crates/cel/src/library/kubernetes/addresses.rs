//! The IP library: `ip('10.0.0.1')` and what an address is.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::error::EvalError;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::address::parse;
use crate::value::{Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function::global("ip", 1, |meter, arguments| {
        let text = text("ip", meter, arguments)?;
        parse(text).map(value).map_err(|message| EvalError::invalid("ip", message))
    }),
    Function::global("isIP", 1, |meter, arguments| {
        Ok(Val::Bool(parse(text("isIP", meter, arguments)?).is_ok()))
    }),
    Function::global("ip.isCanonical", 1, |meter, arguments| {
        let text = text("ip.isCanonical", meter, arguments)?;
        let address = parse(text).map_err(|message| EvalError::invalid("ip.isCanonical", message))?;
        Ok(Val::Bool(address.to_string() == text))
    }),
    Function::member("family", 1, |_, arguments| match arguments {
        [Val::Ip(address)] => Ok(Val::Int(if address.is_ipv4() { 4 } else { 6 })),
        _ => Err(EvalError::no_such_overload("family", arguments)),
    }),
    Function::member("isUnspecified", 1, |_, a| test("isUnspecified", a, IpAddr::is_unspecified)),
    Function::member("isLoopback", 1, |_, a| test("isLoopback", a, IpAddr::is_loopback)),
    Function::member("isLinkLocalMulticast", 1, |_, a| {
        test("isLinkLocalMulticast", a, is_link_local_multicast)
    }),
    Function::member("isLinkLocalUnicast", 1, |_, a| test("isLinkLocalUnicast", a, is_link_local_unicast)),
    Function::member("isGlobalUnicast", 1, |_, a| test("isGlobalUnicast", a, is_global_unicast)),
];

pub(crate) fn value<'a>(address: IpAddr) -> Val<'a> {
    Val::Ip(Arc::new(address))
}

/// The only argument, a string, whose reading is counted.
pub(crate) fn text<'v>(
    name: &'static str,
    meter: &Meter,
    arguments: &'v [Val<'_>],
) -> Result<&'v str, EvalError> {
    let [Val::Str(text)] = arguments else { return Err(EvalError::no_such_overload(name, arguments)) };
    meter.work(text.len())?;
    Ok(text)
}

fn test<'a>(name: &'static str, arguments: &[Val<'a>], holds: fn(&IpAddr) -> bool) -> Outcome<'a> {
    match arguments {
        [Val::Ip(address)] => Ok(Val::Bool(holds(address))),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

/// 224.0.0.0/24, and `ff02::/16` with any flags.
fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => matches!(address.octets(), [0xff, scope, ..] if scope & 0x0f == 2),
    }
}

/// 169.254.0.0/16 and `fe80::/10`.
fn is_link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Everything else: private addresses are global here, as in Go.
fn is_global_unicast(address: &IpAddr) -> bool {
    *address != IpAddr::V4(Ipv4Addr::BROADCAST)
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}
