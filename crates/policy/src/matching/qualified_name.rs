//! Qualified names, as the keys of labels and the keys of audit annotations are.

pub(crate) use sallyport_admission::annotations::{
    LONGEST_KEY as MAX_NAME_PART, is_valid_key as is_name_part,
};

/// Longest domain before a name part.
const MAX_DOMAIN: usize = 253;

/// Returns whether `name` can be the key of a label: a name part, with a domain and a slash before it or without.
pub(crate) fn is_qualified_name(name: &str) -> bool {
    match name.split_once('/') {
        None => is_name_part(name),
        Some((domain, part)) => is_domain(domain) && is_name_part(part),
    }
}

/// Returns whether `value` can be the value of a label.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name_part(value)
}

/// RFC 1123: labels of small letters, digits and hyphens inside, with dots between them.
fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(small)
    };
    domain.len() <= MAX_DOMAIN && domain.split('.').all(is_label)
}
