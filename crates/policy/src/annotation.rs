//! Keys of audit annotations, and of labels.
//!
//! The API server puts `<webhook name>/` before a key, so a key has to be the name part of a qualified name:
//! at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends. Names of policies may be
//! longer than that.

pub(crate) use sallyport_admission::annotations::{LONGEST_KEY, LONGEST_VALUE, is_valid_key};

/// Longest domain before a name part.
const MAX_DOMAIN: usize = 253;
/// Key of the failures that a policy only notes down.
pub(crate) const VIOLATIONS: &str = "violations";
/// Longest key in an `auditAnnotations` entry, so that some of the policy's name fits before it.
pub(crate) const MAX_SUFFIX: usize = 40;

/// `policy.suffix`. A name that is too long is cut, and a digest of the whole tells it from others.
pub(crate) fn key(policy: &str, suffix: &str) -> String {
    let room = LONGEST_KEY.saturating_sub(suffix.len() + 1);
    if policy.len() <= room {
        return format!("{policy}.{suffix}");
    }
    let digest = format!("{:08x}", digest(policy));
    let kept: String = policy.chars().take(room.saturating_sub(digest.len() + 1)).collect();
    format!("{kept}-{digest}.{suffix}")
}

/// Key of what a `ValidatingAdmissionPolicy` only notes down, without the API server's own prefix.
pub(crate) const VALIDATION_FAILURE: &str = "validation_failure";

/// `policy.suffix` where the suffix may be as long as a key: beyond the length of a key it is a digest of both.
pub(crate) fn long_key(policy: &str, suffix: &str) -> String {
    if suffix.len() <= MAX_SUFFIX {
        return key(policy, suffix);
    }
    let digest = format!("{:08x}", digest(&format!("{policy}/{suffix}")));
    let kept: String = suffix.chars().take(LONGEST_KEY - digest.len() - 1).collect();
    format!("{kept}-{digest}")
}

/// Whether `name` can be the key of a label: a name part, with a domain and a slash before it or without.
pub(crate) fn is_qualified_name(name: &str) -> bool {
    match name.split_once('/') {
        None => is_valid_key(name),
        Some((domain, part)) => is_domain(domain) && is_valid_key(part),
    }
}

/// Whether `value` can be the value of a label.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_valid_key(value)
}

/// RFC 1123: labels of small letters, digits and hyphens inside, with dots between them.
fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(small)
    };
    domain.len() <= MAX_DOMAIN && domain.split('.').all(is_label)
}

/// FNV-1a, 32 bits: stable over versions and processes.
fn digest(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |digest, byte| (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
