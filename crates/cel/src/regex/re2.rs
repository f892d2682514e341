//! Regular expressions as Kubernetes reads them, written anew for the `regex` crate.
//!
//! The API server uses Go's `regexp/syntax`, a relative of RE2. Most patterns mean the same to the `regex` crate, but
//! not all: `\d`, `\s`, `\w` and `\b` are ASCII there, `[a&&b]` is a set of three characters, `{` may be itself,
//! `\Q…\E` quotes, and repetitions may neither be stacked nor go beyond 1,000. A pattern is gone through once, from
//! left to right, without recursion; what its sets and escapes stand for is written out.

use std::fmt::Write as _;
use std::str::Chars;

use crate::regex::breadth::{Places, Taken};

/// Most repetitions, also of nested ones together.
const MAX_REPEAT: u32 = 1000;

/// Most characters of sets that are gone through, one by one, for those that differ from them in case only. All that
/// there are take some milliseconds.
const MAX_FOLDED: u64 = 1 << 23;
/// All characters, and those of a large class.
const ALL: u64 = 0x11_0000;
const CLASS: u64 = 1 << 18;

/// A pattern in the syntax of the `regex` crate.
#[derive(Debug)]
pub(crate) struct Translated {
    pub(crate) pattern: String,
    /// Characters that compiling goes through one by one.
    pub(crate) folded: u64,
    /// The most places of the pattern that may be under way at once.
    pub(crate) breadth: u64,
    /// The most characters that a search looks at beyond the match it finds; `None` when that may be all of them.
    pub(crate) reach: Option<u64>,
}

