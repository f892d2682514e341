//! Kubernetes' quantities: reading, writing, arithmetic and comparison.
//!
//! Kubernetes keeps a quantity as a 64-bit integer with a power of ten where it easily can, else as a decimal
//! number of any length, rounded up, away from zero, to billionths. Which of the two it is can be seen: only
//! the first has an integer value, so that `1.5Gi` has none. Here the decimal digits are kept always, and
//! beside them the integer where Kubernetes has one. The digits are few, whatever the power of ten.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;

/// Whether Kubernetes reads a text as a quantity; the error says what it dislikes.
pub fn check_quantity(text: &str) -> Result<(), &'static str> {
    parse(text).map(|_| ())
}

/// Longest text that is looked at, and most digits that a sum may have.
const MAX_DIGITS: usize = 1 << 10;
/// Digits that an integer is trusted to hold.
const INTEGER_DIGITS: usize = 18;
/// Decimals kept.
const NANO: i64 = -9;

/// A quantity. Equality and order are those of the numbers.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    number: Decimal,
    form: Form,
    notation: Notation,
    /// The text it was read from, where Kubernetes keeps that as the usual form.
    written: Option<Arc<str>>,
}

/// How the number is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// With a suffix such as `m` or `k`.
    Decimal,
    /// With an exponent.
    Exponent,
    /// With a suffix such as `Ki`.
    Binary,
}

/// How Kubernetes holds the number.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// An integer times a power of ten.
    Integer { value: i64, scale: i64 },
    /// A decimal number with so many decimals.
    Decimal { decimals: i64 },
}

impl Quantity {
    fn of_integer(value: i64, scale: i64, notation: Notation) -> Self {
        let digits = value.unsigned_abs().to_string().bytes().map(|digit| digit - b'0').collect();
        let number = Decimal::new(value < 0, digits, scale);
        Self { number, form: Form::Integer { value, scale }, notation, written: None }
    }

    /// The text in Kubernetes' usual form, or as it was written where Kubernetes keeps that.
    pub(crate) fn text(&self) -> String {
        if let Some(written) = &self.written {
            return written.to_string();
        }
        if self.number.digits.is_empty() {
            return "0".to_owned();
        }
        match self.notation {
            Notation::Binary if self.number.exponent >= 0 && self.number.is_thousands() => {
                let (number, power) = self.number.powers_of_1024();
                number.integer_text() + BINARY_SUFFIXES.get(power).unwrap_or(&"")
            }
            notation => {
                let zeros = self.number.exponent.rem_euclid(3);
                let exponent = self.number.exponent - zeros;
                let number = Decimal { exponent: zeros, ..self.number.clone() }.integer_text();
                match notation {
                    Notation::Exponent if exponent != 0 => format!("{number}e{exponent}"),
                    Notation::Exponent => number,
                    // Beyond the suffixes Kubernetes writes none, wrong as that is.
                    _ => number + decimal_suffix(exponent),
                }
            }
        }
    }

    /// The notation of a sum with another quantity: that of the first which is not zero.
    fn notation_with(&self, other: &Self) -> Notation {
        if self.number.digits.is_empty() { other.notation } else { self.notation }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.number.compare(&other.number)
    }

