//! Any object and any patch, divided by a newline: trying the patch ends, within its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sallyport_admission::Patch;
use serde_json::value::RawValue;

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (object, patch) = (&input[..end], &input[end + 1..]);
    let (Ok(object), Ok(patch)) = (serde_json::from_slice::<&RawValue>(object), Patch::parse(patch)) else {
        return;
    };
    // Whether it applies is for the tests to judge, against an oracle; here it must only end.
    let _ = patch.verify(Some(object));
});
