//! Kubernetes' formats of texts by name.
//!
//! A format gives the list of what is wrong with a text, in Kubernetes' own words. The patterns shown in these
//! are checked by hand: that is quicker and its cost plain.

use crate::value::url;

/// A format of texts. Its name is what tells it from others.
#[derive(Debug)]
pub(crate) struct NamedFormat {
    pub(crate) name: &'static str,
    /// Length of the pattern that Kubernetes reckons with when it counts the cost.
    pub(crate) pattern_length: u64,
    /// What is wrong with a text.
    faults: fn(&str) -> Vec<String>,
}

impl NamedFormat {
    /// What is wrong with a text; nothing when it is of the format.
    pub(crate) fn faults(&self, text: &str) -> Vec<String> {
        (self.faults)(text)
    }
}

const FORMATS: &[NamedFormat] = &[
    NamedFormat { name: "dns1123Label", pattern_length: 30, faults: |text| dns1123_label(text.as_bytes()) },
    NamedFormat {
        name: "dns1123Subdomain",
        pattern_length: 60,
        faults: |text| dns1123_subdomain(text.as_bytes()),
    },
    NamedFormat { name: "dns1035Label", pattern_length: 30, faults: |text| dns1035_label(text.as_bytes()) },
    NamedFormat { name: "qualifiedName", pattern_length: 60, faults: qualified_name },
    NamedFormat {
        name: "dns1123LabelPrefix",
        pattern_length: 30,
        faults: |text| dns1123_label(&completed(text)),
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        pattern_length: 60,
        faults: |text| dns1123_subdomain(&completed(text)),
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        pattern_length: 30,
        faults: |text| dns1035_label(&completed(text)),
    },
    NamedFormat { name: "labelValue", pattern_length: 40, faults: label_value },
    NamedFormat {
        name: "uri",
        pattern_length: 1_103,
        faults: |text| url::check(text).err().map(|fault| fault.to_string()).into_iter().collect(),
    },
    NamedFormat {
        name: "uuid",
        pattern_length: 70,
        faults: |text| unless(is_uuid(text), "does not match the UUID format"),
    },
    NamedFormat {
        name: "byte",
        pattern_length: 84,
        faults: |text| unless(is_base64(text), "invalid base64"),
    },
    NamedFormat { name: "date", pattern_length: 71, faults: |text| unless(is_date(text), "invalid date") },
    NamedFormat {
        name: "datetime",
        pattern_length: 71,
        faults: |text| unless(is_datetime(text), "invalid datetime"),
    },
];