    pub(crate) fn sign(&self) -> i64 {
        match (self.number.digits.is_empty(), self.number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        match self.form {
            Form::Integer { value, scale } => scaled(value, scale),
            Form::Decimal { .. } => None,
        }
    }

    /// The integer as a double times the power of ten as a double, which is not always the nearest.
    #[allow(clippy::cast_precision_loss)] // the function's name says so
    pub(crate) fn approximate(&self) -> f64 {
        let (base, exponent) = match self.form {
            Form::Integer { value, scale } => (value as f64, scale),
            Form::Decimal { decimals } => {
                let whole = Decimal { exponent: self.number.exponent + decimals, ..self.number.clone() };
                (whole.nearest(), -decimals)
            }
        };
        if exponent == 0 { base } else { base * power_of_ten(exponent) }
    }

    fn decimals(&self) -> i64 {
        match self.form {
            Form::Integer { scale, .. } => -scale,
            Form::Decimal { decimals } => decimals,
        }
    }

    pub(crate) fn negated(&self) -> Self {
        let number = Decimal { negative: !self.number.negative, ..self.number.clone() };
        let form = match self.form {
            // Kubernetes does not look whether the least integer has a negative, which it has not.
            Form::Integer { value, scale } => Form::Integer { value: value.wrapping_neg(), scale },
            form @ Form::Decimal { .. } => form,
        };
        Self { number, form, notation: self.notation, written: None }
    }

    /// The sum; an error when it has too many digits.
    pub(crate) fn plus(&self, other: &Self) -> Result<Self, EvalError> {
        let notation = self.notation_with(other);
        if let (Form::Integer { value, scale }, Form::Integer { value: added, scale: finer }) =
            (self.form, other.form)
        {
            let sum = match (value, added) {
                (_, 0) => Some((value, scale)),
                (0, _) => Some((added, finer)),
                _ => {
                    let least = scale.min(finer);
                    let both = scaled(value, scale - least).zip(scaled(added, finer - least));
                    both.and_then(|(value, added)| value.checked_add(added)).map(|sum| (sum, least))
                }
            };
            if let Some((value, scale)) = sum {
                return Ok(Self::of_integer(value, scale, notation));
            }
        }
        let number = self.number.plus(&other.number).ok_or(EvalError::Overflow("quantity"))?;
        let form = Form::Decimal { decimals: self.decimals().max(other.decimals()) };
        Ok(Self { number, form, notation, written: None })
    }

    /// How many digits the number has.
    pub(crate) fn digits(&self) -> usize {
        self.number.digits.len()
    }

    /// Digits of a sum, from the highest to the lowest of both: numbers of few digits may lie far apart.
    pub(crate) fn digits_of_sum(&self, other: &Self) -> u64 {
        let (left, right) = (&self.number, &other.number);
        let top = |number: &Decimal| {
            number.exponent.saturating_add(i64::try_from(number.digits.len()).unwrap_or(i64::MAX))
        };
        let digits = top(left).max(top(right)).saturating_sub(left.exponent.min(right.exponent));
        u64::try_from(digits).unwrap_or(0).min(MAX_DIGITS as u64)
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self::of_integer(value, 0, Notation::Exponent)
    }
}

/// `value` times a power of ten that is not negative.
fn scaled(value: i64, scale: i64) -> Option<i64> {
    if value == 0 && scale >= 0 {
        return Some(0);
    }
    value.checked_mul(10_i64.checked_pow(u32::try_from(scale).ok()?)?)
}

/// Infinite beyond the range of doubles.
fn power_of_ten(exponent: i64) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(f64::NAN)
}

