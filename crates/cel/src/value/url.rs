//! URLs, read from text.
//!
//! What is a URL is decided as by Go's `net/url`, which Kubernetes uses and which differs from browsers: a
//! scheme or a path from the root is all that is needed, hosts are hardly looked at, nothing is resolved.

use crate::error::{quoted, shorten, shown};
use crate::value::address;

/// Parameters of a query beyond which none is read, as in Go.
const MAX_PARAMETERS: usize = 10_000;

/// A URL, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    scheme: String,
    /// With the port; what is not UTF-8 once unescaped is replaced.
    host: String,
    /// Escaped.
    path: String,
    query: String,
    /// The whole in its usual form. URLs are equal when these are.
    pub(crate) text: String,
}

impl Url {
    /// The host without brackets, and a port that is a number or empty.
    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':').map(|colon| self.host.split_at(colon)) {
            Some((host, port)) if is_port(port) => (host, port.strip_prefix(':').unwrap_or_default()),
            _ => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn query(&self) -> &str {
        &self.query
    }

    /// The parameters of the query: what is not written as one is left out.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (String, String)> {
        let query = if self.query.matches('&').count() < MAX_PARAMETERS { self.query.as_str() } else { "" };
        let parameters = query.split('&').filter(|text| !text.is_empty() && !text.contains(';'));
        parameters.filter_map(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let (key, value) = (unescape(key, Place::Query).ok()?, unescape(value, Place::Query).ok()?);
            Some((lossy(key), lossy(value)))
        })
    }
}

/// Why a text is no URL.
#[derive(Debug)]
pub(crate) struct Fault<'t> {
    /// The text that was read: the source, or what precedes its fragment.
    text: &'t str,
    reason: String,
}

impl Fault<'_> {
    /// The message, with the beginning of a long text.
    pub(crate) fn shortened(&self) -> String {
        self.message(shorten(self.text).as_bytes())
    }

    fn message(&self, text: &[u8]) -> String {
        format!("parse {}: {}", quoted(text), self.reason)
    }
}

impl std::fmt::Display for Fault<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message(self.text.as_bytes()))
    }
}

/// Whether a text is a URL that a request could be made with.
pub(crate) fn check(text: &str) -> Result<(), Fault<'_>> {
    read(text, true).map(|_| ()).map_err(|reason| Fault { text, reason })
}

/// The URL must be fit for a request; then it is read again, since a request has no fragment.
pub(crate) fn parse(text: &str) -> Result<Url, Fault<'_>> {
    check(text)?;
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let raw = read(before, false).map_err(|reason| Fault { text: before, reason })?;
    let unescaped = unescape(fragment, Place::Fragment).map_err(|reason| Fault { text, reason })?;
    let fragment = escaped(fragment, &unescaped, Place::Fragment);
    let path = escaped(raw.path, &raw.unescaped_path, Place::Path);
    let text = raw.text(&path, &fragment);
    Ok(Url { scheme: raw.scheme, host: lossy(raw.host), path, query: raw.query.to_owned(), text })
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The parts of a URL as they were written, but for what has to be unescaped.
#[derive(Default)]
struct Raw<'t> {
    scheme: String,
    /// What follows a scheme when it does not begin with a slash.
    opaque: &'t str,
    user: Option<User>,
    host: Vec<u8>,
    /// There is a scheme and a path, and no `//`.
    omit_host: bool,
    path: &'t str,
    unescaped_path: Vec<u8>,
    query: &'t str,
    /// Ends with a `?` that nothing follows.
    bare_query: bool,
}

struct User {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

impl Raw<'_> {
    /// The usual form.
    fn text(&self, path: &str, fragment: &str) -> String {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.push_str(&self.scheme);
            text.push(':');
        }
        if self.opaque.is_empty() {
            let authority = !self.host.is_empty() || self.user.is_some();
            let slashes = !self.scheme.is_empty() && !path.is_empty() && !self.omit_host;
            if authority || slashes {
                text.push_str("//");
            }
            if let Some(user) = &self.user {
                text.push_str(&escape(&user.name, Place::User));
                if let Some(password) = &user.password {
                    text.push(':');
                    text.push_str(&escape(password, Place::User));
                }
                text.push('@');
            }
            text.push_str(&escape(&self.host, Place::Host));
            text.push_str(path);
        } else {
            text.push_str(self.opaque);
        }
        if self.bare_query || !self.query.is_empty() {
            text.push('?');
            text.push_str(self.query);
        }
        if !fragment.is_empty() {
            text.push('#');
            text.push_str(fragment);
        }
        text
    }
}

