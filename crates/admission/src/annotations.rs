//! Keys of audit annotations (C-51): the API server puts the webhook's name
//! before them and drops, with a log line of its own, what is then not a
//! qualified name.

/// Longest key: the name part of a qualified name.
pub const LONGEST_KEY: usize = 63;

/// Longest value that is passed on, in bytes; audit logs are not for more.
pub const LONGEST_VALUE: usize = 10 << 10;

/// Whether `key` is the name part of a qualified name: letters, digits, `-`,
/// `_` and `.`, alphanumeric at both ends, at most 63 characters.
pub fn is_valid_key(key: &str) -> bool {
    let bytes = key.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    bytes.len() <= LONGEST_KEY
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(inner)
}

/// A value cut to what is passed on, at a character's boundary.
pub fn shorten_value(mut value: String) -> String {
    if value.len() > LONGEST_VALUE {
        let end = (0..=LONGEST_VALUE).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
        value.truncate(end);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_VALUE, is_valid_key, shorten_value};

    #[test]
    fn keys_are_the_name_part_of_a_qualified_name_c51() {
        for (key, valid) in [
            ("policy", true),
            ("a", true),
            ("deny-env.violations_1", true),
            (&"k".repeat(63)[..], true),
            (&"k".repeat(64)[..], false),
            ("", false),
            ("a*b", false),
            ("a/b", false),
            ("-a", false),
            ("a.", false),
            ("é", false),
        ] {
            assert_eq!(is_valid_key(key), valid, "{key:?}");
        }
    }

    #[test]
    fn values_are_cut_between_characters() {
        let long = "é".repeat(LONGEST_VALUE);
        let cut = shorten_value(long);
        assert!(cut.len() <= LONGEST_VALUE && cut.chars().all(|c| c == 'é'));
        assert_eq!(shorten_value("short".into()), "short");
    }
}