/// A decimal number: digits, the most significant first, times a power of ten. Neither the first digit nor the
/// last is zero; zero has no digits.
#[derive(Clone, Debug)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn new(negative: bool, mut digits: Vec<u8>, mut exponent: i64) -> Self {
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        if digits.is_empty() {
            exponent = 0;
        }
        Self { negative, digits, exponent }
    }

    fn length(&self) -> i64 {
        i64::try_from(self.digits.len()).unwrap_or(i64::MAX)
    }

    fn nearest(&self) -> f64 {
        let sign = if self.negative { "-" } else { "" };
        let digits: String = self.digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        format!("{sign}0{digits}e{}", self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// The order of the numbers without their signs.
    fn compare_magnitude(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (false, false) => {}
            (left, right) => return right.cmp(&left),
        }
        // Where the first digit stands decides, then the digits.
        let top = |number: &Self| number.exponent + number.length();
        top(self).cmp(&top(other)).then_with(|| self.digits.cmp(&other.digits))
    }

    fn compare(&self, other: &Self) -> Ordering {
        let negative = |number: &Self| number.negative && !number.digits.is_empty();
        match (negative(self), negative(other)) {
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
        }
    }

    /// The digits down to an exponent, the least significant first.
    fn reversed_from(&self, exponent: i64) -> impl Iterator<Item = u8> + '_ {
        let zeros = usize::try_from(self.exponent - exponent).unwrap_or(0);
        std::iter::repeat_n(0, zeros).chain(self.digits.iter().rev().copied())
    }

    /// The sum, unless it has too many digits.
    fn plus(&self, other: &Self) -> Option<Self> {
        if self.digits.is_empty() {
            return Some(other.clone());
        }
        if other.digits.is_empty() {
            return Some(self.clone());
        }
        let bottom = self.exponent.min(other.exponent);
        let top = (self.exponent + self.length()).max(other.exponent + other.length());
        let length = usize::try_from(top - bottom).ok().filter(|length| *length <= MAX_DIGITS)?;
        let (greater, lesser) = match self.compare_magnitude(other) {
            Ordering::Less => (other, self),
            _ => (self, other),
        };
        let subtract = self.negative != other.negative;
        let mut digits = Vec::with_capacity(length + 1);
        let mut lesser_digits = lesser.reversed_from(bottom);
        let mut carry = 0;
        for digit in greater.reversed_from(bottom) {
            let other = lesser_digits.next().unwrap_or(0) + carry;
            let (digit, over) = if subtract {
                if digit < other { (digit + 10 - other, 1) } else { (digit - other, 0) }
            } else {
                ((digit + other) % 10, (digit + other) / 10)
            };
            digits.push(digit);
            carry = over;
        }
        digits.push(carry);
        digits.reverse();
        Some(Self::new(greater.negative, digits, bottom))
    }

    /// Whether a whole number is far enough from zero to be written in powers of 1,024.
    fn is_thousands(&self) -> bool {
        let least = Self { negative: false, digits: vec![1, 0, 2, 4], exponent: 0 };
        self.compare_magnitude(&least).is_ge()
    }

    /// A whole number divided by 1,024 as often as nothing remains, and how often that was.
    fn powers_of_1024(&self) -> (Self, usize) {
        let (mut number, mut power) = (self.clone(), 0);
        loop {
            let mut remainder = 0_u32;
            let mut quotient: Vec<u8> = number.reversed_from(0).collect();
            for digit in quotient.iter_mut().rev() {
                remainder = remainder * 10 + u32::from(*digit);
                // The remainder before was less than 1,024, so this is a digit.
                *digit = (remainder / 1_024 % 10) as u8;
                remainder %= 1_024;
            }
            if remainder != 0 || power == BINARY_SUFFIXES.len() {
                return (number, power);
            }
            quotient.reverse();
            number = Self::new(number.negative, quotient, 0);
            power += 1;
        }
    }

    /// A whole number with all its digits.
    fn integer_text(&self) -> String {
        let zeros = usize::try_from(self.exponent).unwrap_or(0);
        let digits = self.digits.iter().map(|digit| char::from(b'0' + digit));
        let sign = self.negative.then_some('-');
        sign.into_iter().chain(digits).chain(std::iter::repeat_n('0', zeros)).collect()
    }

    /// Times so many powers of 1,024.
    fn binary(mut self, times: u32) -> Self {
        for _ in 0..times {
            let mut carry = 0_u32;
            for digit in self.digits.iter_mut().rev() {
                let product = u32::from(*digit) * 1_024 + carry;
                *digit = (product % 10) as u8;
                carry = product / 10;
            }
            let carried = carry.to_string().into_bytes().into_iter().map(|digit| digit - b'0');
            self.digits.splice(..0, carried);
        }
        Self::new(self.negative, self.digits, self.exponent)
    }

    /// With so many decimals at most; what is cut off counts as one of the last that is kept.
    fn rounded_up(self) -> Option<Self> {
        let Ok(cut) = usize::try_from(NANO - self.exponent) else { return Some(self) };
        if cut == 0 || self.digits.is_empty() {
            return Some(self);
        }
        let kept = self.digits.len().saturating_sub(cut);
        let digits = self.digits.get(..kept).unwrap_or_default().to_vec();
        let one = Self { negative: self.negative, digits: vec![1], exponent: NANO };
        Self::new(self.negative, digits, NANO).plus(&one)
    }
}

