//! Regular expressions as Kubernetes reads them, written anew for the `regex` crate.
//!
//! The API server uses Go's `regexp/syntax`, a relative of RE2. Most patterns mean the same to the `regex` crate, but
//! not all: `\d`, `\s`, `\w` and `\b` are ASCII there, `[a&&b]` is a set of three characters, `{` may be itself,
//! `\Q…\E` quotes, and repetitions may neither be stacked nor go beyond 1,000. A pattern is gone through once, from
//! left to right, without recursion; what its sets and escapes stand for is written out.

use std::fmt::Write as _;
use std::str::Chars;

/// Most repetitions, also of nested ones together.
const MAX_REPEAT: u32 = 1000;

/// The pattern in the syntax of the `regex` crate, or why Go refuses it. What both refuse may come back as it was.
pub(crate) fn translate(pattern: &str) -> Result<String, String> {
    let written = String::with_capacity(pattern.len() * 2);
    let mut translation = Translation {
        rest: pattern.chars(),
        written,
        groups: Vec::new(),
        names: Vec::new(),
        held: String::new(),
        last: Last::default(),
        weight: 1,
    };
    translation.run()?;
    Ok(translation.written)
}

/// What a repetition would apply to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    /// Nothing: the start of a pattern, a group or an alternative.
    #[default]
    Nothing,
    /// An atom, whose own repetitions multiply to this.
    Atom(u32),
    /// A repetition, with what repetitions multiply to.
    Repeat(u32),
}

struct Translation<'p> {
    rest: Chars<'p>,
    written: String,
    /// For each open group, the most that repetitions before it multiply to.
    groups: Vec<u32>,
    names: Vec<String>,
    /// Flags that were read and not written yet: a repetition behind them is for what stands before them.
    held: String,
    last: Last,
    /// The most that repetitions of the present group multiply to.
    weight: u32,
}

