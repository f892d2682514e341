//! The API server's figures: what steps, texts and patterns cost.
//!
//! The API server adds up the steps of an evaluation: a variable or a field costs one, a literal nothing, a list
//! ten, a text a tenth for each character that is traversed. Expressions that run there must run here and the
//! other way round, so the figures are the same to the last unit. They leave work out that costs time (what a
//! comparison finds inside a list, for one), hence the other bounds of the [`meter`](crate::meter).

/// What a character that is gone through costs.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// What a character of a pattern multiplies the cost of a text by.
const PATTERN: f64 = 0.25;
/// A variable, a field, an ordinary call.
pub(crate) const UNIT: u64 = 1;
/// A list, a map, a struct that is made.
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;
/// A question to the authorizer: two an expression.
pub(crate) const CHECK: u64 = 350_000;

#[allow(clippy::cast_precision_loss)] // the API server counts in doubles
pub(crate) fn float(size: u64) -> f64 {
    size as f64
}

/// The next integer. Nothing here is negative, and what is too large saturates.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // see above
pub(crate) fn up(cost: f64) -> u64 {
    // Most machines that images are built for round down at once, but call a function to round up.
    let down = cost as u64;
    if float(down) < cost { down.saturating_add(1) } else { down }
}

pub(crate) fn traversed(size: u64) -> u64 {
    up(float(size) * TRAVERSAL)
}

/// What the pattern's length makes of each unit of the text.
pub(crate) fn pattern(length: u64) -> u64 {
    up(float(length) * PATTERN)
}

/// An empty text counts as one character, so that no pattern is free.
pub(crate) fn matched(text: u64, pattern: u64) -> u64 {
    up((1.0 + float(text)) * TRAVERSAL).saturating_mul(pattern)
}