/// The pattern in the syntax of the `regex` crate, or why Go refuses it. What both refuse may come back as it was.
pub(crate) fn translate(pattern: &str) -> Result<Translated, String> {
    let written = String::with_capacity(pattern.len() * 2);
    let mut translation = Translation {
        rest: pattern.chars(),
        written,
        groups: Vec::new(),
        names: Vec::new(),
        held: String::new(),
        last: Last::default(),
        weight: 1,
        folds: false,
        folded: 0,
        places: Places::default(),
        atom: Atom::default(),
        loops: Loops::default(),
        runs_on: false,
    };
    translation.run()?;
    let Translation { written, folded, places, runs_on, .. } = translation;
    let reach = (!runs_on).then(|| places.count());
    Ok(Translated { pattern: written, folded, breadth: places.breadth(), reach })
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

/// What stands in a group, or in the whole pattern.
#[derive(Clone, Copy, Debug, Default)]
struct Loops {
    /// A repetition without end.
    looped: bool,
    /// Alternatives.
    branched: bool,
}

/// What a repetition would repeat.
#[derive(Clone, Copy, Debug, Default)]
struct Atom {
    /// The first of its places.
    from: usize,
    /// It is a group, or was repeated before.
    group: bool,
    looped: bool,
}

/// What a group interrupts.
struct Outer {
    /// The most that repetitions before it multiply to.
    weight: u32,
    /// Its first place.
    from: usize,
    loops: Loops,
}

struct Translation<'p> {
    rest: Chars<'p>,
    written: String,
    /// For each open group.
    groups: Vec<Outer>,
    names: Vec<String>,
    /// Flags that were read and not written yet: a repetition behind them is for what stands before them.
    held: String,
    last: Last,
    /// The most that repetitions of the present group multiply to.
    weight: u32,
    /// Whether upper and lower case were made the same, here or before.
    folds: bool,
    folded: u64,
    places: Places,
    /// What `last` is, when it is an atom or a repetition.
    atom: Atom,
    /// Of the present group.
    loops: Loops,
    /// A search may go on long after it has found a match: it is in a loop that may lead to a longer one, and does
    /// not. Where all loops are of single characters and nothing but a sequence is around them, what is behind
    /// the loop is found by the next match only if this one would have ended there too.
    runs_on: bool,
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
                    self.close();
                }
                '|' => {
                    self.written.push('|');
                    self.last = Last::Nothing;
                    self.loops.branched = true;
                }
                '*' | '+' | '?' => self.repeat(&next.to_string(), 1, next != '?')?,
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
                    self.place(if next == '.' { Taken::ANY } else { Taken::NONE });
                }
                literal => self.literal(literal),
            }
        }
        self.flush();
        self.runs_on |= self.loops.looped && self.loops.branched;
        Ok(())
    }

    fn atom(&mut self, weight: u32) {
        self.last = Last::Atom(weight);
        self.weight = self.weight.max(weight);
    }

    /// An atom that takes one of these characters, or none.
    fn place(&mut self, taken: Taken) {
        self.atom = Atom { from: self.places.len(), ..Atom::default() };
        self.places.add(if self.folds { taken.folded() } else { taken });
        self.atom(1);
    }

    fn literal(&mut self, literal: char) {
        push_escaped(&mut self.written, literal);
        self.place(Taken::range(literal, literal));
    }

    /// Counts characters that compiling goes through.
    fn fold(&mut self, characters: u64) -> Result<(), String> {
        if self.folds {
            self.folded = self.folded.saturating_add(characters);
        }
        if self.folded > MAX_FOLDED { Err("expression too large".to_owned()) } else { Ok(()) }
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
        self.repeat(text, times, most.is_none())
    }

    /// Writes a repetition, which multiplies those inside of its atom by `times`.
    fn repeat(&mut self, text: &str, times: u32, endless: bool) -> Result<(), String> {
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
        self.places.repeat(self.atom.from, times);
        self.runs_on |= self.atom.looped || (self.atom.group && endless);
        self.loops.looped |= endless;
        self.atom = Atom { group: true, looped: self.atom.looped || endless, ..self.atom };
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
            self.folds |= set.contains('i');
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
        self.folds |= set.contains('i');
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
        self.groups.push(Outer {
            weight: std::mem::replace(&mut self.weight, 1),
            from: self.places.len(),
            loops: std::mem::take(&mut self.loops),
        });
        self.last = Last::Nothing;
    }

    /// Ends a group; what ends none the crate refuses.
    fn close(&mut self) {
        let Loops { looped, branched } = self.loops;
        let outer = self.groups.pop().unwrap_or(Outer { weight: 1, from: 0, loops: Loops::default() });
        let inner = std::mem::replace(&mut self.weight, outer.weight);
        self.loops = Loops { looped: outer.loops.looped || looped, ..outer.loops };
        self.runs_on |= looped && branched;
        self.atom = Atom { from: outer.from, group: true, looped };
        self.atom(inner);
    }

    /// What stands behind a backslash that is in no set.
    fn escape(&mut self) -> Result<(), String> {
        let mut taken = Taken::NONE;
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
                if let Some(class) = self.class()? {
                    taken = class.taken;
                    self.fold(class.folded)?;
                } else {
                    let literal = self.character()?;
                    push_escaped(&mut self.written, literal);
                    taken = Taken::range(literal, literal);
                }
            }
        }
        self.place(taken);
        Ok(())
    }

    /// Writes the class that a backslash starts, in a set or not, if it is one.
    fn class(&mut self) -> Result<Option<Class>, String> {
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
                let negated = self.unicode(letter == 'P')?;
                let span = if negated { ALL } else { CLASS };
                return Ok(Some(Class { taken: Taken::ANY, folded: CLASS, span }));
            }
            _ => return Ok(None),
        };
        self.rest.next();
        self.written.push_str(ascii);
        let taken = match letter.to_ascii_lowercase() {
            'd' => Taken::range('0', '9'),
            's' => Taken::range('\t', '\n').and(Taken::range('\u{c}', '\r')).and(Taken::range(' ', ' ')),
            _ => {
                let letters = Taken::range('A', 'Z').and(Taken::range('a', 'z'));
                letters.and(Taken::range('0', '9')).and(Taken::range('_', '_'))
            }
        };
        Ok(Some(if letter.is_ascii_uppercase() {
            Class { taken: taken.negated(), folded: 0, span: ALL }
        } else {
            Class { taken, folded: 0, span: 0 }
        }))
    }

    /// `\pL`, `\p{Greek}` and `\p{^Greek}`. Whether all others are meant.
    fn unicode(&mut self, negated: bool) -> Result<bool, String> {
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
        Ok(negated)
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
        let negated = self.rest.as_str().starts_with('^');
        if negated {
            self.rest.next();
            self.written.push('^');
        }
        let (mut taken, mut span) = (Taken::NONE, 0_u64);
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
                taken = Taken::ANY;
                span += if name.starts_with('^') { ALL } else { 0 };
                continue;
            }
            if rest.starts_with('\\') {
                self.rest.next();
                if let Some(class) = self.class()? {
                    taken = taken.and(class.taken);
                    span += class.span;
                    self.fold(class.folded)?;
                    continue;
                }
            }
            let low =
                if rest.starts_with('\\') { self.character()? } else { self.rest.next().ok_or(OPEN)? };
            push_code(&mut self.written, low);
            let mut highest = low;
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
                highest = high;
            }
            taken = taken.and(Taken::range(low, highest));
            span += u64::from(u32::from(highest) - u32::from(low));
        }
        self.written.push(']');
        // What is there twice is gone through once.
        self.fold(span.min(ALL))?;
        // Of some classes it is not known which characters they hold.
        self.place(if negated && taken != Taken::ANY { taken.negated() } else { taken });
        Ok(())
    }
}

/// A class that an escape stands for.
struct Class {
    taken: Taken,
    /// Characters gone through for its own sake, and those of a set that it stands in.
    folded: u64,
    span: u64,
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
mod tests;
