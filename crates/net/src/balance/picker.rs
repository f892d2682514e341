//! Which endpoint gets a call: the less loaded of two random ones.
//!
//! The picker decides and changes nothing. What it knows are the candidates and the clock, chance is an argument, so
//! that a test can replay every decision.

use fastrand::Rng;
use tokio::time::Instant;

use super::load::Load;

/// An endpoint as the picker sees it.
pub trait Candidate {
    /// Returns whether the endpoint answers, as far as is known.
    fn is_up(&self) -> bool;

    /// How loaded it is.
    fn load(&self) -> Load;
}

/// Picks the less loaded of two random `replicas` that are up; when none is, the first of `fallback` that is up; when
/// none of these is either, any. Picks only what `may` allows; `None` when that is nothing.
///
/// ```
/// use fastrand::Rng;
/// use sallyport_net::balance::{Candidate, Load, pick};
/// use tokio::time::Instant;
///
/// struct Replica(&'static str, Load);
///
/// impl Candidate for Replica {
///     fn is_up(&self) -> bool {
///         true
///     }
///
///     fn load(&self) -> Load {
///         self.1
///     }
/// }
///
/// let now = Instant::now();
/// let (idle, mut busy) = (Load::new(now), Load::new(now));
/// busy.begin_call();
/// let replicas = [Replica("busy", busy), Replica("idle", idle)];
/// let picked = pick(&replicas, &[], |_| true, now, &mut Rng::with_seed(7)).unwrap();
/// assert_eq!(picked.0, "idle");
/// ```
pub fn pick<'c, C: Candidate>(
    replicas: &'c [C],
    fallback: &'c [C],
    may: impl Fn(&C) -> bool,
    now: Instant,
    random: &mut Rng,
) -> Option<&'c C> {
    let up: Vec<&C> = replicas.iter().filter(|replica| may(replica) && replica.is_up()).collect();
    match up.as_slice() {
        [] => fallback.iter().find(|candidate| may(candidate) && candidate.is_up()).or_else(|| {
            let any: Vec<&C> = replicas.iter().chain(fallback).filter(|candidate| may(candidate)).collect();
            random.choice(any)
        }),
        [one] => Some(one),
        several => {
            let first = random.usize(..several.len());
            let step = 1 + random.usize(..several.len() - 1);
            let (first, second) = (several[first], several[(first + step) % several.len()]);
            Some(if first.load().is_better_than(&second.load(), now) { first } else { second })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fastrand::Rng;
    use tokio::time::Instant;

    use super::{Candidate, Load, pick};

    #[derive(Debug)]
    struct Fake {
        index: usize,
        up: bool,
        load: Load,
    }

    impl Candidate for Fake {
        fn is_up(&self) -> bool {
            self.up
        }

        fn load(&self) -> Load {
            self.load
        }
    }

    /// Endpoints with any history at all.
    fn fakes(random: &mut Rng, count: usize, first: usize, now: Instant) -> Vec<Fake> {
        let fake = |index| {
            let mut load = Load::new(now);
            (0..random.usize(..4)).for_each(|_| load.begin_call());
            load.record_pick(random.u64(..3));
            if random.bool() {
                load.record_latency(Duration::from_millis(random.u64(..200)), now);
            }
            Fake { index: first + index, up: random.bool(), load }
        };
        (0..count).map(fake).collect()
    }

    /// Whatever the candidates are: replicas that are up come first, then a fallback that is up, then any; nobody
    /// who is not allowed; and of two replicas never the worse.
    #[test]
    fn the_best_kind_of_candidate_is_picked() {
        let mut random = Rng::with_seed(2);
        let now = Instant::now();
        for _ in 0..20_000 {
            let (count, spare) = (random.usize(..5), random.usize(..3));
            let replicas = fakes(&mut random, count, 0, now);
            let fallback = fakes(&mut random, spare, count, now);
            let barred = random.usize(..8);
            let may = |fake: &Fake| fake.index != barred;
            let picked = pick(&replicas, &fallback, may, now, &mut random);

            let allowed = |fakes: &[Fake]| fakes.iter().filter(|fake| may(fake)).count();
            let up = |fakes: &[Fake]| fakes.iter().filter(|fake| may(fake) && fake.up).count();
            let Some(picked) = picked else {
                assert_eq!(allowed(&replicas) + allowed(&fallback), 0);
                continue;
            };
            assert!(may(picked));
            let is_replica = picked.index < count;
            match (up(&replicas), up(&fallback)) {
                (0, 0) => assert!(!picked.up),
                (0, _) => assert!(picked.up && !is_replica),
                (several, _) => {
                    assert!(picked.up && is_replica);
                    if several == 2 {
                        let mut others = replicas.iter().filter(|fake| may(fake) && fake.up);
                        let other = others.find(|fake| fake.index != picked.index).unwrap();
                        assert!(!other.load.is_better_than(&picked.load, now), "{picked:?} of {replicas:?}");
                    }
                }
            }
        }
    }

    /// Of many the worst one is never picked, and every other one is.
    #[test]
    fn two_are_compared_and_everybody_is_drawn() {
        let (mut random, now) = (Rng::with_seed(3), Instant::now());
        let mut replicas: Vec<Fake> =
            (0..5).map(|index| Fake { index, up: true, load: Load::new(now) }).collect();
        replicas[2].load.begin_call();
        let mut seen = [0; 5];
        for _ in 0..5000 {
            seen[pick(&replicas, &[], |_| true, now, &mut random).unwrap().index] += 1;
        }
        assert_eq!(seen[2], 0, "{seen:?}");
        // Each is drawn in two of five comparisons; the expected share of the four is 1250.
        assert!(
            seen.iter().enumerate().all(|(index, count)| index == 2 || (1100..1400).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn the_same_chance_gives_the_same_pick() {
        let now = Instant::now();
        let replicas = fakes(&mut Rng::with_seed(4), 5, 0, now);
        let picks = |seed| {
            let mut random = Rng::with_seed(seed);
            let pick = || pick(&replicas, &[], |_| true, now, &mut random).map(|fake| fake.index);
            std::iter::repeat_with(pick).take(100).collect::<Vec<_>>()
        };
        assert_eq!(picks(5), picks(5));
    }
}