impl<'p> Translation<'p> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(next) = self.rest.next() {
            if !matches!(next, '*' | '+' | '?' | '{' | '(') {
                self.flush();
            }
            match next {
                '\\' => self.escape()?,
                '[' => self.set()?,
                '(' => self.open()?,
                ')' => {
                    self.written.push(')');
                    let inner = std::mem::replace(&mut self.weight, self.groups.pop().unwrap_or(1));
                    self.atom(inner);
                }
                '|' => {
                    self.written.push('|');
                    self.last = Last::Nothing;
                }
                '*' | '+' | '?' => self.repeat(&next.to_string(), 1)?,
                '{' => {
                    if let Some((counts, after)) = counts(self.rest.as_str()) {
                        self.rest = after.chars();
                        self.repeat_counted(&counts)?;
                    } else {
                        self.flush();
                        self.literal('{');
                    }
                }
                '^' | '$' | '.' => {
                    self.written.push(next);
                    self.atom(1);
                }
                literal => self.literal(literal),
            }
        }
        self.flush();
        Ok(())
    }

    fn atom(&mut self, weight: u32) {
        self.last = Last::Atom(weight);
        self.weight = self.weight.max(weight);
    }

    fn literal(&mut self, literal: char) {
        push_escaped(&mut self.written, literal);
        self.atom(1);
    }

    fn repeat_counted(&mut self, counts: &Counts) -> Result<(), String> {
        let Counts { text, least, most } = counts;
        let within = |count: &Option<u32>| count.is_none_or(|count| count <= MAX_REPEAT);
        if !within(&Some(*least)) || !within(most) || most.is_some_and(|most| most < *least) {
            return Err(format!("invalid repeat count: `{text}`"));
        }
        let times = match most {
            // Nothing is left of what is inside.
            Some(0) => 0,
            Some(most) => *most,
            None => (*least).max(1),
        };
        self.repeat(text, times)
    }

    /// Writes a repetition, which multiplies those inside of its atom by `times`.
    fn repeat(&mut self, text: &str, times: u32) -> Result<(), String> {
        let weight = match self.last {
            Last::Nothing => return Err(format!("missing argument to repetition operator: `{text}`")),
            Last::Repeat(_) => return Err(format!("invalid nested repetition operator: `{text}`")),
            Last::Atom(weight) => weight.saturating_mul(times),
        };
        if weight > MAX_REPEAT {
            return Err(format!("invalid repeat count: `{text}`"));
        }
        let mut text = text.to_owned();
        if self.rest.as_str().starts_with('?') {
            self.rest.next();
            text.push('?');
        }
        self.written.push_str(&text);
        self.weight = self.weight.max(weight);
        self.last = Last::Repeat(weight);
        Ok(())
    }

    /// What stands behind an opening parenthesis.
    fn open(&mut self) -> Result<(), String> {
        let rest = self.rest.as_str();
        let Some(extension) = rest.strip_prefix('?') else {
            self.flush();
            self.written.push('(');
            self.enter();
            return Ok(());
        };
        self.rest = extension.chars();
        match extension.strip_prefix("P<").or_else(|| extension.strip_prefix('<')) {
            Some(named) => self.named_group(named),
            None => self.flags(extension),
        }
    }

    /// A group with a name, of which `named` is the beginning. The crate wants names that start with a letter;
    /// nothing refers to them.
    fn named_group(&mut self, named: &'p str) -> Result<(), String> {
        let (name, after) =
            named.split_once('>').ok_or_else(|| format!("invalid named capture: `(?P<{named}`"))?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("invalid named capture: `(?P<{name}>`"));
        }
        if self.names.iter().any(|earlier| earlier == name) {
            return Err(format!("duplicate capture group name: `{name}`"));
        }
        self.names.push(name.to_owned());
        self.rest = after.chars();
        self.flush();
        self.written.push('(');
        self.enter();
        Ok(())
    }

    /// Flags, for a group or for what follows.
    fn flags(&mut self, extension: &'p str) -> Result<(), String> {
        let end = extension.find([':', ')']).ok_or_else(|| "missing closing )".to_owned())?;
        let (flags, rest) = extension.split_at(end);
        let (set, cleared) = flags.split_once('-').unwrap_or((flags, ""));
        let known = |flags: &str| flags.chars().all(|flag| matches!(flag, 'i' | 'm' | 's' | 'U'));
        if !known(set) || !known(cleared) || flags.ends_with('-') {
            return Err(format!("invalid or unsupported Perl syntax: `(?{flags}`"));
        }
        self.rest = rest.chars();
        if self.rest.next() == Some(':') {
            self.flush();
            self.written.push_str("(?");
            self.written.push_str(&ordered(set, cleared));
            self.written.push(':');
            self.enter();
            return Ok(());
        }
        // Flags are no atom: what stands before them is still what may be repeated.
        if let Last::Repeat(weight) = self.last {
            self.last = Last::Atom(weight);
        }
        if !flags.is_empty() {
            self.held.push_str("(?");
            self.held.push_str(&ordered(set, cleared));
            self.held.push(')');
        }
        Ok(())
    }

    /// Writes the flags that were held back.
    fn flush(&mut self) {
        self.written.push_str(&self.held);
        self.held.clear();
    }

    fn enter(&mut self) {
        self.groups.push(std::mem::replace(&mut self.weight, 1));
        self.last = Last::Nothing;
    }

    /// What stands behind a backslash that is in no set.
    fn escape(&mut self) -> Result<(), String> {
        match self.rest.clone().next() {
            Some('Q') => {
                self.rest.next();
                let rest = self.rest.as_str();
                let (quoted, after) = rest.split_once("\\E").unwrap_or((rest, ""));
                quoted.chars().for_each(|literal| self.literal(literal));
                self.rest = after.chars();
                return Ok(());
            }
            Some(place @ ('A' | 'z')) => {
                self.rest.next();
                self.written.push('\\');
                self.written.push(place);
            }
            Some(boundary @ ('b' | 'B')) => {
                self.rest.next();
                self.written.push_str(if boundary == 'b' { "(?-u:\\b)" } else { "(?-u:\\B)" });
            }
            _ => {
                if !self.class()? {
                    let literal = self.character()?;
                    push_escaped(&mut self.written, literal);
                }
            }
        }
        self.atom(1);
        Ok(())
    }

    /// Writes the class that a backslash starts, in a set or not. Whether it is one.
    fn class(&mut self) -> Result<bool, String> {
        let Some(letter) = self.rest.clone().next() else {
            return Err("trailing backslash at end of expression".to_owned());
        };
        let ascii = match letter {
            'd' => "[0-9]",
            'D' => "[^0-9]",
            's' => "[\\t\\n\\f\\r ]",
            'S' => "[^\\t\\n\\f\\r ]",
            'w' => "[0-9A-Za-z_]",
            'W' => "[^0-9A-Za-z_]",
            'p' | 'P' => {
                self.rest.next();
                self.unicode(letter == 'P')?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.rest.next();
        self.written.push_str(ascii);
        Ok(true)
    }

    /// `\pL`, `\p{Greek}` and `\p{^Greek}`.
    fn unicode(&mut self, negated: bool) -> Result<(), String> {
        let rest = self.rest.as_str();
        let (name, after) = match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or("invalid character class range")?,
            None => rest.split_at(rest.chars().next().map_or(0, char::len_utf8)),
        };
        let (name, negated) = match name.strip_prefix('^') {
            Some(name) => (name, !negated),
            None => (name, negated),
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("invalid character class range: `\\p{{{name}}}`"));
        }
        let _ = write!(self.written, "\\{}{{{name}}}", if negated { 'P' } else { 'p' });
        self.rest = after.chars();
        Ok(())
    }

    /// The character that an escape stands for, the backslash being taken.
    fn character(&mut self) -> Result<char, String> {
        let Some(letter) = self.rest.next() else {
            return Err("trailing backslash at end of expression".to_owned());
        };
        let refused = || format!("invalid escape sequence: `\\{letter}`");
        let code = match letter {
            '0'..='7' => {
                let octal = |c: &char| matches!(c, '0'..='7');
                if letter != '0' && !self.rest.clone().next().is_some_and(|c| octal(&c)) {
                    // A reference to a group.
                    return Err(refused());
                }
                let mut code = letter.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.clone().next().and_then(|c| c.to_digit(8)) else { break };
                    self.rest.next();
                    code = code * 8 + digit;
                }
                code
            }
            'x' => {
                let rest = self.rest.as_str();
                let (digits, after) = match rest.strip_prefix('{') {
                    Some(braced) => braced.split_once('}').ok_or_else(refused)?,
                    None => rest.split_at_checked(2).ok_or_else(refused)?,
                };
                if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
                    return Err(refused());
                }
                self.rest = after.chars();
                u32::from_str_radix(digits, 16).map_err(|_| refused())?
            }
            'a' => 0x07,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'v' => 0x0b,
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => u32::from(other),
            _ => return Err(refused()),
        };
        char::from_u32(code).ok_or_else(refused)
    }

    /// A set, the opening bracket being taken.
    fn set(&mut self) -> Result<(), String> {
        const OPEN: &str = "missing closing ]";
        self.written.push('[');
        if self.rest.as_str().starts_with('^') {
            self.rest.next();
            self.written.push('^');
        }
        let mut first = true;
        loop {
            let rest = self.rest.as_str();
            if rest.starts_with(']') && !first {
                self.rest.next();
                break;
            }
            first = false;
            if let Some((name, after)) = rest.strip_prefix("[:").and_then(|rest| rest.split_once(":]")) {
                if !is_posix(name.strip_prefix('^').unwrap_or(name)) {
                    return Err(format!("invalid character class range: `[:{name}:]`"));
                }
                let _ = write!(self.written, "[:{name}:]");
                self.rest = after.chars();
                continue;
            }
            if rest.starts_with('\\') {
                self.rest.next();
                if self.class()? {
                    continue;
                }
            }
            let low =
                if rest.starts_with('\\') { self.character()? } else { self.rest.next().ok_or(OPEN)? };
            push_code(&mut self.written, low);
            let rest = self.rest.as_str();
            // [a-] is a set of two.
            if rest.len() >= 2 && rest.starts_with('-') && !rest.starts_with("-]") {
                self.rest.next();
                let high = match self.rest.next().ok_or(OPEN)? {
                    '\\' => self.character()?,
                    other => other,
                };
                if high < low {
                    return Err(format!("invalid character class range: `{low}-{high}`"));
                }
                self.written.push('-');
                push_code(&mut self.written, high);
            }
        }
        self.written.push(']');
        self.atom(1);
        Ok(())
    }
}

