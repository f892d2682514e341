//! Reading a review's body: bounded in size, in time, and in what all bodies
//! together may hold.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body_util::BodyExt;
use hyper::body::Body;
use sallyport_net::{ByteBudget, Reservation};

use crate::failure::Failure;

/// Time for a whole body.
const SLOWEST: Duration = Duration::from_secs(30);

/// A body over the limit is still read up to this many times the limit, so
/// that its sender is there to read the answer.
const PATIENCE: usize = 2;

/// Whether the headers announce JSON. None at all is taken as JSON.
pub(crate) fn check_media_type(headers: &HeaderMap) -> Result<(), Failure> {
    let shown = |value: &http::HeaderValue| -> String {
        String::from_utf8_lossy(value.as_bytes()).chars().take(100).collect()
    };
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|value| *value != "identity") {
        return Err(Failure::MediaType(format!("encoded as {}", shown(encoding))));
    }
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = kind.to_str().ok().and_then(|text| text.split(';').next()).map(str::trim);
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        Ok(())
    } else {
        Err(Failure::MediaType(shown(kind)))
    }
}

/// Reads the body into one buffer and keeps its bytes reserved as long as the
/// reservation lives.
pub(crate) async fn read<B>(
    body: B,
    limit: usize,
    budget: &ByteBudget,
) -> Result<(Bytes, Reservation), Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    match tokio::time::timeout(SLOWEST, fill(body, limit, budget)).await {
        Ok(read) => read,
        Err(_) => Err(Failure::SlowBody(SLOWEST)),
    }
}

async fn fill<B>(mut body: B, limit: usize, budget: &ByteBudget) -> Result<(Bytes, Reservation), Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let overloaded = || Failure::Overloaded("bytes");
    let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    if announced.is_some_and(|size| size > limit) {
        drain(body, limit * PATIENCE).await;
        return Err(Failure::TooLarge(limit));
    }
    let mut reservation = budget.reserve(announced.unwrap_or_default()).ok_or_else(overloaded)?;
    let mut buffer = BytesMut::with_capacity(announced.unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::BrokenBody(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue }; // trailers
        let size = buffer.len() + data.len();
        if size > limit {
            drop((buffer, reservation));
            drain(body, limit * PATIENCE).await;
            return Err(Failure::TooLarge(limit));
        }
        if size > reservation.bytes() && !reservation.grow(size - reservation.bytes()) {
            return Err(overloaded());
        }
        buffer.extend_from_slice(&data);
    }
    Ok((buffer.freeze(), reservation))
}

/// Reads and forgets at most `most` bytes.
async fn drain<B>(mut body: B, most: usize)
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut left = most;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use bytes::Bytes;
    use http::HeaderMap;
    use http_body_util::{BodyExt, Full, StreamBody};
    use hyper::body::Frame;
    use sallyport_net::ByteBudget;

    use super::{check_media_type, read};
    use crate::failure::Failure;

    #[test]
    fn json_is_taken_with_parameters_or_unannounced_c05() {
        for (name, value, fits) in [
            ("x-none", "", true),
            ("content-type", "application/json", true),
            ("content-type", "application/json; charset=utf-8", true),
            ("content-type", "Application/JSON", true),
            ("content-type", "text/plain", false),
            ("content-type", "application/jsonx", false),
            ("content-type", "", false),
            ("content-encoding", "gzip", false),
            ("content-encoding", "identity", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(check_media_type(&headers).is_ok(), fits, "{name}: {value}");
        }
    }

    fn chunked(
        chunks: usize,
        size: usize,
    ) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames = (0..chunks).map(move |_| Ok(Frame::data(Bytes::from(vec![b' '; size]))));
        StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
    }

    #[tokio::test]
    async fn a_body_at_the_limit_is_read_and_one_byte_more_is_too_large_c06_g01() {
        let budget = ByteBudget::new(1000);
        for (size, fits) in [(0, true), (100, true), (101, false), (500, false)] {
            let full = read(Full::new(Bytes::from(vec![b'x'; size])), 100, &budget).await;
            assert_eq!(full.is_ok(), fits, "announced {size}");
            drop(full);
            let streamed = read(chunked(size, 1), 100, &budget).await;
            assert_eq!(streamed.is_ok(), fits, "chunked {size}");
            assert!(fits || matches!(streamed, Err(Failure::TooLarge(100))));
        }
        assert_eq!(budget.used(), 0, "everything reserved came back");
    }

    #[tokio::test]
    async fn what_does_not_fit_into_the_shared_budget_is_overload() {
        let budget = ByteBudget::new(150);
        let first = read(Full::new(Bytes::from(vec![b'x'; 100])), 100, &budget).await.unwrap();
        for refused in [
            read(Full::new(Bytes::from(vec![b'x'; 51])), 100, &budget).await,
            read(chunked(6, 10), 100, &budget).await,
        ] {
            assert!(matches!(refused, Err(Failure::Overloaded(_))));
        }
        drop(first);
        assert!(read(chunked(6, 10), 100, &budget).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_in_is_given_up_after_half_a_minute() {
        let budget = ByteBudget::new(1000);
        let frames = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))), ()))
        });
        let begun = tokio::time::Instant::now();
        let read = read(StreamBody::new(frames).boxed_unsync(), 1000, &budget).await;
        assert!(matches!(read, Err(Failure::SlowBody(_))));
        assert_eq!((begun.elapsed().as_secs(), budget.used()), (30, 0));
    }
}
