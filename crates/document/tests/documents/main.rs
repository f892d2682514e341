//! Documents against `serde_json`, through the public surface alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests

mod agreement;
mod hostile;
mod reading;
mod speed;

use sallyport_document::Document;
use serde_json::Value;

/// What is wrong with a document, against the value that `serde_json` makes of the same text.
fn difference(text: &[u8]) -> Option<String> {
    let expected = serde_json::from_slice::<Value>(text);
    let shown = String::from_utf8_lossy(text);
    match (Document::parse(text), expected) {
        (Err(_), Err(_)) => None,
        (Ok(_), Err(error)) => Some(format!("accepted, which is {error}: {shown}")),
        (Err(error), Ok(_)) => Some(format!("refused, {error}: {shown}")),
        (Ok(document), Ok(expected)) => {
            let found = document.root().to_value();
            // The text tells -0.0 from 0.0, which equality does not.
            let same = found == expected && format!("{found}") == format!("{expected}");
            (!same).then(|| format!("gave {found}, not {expected}: {shown}"))
        }
    }
}
