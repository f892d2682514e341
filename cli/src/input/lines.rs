//! Lines of bounded length.

use std::io::{self, BufRead, Read as _};

/// What one line held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Its bytes, with the line break.
    Text(Vec<u8>),
    /// It was longer than is taken.
    TooLong,
}

/// Reads lines, each of bounded length, until the input ends or nobody takes them. Blank lines are passed over.
pub(crate) fn read_lines(
    input: &mut impl BufRead,
    longest: u64,
    mut give: impl FnMut(io::Result<Line>) -> bool,
) {
    while let Some(line) = read_line(input, longest).transpose() {
        let ended = line.is_err();
        if !give(line) || ended {
            return;
        }
    }
}

/// The next line that is not blank, of at most `longest` bytes; `None` at the end of the input.
pub(crate) fn read_line(input: &mut impl BufRead, longest: u64) -> io::Result<Option<Line>> {
    loop {
        let mut text = Vec::new();
        if input.take(longest + 1).read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        if text.len() as u64 > longest && !text.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            return Ok(Some(Line::TooLong));
        }
        if !text.trim_ascii().is_empty() {
            return Ok(Some(Line::Text(text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, read_lines};

    const LONGEST: u64 = 100;

    fn lines(input: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        read_lines(&mut &*input, LONGEST, |line| {
            lines.push(line.unwrap());
            true
        });
        lines
    }

    #[test]
    fn lines_end_with_the_input_too_and_blank_ones_are_none() {
        let text = |text: &str| Line::Text(text.as_bytes().to_vec());
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"\n \r\n\t\n"), []);
        assert_eq!(lines(b"a\n\nb\r\nc"), [text("a\n"), text("b\r\n"), text("c")]);
    }

    #[test]
    fn a_line_without_end_is_skipped_to_its_end() {
        let mut input = vec![b'x'; 100 + 10];
        input.extend(b"\nnext\n");
        assert_eq!(lines(&input), [Line::TooLong, Line::Text(b"next\n".to_vec())]);
        // The longest one that is taken.
        let mut input = vec![b'x'; 100];
        input.push(b'\n');
        assert!(matches!(lines(&input).as_slice(), [Line::Text(_)]));
    }
}
