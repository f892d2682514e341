//! How long a call may take, and when it is tried again (G-02, G-03).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sallyport_proto::v1alpha1::MutateResponse;
use tonic::Code;

use crate::authority::Ca;
use crate::replica::{Front, Replica, allow, fail};
use crate::server::{PATIENCE, eventually};

/// `Endpoint::timeout` would not send the header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_is_sent_to_the_backend_g02() {
    let ca = Ca::new();
    let seen = Arc::new(Mutex::new(None));
    let keep = seen.clone();
    let replica = Replica::start(
        &ca,
        Arc::new(move |request| {
            *keep.lock() =
                request.metadata().get("grpc-timeout").map(|value| value.to_str().unwrap().to_owned());
            Box::pin(async { Ok(MutateResponse { allowed: true, ..MutateResponse::default() }) })
        }),
    )
    .await;
    let front = Front::start(&ca, &[replica.address], 1).await;
    front.call(Duration::from_secs(7)).await.unwrap();
    let header = seen.lock().take().expect("no grpc-timeout was sent");
    let (number, unit) = header.split_at(header.len() - 1);
    let seconds = number.parse::<f64>().unwrap()
        * match unit {
            "S" => 1.0,
            "m" => 1e-3,
            "u" => 1e-6,
            "n" => 1e-9,
            _ => panic!("{header}"),
        };
    assert!(seconds > 6.0 && seconds <= 7.0, "{header}");
}

/// tonic ends an expired call with a status that looks like a lost connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_call_is_a_timeout_not_tried_again_and_not_a_lost_replica_g02() {
    let ca = Ca::new();
    let mut replicas = Vec::new();
    for _ in 0..2 {
        replicas.push(Replica::start(&ca, allow(PATIENCE * 2)).await);
    }
    let front = Front::start(&ca, &[replicas[0].address, replicas[1].address], 2).await;
    for round in 1..=20_u32 {
        let limit = Duration::from_millis(30) + Duration::from_micros(u64::from(round) * 137);
        let begun = Instant::now();
        let status = front.call(limit).await.unwrap_err();
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
        assert!(begun.elapsed() < limit + Duration::from_secs(1), "{:?}", begun.elapsed());
        let calls: usize = replicas.iter().map(Replica::calls).sum();
        assert!(calls <= round as usize, "{calls} calls after {round} that expired");
        assert_eq!(front.balancer.replicas(), (2, 2), "a slow answer is no lost connection");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_call_that_cannot_have_been_decided_is_tried_once_more_g03() {
    let ca = Ca::new();
    for (code, tries) in [
        (Code::Unavailable, 2),
        (Code::ResourceExhausted, 2),
        (Code::Internal, 1),
        (Code::Unknown, 1),
        (Code::InvalidArgument, 1),
        (Code::DeadlineExceeded, 1),
        (Code::Cancelled, 1),
        (Code::Aborted, 1),
        (Code::PermissionDenied, 1),
        (Code::Unimplemented, 1),
    ] {
        let replicas = [Replica::start(&ca, fail(code)).await, Replica::start(&ca, fail(code)).await];
        let front = Front::start(&ca, &[replicas[0].address, replicas[1].address], 2).await;
        let status = front.call(PATIENCE).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, "said by the backend"));
        assert_eq!(replicas[0].calls() + replicas[1].calls(), tries, "{code:?}");
        assert!(tries == 1 || replicas[0].calls() == 1, "the second try goes to the other replica");
        assert_eq!(front.balancer.replicas(), (2, 2), "{code:?} was said: the connection is good");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_try_can_succeed_g03() {
    let ca = Ca::new();
    let bad = Replica::start(&ca, fail(Code::Unavailable)).await;
    let good = Replica::start(&ca, allow(Duration::ZERO)).await;
    let front = Front::start(&ca, &[bad.address, good.address], 2).await;
    assert_eq!(front.load(200, 4).await.len(), 0);
    assert!(bad.calls() > 0, "never tried: nothing proven");
    assert_eq!(good.calls(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_a_tenth_of_the_calls_once_the_savings_are_spent() {
    let ca = Ca::new();
    let replicas = [
        Replica::start(&ca, fail(Code::Unavailable)).await,
        Replica::start(&ca, fail(Code::Unavailable)).await,
    ];
    let front = Front::start(&ca, &[replicas[0].address, replicas[1].address], 2).await;
    let calls = || replicas.iter().map(Replica::calls).sum::<usize>();
    // A thousand retries are saved up at the start; they allow every call to be tried twice.
    assert_eq!(front.load(500, 16).await.len(), 500);
    assert_eq!(calls(), 1000);
    assert_eq!(front.load(1000, 16).await.len(), 1000);
    let before = calls();
    assert_eq!(front.load(200, 16).await.len(), 200);
    let tries = calls() - before;
    assert!((215..=225).contains(&tries), "{tries} tries for 200 calls");
}

/// tonic says `Cancelled`, which would be taken for a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_is_an_internal_error_g03() {
    let ca = Ca::new();
    let replica = Replica::start(&ca, Arc::new(|_| Box::pin(async { panic!("as a test wants it") }))).await;
    let front = Front::start(&ca, &[replica.address], 1).await;
    let status = front.call(PATIENCE).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    assert_eq!(replica.calls(), 2, "nobody has decided: tried once more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_cut_off_by_the_death_of_the_only_replica_is_unavailable_g03() {
    let ca = Ca::new();
    let replica = Replica::start(&ca, allow(PATIENCE)).await;
    let front = Front::start(&ca, &[replica.address], 1).await;
    let caller = front.clone();
    let call = tokio::spawn(async move { caller.call(PATIENCE).await });
    eventually("the call is in flight", || replica.calls() == 1).await;
    let begun = Instant::now();
    replica.kill();
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(begun.elapsed() < PATIENCE / 2, "known at once");
}
