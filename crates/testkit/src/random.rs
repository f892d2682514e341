//! Random values with a fixed seed: the same cases at every run.

use serde_json::{Map, Value};

/// The most members of an object and items of a list, less one.
const WIDTH: usize = 4;

/// A generator.
#[derive(Debug, Clone)]
pub struct Random(fastrand::Rng);

impl Random {
    /// One that gives the same values for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// One of several.
    pub fn choice<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Several of them one after the other, or none.
    pub fn string(&mut self, pieces: &[&str]) -> String {
        (0..self.below(WIDTH)).map(|_| self.choice(pieces)).collect()
    }

    /// A JSON value at most `depth` deep, of which half are leaves.
    pub fn json(
        &mut self,
        depth: usize,
        key: &impl Fn(&mut Self) -> String,
        leaf: &impl Fn(&mut Self) -> Value,
    ) -> Value {
        match self.below(if depth == 0 { 4 } else { 8 }) {
            0..4 => leaf(self),
            4 | 5 => (0..self.below(WIDTH)).map(|_| self.json(depth - 1, key, leaf)).collect(),
            _ => {
                let members: Map<String, Value> =
                    (0..self.below(WIDTH)).map(|_| (key(self), self.json(depth - 1, key, leaf))).collect();
                Value::Object(members)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_values() {
        let values = |seed| {
            let mut random = Random::seeded(seed);
            let leaf = |random: &mut Random| json!(random.below(10));
            (0..20).map(|_| random.json(3, &|random| random.string(&["a", "b"]), &leaf)).collect::<Vec<_>>()
        };
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
        let kinds = values(3);
        assert!(kinds.iter().any(Value::is_object) && kinds.iter().any(Value::is_array));
    }
}
