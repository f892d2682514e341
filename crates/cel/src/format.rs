//! `'%s has %d'.format([…])`: the verbs are `%s %d %f %e %b %o %x %X %%`.

use std::fmt::Write as _;

use crate::conversions;
use crate::error::EvalError;
use crate::functions::{Function, Outcome};
use crate::meter::Meter;
use crate::temporal;
use crate::value::{List, Val};

pub(crate) const FUNCTIONS: &[Function] = &[Function::member("format", 2, format)];

/// Decimals of `%f` and `%e` when none are asked for, and the most that may be.
const DEFAULT_PRECISION: usize = 6;
const MAX_PRECISION: usize = 1_000;
/// Deepest nesting that `%s` writes.
const MAX_DEPTH: usize = 256;

fn format<'a>(meter: &Meter, arguments: &[Val<'a>]) -> Outcome<'a> {
    let mismatch = || EvalError::no_such_overload("format", arguments);
    let [Val::Str(template), list] = arguments else { return Err(mismatch()) };
    let items = list.as_list().ok_or_else(mismatch)?;
    let mut formatter = Formatter { meter, items, next: 0, out: String::new() };
    formatter.run(template)?;
    Ok(Val::text(formatter.out))
}

struct Formatter<'m, 'a> {
    meter: &'m Meter,
    items: List<'a>,
    next: usize,
    out: String,
}

fn refuse(message: impl Into<String>) -> EvalError {
    EvalError::invalid("format", message)
}

impl<'a> Formatter<'_, 'a> {
    fn run(&mut self, template: &str) -> Result<(), EvalError> {
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('%') {
            self.push(before)?;
            rest = self.clause(after)?;
        }
        self.push(rest)?;
        if self.next < self.items.len() {
            return Err(refuse("too many arguments supplied to string.format"));
        }
        Ok(())
    }

    fn push(&mut self, text: &str) -> Result<(), EvalError> {
        self.meter.tick(1)?;
        self.meter.produce(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    /// What follows a `%`; gives what follows the verb.
    fn clause<'t>(&mut self, after: &'t str) -> Result<&'t str, EvalError> {
        if let Some(rest) = after.strip_prefix('%') {
            self.push("%")?;
            return Ok(rest);
        }
        let (precision, after) = match after.strip_prefix('.') {
            Some(after) => {
                let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                let (digits, after) = after.split_at(end);
                let precision = digits.parse().ok().filter(|precision| *precision <= MAX_PRECISION);
                (precision.ok_or_else(|| refuse("invalid precision"))?, after)
            }
            None => (DEFAULT_PRECISION, after),
        };
        let mut characters = after.chars();
        let verb = characters.next().ok_or_else(|| refuse("unexpected end of string"))?;
        let value =
            self.items.get(self.next).ok_or_else(|| refuse(format!("index {} out of range", self.next)))?;
        self.next += 1;
        match verb {
            's' => self.text(&value, 0)?,
            'd' => self.push(&decimal(&value)?)?,
            'f' => self.push(&fixed(&value, precision)?)?,
            'e' => self.push(&scientific(&value, precision)?)?,
            'b' | 'o' => self.push(&based(&value, verb)?)?,
            'x' | 'X' => self.hexadecimal(&value, verb == 'X')?,
            other => return Err(refuse(format!("unrecognized formatting clause \"{other}\""))),
        }
        Ok(characters.as_str())
    }

    fn text(&mut self, value: &Val<'a>, depth: usize) -> Result<(), EvalError> {
        if depth > MAX_DEPTH {
            return Err(EvalError::TooDeep);
        }
        match value {
            Val::Str(text) => self.push(text),
            Val::Double(number) => self.push(&plain_double(*number)),
            Val::Null | Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Duration(_) => {
                self.push(&conversions::display(value))
            }
            Val::Timestamp(instant) => self.push(&temporal::timestamp_text(instant)?),
            Val::Bytes(bytes) => self.push(&String::from_utf8_lossy(bytes)),
            Val::Type(name) => self.push(name),
            Val::JsonList(_) | Val::List(_) => self.list(value, depth),
            Val::JsonMap(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.clone(), Val::from_json(value)));
                self.map(entries, depth)
            }
            Val::Map(entries) => {
                let entries = entries.entries.iter().map(|(key, value)| (key.text(), value.clone()));
                self.map(entries, depth)
            }
            other => Err(refuse(format!(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps, was given {}",
                other.type_name()
            ))),
        }
    }

    fn list(&mut self, list: &Val<'a>, depth: usize) -> Result<(), EvalError> {
        self.push("[")?;
        if let Some(items) = list.as_list() {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    self.push(", ")?;
                }
                self.text(&item, depth + 1)?;
            }
        }
        self.push("]")
    }

    fn map(
        &mut self,
        entries: impl Iterator<Item = (String, Val<'a>)>,
        depth: usize,
    ) -> Result<(), EvalError> {
        self.push("{")?;
        for (index, (key, value)) in entries.enumerate() {
            if index > 0 {
                self.push(", ")?;
            }
            self.push(&key)?;
            self.push(": ")?;
            self.text(&value, depth + 1)?;
        }
        self.push("}")
    }

    fn hexadecimal(&mut self, value: &Val<'_>, upper: bool) -> Result<(), EvalError> {
        let bytes = match value {
            Val::Str(text) => text.as_bytes(),
            Val::Bytes(bytes) => bytes,
            _ => {
                let digits = based(value, 'x')?;
                return self.push(&if upper { digits.to_uppercase() } else { digits });
            }
        };
        self.meter.produce(bytes.len().saturating_mul(2))?;
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = if upper { write!(self.out, "{byte:02X}") } else { write!(self.out, "{byte:02x}") };
        }
        Ok(())
    }
}

