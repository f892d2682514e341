//! Networks, read from text.
//!
//! As with addresses, Go's `net/netip` decides, so that they are not read by `ipnet`: the length has no sign and no
//! leading zeros, and bits behind the prefix are kept until `masked()`.

use ipnet::IpNet;

use crate::error::shown;
use crate::value::address::{is_mapped, parse_zoned};

/// Bytes of the prefix.
pub(crate) fn prefix_bytes(network: &IpNet) -> u64 {
    u64::from(network.prefix_len()).div_ceil(8)
}

/// A network, or why it is refused.
pub(crate) fn parse(text: &str) -> Result<IpNet, String> {
    let refuse = |reason: String| {
        let text = shown(text);
        format!(
            "network address parse error during conversion from string: netip.ParsePrefix({text}): {reason}"
        )
    };
    let (address, length) = text.rsplit_once('/').ok_or_else(|| refuse("no '/'".to_owned()))?;
    let (address, zone) = parse_zoned(address).map_err(refuse)?;
    if zone.is_some() {
        return Err(refuse("IPv6 zones cannot be present in a prefix".to_owned()));
    }
    let padded = length.len() > 1 && length.starts_with('0');
    let digits = !padded && length.bytes().all(|byte| byte.is_ascii_digit());
    let bits = length.parse::<i64>().ok().filter(|_| digits);
    let bits = bits.ok_or_else(|| refuse(format!("bad bits after slash: {}", shown(length))))?;
    let network = u8::try_from(bits).ok().and_then(|length| IpNet::new(address, length).ok());
    let network = network.ok_or_else(|| refuse("prefix length out of range".to_owned()))?;
    if is_mapped(&address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", shown(text)));
    }
    Ok(network)
}
