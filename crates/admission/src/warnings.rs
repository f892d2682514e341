//! Warnings as the API server passes them on (C-50): it drops what is not clean
//! text without a word, and cuts what is too long in an odd place.

use std::borrow::Cow;
use std::collections::HashSet;

/// Longest single warning in characters; the API server may cut what is longer.
pub const LONGEST: usize = 256;

/// Most warnings that policies may give in one review.
pub const MAX_GATHERED: usize = 64;

/// All warnings of a review together, in characters; beyond it the API server cuts each and drops the rest.
pub const TOTAL: usize = 4096;

/// Room kept for the line that says how many were left out.
const NOTE: usize = 64;

/// Cleans the warnings of a review: each a [`line()`], none empty, none twice, and all together within the total.
/// A last line counts what had to be left out.
pub fn clean<S: AsRef<str>>(warnings: impl IntoIterator<Item = S>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    let (mut total, mut left_out) = (0, 0_usize);
    for warning in warnings {
        let line = line(warning.as_ref());
        let length = line.chars().count();
        if length == 0 || seen.contains(&line) {
            continue;
        }
        if total + length > TOTAL - NOTE {
            left_out += 1;
            continue;
        }
        total += length;
        seen.insert(line.clone());
        kept.push(line);
    }
    if left_out > 0 {
        kept.push(format!("{left_out} more warnings were left out"));
    }
    kept
}

/// A warning in one line: no control characters, no `Warning:` before it, at most [`LONGEST`] characters. Empty where
/// nothing is left of it. A line stays as it is.
///
/// ```
/// assert_eq!(sallyport_admission::warnings::line("Warning: set\n  limits\u{7}"), "set limits");
/// ```
pub fn line(text: &str) -> String {
    shorten(&plain(text))
}

/// One line of clean text: control characters become spaces, runs of white space become one.
fn plain(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(4 * LONGEST));
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > 8 * LONGEST {
            break; // far more than is kept
        }
    }
    let mut rest = line.as_str();
    while let Some(prefix) = rest.get(..8).filter(|prefix| prefix.eq_ignore_ascii_case("warning:")) {
        rest = rest[prefix.len()..].trim_start();
    }
    rest.to_owned()
}

fn shorten(line: &str) -> String {
    let cut: Cow<'_, str> = match line.char_indices().nth(LONGEST) {
        None => Cow::Borrowed(line),
        Some(_) => line.chars().take(LONGEST - 1).chain(std::iter::once('…')).collect(),
    };
    cut.into_owned()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, TOTAL, clean, line};

    #[test]
    fn warnings_are_cleaned_c50() {
        let long = "x".repeat(5000);
        let shortened = format!("{}…", "x".repeat(LONGEST - 1));
        for (given, expected) in [
            (vec![], vec![]),
            (vec!["plain"], vec!["plain"]),
            (vec!["", " \n\t", "a"], vec!["a"]),
            (vec!["a", "b", "a"], vec!["a", "b"]),
            (vec!["two\nlines\u{7}\u{0}end"], vec!["two lines end"]),
            (vec!["Warning: w", "WARNING:warning:  x"], vec!["w", "x"]),
            (vec![&"y".repeat(121)[..]], vec![&"y".repeat(121)[..]]),
            (vec![&"y".repeat(256)[..]], vec![&"y".repeat(256)[..]]),
            (vec![&long[..257]], vec![&shortened[..]]),
            (vec![&long[..]], vec![&shortened[..]]),
            (vec!["grüße\u{85}日本"], vec!["grüße 日本"]),
        ] {
            assert_eq!(clean(&given), expected, "{given:?}");
            // Cleaned by a backend, and again by the webhook.
            assert!(expected.iter().all(|cleaned| line(cleaned) == *cleaned), "{given:?}");
        }
    }

    #[test]
    fn a_hundred_warnings_stay_within_the_total_and_say_what_is_missing_c50() {
        let kept = clean((0..100).map(|number| format!("{number:03} {}", "w".repeat(200))));
        assert!(kept.iter().map(|line| line.chars().count()).sum::<usize>() <= TOTAL);
        assert_eq!(kept.last().unwrap(), &format!("{} more warnings were left out", 100 - (kept.len() - 1)));
        assert_eq!(clean((0..100).map(|number| number.to_string())).len(), 100, "short ones all fit");
    }
}
