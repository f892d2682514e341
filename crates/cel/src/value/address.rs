//! IP addresses, read from text.
//!
//! What is an address is decided as by Go's `net/netip`, which Kubernetes uses: no leading zeros in IPv4, and
//! neither zones nor IPv4-mapped addresses. A text that is refused is looked at again for the reason, which is
//! told in the words that users know.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::shown;

/// An address without a zone, not an IPv4-mapped one; or why it is refused.
pub(crate) fn parse(text: &str) -> Result<IpAddr, String> {
    let (address, zone) = parse_zoned(text).map_err(|reason| {
        format!("IP Address {} parse error during conversion from string: {reason}", shown(text))
    })?;
    if zone.is_some() {
        return Err(format!("IP address {} with zone value is not allowed", shown(text)));
    }
    if is_mapped(&address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", shown(text)));
    }
    Ok(address)
}

pub(crate) fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// An address, and the zone that an IPv6 address may name behind a `%`.
pub(crate) fn parse_zoned(text: &str) -> Result<(IpAddr, Option<&str>), String> {
    let refuse = |reason: &str| format!("ParseAddr({}): {reason}", shown(text));
    let fault = |fault: Fault<'_>| match fault.at {
        Some(at) => format!("ParseAddr({}): {} (at {})", shown(text), fault.reason, shown(at)),
        None => refuse(fault.reason),
    };
    match text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%')) {
        Some(b'.') => match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok((address.into(), None)),
            Err(_) => Err(fault(ipv4_fault(text).unwrap_or(Fault::UNKNOWN))),
        },
        Some(b':') => {
            let (address, zone) = match text.split_once('%') {
                Some((_, "")) => return Err(refuse("zone must be a non-empty string")),
                Some((address, zone)) => (address, Some(zone)),
                None => (text, None),
            };
            match address.parse::<Ipv6Addr>() {
                Ok(address) => Ok((address.into(), zone)),
                Err(_) => Err(fault(ipv6_fault(address))),
            }
        }
        Some(_) => Err(refuse("missing IPv6 address")),
        None => Err(refuse("unable to parse IP")),
    }
}

/// Why a text is no address, and the rest of the text from where that shows.
struct Fault<'t> {
    reason: &'static str,
    at: Option<&'t str>,
}

impl<'t> Fault<'t> {
    const UNKNOWN: Self = Self { reason: "unable to parse IP", at: None };

    fn new(reason: &'static str) -> Self {
        Self { reason, at: None }
    }

    fn at(reason: &'static str, at: &'t str) -> Self {
        Self { reason, at: Some(at) }
    }
}

/// The first thing that is wrong with four decimal fields.
fn ipv4_fault(text: &str) -> Option<Fault<'_>> {
    let (mut fields, mut digits, mut value) = (1, 0, 0_u32);
    for (offset, byte) in text.bytes().enumerate() {
        let rest = text.get(offset..).unwrap_or_default();
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Some(Fault::new("IPv4 field has octet with leading zero"));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Some(Fault::new("IPv4 field has value >255"));
                }
            }
            b'.' if digits == 0 || rest.len() == 1 => {
                return Some(Fault::at("IPv4 field must have at least one digit", rest));
            }
            b'.' if fields == 4 => return Some(Fault::new("IPv4 address too long")),
            b'.' => (fields, digits, value) = (fields + 1, 0, 0),
            _ => return Some(Fault::at("unexpected character", rest)),
        }
    }
    (fields < 4).then(|| Fault::new("IPv4 address too short"))
}

/// The first thing that is wrong with the fields of an IPv6 address.
fn ipv6_fault(text: &str) -> Fault<'_> {
    const FIELDS: usize = 8;
    let (mut fields, mut compressed, mut rest) = (0, false, text);
    if let Some(after) = rest.strip_prefix("::") {
        (compressed, rest) = (true, after);
    }
    while fields < FIELDS {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Fault::at("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return Fault::at("each colon-separated field must have at least one digit", rest);
        }
        let after = rest.get(digits..).unwrap_or_default();
        if after.starts_with('.') {
            if !compressed && fields != FIELDS - 2 {
                let reason = "embedded IPv4 address must replace the final 2 fields of the address";
                return Fault::at(reason, rest);
            }
            if fields > FIELDS - 2 {
                let reason = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Fault::at(reason, rest);
            }
            if let Some(fault) = ipv4_fault(rest) {
                return fault;
            }
            (fields, rest) = (fields + 2, "");
            break;
        }
        (fields, rest) = (fields + 1, after);
        if rest.is_empty() {
            break;
        }
        match rest.strip_prefix(':') {
            None => return Fault::at("unexpected character, want colon", rest),
            Some("") => return Fault::at("colon must be followed by more characters", rest),
            Some(after) => rest = after,
        }
        if let Some(after) = rest.strip_prefix(':') {
            if compressed {
                return Fault::at("multiple :: in address", rest);
            }
            (compressed, rest) = (true, after);
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Fault::at("trailing garbage after address", rest);
    }
    Fault::new(match (fields, compressed) {
        (FIELDS, true) => "the :: must expand to at least one field of zeros",
        (FIELDS, false) => Fault::UNKNOWN.reason,
        _ => "address string too short",
    })
}