const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const BAD_SUFFIX: &str = "unable to parse quantity's suffix";

/// A decimal number with a suffix: `m`, `k`, `Ki`, … or an exponent.
pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
    if text.is_empty() {
        return Err(MALFORMED);
    }
    if text.len() > MAX_DIGITS {
        return Err("the quantity is too long");
    }
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = leading_digits(unsigned.trim_start_matches('0'));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => leading_digits(rest),
        None => ("", rest),
    };
    check_suffix(suffix)?;
    let (scale, notation) = scale(suffix).ok_or(BAD_SUFFIX)?;
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0').collect();
    // A missing whole part counts as one digit.
    let length = whole.len().max(1) + fraction.len();
    let decimals = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    if let Some((value, exponent)) = easy(negative, &digits, length, decimals, scale) {
        let usual = match scale {
            Scale::Binary(power) => (value >> power) & 7 != 0,
            Scale::Decimal(_) => exponent % 3 == 0 && !whole.is_empty() && !digits.ends_with(&[0, 0, 0]),
        };
        let written = usual.then(|| text.into());
        return Ok(Quantity { written, ..Quantity::of_integer(value, exponent, notation) });
    }
    let number = match scale {
        Scale::Decimal(exponent) => Decimal::new(negative, digits, exponent - decimals),
        Scale::Binary(power) => Decimal::new(negative, digits, -decimals).binary(power / 10),
    };
    let number = number.rounded_up().ok_or("the quantity is too long")?;
    // Only quantities with a binary suffix have a greatest.
    let most = Quantity::of_integer(i64::MAX, 0, notation).number;
    let (number, decimals) = if notation == Notation::Binary && number.compare_magnitude(&most).is_gt() {
        (Decimal { negative, ..most }, 0)
    } else {
        (number, -NANO)
    };
    Ok(Quantity { number, form: Form::Decimal { decimals }, notation, written: None })
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Letters, a sign and digits; which of them mean something is another question.
fn check_suffix(suffix: &str) -> Result<(), &'static str> {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    if rest.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(MALFORMED) }
}

/// The quantity as an integer and a power of ten, where Kubernetes takes that way.
fn easy(negative: bool, digits: &[u8], length: usize, decimals: i64, scale: Scale) -> Option<(i64, i64)> {
    let (factor, exponent, room) = match scale {
        Scale::Decimal(exponent) => (1, exponent, INTEGER_DIGITS),
        Scale::Binary(_) if decimals > 0 => return None,
        // The digits of the power of two, estimated.
        Scale::Binary(power) => {
            (1_i64.checked_shl(power)?, 0, INTEGER_DIGITS.checked_sub(4 + power as usize * 3 / 10)?)
        }
    };
    let exponent = exponent - decimals;
    if length > room || exponent < NANO {
        return None;
    }
    let value = digits
        .iter()
        .try_fold(0_i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(*digit)))?;
    let value = value.checked_mul(factor)?;
    Some((if negative { -value } else { value }, exponent))
}

/// What a suffix multiplies by.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// This power of ten.
    Decimal(i64),
    /// This power of two, whole tens of it.
    Binary(u32),
}

/// Suffixes of powers of 1,024.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes of powers of 1,000, and the power of ten of each.
const DECIMAL_SUFFIXES: [(&str, i64); 10] =
    [("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

fn decimal_suffix(exponent: i64) -> &'static str {
    let known = DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent);
    known.map_or("", |(suffix, _)| suffix)
}

fn scale(suffix: &str) -> Option<(Scale, Notation)> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Some((Scale::Decimal(*exponent), Notation::Decimal));
    }
    if let Some(power) = BINARY_SUFFIXES.iter().position(|known| *known == suffix) {
        return Some((Scale::Binary(u32::try_from(power).ok()? * 10), Notation::Binary));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Kubernetes keeps the lower 32 bits.
    #[allow(clippy::cast_possible_truncation)]
    let exponent = exponent as i32;
    Some((Scale::Decimal(exponent.into()), Notation::Exponent))
}
