//! What literals stand for.

use std::iter;

/// The value of digits, in base 16 behind `0x`.
pub(super) fn int(digits: &str, negative: bool) -> Option<i64> {
    let (digits, radix) = radix(digits);
    if negative {
        return i64::from_str_radix(&format!("-{digits}"), radix).ok();
    }
    i64::from_str_radix(digits, radix).ok()
}

/// The value of digits with the letter `u` behind.
pub(super) fn uint(text: &str) -> Option<u64> {
    let (digits, radix) = radix(text.strip_suffix(['u', 'U'])?);
    u64::from_str_radix(digits, radix).ok()
}

fn radix(digits: &str) -> (&str, u32) {
    digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
        .map_or((digits, 10), |digits| (digits, 16))
}

pub(super) fn double(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

pub(super) fn string(text: &str) -> Result<String, &'static str> {
    String::from_utf8(unescaped(text, false)?).map_err(|_| "invalid unicode code point")
}

pub(super) fn bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    unescaped(text, true)
}

const INVALID: &str = "unable to unescape string";

/// What is between the quotes of a literal, escapes replaced. Line breaks are `\n` however the source has them.
fn unescaped(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let quoted = literal.trim_start_matches(['r', 'R', 'b', 'B']);
    let raw = literal.strip_suffix(quoted).is_some_and(|prefix| prefix.contains(['r', 'R']));
    let width = if quoted.starts_with("'''") || quoted.starts_with("\"\"\"") { 3 } else { 1 };
    let inner = quoted.get(width..quoted.len().saturating_sub(width)).ok_or(INVALID)?;
    let normalized;
    let inner = if inner.contains('\r') {
        normalized = inner.replace("\r\n", "\n").replace('\r', "\n");
        &normalized
    } else {
        inner
    };
    let mut result = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !raw && let Some((before, escape)) = rest.split_once('\\') {
        result.extend_from_slice(before.as_bytes());
        let mut characters = escape.chars();
        let letter = characters.next().ok_or("unable to unescape string, found '\\' as last character")?;
        let code = match letter {
            'a' => 0x7,
            'b' => 0x8,
            'f' => 0xc,
            'n' => 0xa,
            'r' => 0xd,
            't' => 0x9,
            'v' => 0xb,
            '\\' | '\'' | '"' | '`' | '?' => u32::from(letter),
            'x' | 'X' => number(characters.by_ref().take(2), 2, 16).ok_or(INVALID)?,
            'u' if !bytes => number(characters.by_ref().take(4), 4, 16).ok_or(INVALID)?,
            'U' if !bytes => number(characters.by_ref().take(8), 8, 16).ok_or(INVALID)?,
            '0'..='3' => number(iter::once(letter).chain(characters.by_ref().take(2)), 3, 8)
                .ok_or("unable to unescape octal sequence in string")?,
            _ => return Err(INVALID),
        };
        if bytes {
            // Only escapes of one byte are left.
            result.extend(u8::try_from(code));
        } else {
            let character = char::from_u32(code).ok_or("invalid unicode code point")?;
            result.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = characters.as_str();
    }
    result.extend_from_slice(rest.as_bytes());
    Ok(result)
}

/// The number that so many digits make.
fn number(digits: impl Iterator<Item = char>, count: usize, radix: u32) -> Option<u32> {
    let (mut read, mut number) = (0, 0_u32);
    for digit in digits {
        number = number.checked_mul(radix)?.checked_add(digit.to_digit(radix)?)?;
        read += 1;
    }
    (read == count).then_some(number)
}
