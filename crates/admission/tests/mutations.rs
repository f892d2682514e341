//! The fuzz targets' corpus and a few thousand fixed mutations of it: what the fuzzers look for (fuzz/), at
//! every test run. Nothing may panic, overflow or run on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use sallyport_admission::{Answer, Patch, Review};
use serde_json::Value;
use serde_json::value::RawValue;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// splitmix64 with a fixed seed: the same mutations at every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % (sides as u64)).unwrap()
    }

    /// Up to four edits: a byte changed, a span left out, doubled, or taken from another seed.
    fn mutate(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        const BYTES: &[u8] = b"{}[]\",:\\/~0-9eEu\0\x1f\x7f\xff\n null";
        let mut text = seeds[self.roll(seeds.len())].clone();
        for _ in 0..=self.roll(4) {
            let start = self.roll(text.len() + 1);
            let end = (start + self.roll(24)).min(text.len());
            match self.roll(4) {
                0 if start < text.len() => text[start] = BYTES[self.roll(BYTES.len())],
                1 => drop(text.drain(start..end)),
                2 => {
                    let span = text[start..end].to_vec();
                    text.splice(start..start, span);
                }
                _ => {
                    let other = &seeds[self.roll(seeds.len())];
                    let from = self.roll(other.len() + 1);
                    let to = (from + self.roll(40)).min(other.len());
                    text.splice(start..end, other[from..to].iter().copied());
                }
            }
        }
        text
    }
}

/// Returns whether the body was a review.
fn envelope(body: &[u8]) -> bool {
    let Ok(review) = Review::parse(body) else { return false };
    let answer: Value =
        serde_json::from_slice(&Answer::allow().render(review.api_version, &review.request.uid)).unwrap();
    assert_eq!(answer["response"]["uid"], review.request.uid.as_ref());
    assert_eq!(answer["apiVersion"], review.api_version.as_str());
    true
}

/// Returns whether object and patch could be read; whether the one fits the other is judged elsewhere.
fn patch(input: &[u8]) -> bool {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return false };
    let Ok(object) = serde_json::from_slice::<&RawValue>(&input[..end]) else { return false };
    let Ok(patch) = Patch::parse(&input[end + 1..]) else { return false };
    if let Err(error) = patch.verify(Some(object)) {
        assert!(error.to_string().len() < 2000, "{error}");
    }
    true
}

#[test]
fn corpus_and_mutations_end_without_panic() {
    for (target, run) in [("envelope", envelope as fn(&[u8]) -> bool), ("patch", patch)] {
        let seeds = corpus(target);
        let read = seeds.iter().filter(|seed| run(seed)).count();
        assert!(read >= 7 && read < seeds.len(), "{target}: {read} of {} seeds were read", seeds.len());
        let mut dice = Dice(7);
        let readable = (0..5000).filter(|_| run(&dice.mutate(&seeds))).count();
        // Were none or all readable, the mutations would prove nothing.
        assert!((100..4900).contains(&readable), "{target}: {readable} of 5000 mutations were read");
    }
}
