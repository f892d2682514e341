//! Reading JSON: one pass without recursion.

use crate::builder::Builder;
use crate::error::{DocumentError, Problem};
use crate::tape::{Document, KEPT, MAX_BYTES, MAX_DEPTH, TEXT, pack};

/// A word is reserved for so many bytes of text, which is about what Kubernetes' objects take.
const BYTES_PER_WORD: usize = 5;

impl<'t> Document<'t> {
    /// Reads a text.
    pub fn parse(bytes: &'t [u8]) -> Result<Self, DocumentError> {
        let text = str::from_utf8(bytes).map_err(|error| DocumentError::Encoding(error.valid_up_to()))?;
        if bytes.len() > MAX_BYTES {
            return Err(DocumentError::TooLarge);
        }
        let builder = Builder::new(text, bytes.len() / BYTES_PER_WORD + 8);
        let mut parser = Parser { text, bytes, at: 0, builder };
        match parser.run() {
            Ok(()) => Ok(parser.builder.document),
            Err(problem) => Err(DocumentError::at(text, parser.at, problem)),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    builder: Builder<'t>,
}

type Step<T = ()> = Result<T, Problem>;

impl Parser<'_> {
    fn run(&mut self) -> Step {
        loop {
            match self.next_token() {
                Some(b'"') => {
                    let word = self.string()?;
                    self.builder.value(word);
                }
                Some(b'{') => {
                    self.open(true)?;
                    if self.next_token() != Some(b'}') {
                        self.key()?;
                        continue;
                    }
                    self.at += 1;
                    self.builder.close();
                }
                Some(b'[') => {
                    self.open(false)?;
                    if self.next_token() != Some(b']') {
                        continue;
                    }
                    self.at += 1;
                    self.builder.close();
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => {
                    self.word(b"true")?;
                    self.builder.bool(true);
                }
                Some(b'f') => {
                    self.word(b"false")?;
                    self.builder.bool(false);
                }
                Some(b'n') => {
                    self.word(b"null")?;
                    self.builder.null();
                }
                Some(_) => return Err(Problem::Expected("a value")),
                None => return Err(Problem::End),
            }
            if !self.goes_on()? {
                return Ok(());
            }
        }
    }

    /// What follows a value: another one, or the end.
    fn goes_on(&mut self) -> Step<bool> {
        loop {
            let token = self.next_token();
            if self.builder.depth() == 0 {
                return if token.is_none() { Ok(false) } else { Err(Problem::Trailing) };
            }
            match (self.builder.is_in_object(), token) {
                (true, Some(b',')) => {
                    self.at += 1;
                    self.next_token();
                    self.key()?;
                    return Ok(true);
                }
                (false, Some(b',')) => {
                    self.at += 1;
                    return Ok(true);
                }
                (true, Some(b'}')) | (false, Some(b']')) => {
                    self.at += 1;
                    self.builder.close();
                }
                (_, None) => return Err(Problem::End),
                (true, _) => return Err(Problem::Expected("',' or '}'")),
                (false, _) => return Err(Problem::Expected("',' or ']'")),
            }
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is not white space.
    #[inline]
    fn next_token(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other,
            }
        }
    }

    fn open(&mut self, is_object: bool) -> Step {
        if self.builder.depth() >= MAX_DEPTH {
            return Err(Problem::Depth);
        }
        self.at += 1;
        self.builder.open(is_object);
        Ok(())
    }

    fn key(&mut self) -> Step {
        match self.peek() {
            Some(b'"') => {}
            Some(_) => return Err(Problem::Expected("a key")),
            None => return Err(Problem::End),
        }
        let word = self.string()?;
        match self.next_token() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(Problem::Expected("':'")),
            None => return Err(Problem::End),
        }
        self.builder.key(word);
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Step {
        if !self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(Problem::Expected("true, false or null"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a string at its first quotation mark.
    #[inline]
    fn string(&mut self) -> Step<u64> {
        let from = self.at + 1;
        self.at = self.plain_to(from);
        if self.peek() == Some(b'"') {
            let word = pack(TEXT, self.at - from, from);
            self.at += 1;
            return Ok(word);
        }
        self.escaped_string(from)
    }

    /// The same from its first escape on. It is kept without escapes, since it may be asked for many times.
    #[cold]
    fn escaped_string(&mut self, from: usize) -> Step<u64> {
        let first = self.builder.document.kept.len();
        let mut from = from;
        loop {
            let plain = self.text.get(from..self.at).unwrap_or_default();
            self.builder.document.kept.push_str(plain);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {}
                Some(_) => return Err(Problem::Control),
                None => return Err(Problem::End),
            }
            self.at += 1;
            let character = self.escape()?;
            self.builder.document.kept.push(character);
            from = self.at;
            self.at = self.plain_to(from);
        }
        self.at += 1;
        Ok(pack(KEPT, self.builder.document.kept.len() - first, first))
    }

    /// The character of an escape, behind its backslash.
    fn escape(&mut self) -> Step<char> {
        let byte = self.peek().ok_or(Problem::End)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                if !(0xd800..0xe000).contains(&unit) {
                    return char::from_u32(unit).ok_or(Problem::Escape);
                }
                let follows = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(b"\\u"));
                if unit >= 0xdc00 || !follows {
                    return Err(Problem::Surrogate);
                }
                self.at += 2;
                let low = self.unit()?;
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(Problem::Surrogate);
                }
                char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)).ok_or(Problem::Escape)?
            }
            _ => return Err(Problem::Escape),
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Step<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or(Problem::End)?;
            unit = (unit << 4) | char::from(byte).to_digit(16).ok_or(Problem::Escape)?;
            self.at += 1;
        }
        Ok(unit)
    }

    /// Where what a string may hold as it is ends: at a quotation mark, a backslash, a control character, or the
    /// end of the text.
    #[inline]
    fn plain_to(&self, from: usize) -> usize {
        let mut at = from;
        while let Some(chunk) = self.bytes.get(at..at + 8).and_then(|chunk| chunk.try_into().ok()) {
            let special = special(u64::from_le_bytes(chunk));
            if special != 0 {
                return at + special.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        let rest = self.bytes.get(at..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | ..0x20)).count();
        at + length
    }

    fn number(&mut self) -> Step {
        let from = self.at;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        let digits = self.at;
        let whole = self.integer();
        let leading_zero = self.bytes.get(digits) == Some(&b'0') && self.at - digits > 1;
        if self.at == digits || leading_zero {
            return Err(if self.peek().is_none() { Problem::End } else { Problem::Number });
        }
        if matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            self.fraction()?;
            return self.float(from);
        }
        match whole {
            Some(number) if !negative => match i64::try_from(number) {
                Ok(number) => self.builder.int(number),
                Err(_) => self.builder.uint(number),
            },
            // There is no integer -0.
            Some(number @ 1..) if number <= i64::MIN.unsigned_abs() => {
                self.builder.int(0_i64.wrapping_sub_unsigned(number));
            }
            _ => return self.float(from),
        }
        Ok(())
    }

    /// Digits, and the number that they are unless it is too large.
    #[inline]
    fn integer(&mut self) -> Option<u64> {
        let mut number = Some(0_u64);
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            let digit = u64::from(byte - b'0');
            number = number.and_then(|number| number.checked_mul(10)?.checked_add(digit));
            self.at += 1;
        }
        number
    }

    /// A fraction and an exponent, each of which may be missing.
    fn fraction(&mut self) -> Step {
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Step {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at > from {
            return Ok(());
        }
        Err(if self.peek().is_none() { Problem::End } else { Problem::Number })
    }

    fn float(&mut self, from: usize) -> Step {
        let number: f64 =
            self.text.get(from..self.at).and_then(|text| text.parse().ok()).ok_or(Problem::Number)?;
        if !number.is_finite() {
            return Err(Problem::Range);
        }
        self.builder.float(number);
        Ok(())
    }
}

/// The upper bit of each byte that is a quotation mark, a backslash or a control character. Above the lowest of
/// them other bits may be set too.
#[inline]
fn special(chunk: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const UPPER: u64 = ONES << 7;
    const QUOTATION: u64 = ONES * 0x22;
    const BACKSLASH: u64 = ONES * 0x5c;
    const SPACE: u64 = ONES * 0x20;
    let quotation = chunk ^ QUOTATION;
    let backslash = chunk ^ BACKSLASH;
    let quotation = quotation.wrapping_sub(ONES) & !quotation;
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    let control = chunk.wrapping_sub(SPACE) & !chunk;
    (quotation | backslash | control) & UPPER
}
