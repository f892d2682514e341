//! Networks, read from text.
//!
//! As with addresses, Go's `net/netip` decides: the length has no sign and no leading zeros, and bits behind
//! the prefix are kept until `masked()`.

use std::net::IpAddr;

use crate::error::shown;
use crate::value::address::{is_mapped, parse_zoned};

/// An address and how many of its bits name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    pub(crate) length: u8,
}

impl Network {
    /// With the bits behind the prefix zero.
    pub(crate) fn masked(self) -> Self {
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
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self { address, length: self.length }.masked() == self.masked()
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

/// A network, or why it is refused.
pub(crate) fn parse(text: &str) -> Result<Network, String> {
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
    let most = if address.is_ipv4() { 32 } else { 128 };
    let padded = length.len() > 1 && length.starts_with('0');
    let digits = !padded && length.bytes().all(|byte| byte.is_ascii_digit());
    let bits = length.parse::<i64>().ok().filter(|_| digits);
    let bits = bits.ok_or_else(|| refuse(format!("bad bits after slash: {}", shown(length))))?;
    let length = u8::try_from(bits).ok().filter(|bits| *bits <= most);
    let length = length.ok_or_else(|| refuse("prefix length out of range".to_owned()))?;
    if is_mapped(&address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", shown(text)));
    }
    Ok(Network { address, length })
}
