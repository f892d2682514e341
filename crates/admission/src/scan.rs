//! Taking valid JSON apart where a patch leads, in one pass.
//!
//! Whatever no path leads into is stepped over: only quotes, backslashes and brackets are looked at. That the text
//! is JSON has been seen when it was received; of a text that is not, anything may be made, but nothing breaks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::node::{Node, index};

/// Which containers are to be taken apart, by the ways that lead to them from here.
#[derive(Debug, Default)]
pub(crate) struct Ways<'p> {
    below: BTreeMap<&'p str, Ways<'p>>,
}

impl<'p> Ways<'p> {
    /// Adds a way of keys and indexes.
    pub(crate) fn add(&mut self, way: &'p [Cow<'_, str>]) {
        if let Some((first, rest)) = way.split_first() {
            self.below.entry(first).or_default().add(rest);
        }
    }

    fn by_index(&self) -> BTreeMap<usize, &Self> {
        self.below.iter().filter_map(|(token, ways)| Some((index(token)?, ways))).collect()
    }
}

/// Takes the container that a text is apart, and those in it to which the ways lead; `None` for what is none.
pub(crate) fn container<'t>(text: &'t str, ways: &Ways<'_>) -> Option<Node<'t>> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.blank();
    scanner.container(ways)
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over a byte, and the blanks around it, if it is there.
    fn takes(&mut self, wanted: u8) -> bool {
        self.blank();
        let found = self.byte() == Some(wanted);
        if found {
            self.at += 1;
            self.blank();
        }
        found
    }

    fn since(&self, start: usize) -> Option<&'t str> {
        self.text.get(start..self.at)
    }

    /// Recursion is bounded by the depth of the ways.
    fn container(&mut self, ways: &Ways<'_>) -> Option<Node<'t>> {
        if self.takes(b'{') {
            let mut members = BTreeMap::new();
            if self.takes(b'}') {
                return Some(Node::Object(members));
            }
            loop {
                let key = self.key()?;
                if !self.takes(b':') {
                    return None;
                }
                let value = self.value(ways.below.get(&*key))?;
                members.insert(key, value);
                if !self.takes(b',') {
                    return self.takes(b'}').then_some(Node::Object(members));
                }
            }
        }
        if self.takes(b'[') {
            let mut items = Vec::new();
            if self.takes(b']') {
                return Some(Node::Array(items));
            }
            let ways = ways.by_index();
            loop {
                let way = ways.get(&items.len()).copied();
                items.push(self.value(way)?);
                if !self.takes(b',') {
                    return self.takes(b']').then_some(Node::Array(items));
                }
            }
        }
        None
    }

    fn value(&mut self, ways: Option<&Ways<'_>>) -> Option<Node<'t>> {
        let start = self.at;
        if let (Some(ways), Some(b'{' | b'[')) = (ways, self.byte()) {
            if let Some(container) = self.container(ways) {
                return Some(container);
            }
            // A key in it is no text. Perhaps nobody looks.
            self.at = start;
        }
        self.step_over()?;
        Some(Node::Raw(self.since(start)?.trim_end()))
    }

    fn key(&mut self) -> Option<Cow<'t, str>> {
        let start = self.at;
        if self.byte()? != b'"' {
            return None;
        }
        self.string();
        let quoted = self.since(start)?;
        if quoted.contains('\\') {
            return serde_json::from_str::<String>(quoted).ok().map(Cow::Owned);
        }
        Some(Cow::Borrowed(quoted.strip_prefix('"')?.strip_suffix('"')?))
    }

    /// Steps over a value.
    fn step_over(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.byte()? {
                b'"' => self.string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                _ => self.plain(),
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Steps over what stands between strings and brackets; at least one byte.
    fn plain(&mut self) {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let more = rest.iter().skip(1);
        self.at +=
            1 + more.take_while(|byte| !matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b',')).count();
    }

    /// Steps over a string, from one quote to the other.
    fn string(&mut self) {
        self.at += 1;
        let bytes = self.text.as_bytes();
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((word, _)) = rest.split_first_chunk::<8>() else {
                let Some(found) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
                    self.at = bytes.len();
                    return;
                };
                self.at += found;
                if self.ends_string() {
                    return;
                }
                continue;
            };
            let word = u64::from_le_bytes(*word);
            let found = has(word, b'"') | has(word, b'\\');
            // Bytes after the first that is found may be taken for one, those before it never.
            self.at += (found.trailing_zeros() / 8) as usize;
            if found != 0 && self.ends_string() {
                return;
            }
        }
    }

    /// At a quote or a backslash: steps over it, and over what is escaped. Whether it was the quote.
    fn ends_string(&mut self) -> bool {
        let ends = self.byte() == Some(b'"');
        self.at += if ends { 1 } else { 2 };
        ends
    }
}

