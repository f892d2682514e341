//! YAML as Kubernetes' users know it.

use serde::Serialize;

/// One document. Long strings stay on one line, so that they can be copied and compared; those of several lines
/// are written as such.
pub(crate) fn document(value: &impl Serialize) -> Result<String, serde_saphyr::ser_error::Error> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::document;

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let long = "word ".repeat(50);
        let value = json!({
            "long": long,
            "unbroken": "A".repeat(500),
            "lines": "one\n  two\n\nthree\n",
            "words": ["yes", "no", "null", "~", "1", "1.0", "0x1f", "1e3", "", " a ", "a: b", "#c", "-", "*d", "2001-01-01"],
            "escapes": "\u{1b}[2J\t\r\u{202e}\u{85}",
            "numbers": [0, -1, 1.5, 1e300, 18_446_744_073_709_551_615_u64],
            "empty": [{}, [], null, ""],
        });
        let text = document(&value).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        assert!(text.lines().any(|line| line.contains(&"A".repeat(500))), "{text}");
        assert!(text.contains("lines: |"), "{text}");
    }
}
