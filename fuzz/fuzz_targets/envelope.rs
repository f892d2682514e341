//! Any body: reading it ends, and what was read can be answered with the same uid (C-22).
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_admission::{Answer, Review};

fuzz_target!(|body: &[u8]| {
    let Ok(review) = Review::parse(body) else { return };
    let answer = Answer::allow().render(review.api_version, &review.request.uid);
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    assert_eq!(answer["response"]["uid"], review.request.uid.as_ref());
    assert_eq!(answer["apiVersion"], review.api_version.as_str());
});
