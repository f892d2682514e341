//! What is written for people: colours, and text that cannot play tricks on a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use sallyport_error_chain::format_chain;

/// Headings and names.
pub(crate) const STRONG: Style = Style::new().bold();
/// What went well, and added lines.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What is refused or wrong, and removed lines.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// What deserves a look.
pub(crate) const NOTICE: Style = AnsiColor::Yellow.on_default();
/// Positions in a difference.
pub(crate) const PLACE: Style = AnsiColor::Cyan.on_default();
/// What may be passed over.
pub(crate) const QUIET: Style = Style::new().dimmed();

/// The text with control characters spelled out, for manifests and answers are other people's. Line breaks and
/// tabs stay.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_trick) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), |mut plain, character| {
        if is_trick(character) {
            // Writing into a String cannot fail.
            let _ = write!(plain, "{}", character.escape_unicode());
        } else {
            plain.push(character);
        }
        plain
    }))
}

/// Control characters, and those that turn the direction of writing around.
fn is_trick(character: char) -> bool {
    (character.is_control() && !matches!(character, '\n' | '\t'))
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes a message to the end of the line; its further lines begin at `column`.
pub(crate) fn write_indented(output: &mut impl io::Write, column: usize, message: &str) -> io::Result<()> {
    for (index, line) in plain(message.trim_end()).split('\n').enumerate() {
        if index > 0 {
            write!(output, "\n{:column$}", "")?;
        }
        output.write_all(line.as_bytes())?;
    }
    writeln!(output)
}

/// Writes a line to standard error. If nobody reads it, that is no reason to stop.
pub(crate) fn print_note(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Writes an error with its causes to standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    print_note(&format!("{BAD}error{BAD:#}: {}", plain(&format_chain(error.as_ref()))));
}

/// Whether the reader of standard output went away.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn tricks_are_spelled_out() {
        for (text, shown) in [
            ("plain, ünïcode\n\ttoo", "plain, ünïcode\n\ttoo"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("a\rb", "a\\u{d}b"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}txt", "\\u{202e}txt"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