/// Flags, each once: the crate refuses a flag that is repeated. One that is set and cleared is cleared.
fn ordered(set: &str, cleared: &str) -> String {
    let all = ['i', 'm', 's', 'U'];
    let mut flags: String =
        all.into_iter().filter(|flag| set.contains(*flag) && !cleared.contains(*flag)).collect();
    if !cleared.is_empty() {
        flags.push('-');
        flags.extend(all.into_iter().filter(|flag| cleared.contains(*flag)));
    }
    flags
}

/// `{n}`, `{n,}` or `{n,m}`.
struct Counts {
    text: String,
    least: u32,
    most: Option<u32>,
}

/// The counts behind an opening brace, and what stands behind them. A brace before anything else is itself.
fn counts(rest: &str) -> Option<(Counts, &str)> {
    let (inner, after) = rest.split_once('}')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        // What is too large for a number is refused with those beyond the limit.
        is_number.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (least, most) = match inner.split_once(',') {
        None => (number(inner)?, Some(number(inner)?)),
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((Counts { text: format!("{{{inner}}}"), least, most }, after))
}

fn is_posix(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
        "upper", "word", "xdigit",
    ];
    NAMES.contains(&name)
}

/// A character outside of sets, which stands for itself.
fn push_escaped(written: &mut String, literal: char) {
    if literal.is_ascii_alphanumeric() || !literal.is_ascii() || literal == '_' {
        written.push(literal);
    } else {
        push_code(written, literal);
    }
}