pub(crate) fn named(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Whether a text is of the format of this name.
pub(crate) fn is_of(format: &str, text: &str) -> bool {
    named(format).is_some_and(|format| format.faults(text).is_empty())
}

fn unless(holds: bool, fault: &str) -> Vec<String> {
    if holds { Vec::new() } else { vec![fault.to_owned()] }
}

const MAX_LABEL_BYTES: usize = 63;
const MAX_SUBDOMAIN_BYTES: usize = 253;
const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_PATTERN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";

/// A rule with examples and the pattern that states it.
fn rule(rule: &str, examples: &[&str], pattern: &str) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// The beginning of a name that something is going to be appended to: a dash at the end is no fault, and as in
/// Kubernetes neither is what precedes it.
fn completed(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    match bytes.split_last_chunk::<2>() {
        Some((start, [_, b'-'])) => [start, b"a"].concat(),
        _ => bytes.to_vec(),
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Characters of `inner`, and at both ends of `outer`.
fn is_name(text: &[u8], outer: fn(u8) -> bool, inner: &[u8]) -> bool {
    let ends = [text.first(), text.last()];
    ends.iter().all(|end| end.is_some_and(|end| outer(*end)))
        && text.iter().all(|byte| outer(*byte) || inner.contains(byte))
}

fn is_subdomain(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'.').all(|label| is_name(label, is_lower, b"-"))
}

fn is_key(text: &[u8]) -> bool {
    is_name(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

fn too_long(text: &[u8], most: usize, unit: &str) -> Vec<String> {
    unless(text.len() <= most, &format!("must be no more than {most} {unit}"))
}

fn dns1123_label(text: &[u8]) -> Vec<String> {
    let mut faults = too_long(text, MAX_LABEL_BYTES, "characters");
    if !is_name(text, is_lower, b"-") {
        faults.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            let said = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                        must start and end with an alphanumeric character";
            rule(said, &["my-name", "123-abc"], LABEL_PATTERN)
        });
    }
    faults
}

fn subdomain_faults(text: &[u8], unit: &str) -> Vec<String> {
    let mut faults = too_long(text, MAX_SUBDOMAIN_BYTES, unit);
    if !is_subdomain(text) {
        let said = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                    '.', and must start and end with an alphanumeric character";
        faults.push(rule(said, &["example.com"], SUBDOMAIN_PATTERN));
    }
    faults
}

fn dns1123_subdomain(text: &[u8]) -> Vec<String> {
    subdomain_faults(text, "characters")
}

fn dns1035_label(text: &[u8]) -> Vec<String> {
    let mut faults = too_long(text, MAX_LABEL_BYTES, "characters");
    if !is_name(text, is_lower, b"-") || !text.first().is_some_and(u8::is_ascii_lowercase) {
        let said = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                    alphabetic character, and end with an alphanumeric character";
        faults.push(rule(said, &["my-name", "abc-123"], "[a-z]([-a-z0-9]*[a-z0-9])?"));
    }
    faults
}

/// The key of a label: a name, and a subdomain before it.
fn qualified_name(text: &str) -> Vec<String> {
    const EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    let mut faults = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let said = rule(KEY_RULE, EXAMPLES, KEY_PATTERN);
            return vec![format!(
                "a valid label key {said} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let found = subdomain_faults(prefix.as_bytes(), "bytes");
            faults.extend(found.into_iter().map(|fault| format!("prefix part {fault}")));
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    let long = too_long(name.as_bytes(), MAX_LABEL_BYTES, "bytes");
    faults.extend(long.into_iter().map(|fault| format!("name part {fault}")));
    if !is_key(name.as_bytes()) {
        faults.push(format!("name part {}", rule(KEY_RULE, EXAMPLES, KEY_PATTERN)));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text.as_bytes(), MAX_LABEL_BYTES, "bytes");
    if !text.is_empty() && !is_key(text.as_bytes()) {
        let said = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                    and must start and end with an alphanumeric character";
        faults.push(rule(said, &["MyValue", "my_value", "12345"], &format!("({KEY_PATTERN})?")));
    }
    faults
}

/// Hexadecimal digits in the groups of a UUID, with or without the dashes.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (index, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        match rest.split_at_checked(digits) {
            Some((group, after)) if group.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Groups of four, the last padded, at least one. Bits that the padding leaves over may be anything.
fn is_base64(text: &str) -> bool {
    let unpadded = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && unpadded.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

/// Two or more digits, and nothing else.
fn digits(text: &str, length: usize) -> Option<u16> {
    let right = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    if right { text.parse().ok() } else { None }
}

/// `2006-01-02`, a day that there is.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let mut part = |length| parts.next().and_then(|part| digits(part, length));
    let (Some(year), Some(month), Some(day)) = (part(4), part(2), part(2)) else { return false };
    let days = match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// A date, `T`, a time with seconds up to 59 and maybe a fraction behind any character, and `Z` or an offset.
/// What follows another `T` is not looked at, as in Kubernetes.
fn is_datetime(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let clock = |text: &str, parts: usize| {
        text.split(':').count() == parts && text.split(':').all(|part| digits(part, 2).is_some())
    };
    let Some((hms, rest)) = time.split_at_checked(8) else { return false };
    let in_day = hms.split(':').zip(["23", "59", "59"]).all(|(part, most)| part <= most);
    let fraction = match rest.strip_suffix(['z', 'Z']) {
        Some(fraction) => Some(fraction),
        None => rest.len().checked_sub(6).and_then(|start| rest.split_at_checked(start)).and_then(
            |(fraction, zone)| zone.strip_prefix(['+', '-']).filter(|zone| clock(zone, 2)).map(|_| fraction),
        ),
    };
    let is_fraction = |text: &str| {
        let mut characters = text.chars();
        let mark = characters.next();
        let rest = characters.as_str();
        mark.is_none()
            || mark != Some('\n') && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
    };
    is_date(date) && clock(hms, 3) && in_day && fraction.is_some_and(is_fraction)
}
