//! Doubles as integers.

/// The integer part of a double; what does not fit becomes the nearest that does.
#[allow(clippy::cast_possible_truncation)] // `as` from a double saturates, which is what is wanted
pub(crate) fn truncate(double: f64) -> i128 {
    double as i128
}

/// The integer that a double equals.
pub(crate) fn integral(double: f64) -> Option<i128> {
    (double.fract() == 0.0).then(|| truncate(double))
}
