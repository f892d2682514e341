//! Random expressions, typed so that most compile, and random objects for them to look at.
//!
//! A type is a word: `int`, or with what it holds `list:int`, `map:str` (keys are strings), `opt:int`. A template
//! is text with holes: `@int` is filled with an expression of that type, `#int` declares a variable of that type
//! for the holes after it, and `$` is the last one declared. The letters A and B stand for any type, C for one whose values have an order, T for
//! the type that is made.

use fastrand::Rng;
use serde_json::{Map, Value as Json, json};

use crate::cases::{GENERIC, LEAVES, TEMPLATES, WORDS};

/// An expression in pieces, so that a failing one can be made smaller.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) kind: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Child(Tree),
}

impl Tree {
    pub(crate) fn text(&self) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Child(tree) => tree.text(),
            })
            .collect()
    }

    fn leaf(kind: &str, text: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), pieces: vec![Piece::Text(text.into())] }
    }

    /// Trees a step smaller: a part in place of the whole, or a part replaced by a leaf or one of its own parts.
    pub(crate) fn smaller(&self) -> Vec<Tree> {
        let mut found = Vec::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            let Piece::Child(child) = piece else { continue };
            found.push(child.clone());
            let mut replacements: Vec<Tree> = child.smaller();
            if child.pieces.len() > 1 {
                replacements
                    .extend(leaves(&child.kind).iter().take(3).map(|text| Self::leaf(&child.kind, *text)));
            }
            for replacement in replacements {
                let mut smaller = self.clone();
                smaller.pieces[index] = Piece::Child(replacement);
                found.push(smaller);
            }
        }
        found
    }
}

fn leaves(kind: &str) -> &'static [&'static str] {
    LEAVES.iter().find(|(named, _)| *named == kind).map_or(&[], |(_, leaves)| *leaves)
}

/// Types that A and B stand for.
const ANY: &[&str] =
    &["int", "uint", "double", "str", "bool", "bytes", "dur", "ts", "dyn", "int", "str", "str"];
/// Those that C stands for.
const ORDERED: &[&str] = &["int", "uint", "double", "str", "bool", "bytes", "dur", "ts"];
/// Types that are asked for at the top.
const ROOTS: &[&str] = &[
    "bool",
    "bool",
    "int",
    "uint",
    "double",
    "str",
    "str",
    "bytes",
    "dur",
    "ts",
    "list:A",
    "list:A",
    "map:A",
    "opt:A",
    "dyn",
    "quantity",
    "ip",
    "cidr",
    "url",
    "semver",
    "list:list:A",
    "type",
];

pub(crate) struct Generator<'r> {
    rng: &'r mut Rng,
    locals: Vec<(String, String)>,
    /// Names and types of the policy's variables.
    variables: Vec<(String, String)>,
    next: usize,
}

impl<'r> Generator<'r> {
    pub(crate) fn new(rng: &'r mut Rng) -> Self {
        Self { rng, locals: Vec::new(), variables: Vec::new(), next: 0 }
    }

