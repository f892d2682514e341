//! The CIDR library: `cidr('10.0.0.0/8')` and what lies in a network.
//!
//! As with addresses, Go's `net/netip` decides: the length has no sign and no leading zeros, and bits behind
//! the prefix are kept until `masked()`.

use std::net::IpAddr;
use std::sync::Arc;

use crate::error::EvalError;
use crate::library::kubernetes::addresses::{self, shown};
use crate::library::{Function, Outcome};
use crate::meter::Meter;
use crate::value::Val;

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
    Function::member("ip", 1, |_, arguments| Ok(addresses::value(only_network("ip", arguments)?.address))),
    Function::member("masked", 1, |_, arguments| {
        Ok(Val::Cidr(Arc::new(only_network("masked", arguments)?.masked())))
    }),
    Function::member("prefixLength", 1, |_, arguments| {
        Ok(Val::Int(only_network("prefixLength", arguments)?.length.into()))
    }),
];

/// An address and how many of its bits name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    length: u8,
}

impl Network {
    /// With the bits behind the prefix zero.
    fn masked(self) -> Self {
        let length = u32::from(self.length);
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Self { address, length: self.length }
    }

    /// Bytes of the prefix.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.length).div_ceil(8)
    }

    /// Networks of the other family contain nothing, `::/0` not even `0.0.0.0`.
    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, length: self.length }.masked() == self.masked()
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

fn only_network(name: &'static str, arguments: &[Val<'_>]) -> Result<Network, EvalError> {
    match arguments {
        [Val::Cidr(network)] => Ok(**network),
        _ => Err(EvalError::no_such_overload(name, arguments)),
    }
}

fn parse_for(name: &'static str, text: &str) -> Result<Network, EvalError> {
    const PREFIX: &str = "network address parse error during conversion from string";
    parse(text).map_err(|reason| EvalError::invalid(name, format!("{PREFIX}: {reason}")))
}

/// A network, or why it is refused.
fn parse(text: &str) -> Result<Network, String> {
    let refuse = |reason: String| {
        let text = shown(text);
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text}): {reason}"
        )
    };
    let (address, length) = text.rsplit_once('/').ok_or_else(|| refuse("no '/'".to_owned()))?;
    let (address, zone) = addresses::parse_zoned(address).map_err(refuse)?;
    if zone.is_some() {
        return Err(refuse("IPv6 zones cannot be present in a prefix".to_owned()));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let padded = length.len() > 1 && length.starts_with('0');
    let digits = !padded && length.bytes().all(|byte| byte.is_ascii_digit());
    let bits = length.parse::<i64>().ok().filter(|_| digits);
    let bits = bits.ok_or_else(|| refuse(format!("bad bits after slash: {}", shown(length))))?;
    let length = u8::try_from(bits).ok().filter(|bits| *bits <= most);
    let length = length.ok_or_else(|| refuse("prefix length out of range".to_owned()))?;
    if addresses::is_mapped(&address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", shown(text)));
    }
    Ok(Network { address, length })
}

/// Of an address, or of a text that is one. About any other text Kubernetes says that there is no overload.
fn contains_ip<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload("containsIP", arguments);
    let (network, address) = match arguments {
        [Val::Cidr(network), Val::Ip(address)] => (network, **address),
        [Val::Cidr(network), Val::Str(text)] => {
            meter.work(text.len())?;
            (network, addresses::parse(text).map_err(|_| mismatch())?)
        }
        _ => return Err(mismatch()),
    };
    Ok(Val::Bool(network.contains(address)))
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
    Ok(Val::Bool(network.length <= other.length && network.contains(other.address)))
}