fn decimal(value: &Val<'_>) -> Result<String, EvalError> {
    match value {
        Val::Int(value) => Ok(value.to_string()),
        Val::Uint(value) => Ok(value.to_string()),
        other => Err(refuse(format!(
            "decimal clause can only be used on integers, was given {}",
            other.type_name()
        ))),
    }
}

/// The number that `%f` and `%e` write.
#[allow(clippy::cast_precision_loss)] // as CEL's own conversion to double does
fn number(value: &Val<'_>) -> Result<f64, EvalError> {
    match value {
        Val::Double(value) => Ok(*value),
        Val::Int(value) => Ok(*value as f64),
        Val::Uint(value) => Ok(*value as f64),
        other => Err(refuse(format!(
            "fixed-point and scientific clauses can only be used on numbers, was given {}",
            other.type_name()
        ))),
    }
}

fn not_finite(number: f64) -> Option<String> {
    if number.is_nan() {
        Some("NaN".to_owned())
    } else if number.is_infinite() {
        Some(if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned())
    } else {
        None
    }
}

fn plain_double(number: f64) -> String {
    not_finite(number).unwrap_or_else(|| number.to_string())
}

fn fixed(value: &Val<'_>, precision: usize) -> Result<String, EvalError> {
    let number = number(value)?;
    Ok(not_finite(number).unwrap_or_else(|| format!("{number:.precision$}")))
}

/// As Kubernetes prints it: `1.234500×10⁰³`.
fn scientific(value: &Val<'_>, precision: usize) -> Result<String, EvalError> {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let number = number(value)?;
    if let Some(text) = not_finite(number) {
        return Ok(text);
    }
    let written = format!("{number:.precision$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let raised: String = format!("{exponent:0>2}")
        .chars()
        .filter_map(|digit| RAISED.get(digit.to_digit(10)? as usize))
        .collect();
    Ok(format!("{digits}×10{sign}{raised}"))
}

fn based(value: &Val<'_>, verb: char) -> Result<String, EvalError> {
    let (negative, magnitude) = match value {
        Val::Bool(value) if verb == 'b' => (false, u64::from(*value)),
        Val::Int(value) => (*value < 0, value.unsigned_abs()),
        Val::Uint(value) => (false, *value),
        other => {
            let message =
                format!("clause %{verb} can only be used on integers, was given {}", other.type_name());
            return Err(refuse(message));
        }
    };
    let digits = match verb {
        'b' => format!("{magnitude:b}"),
        'o' => format!("{magnitude:o}"),
        _ => format!("{magnitude:x}"),
    };
    Ok(if negative { format!("-{digits}") } else { digits })
}
