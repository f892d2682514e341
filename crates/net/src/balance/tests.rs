//! Calls over endpoints that are none, under paused time and with a fixed seed: the same decisions in every run.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rustls::RootCertStore;
use tokio::task::LocalSet;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// What the endpoint with this index does with a call.
type Behaviour = Rc<dyn Fn(usize) -> (Duration, Result<(), Code>)>;

fn answers(after: impl Fn(usize) -> Duration + 'static) -> Behaviour {
    Rc::new(move |index| (after(index), Ok(())))
}

struct Backend {
    balancer: Arc<Balancer>,
    behaviour: Behaviour,
    /// Tries by endpoint.
    tries: RefCell<Vec<usize>>,
}

impl Backend {
    fn new(endpoints: usize, behaviour: Behaviour) -> Rc<Self> {
        fastrand::seed(7);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
        let endpoint = |index: usize| {
            let address = ([127, 0, 0, 1], u16::try_from(index).unwrap()).into();
            Arc::new(Endpoint::new(address, "mutator", tls.clone()).unwrap())
        };
        let known = Known { replicas: (0..endpoints).map(endpoint).collect(), fallback: Vec::new() };
        let balancer = Balancer {
            target: Target { hosts: Vec::new(), fallback: Vec::new(), server_name: "mutator".to_owned() },
            options: BalancerOptions::default(),
            tls: tls.clone(),
            known: ArcSwap::from_pointee(known),
            picks: AtomicU64::new(0),
            retries: SharedBudget::full(),
            reached: AtomicBool::new(false),
            reached_now: Notify::new(),
        };
        Rc::new(Self { balancer: Arc::new(balancer), behaviour, tries: RefCell::new(vec![0; endpoints]) })
    }

    async fn call(&self, limit: Duration) -> Result<(), Status> {
        let make = |endpoint: &Endpoint, _| {
            let index = usize::from(endpoint.address.port());
            self.tries.borrow_mut()[index] += 1;
            let (after, answer) = (self.behaviour)(index);
            async move {
                tokio::time::sleep(after).await;
                answer.map_err(|code| Status::new(code, "as told"))
            }
        };
        self.balancer.call_endpoint(Instant::now() + limit, make).await
    }

    /// Makes `count` calls, `width` at a time. Returns how many failed.
    async fn load(self: Rc<Self>, count: usize, width: usize) -> usize {
        let left = Rc::new(RefCell::new(count));
        let failed = Rc::new(RefCell::new(0));
        let callers = LocalSet::new();
        for _ in 0..width {
            let (this, left, failed) = (self.clone(), left.clone(), failed.clone());
            callers.spawn_local(async move {
                loop {
                    let rest = left.borrow().checked_sub(1);
                    let Some(rest) = rest else { return };
                    left.replace(rest);
                    if this.call(LIMIT).await.is_err() {
                        *failed.borrow_mut() += 1;
                    }
                }
            });
        }
        callers.await;
        failed.take()
    }

    fn tries(&self) -> Vec<usize> {
        self.tries.borrow().clone()
    }
}

/// Busy, nearly idle, and one call at a time: with nothing in flight only the order of picks tells replicas apart.
#[tokio::test(start_paused = true)]
async fn equal_replicas_get_equal_shares() {
    for (after, width) in [(5, 32), (1, 2), (1, 1)] {
        let backend = Backend::new(4, answers(move |_| Duration::from_millis(after)));
        assert_eq!(backend.clone().load(2000, width).await, 0);
        let tries = backend.tries();
        assert_eq!(tries.iter().sum::<usize>(), 2000);
        assert!(tries.iter().all(|tries| (475..=525).contains(tries)), "{width} at a time: {tries:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_replica_gets_few_calls() {
    let backend = Backend::new(4, answers(|index| Duration::from_millis(if index == 3 { 60 } else { 1 })));
    assert_eq!(backend.clone().load(2000, 8).await, 0);
    // A quarter would be its fair share, were it as fast as the others.
    assert!(backend.tries()[3] < 100, "{:?}", backend.tries());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_slow_gets_its_share_again() {
    let start = Instant::now();
    let slow = move |index| index == 0 && start.elapsed() < Duration::from_secs(1);
    let after = move |index| Duration::from_millis(if slow(index) { 500 } else { 5 });
    let backend = Backend::new(2, answers(after));
    backend.clone().load(400, 2).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    backend.tries.replace(vec![0; 2]);
    backend.clone().load(400, 2).await;
    assert!(backend.tries()[0] >= 190, "{:?}", backend.tries());
}

/// Failing fast must not look like being fast.
#[tokio::test(start_paused = true)]
async fn a_replica_that_fails_by_itself_is_spared_and_its_failures_are_passed_on() {
    let behaviour = Rc::new(|index| match index {
        3 => (Duration::ZERO, Err(Code::Internal)),
        _ => (Duration::from_millis(1), Ok(())),
    });
    let backend = Backend::new(4, behaviour);
    let failed = backend.clone().load(1000, 4).await;
    let tries = backend.tries();
    assert_eq!(failed, tries[3]);
    assert!((1..20).contains(&tries[3]), "{tries:?}");
    assert!(tries[..3].iter().all(|tries| *tries > 300), "{tries:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_undecided_is_made_once_more_elsewhere() {
    let behaviour = Rc::new(|index| match index {
        0 => (Duration::ZERO, Err(Code::Unavailable)),
        _ => (Duration::from_millis(1), Ok(())),
    });
    let backend = Backend::new(2, behaviour);
    assert_eq!(backend.clone().load(500, 4).await, 0);
    let tries = backend.tries();
    assert!(tries[0] > 0 && tries[1] == 500, "every call ends at the good one: {tries:?}");
}

/// Of 3,000 calls that nobody can decide a thousand and a tenth are made twice.
#[tokio::test(start_paused = true)]
async fn an_outage_is_not_doubled() {
    let backend = Backend::new(3, Rc::new(|_| (Duration::from_millis(1), Err(Code::Unavailable))));
    assert_eq!(backend.clone().load(3000, 8).await, 3000);
    let retries = backend.tries().iter().sum::<usize>() - 3000;
    assert!((1200..=1300).contains(&retries), "{retries}");
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_and_is_not_made_again() {
    let begun = Instant::now();
    let backend = Backend::new(2, answers(|_| Duration::from_secs(60)));
    let status = backend.call(Duration::from_secs(3)).await.unwrap_err();
    assert_eq!((status.code(), begun.elapsed().as_secs()), (Code::DeadlineExceeded, 3));
    assert_eq!(backend.tries().iter().sum::<usize>(), 1);
}