/// Takes a URL apart. For a request, a fragment is nothing special and there is no host without a scheme.
fn read(text: &str, for_request: bool) -> Result<Raw<'_>, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && for_request {
        return Err("empty url".to_owned());
    }
    if text == "*" {
        return Ok(Raw { path: "*", unescaped_path: b"*".to_vec(), ..Raw::default() });
    }
    let (scheme, rest) = split_scheme(text)?;
    let mut url = Raw { scheme: scheme.to_ascii_lowercase(), ..Raw::default() };
    let rest = match rest.split_once('?') {
        Some((rest, "")) => {
            url.bare_query = true;
            rest
        }
        Some((rest, query)) => {
            url.query = query;
            rest
        }
        None => rest,
    };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            url.opaque = rest;
            return Ok(url);
        }
        if for_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let may_have_host = !scheme.is_empty() || (!for_request && !rest.starts_with("///"));
    url.path = rest;
    if let Some(authority) = rest.strip_prefix("//").filter(|_| may_have_host) {
        let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
        (url.user, url.host) = read_authority(&url.scheme, authority)?;
        url.path = path;
    } else {
        url.omit_host = !scheme.is_empty();
    }
    url.unescaped_path = unescape(url.path, Place::Path)?;
    Ok(url)
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (offset, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if offset > 0 => {}
            b':' if offset == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok(text.split_once(':').unwrap_or(("", text))),
            _ => break,
        }
    }
    Ok(("", text))
}

fn read_authority(scheme: &str, authority: &str) -> Result<(Option<User>, Vec<u8>), String> {
    let Some((user, host)) = authority.rsplit_once('@') else {
        return Ok((None, read_host(scheme, authority)?));
    };
    let host = read_host(scheme, host)?;
    if !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte)) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = match user.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (user, None),
    };
    let name = unescape(name, Place::User)?;
    let password = password.map(|password| unescape(password, Place::User)).transpose()?;
    Ok((Some(User { name, password }), host))
}

/// An IPv6 address in brackets or about any name, and a port that is a number.
fn read_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    let bad_port = |port: &str| format!("invalid port {} after host", shown(port));
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            // Schemes that have nothing to do with the web may have more colons.
            let colon = if matches!(scheme, "http" | "https") { host.find(':') } else { host.rfind(':') };
            let port = colon.and_then(|colon| host.get(colon..)).unwrap_or_default();
            if !is_port(port) {
                return Err(bad_port(port));
            }
            return unescape(host, Place::Host);
        }
    }
    let end = host.rfind(']').ok_or("missing ']' in host")?;
    let (literal, port) = (host.get(1..end).unwrap_or_default(), host.get(end + 1..).unwrap_or_default());
    if !is_port(port) {
        return Err(bad_port(port));
    }
    let (address, zone) = literal.split_at(literal.find("%25").unwrap_or(literal.len()));
    let mut address = unescape(address, Place::Host)?;
    address.extend(unescape(zone, Place::Zone)?);
    match address::parse_zoned(&String::from_utf8_lossy(&address)) {
        Ok((parsed, _)) if parsed.is_ipv4() => return Err("invalid IP-literal".to_owned()),
        Ok(_) => {}
        Err(reason) => return Err(format!("invalid host: {reason}")),
    }
    Ok([b"[", address.as_slice(), b"]", port.as_bytes()].concat())
}

/// Nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Where in a URL a text stands, which decides on what has to be escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Path,
    Host,
    /// Of an IPv6 address.
    Zone,
    User,
    Query,
    Fragment,
}

impl Place {
    /// Whether a byte may stand here as it is.
    fn takes(self, byte: u8) -> bool {
        let marks: &[u8] = match self {
            Self::Path => b"$&+,/:;=@",
            Self::Host | Self::Zone => b"!\"$&'()*+,:;<=>[]",
            Self::User => b"$&+,;=",
            Self::Query => b"",
            Self::Fragment => b"!$&()*+,/:;=?@",
        };
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || marks.contains(&byte)
    }

    fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Zone)
    }
}

/// The byte that `%XX` at this offset stands for.
fn escape_at(bytes: &[u8], offset: usize) -> Option<u8> {
    let [b'%', high, low] = bytes.get(offset..offset + 3)? else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

fn unescape(text: &str, place: Place) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut offset = 0;
    while let Some(&byte) = bytes.get(offset) {
        match byte {
            b'%' => {
                let end = bytes.len().min(offset + 3);
                let written = bytes.get(offset..end).unwrap_or_default();
                let refused = || format!("invalid URL escape {}", quoted(written));
                let value = escape_at(bytes, offset).ok_or_else(refused)?;
                // Hosts hide nothing in ASCII but a percent sign, zones nothing that hosts do not take.
                let hides = match place {
                    Place::Host => value.is_ascii() && value != b'%',
                    Place::Zone => value != b'%' && value != b' ' && !Place::Host.takes(value),
                    _ => false,
                };
                if hides {
                    return Err(refused());
                }
                unescaped.push(value);
                offset += 3;
                continue;
            }
            b'+' if place == Place::Query => unescaped.push(b' '),
            _ if place.is_host() && byte.is_ascii() && !place.takes(byte) => {
                return Err(format!("invalid character {} in host name", quoted(&[byte])));
            }
            _ => unescaped.push(byte),
        }
        offset += 1;
    }
    Ok(unescaped)
}

fn escape(bytes: &[u8], place: Place) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().map_or('0', char::from);
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if place.takes(*byte) {
            text.push(char::from(*byte));
        } else {
            text.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    text
}

/// As it was written if every byte may stand there in a wider sense, else escaped anew.
fn escaped(written: &str, unescaped: &[u8], place: Place) -> String {
    if written.bytes().all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || place.takes(byte)) {
        written.to_owned()
    } else {
        escape(unescaped, place)
    }
}
