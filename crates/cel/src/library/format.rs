//! `'%s has %d'.format([…])`: the verbs are `%s %d %f %e %b %o %x %X %%`.

use crate::error::{EvalError, quoted};
use crate::library::conversions;
use crate::library::function::Function;
use crate::meter::Meter;
use crate::value::temporal;
use crate::value::{Key, List, MAX_NESTING, Outcome, Val};

pub(crate) const FUNCTIONS: &[Function] = &[Function::member("format", 2, format)];

/// Decimals of `%f` and `%e` when none are asked for, and the most that may be.
const DEFAULT_PRECISION: usize = 6;
const MAX_PRECISION: usize = 1_000;
/// Why something within a list or a map is refused.
const NO_FORM: &str = "no formatting function for";

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
        Ok(())
    }

    fn push(&mut self, text: &str) -> Result<(), EvalError> {
        self.meter.count_steps(1)?;
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
            's' => self.text(&value)?,
            'd' => self.push(&decimal(&value)?)?,
            'f' => self.push(&fixed(&value, precision)?)?,
            'e' => self.push(&scientific(&value, precision)?)?,
            'b' | 'o' => self.push(&based(&value, verb)?)?,
            'x' | 'X' => self.hexadecimal(&value, verb == 'X')?,
            other => return Err(refuse(format!("unrecognized formatting clause \"{other}\""))),
        }
        Ok(characters.as_str())
    }

    /// `%s`. Strings, bytes, doubles and times have another form within lists and maps: that of a literal.
    fn text(&mut self, value: &Val<'a>) -> Result<(), EvalError> {
        match value {
            Val::Str(text) => self.push(text),
            Val::Bytes(bytes) => self.push(utf8(bytes)?),
            Val::Double(number) => self.push(&conversions::double_text(*number)),
            Val::Timestamp(instant) => self.push(&temporal::timestamp_text(instant)?),
            Val::Duration(nanoseconds) => self.push(&temporal::seconds_text(*nanoseconds)),
            other => {
                let refusal = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
                               types, durations, and timestamps, was given";
                self.part(other, 0, refusal)
            }
        }
    }

    fn part(&mut self, value: &Val<'a>, depth: usize, refusal: &str) -> Result<(), EvalError> {
        if depth > MAX_NESTING {
            return Err(EvalError::TooDeep);
        }
        match value {
            Val::Null | Val::Bool(_) | Val::Int(_) | Val::Uint(_) => self.push(&conversions::display(value)),
            Val::Str(text) => self.push(&quoted(text.as_bytes())),
            Val::Bytes(bytes) => {
                let text = quoted(utf8(bytes)?.as_bytes());
                self.push(&format!("b{text}"))
            }
            Val::Double(number) if number.is_finite() => self.push(&format!("{number:.DEFAULT_PRECISION$}")),
            Val::Double(number) => self.push(&format!("\"{}\"", conversions::double_text(*number))),
            Val::Timestamp(instant) => {
                let text = temporal::timestamp_text(instant)?;
                self.push(&format!("timestamp(\"{text}\")"))
            }
            Val::Duration(nanoseconds) => {
                let text = temporal::seconds_text(*nanoseconds);
                self.push(&format!("duration(\"{text}\")"))
            }
            Val::Type(name) => self.push(name),
            Val::JsonList(_) | Val::List(_) => self.list(value, depth),
            Val::JsonMap(entries) => {
                let entries =
                    entries.members().map(|(key, value)| (quoted(key.as_bytes()), Val::from_json(value)));
                self.map(entries.collect(), depth)
            }
            Val::Map(entries) => {
                let entries = entries.entries.iter().map(|(key, value)| {
                    let key = match key {
                        Key::Str(text) => quoted(text.as_bytes()),
                        other => other.text().into_owned(),
                    };
                    (key, value.clone())
                });
                self.map(entries.collect(), depth)
            }
            other => Err(refuse(format!("{refusal} {}", other.type_name()))),
        }
    }

    fn list(&mut self, list: &Val<'a>, depth: usize) -> Result<(), EvalError> {
        self.push("[")?;
        if let Some(items) = list.as_list() {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    self.push(", ")?;
                }
                self.part(&item, depth + 1, NO_FORM)?;
            }
        }
        self.push("]")
    }

    /// Entries are written in the order of their written keys.
    fn map(&mut self, mut entries: Vec<(String, Val<'a>)>, depth: usize) -> Result<(), EvalError> {
        for (key, _) in &entries {
            self.meter.produce(key.len())?;
        }
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        self.push("{")?;
        for (index, (key, value)) in entries.into_iter().enumerate() {
            if index > 0 {
                self.push(", ")?;
            }
            self.push(&key)?;
            self.push(":")?;
            self.part(&value, depth + 1, NO_FORM)?;
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
        self.out.push_str(&if upper { hex::encode_upper(bytes) } else { hex::encode(bytes) });
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

/// The number that `%f` and `%e` write; three strings stand for numbers.
fn number(value: &Val<'_>) -> Result<f64, EvalError> {
    match value {
        Val::Double(value) => Ok(*value),
        Val::Str(text) if **text == *"NaN" => Ok(f64::NAN),
        Val::Str(text) if **text == *"Infinity" => Ok(f64::INFINITY),
        Val::Str(text) if **text == *"-Infinity" => Ok(f64::NEG_INFINITY),
        other => Err(refuse(format!(
            "fixed-point and scientific clauses can only be used on doubles, was given {}",
            other.type_name()
        ))),
    }
}

fn not_finite(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

/// As Kubernetes prints it, in English: `1,234.50`.
fn fixed(value: &Val<'_>, precision: usize) -> Result<String, EvalError> {
    let number = number(value)?;
    if let Some(text) = not_finite(number) {
        return Ok(text.to_owned());
    }
    let written = format!("{:.precision$}", number.abs());
    let (whole, fraction) = written.split_at(written.find('.').unwrap_or(written.len()));
    let mut text = if number < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    Ok(text + fraction)
}

/// As Kubernetes prints it: `1.234500×10⁰³`, with six decimals always, since there the precision is taken for the
/// least width.
fn scientific(value: &Val<'_>, width: usize) -> Result<String, EvalError> {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let number = number(value)?;
    if let Some(text) = not_finite(number) {
        return Ok(format!("{text:>width$}"));
    }
    let written = format!("{:.DEFAULT_PRECISION$e}", number.abs());
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (exponent_sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let raised: String = format!("{exponent:0>2}")
        .chars()
        .filter_map(|digit| RAISED.get(digit.to_digit(10)? as usize))
        .collect();
    let sign = if number < 0.0 { "-" } else { "" };
    let text = format!("{sign}{digits}×10{exponent_sign}{raised}");
    Ok(format!("{text:>width$}"))
}

fn utf8(bytes: &[u8]) -> Result<&str, EvalError> {
    std::str::from_utf8(bytes).map_err(|_| refuse("invalid UTF-8 in bytes, cannot convert to string"))
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
