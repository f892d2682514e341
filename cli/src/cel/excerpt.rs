//! The place of an error in an expression, shown.

use crate::output::terminal::plain;

/// Most of a line that is shown, in characters.
const WIDTH: usize = 100;

/// The line of `source` with a caret below the column; both count from 1.
pub(crate) fn quote_line(source: &str, line: usize, column: usize) -> String {
    let text = source.split('\n').nth(line.saturating_sub(1)).unwrap_or_default().trim_end_matches('\r');
    let before = column.saturating_sub(1);
    let start = if before < WIDTH { 0 } else { before - WIDTH / 2 };
    let part = |from: usize, length: usize| text.chars().skip(from).take(length).collect::<String>();
    let (shown, before) = (part(start, WIDTH), part(start, before - start));
    // As wide as what stands above it: a tab stays one.
    let before = plain(&before);
    let indent: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
    format!("  {}\n  {indent}^", plain(&shown))
}

#[cfg(test)]
mod tests {
    use super::quote_line;

    #[test]
    fn the_caret_stands_below_the_column() {
        for (source, line, column, shown) in [
            ("a + b", 1, 5, "  a + b\n      ^"),
            ("a\r\n + é.c", 2, 6, "   + é.c\n       ^"),
            ("\ta", 1, 2, "  \ta\n  \t^"),
            ("\u{1b}a", 1, 2, "  \\u{1b}a\n        ^"),
            ("a", 1, 2, "  a\n   ^"),
            ("", 1, 1, "  \n  ^"),
            ("a", 7, 0, "  \n  ^"),
        ] {
            assert_eq!(quote_line(source, line, column), shown, "{source:?}");
        }
    }

    #[test]
    fn of_a_long_line_the_part_around_the_column_is_shown() {
        let source = format!("{}!{}", "x".repeat(4000), "y".repeat(4000));
        let shown = quote_line(&source, 1, 4001);
        let (text, caret) = shown.split_once('\n').unwrap();
        assert_eq!(text.find('!'), caret.find('^'));
        assert_eq!(text.len(), 102);
    }
}
