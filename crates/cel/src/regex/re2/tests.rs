//! What patterns become, and what is known of them.

use regex::Regex;

use super::translate;

fn compiled(pattern: &str) -> Result<Regex, String> {
    Regex::new(&translate(pattern)?.pattern).map_err(|error| error.to_string())
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

/// For each: the most places that take one character, and all of them if no search goes on beyond its match.
#[test]
fn what_a_search_may_have_under_way_is_known() {
    let rows = [
        ("a[ab]{300}[^ab]", 301, Some(302)),
        ("^(foo|bar|baz)$", 2, Some(9)),
        ("(?:(?:ab){3}){2}", 6, Some(12)),
        (".{10}é", 11, Some(11)),
        (r"\d\D\w\W", 2, Some(4)),
        ("[^[:digit:]]{5}[^a]", 6, Some(6)),
        ("(?i)kK", 2, Some(2)),
        ("a{0}b{0,3}", 3, Some(4)),
        (r"^\Qa+\E$", 1, Some(2)),
        (r"(\w+)=(\w+)", 2, Some(3)),
        ("a.*b", 2, Some(3)),
        ("(ab)?c*", 1, Some(3)),
        (".*[^a]|a", 2, None),
        ("a(.*b)?", 2, None),
        ("(ab)*c", 1, None),
        ("a*(?i)*b", 1, None),
        ("(a|(b*c))d", 1, None),
        ("(x[^y]*){2}", 4, None),
    ];
    for (pattern, breadth, reach) in rows {
        let translated = translate(pattern).unwrap();
        assert_eq!((translated.breadth, translated.reach), (breadth, reach), "{pattern}");
    }
}

#[test]
fn sets_of_many_characters_are_few_where_case_makes_no_difference() {
    let wide = "[!-\u{10ffff}]".repeat(500);
    assert_eq!(translate(&wide).unwrap().folded, 0);
    let rows =
        [wide.as_str(), "[\\D]", "[\\S]", "[[:^alpha:]]", "[\\PL]", "\\pL"].map(|sets| sets.repeat(40));
    for sets in rows {
        assert_eq!(translate(&format!("(?i){sets}")).unwrap_err(), "expression too large", "{sets:.20}");
        assert_eq!(translate(&format!("(?i:{sets})")).unwrap_err(), "expression too large", "{sets:.20}");
    }
    assert!(translate(r"(?i)[\s\S]*a[\s\S]*[^b]\pL[\w-]+\D").is_ok());
}

/// Any text ends in a pattern or in an error, in time linear in its length.
#[test]
fn no_pattern_does_harm() {
    let parts =
        ["(", ")", "[", "]", "{", "}", "\\", "a", "é", "-", "^", "*", "?", ":", "P", "<", ">", "1", ",", "Q"];
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
