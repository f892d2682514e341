//! What may come in: so many reviews, so many bytes, each no longer than its
//! caller waits.
//!
//! The gate stands before the message is read. Behind it a message is bytes in
//! memory, and sixteen of the largest are more than the rest of the process.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use sallyport_net::{ByteBudget, Reservation};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

use crate::fault::Fault;
use crate::meters::CallMeters;

/// The bounds, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    budget: ByteBudget,
    meters: CallMeters,
}

impl Gate {
    pub(crate) fn new(places: usize, bytes: usize, meters: CallMeters) -> Self {
        let places = places.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(places)), budget: ByteBudget::new(bytes), meters }
    }

    fn enter(&self, headers: &HeaderMap) -> Result<Arc<Place>, Fault> {
        let permit = self.places.clone().try_acquire_owned().map_err(|_| Fault::Crowded)?;
        let reservation = self.budget.reserve(0).ok_or(Fault::Full)?;
        let deadline = timeout(headers).and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(Arc::new(Place {
            deadline,
            reservation: Mutex::new(reservation),
            overflowed: AtomicBool::new(false),
            _permit: permit,
        }))
    }
}

/// A review's place behind the gate; given up when the last clone is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    deadline: Option<Instant>,
    reservation: Mutex<Reservation>,
    overflowed: AtomicBool,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Whether the caller still waits.
    pub(crate) fn in_time(&self) -> Result<(), Fault> {
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => Err(Fault::Late),
            _ => Ok(()),
        }
    }

    /// How long the caller still waits; `None` if it does not say.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(Instant::now()))
    }

    fn grow(&self, bytes: usize) -> Result<(), Fault> {
        if self.reservation.lock().grow(bytes) {
            return Ok(());
        }
        self.overflowed.store(true, Ordering::Relaxed);
        Err(Fault::Full)
    }
}

/// A gRPC service behind the gate.
#[derive(Clone, Debug)]
pub struct Gated<S> {
    gate: Gate,
    service: S,
}

impl<S> Gated<S> {
    pub(crate) fn new(gate: Gate, service: S) -> Self {
        Self { gate, service }
    }
}

impl<S: NamedService> NamedService for Gated<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Gated<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut call = self.gate.meters.begin();
        let place = match self.gate.enter(request.headers()) {
            Ok(place) => place,
            Err(fault) => {
                let status = Status::from(fault);
                call.end(status.code());
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        let mut request = request.map(|body| Body::new(CountedBody { body, place: place.clone() }));
        request.extensions_mut().insert(place.clone());
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            if place.overflowed.load(Ordering::Relaxed) {
                // The decoder may have made something else of the broken body.
                response = Status::from(Fault::Full).into_http();
            }
            call.end(code(response.headers()));
            Ok(response)
        })
    }
}

/// The code of a unary answer: only failures carry it in the headers.
fn code(headers: &HeaderMap) -> Code {
    headers.get("grpc-status").map_or(Code::Ok, |value| Code::from_bytes(value.as_bytes()))
}

/// A request body whose bytes are taken from the budget as they arrive.
struct CountedBody {
    body: Body,
    place: Arc<Place>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(fault) = self.place.grow(data.len())
        {
            return Poll::Ready(Some(Err(fault.into())));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// `grpc-timeout`: at most eight digits and a unit. What is malformed counts as absent, as tonic has it.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;

    use super::{Gate, timeout};
    use crate::fault::Fault;
    use crate::meters::CallMeters;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", value.parse().unwrap());
        headers
    }

    /// G-02.
    #[test]
    fn deadlines_are_read_in_every_unit() {
        for (value, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("1500001u", Some(Duration::from_micros(1_500_001))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("", None),
            ("S", None),
            ("5", None),
            ("-1S", None),
            ("+1S", None),
            ("100000000S", None),
            ("1s", None),
        ] {
            assert_eq!(timeout(&headers(value)), expected, "{value:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn places_and_bytes_are_bounded_and_come_back() {
        let gate = Gate::new(2, 10, CallMeters::new().unwrap());
        let first = gate.enter(&HeaderMap::new()).unwrap();
        let second = gate.enter(&HeaderMap::new()).unwrap();
        assert_eq!(gate.enter(&HeaderMap::new()).unwrap_err(), Fault::Crowded);
        assert_eq!(first.grow(6), Ok(()));
        assert_eq!(second.grow(5), Err(Fault::Full));
        assert_eq!(second.grow(4), Ok(()));
        drop(first);
        let third = gate.enter(&HeaderMap::new()).unwrap();
        assert_eq!(third.grow(6), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_knows_when_its_time_is_up() {
        let gate = Gate::new(2, 10, CallMeters::new().unwrap());
        let place = gate.enter(&headers("5m")).unwrap();
        let patient = gate.enter(&HeaderMap::new()).unwrap();
        assert_eq!(place.in_time(), Ok(()));
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!((place.in_time(), patient.in_time()), (Err(Fault::Late), Ok(())));
    }
}
