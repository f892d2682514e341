//! How two strings differ, line by line.

use std::io::{self, Write};
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use super::terminal::{BAD, GOOD, PLACE, plain};

/// Lines around a change.
const CONTEXT: usize = 3;
/// After this a difference need not be the shortest any more.
const DIFF_TIME: Duration = Duration::from_secs(2);

/// Writes the lines in which two texts differ, each after `indent`.
pub(crate) fn write_difference(
    output: &mut impl Write,
    indent: &str,
    [old, new]: [&str; 2],
    before: &str,
    after: &str,
) -> io::Result<()> {
    let (before, after) = (plain(before), plain(after));
    let difference = TextDiff::configure().timeout(DIFF_TIME).diff_lines(before.as_ref(), after.as_ref());
    writeln!(output, "{indent}{BAD}--- {old}{BAD:#}\n{indent}{GOOD}+++ {new}{GOOD:#}")?;
    for hunk in difference.unified_diff().context_radius(CONTEXT).iter_hunks() {
        writeln!(output, "{indent}{PLACE}{}{PLACE:#}", hunk.header().to_string().trim_end())?;
        for change in hunk.iter_changes() {
            let line = change.value().trim_end_matches('\n');
            match change.tag() {
                ChangeTag::Equal => writeln!(output, "{indent} {line}")?,
                ChangeTag::Delete => writeln!(output, "{indent}{BAD}-{line}{BAD:#}")?,
                ChangeTag::Insert => writeln!(output, "{indent}{GOOD}+{line}{GOOD:#}")?,
            }
        }
    }
    Ok(())
}