    /// An expression, of the type that it says.
    pub(crate) fn expression(&mut self, variables: &[(String, String)]) -> Tree {
        self.locals.clear();
        self.variables = variables.to_vec();
        self.next = 0;
        let root = self.pick(ROOTS);
        let kind = self.fixed(root, "int", &mut [None, None, None]);
        let depth = self.rng.usize(1..=4);
        self.tree(&kind, depth)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    /// A type with its letters replaced, the same by the same.
    fn fixed(&mut self, kind: &str, made: &str, letters: &mut [Option<String>; 3]) -> String {
        kind.split(':')
            .map(|part| {
                let (index, from) = match part {
                    "A" => (0, ANY),
                    "B" => (1, ANY),
                    "C" => (2, ORDERED),
                    "T" => return made.to_owned(),
                    other => return other.to_owned(),
                };
                if letters[index].is_none() {
                    letters[index] = Some(self.pick(from).to_owned());
                }
                letters[index].clone().unwrap()
            })
            .collect::<Vec<_>>()
            .join(":")
    }

    fn tree(&mut self, kind: &str, depth: usize) -> Tree {
        // Some are wrong on purpose, and some known only when they are run.
        let wanted = match self.rng.usize(..400) {
            0..=1 => self.pick(ANY).to_owned(),
            2..=12 => "dyn".to_owned(),
            _ => kind.to_owned(),
        };
        let kind = wanted.as_str();
        let known: Vec<String> = self
            .locals
            .iter()
            .chain(&self.variables)
            .filter(|(_, held)| held == kind)
            .map(|(name, _)| name.clone())
            .collect();
        if !known.is_empty() && self.rng.usize(..10) < 4 {
            let index = self.rng.usize(..known.len());
            return Tree::leaf(kind, known[index].as_str());
        }
        if depth == 0 || self.rng.usize(..12) == 0 {
            return self.leaf(kind);
        }
        let own: Vec<&'static str> =
            TEMPLATES.iter().filter_map(|(made, template)| fits(made, kind).then_some(*template)).collect();
        let template =
            if own.is_empty() || self.rng.usize(..8) == 0 { self.pick(GENERIC) } else { self.pick(&own) };
        self.fill(kind, template, depth)
    }

    fn fill(&mut self, kind: &str, template: &str, depth: usize) -> Tree {
        // What the type made holds is A, where the template made it so.
        let inner = kind.split_once(':').map(|(_, inner)| inner.to_owned());
        let mut letters = [inner, None, None];
        if letters[0].is_none() && kind != "dyn" && template.contains("@C") {
            letters[2] = Some(kind.to_owned())
                .filter(|kind| ORDERED.contains(&kind.as_str()) && template.starts_with('='));
        }
        let template = template.trim_start_matches('=');
        let declared = self.locals.len();
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['@', '#', '$']) {
            text.push_str(&rest[..at]);
            let hole = &rest[at..=at];
            rest = &rest[at + 1..];
            if hole == "$" {
                text.extend(self.locals.last().map(|(name, _)| name.as_str()));
                continue;
            }
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != ':').unwrap_or(rest.len());
            // A colon at the end divides a map's key from its value.
            let end = if rest[..end].ends_with(':') { end - 1 } else { end };
            let held = self.fixed(&rest[..end], kind, &mut letters);
            rest = &rest[end..];
            if hole == "#" {
                let name = format!("v{}", self.next);
                self.next += 1;
                text.push_str(&name);
                self.locals.push((name, held));
            } else {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Child(self.tree(&held, depth - 1)));
            }
        }
        text.push_str(rest);
        pieces.push(Piece::Text(text));
        self.locals.truncate(declared);
        Tree { kind: kind.to_owned(), pieces }
    }

    fn leaf(&mut self, kind: &str) -> Tree {
        if kind == "dyn" {
            let path = self.path();
            return Tree::leaf(kind, path);
        }
        if let Some(inner) = kind.strip_prefix("list:") {
            let items = self.leaves_of(inner, 4);
            return Tree::leaf(kind, format!("[{}]", items.join(", ")));
        }
        if let Some(inner) = kind.strip_prefix("map:") {
            let items = self.leaves_of(inner, 3);
            let keys = ["'a'", "'b'", "'é'"];
            let entries: Vec<String> =
                keys.iter().zip(items).map(|(key, item)| format!("{key}: {item}")).collect();
            return Tree::leaf(kind, format!("{{{}}}", entries.join(", ")));
        }
        if let Some(inner) = kind.strip_prefix("opt:") {
            let held = self.leaf(inner).text();
            let text = match self.rng.usize(..3) {
                0 => "optional.none()".to_owned(),
                1 => format!("optional.of({held})"),
                _ => format!("optional.ofNonZeroValue({held})"),
            };
            return Tree::leaf(kind, text);
        }
        let leaves = leaves(kind);
        assert!(!leaves.is_empty(), "no leaf is of type {kind}");
        let text = self.pick(leaves);
        Tree::leaf(kind, text)
    }

    fn leaves_of(&mut self, kind: &str, most: usize) -> Vec<String> {
        let count = self.rng.usize(..=most);
        (0..count).map(|_| self.leaf(kind).text()).collect()
    }

    /// Somewhere in the object, or where nothing is.
    fn path(&mut self) -> String {
        let mut path = self.pick(&["object", "object", "object", "object", "oldObject", "params"]).to_owned();
        for _ in 0..self.rng.usize(1..=3) {
            match self.rng.usize(..8) {
                0 => path.push_str("[0]"),
                1 => path = format!("{path}['{}']", self.pick(WORDS)),
                _ => path = format!("{path}.{}", self.pick(WORDS)),
            }
        }
        path
    }
}

/// Whether a template that makes `made` makes this type.
fn fits(made: &str, kind: &str) -> bool {
    match (made.split_once(':'), kind.split_once(':')) {
        (None, None) => made == kind,
        (Some((outer, inner)), Some((container, held))) => {
            outer == container
                && (inner == "A" || fits(inner, held) || (inner == "C" && ORDERED.contains(&held)))
        }
        _ => false,
    }
}

/// A document with some of everything.
pub(crate) fn object(rng: &mut Rng) -> Json {
    let mut root = Map::new();
    for word in WORDS {
        if rng.usize(..4) > 0 {
            root.insert((*word).to_owned(), value(rng, 3));
        }
    }
    Json::Object(root)
}

fn value(rng: &mut Rng, depth: usize) -> Json {
    let count = |rng: &mut Rng| rng.usize(..4);
    match rng.usize(..if depth == 0 { 9 } else { 14 }) {
        0 => Json::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(-3..10)),
        3 => [json!(i64::MAX), json!(i64::MIN), json!(9_007_199_254_740_993_i64), json!(u64::MAX), json!(0)]
            [rng.usize(..5)]
        .clone(),
        4 => [json!(0.5), json!(3.0), json!(-0.0), json!(1e300), json!(2.5), json!(1e15)][rng.usize(..6)]
            .clone(),
        5..=8 => {
            let texts =
                LEAVES.iter().find(|(named, _)| *named == "text").map_or(&[][..], |(_, leaves)| leaves);
            json!(texts[rng.usize(..texts.len())])
        }
        9..=10 => (0..count(rng)).map(|_| value(rng, depth - 1)).collect(),
        11 => {
            // Lists are mostly of one kind.
            let item = value(rng, depth - 1);
            Json::Array(vec![item; count(rng)])
        }
        _ => {
            let entries = count(rng);
            let mut map = Map::new();
            for _ in 0..entries {
                map.insert(WORDS[rng.usize(..WORDS.len())].to_owned(), value(rng, depth - 1));
            }
            Json::Object(map)
        }
    }
}