/// The high bits of the bytes of a word that equal `byte`; bits beyond the first may be wrong.
fn has(word: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let difference = word ^ (LOW * u64::from(byte));
    difference.wrapping_sub(LOW) & !difference & (LOW << 7)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use sallyport_testkit::Random;
    use serde_json::{Value, json};

    use super::{Ways, container};
    use crate::node::Node;

    const PIECES: [&str; 12] =
        ["a", "\"", "\\", "{", "]", "é", "日本", "long enough for a word", "\n", ",", "0", ":"];

    fn value(random: &mut Random) -> Value {
        let leaf = |random: &mut Random| match random.below(4) {
            0 => random.choice(&[json!(null), json!(true), json!(false)]),
            1 => json!(random.below(1000)),
            2 => json!(-1.5e300),
            _ => json!(random.string(&PIECES)),
        };
        random.json(5, &|random| random.string(&PIECES), &leaf)
    }

    /// Some way into a value, or beside it.
    fn way(random: &mut Random, value: &Value) -> Vec<Cow<'static, str>> {
        let (token, next) = match value {
            Value::Object(members) if !members.is_empty() => {
                let (key, value) = members.iter().nth(random.below(members.len())).unwrap();
                (key.clone(), value)
            }
            Value::Array(items) if !items.is_empty() => {
                let at = random.below(items.len());
                (at.to_string(), &items[at])
            }
            _ => return vec![Cow::Borrowed("-")],
        };
        let mut tokens = vec![Cow::Owned(token)];
        if random.below(4) > 0 {
            tokens.extend(way(random, next));
        }
        tokens
    }

    /// Whether the containers along a way are taken apart.
    fn is_open(node: &Node<'_>, way: &[Cow<'_, str>]) -> bool {
        let below = match (node, way.first()) {
            (Node::Raw(text), _) => return !text.starts_with(['{', '[']),
            (Node::Object(members), Some(token)) => members.get(token),
            (Node::Array(items), Some(token)) => token.parse().ok().and_then(|at: usize| items.get(at)),
            (_, None) => return true,
        };
        below.is_none_or(|below| is_open(below, &way[1..]))
    }

    #[test]
    fn what_is_taken_apart_is_what_was_there() {
        let mut random = Random::seeded(3);
        let mut opened = 0;
        for _ in 0..20_000 {
            let value = value(&mut random);
            let compact = value.to_string();
            let pretty = format!(" {}\n", serde_json::to_string_pretty(&value).unwrap());
            let routes = [way(&mut random, &value), way(&mut random, &value)];
            let mut ways = Ways::default();
            for way in &routes {
                ways.add(way);
            }
            for text in [compact, pretty] {
                let node = container(&text, &ways);
                assert_eq!(node.is_some(), value.is_object() || value.is_array(), "{text}");
                let Some(node) = node else { continue };
                assert_eq!(node.value().unwrap(), value, "{text}");
                assert!(routes.iter().all(|way| is_open(&node, way)), "{text} {routes:?}");
                opened += 1;
                // Broken texts give anything, and end.
                let cut: String = text.chars().take(random.below(text.chars().count() + 1)).collect();
                let _ = container(&cut, &ways);
                let _ = container(&text[1..], &ways);
            }
        }
        assert!(opened > 10_000);
    }

    #[test]
    fn keys_are_read_as_json_has_them() {
        let text = r#"{"\u0061": 1, "b\"": {"x" : []}, "a": 2}"#;
        let Some(Node::Object(members)) = container(text, &Ways::default()) else { panic!() };
        assert_eq!(members.keys().collect::<Vec<_>>(), ["a", "b\""]);
        assert!(matches!(members["a"], Node::Raw("2")), "the last counts");
        assert!(matches!(members["b\""], Node::Raw(r#"{"x" : []}"#)));
        assert!(container(r#"{"\ud800": 1}"#, &Ways::default()).is_none(), "half a character");
    }
}
