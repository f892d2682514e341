//! Versions, read from text.
//!
//! Semantic Versioning 2.0.0 as the library that Kubernetes uses reads it: numbers of 64 bits, no `v` and no
//! missing parts unless normalising was asked for, and build metadata that is checked and otherwise ignored.

use std::cmp::Ordering;

use crate::error::{EvalError, shown};
use crate::meter::Meter;

/// A version. Equality and order leave out the build metadata.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    prerelease: Vec<Identifier>,
    /// As it was written, normalised.
    pub(crate) text: String,
}

/// A part of a pre-release. Numbers come before words, which is what the order of the variants says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Version {
    pub(crate) fn compare(&self, meter: &Meter, other: &Self) -> Result<Ordering, EvalError> {
        meter.count_steps(self.prerelease.len().min(other.prerelease.len()) as u64)?;
        meter.work(self.text.len().min(other.text.len()))?;
        Ok(self.order(other))
    }

    fn order(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            // A pre-release comes before its release; the longer of two that begin the same comes last.
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.prerelease.cmp(&other.prerelease),
            }
        })
    }
}

pub(crate) fn read(text: &str, normalise: bool) -> Result<Version, String> {
    if normalise { parse(&normalised(text)?) } else { parse(text) }
}

/// Without a leading `v` and leading zeros, and with all three parts.
fn normalised(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_leading_zeros).collect();
    let short = parts.len() < 3;
    if short && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".to_owned());
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}

fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (major, minor) = (part("Major", major)?, part("Minor", minor)?);
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (rest, None),
    };
    let (patch, prerelease) = match rest.split_once('-') {
        Some((patch, prerelease)) => (patch, Some(prerelease)),
        None => (rest, None),
    };
    let patch = part("Patch", patch)?;
    let prerelease = match prerelease {
        Some(prerelease) => prerelease.split('.').map(identifier).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    for build in build.into_iter().flat_map(|build| build.split('.')) {
        if build.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_identifier(build) {
            return Err(format!("Invalid character(s) found in build meta data {}", shown(build)));
        }
    }
    Ok(Version { major, minor, patch, prerelease, text: text.to_owned() })
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn has_leading_zero(digits: &str) -> bool {
    digits.len() > 1 && digits.starts_with('0')
}

/// One of the three numbers.
fn part(name: &str, text: &str) -> Result<u64, String> {
    if !is_digits(text) {
        let name = name.to_ascii_lowercase();
        return Err(format!("Invalid character(s) found in {name} number {}", shown(text)));
    }
    if has_leading_zero(text) {
        return Err(format!("{name} number must not contain leading zeroes {}", shown(text)));
    }
    unsigned(text)
}

fn unsigned(digits: &str) -> Result<u64, String> {
    digits.parse().map_err(|_| {
        let reason = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {reason}", shown(digits))
    })
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_digits(text) {
        if has_leading_zero(text) {
            let text = shown(text);
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text}"));
        }
        return unsigned(text).map(Identifier::Number);
    }
    if !is_identifier(text) {
        return Err(format!("Invalid character(s) found in prerelease {}", shown(text)));
    }
    Ok(Identifier::Word(text.to_owned()))
}
