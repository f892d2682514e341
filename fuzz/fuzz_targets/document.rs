//! Any text: it is a document exactly when `serde_json` makes a value of it, and means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_document::Document;

fuzz_target!(|text: &[u8]| {
    // The one key that `serde_json` takes for something else.
    if text.windows(9).any(|window| window == b"::private") || text.windows(2).any(|window| window == b"\\u") {
        if let Ok(document) = Document::parse(text) {
            let _ = document.root().to_value();
        }
        return;
    }
    match (Document::parse(text), serde_json::from_slice::<serde_json::Value>(text)) {
        (Ok(document), Ok(value)) => {
            assert_eq!(document.root().to_value(), value);
            assert_eq!(Document::of(&value).expect("it is small"), document);
        }
        (Err(_), Err(_)) => {}
        (document, value) => panic!("{document:?} {value:?}"),
    }
});
