//! The one way to print an error with its causes, for messages, logs and conditions alike.
//!
//! Start with [`format_chain`]. The crate has no dependencies, so that every other crate can take it: the pure
//! ones, which may not know tokio, as well as the services.
//!
//! ```
//! use sallyport_error_chain::format_chain;
//!
//! let cause = std::io::Error::other("connection refused");
//! let error = std::io::Error::new(std::io::ErrorKind::NotFound, cause);
//! assert_eq!(format_chain(&error), "connection refused");
//! ```

use std::error::Error;

/// Formats an error and its causes in one line, outermost first, separated by `: `.
///
/// A cause that the text before it already ends with is left out: many errors repeat their source in their own
/// message.
pub fn format_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
    }
    text
}

/// Iterates over the causes of an error, outermost first, without the error itself.
pub fn causes<'a>(error: &'a (dyn Error + 'a)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::{causes, format_chain};

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Self>>);

    impl fmt::Display for Layer {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn layers(messages: &[&'static str]) -> Layer {
        let [first, rest @ ..] = messages else { panic!("an error has a message") };
        Layer(first, (!rest.is_empty()).then(|| Box::new(layers(rest))))
    }

    #[test]
    fn causes_follow_their_errors_and_are_printed_once() {
        for (messages, text) in [
            (&["failed"] as &[_], "failed"),
            (&["failed to connect", "TLS", "expired"], "failed to connect: TLS: expired"),
            (&["service error: refused", "refused"], "service error: refused"),
            (&["a: b: c", "b: c", "c"], "a: b: c"),
            // What only stands somewhere in the message is not the cause yet.
            (&["no such host: example", "no"], "no such host: example: no"),
        ] {
            let error = layers(messages);
            assert_eq!(format_chain(&error), text);
            assert_eq!(causes(&error).count(), messages.len() - 1);
        }
    }
}