fn push_code(written: &mut String, literal: char) {
    if literal.is_ascii_alphanumeric() {
        written.push(literal);
    } else {
        let _ = write!(written, "\\x{{{:x}}}", u32::from(literal));
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::translate;

    fn compiled(pattern: &str) -> Result<Regex, String> {
        Regex::new(&translate(pattern)?).map_err(|error| error.to_string())
    }

    /// Each answer is that of Go 1.26's regexp.
    #[test]
    fn patterns_match_what_they_match_in_go() {
        let rows = [
            (r"^\d+$", "42", true),
            (r"^\d+$", "\u{0664}\u{0662}", false),
            (r"^\D$", "\u{0664}", true),
            (r"^\s$", "\u{a0}", false),
            (r"^\s$", "\u{b}", false),
            (r"^\S$", "\u{b}", true),
            (r"^\w+$", "a_9", true),
            (r"^\w+$", "\u{e9}", false),
            (r"^\W$", "\u{e9}", true),
            (r"\bé", "é", false),
            (r"a\b", "aé", true),
            (r"\Bé", "é", true),
            (r"^[\w-]+$", "a-b", true),
            (r"^[^\s]$", "\u{a0}", true),
            (r"^[\D]$", "é", true),
            (r"^[a&&b]$", "&", true),
            (r"^[a&&b]$", "b", true),
            (r"^[a-c--b]$", "b", true),
            (r"^[a~~b]$", "~", true),
            (r"^[[a]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[^]a]$", "b", true),
            (r"^[a-]$", "-", true),
            (r"^[\d-z]$", "-", true),
            (r"^[[:alpha:]_]$", "_", true),
            (r"^[[:^digit:]]$", "1", false),
            (r"^[[:word]+$", "[:word", true),
            (r"^[\x41-\x{43}]$", "B", true),
            (r"^[\.\]]$", "]", true),
            (r"a{,2}", "a{,2}", true),
            (r"a{,2}", "aa", false),
            (r"^a{2}$", "aa", true),
            (r"^a{02}$", "a{02}", true),
            (r"{", "{", true),
            (r"^\Qa.b\E+$", "a.bb", true),
            (r"\Qa.b", "axb", false),
            (r"^\101\x41\a$", "AA\u{7}", true),
            (r"^\_\-\ \/$", "_- /", true),
            (r"^(?i)straSSe$", "STRASSE", true),
            (r"^(?i:K)$", "\u{212a}", true),
            (r"(?s)^.$", "\n", true),
            (r"^.$", "\n", false),
            (r"^[^a]$", "\n", true),
            (r"a$", "a\n", false),
            (r"(?m)a$", "a\n", true),
            (r"\Aa\z", "a", true),
            (r"^(?P<1x>a)(?<y>b)$", "ab", true),
            (r"^(?)(?:a|)(?i-s:b)$", "aB", true),
            (r"^(?:a(?i)(?s)+(?-s)?b)+$", "aaB", true),
            (r"^\pL\p{Greek}\P{Lu}$", "éλa", true),
            (r"^[\p{^Greek}]$", "a", true),
            (r"^(|a)+$", "aa", true),
            (r"# not a comment", "# not a comment", true),
            (r"^(?:(?:a{10}){10}){10}$", "a", false),
        ];
        for (pattern, text, matches) in rows {
            let regex = compiled(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(regex.is_match(text), matches, "{pattern} on {text:?}, as {}", regex.as_str());
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        let rows = [
            "(",
            ")",
            "[",
            "[a",
            "a**",
            "a+*",
            "a{2}{3}",
            "*a",
            "|*",
            "(*)",
            "a{1001}",
            "a{2,1}",
            "a{1,1001}",
            "(a{100}){11}",
            "(?:(?:a{10}){10}){11}",
            "a{99999999999}",
            r"\1",
            r"\8",
            r"\C",
            r"\Z",
            r"\G",
            r"\h",
            r"\é",
            r"\x{110000}",
            r"\x4",
            r"\x{}",
            r"\pX",
            r"\p{}",
            r"\p{Nothing}",
            r"\",
            r"[b-a]",
            r"[a-\d]",
            r"[[:nothing:]]",
            r"[\",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            "(?x)a",
            "(?u)a",
            "(?R)a",
            "(?i-)a",
            "(?P<>a)",
            "(?P<a",
            "(?P<a>x)(?P<a>y)",
            "(?P=a)",
            "(?'a'x)",
            "(?#c)",
            "(?>a)",
            "a++",
            r"\<",
            r"\u0041",
        ];
        // Go takes these as punctuation.
        let taken = [r"\<"];
        for pattern in rows {
            assert_eq!(compiled(pattern).is_ok(), taken.contains(&pattern), "{pattern}");
        }
    }

    /// Any text ends in a pattern or in an error, in time linear in its length.
    #[test]
    fn no_pattern_does_harm() {
        let parts = [
            "(", ")", "[", "]", "{", "}", "\\", "a", "é", "-", "^", "*", "?", ":", "P", "<", ">", "1", ",",
            "Q",
        ];
        let mut state = 1_u64;
        for length in 0..4_000 {
            let mut pattern = String::new();
            for _ in 0..length % 40 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let part = usize::try_from(state >> 33).unwrap() % parts.len();
                pattern.push_str(parts[part]);
            }
            let _ = compiled(&pattern);
        }
        for deep in ["(".repeat(4_000), "(?i:".repeat(1_000), "[".repeat(4_000), "a{9}".repeat(1_000)] {
            let _ = compiled(&deep);
        }
    }
}
