//! Responses on their way to clients.
//!
//! A request counts until the last byte of its response has been sent, not just until there is a
//! response: each piece of a body holds the permit of the request, and the memory of the body. So
//! clients that read nothing cannot hold more than the common limit. [`Traffic`] detects them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::Version;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::idle_detection::{PendingResponse, Traffic};
use crate::counters::Counters;
use crate::failure::{Failure, Result};

/// Bytes of one step of an HTTP/2 response: a frame of the usual size. HTTP/1.1 has no windows, and
/// the kernel tracks its progress.
const PIECE: usize = 16 << 10;

/// Memory for responses on their way.
pub(crate) struct Room {
    used: AtomicU64,
    most: u64,
}

/// A share of it, released on drop.
struct Part {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(crate) fn new(most: u64) -> Self {
        Self { used: AtomicU64::new(0), most }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a share if there is room; a single response may exceed the limit.
    fn take(self: &Arc<Self>, bytes: u64) -> Option<Part> {
        let add = |used: u64| {
            let sum = used.saturating_add(bytes);
            (used == 0 || sum <= self.most).then_some(sum)
        };
        let added = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.ok().map(|_| Part { room: Arc::clone(self), bytes })
    }

    /// Adds bytes that are already in memory.
    fn add(self: &Arc<Self>, bytes: u64) -> Part {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Part { room: Arc::clone(self), bytes }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Resources that a response holds until it has been sent.
struct Holding {
    answer: PendingResponse,
    _permit: OwnedSemaphorePermit,
    _part: Part,
}

/// A part of a body, which keeps the resources of the response.
struct Piece {
    bytes: Bytes,
    holding: Arc<Holding>,
    _part: Option<Arc<Part>>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.holding.answer.gone();
    }
}

/// A body in pieces.
struct Pieces {
    body: Body,
    /// Bytes read but not sent yet.
    rest: Bytes,
    /// The memory of these bytes, if the length of the body was not known.
    part: Option<Arc<Part>>,
    /// Where that memory is counted.
    room: Option<Arc<Room>>,
    piece: usize,
    holding: Arc<Holding>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            this.part = None;
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => this.rest = bytes,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => {
                    // The response waits for this server, if for anything.
                    this.holding.answer.waits();
                    return other;
                }
            }
            let bytes = this.rest.len() as u64;
            this.part = this.room.as_ref().map(|room| Arc::new(room.add(bytes)));
        }
        this.holding.answer.goes();
        let bytes = this.rest.split_to(this.rest.len().min(this.piece));
        let (holding, part) = (Arc::clone(&this.holding), this.part.clone());
        let piece = Piece { bytes, holding, _part: part };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(of_body.lower().saturating_add(rest));
        hint
    }
}

/// Makes a response hold its permit, and memory for the part of it that exists, until its last byte
/// has been sent. Fails if there is no memory.
pub(crate) fn holding(
    response: Response,
    permit: OwnedSemaphorePermit,
    room: &Arc<Room>,
    traffic: &Arc<Traffic>,
    version: Version,
) -> Result<Response> {
    if response.body().is_end_stream() {
        return Ok(response);
    }
    // A response that is read as it is sent has nothing in memory yet.
    let length = response.body().size_hint().exact();
    let part = room.take(length.unwrap_or(0));
    let part = part.ok_or_else(|| Failure::unavailable("too many answers are being sent"))?;
    let answer = Traffic::answer(traffic);
    let holding = Arc::new(Holding { answer, _permit: permit, _part: part });
    let room = length.is_none().then(|| Arc::clone(room));
    let piece = if version == Version::HTTP_2 { PIECE } else { usize::MAX };
    let pieces = |body| Pieces { body, rest: Bytes::new(), part: None, room, piece, holding };
    Ok(response.map(|body| Body::new(pieces(body))))
}

/// Counts the bytes of a body as they are sent.
struct Counted<F: FnOnce(u64)> {
    body: Body,
    counters: Arc<Counters>,
    bytes: u64,
    /// Called with the total once nothing more is sent.
    end: Option<F>,
}

impl<F: FnOnce(u64) + Unpin> HttpBody for Counted<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            this.bytes += bytes;
            Counters::add(&this.counters.bytes, bytes);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F: FnOnce(u64)> Drop for Counted<F> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end(self.bytes);
        }
    }
}

/// Counts the bytes of a response as they are sent: for one that is compressed, or read as it is
/// sent, the total is known only at the end.
pub(crate) fn counted(
    response: Response,
    counters: Arc<Counters>,
    end: impl FnOnce(u64) + Send + Unpin + 'static,
) -> Response {
    response.map(|body| Body::new(Counted { body, counters, bytes: 0, end: Some(end) }))
}

#[cfg(test)]
mod tests {
    use super::super::idle_detection::CloseReason;
    use super::*;
    use futures_util::{FutureExt, StreamExt, stream};
    use http_body_util::BodyExt;
    use std::io;
    use std::time::{Duration, Instant};
    use tokio::sync::Semaphore;

    const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

    /// A server of one request and so many bytes, and a connection.
    struct Server {
        permits: Arc<Semaphore>,
        room: Arc<Room>,
        traffic: Arc<Traffic>,
    }

    impl Server {
        fn new(most: u64) -> Self {
            Self {
                permits: Arc::new(Semaphore::new(1)),
                room: Arc::new(Room::new(most)),
                traffic: Arc::default(),
            }
        }

        fn hold(&self, body: Body, version: Version) -> Result<Body> {
            let permit = Arc::clone(&self.permits).try_acquire_owned().unwrap();
            let held = holding(Response::new(body), permit, &self.room, &self.traffic, version);
            held.map(Response::into_body)
        }

        fn is_stuck(&self) -> bool {
            let now = Instant::now();
            let after = |time| self.traffic.end(now + time, now, IDLE_TIMEOUT, 0, 0);
            assert_eq!(after(Duration::ZERO), None);
            after(2 * IDLE_TIMEOUT) == Some(CloseReason::Stuck)
        }
    }

    fn take_piece(body: &mut Body) -> Option<Bytes> {
        let frame = body.frame().now_or_never().expect("it is there");
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    #[test]
    fn an_answer_counts_until_its_last_byte_has_gone() {
        let server = Server::new(1 << 20);
        let bytes: Vec<u8> = (0..2 * PIECE + 7).map(|at| at as u8).collect();
        let mut body = server.hold(Body::from(bytes.clone()), Version::HTTP_2).unwrap();
        assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
        let mut pieces = Vec::new();
        while let Some(piece) = take_piece(&mut body) {
            pieces.push(piece);
            let left = bytes.len() - pieces.iter().map(Bytes::len).sum::<usize>();
            assert_eq!(body.size_hint().exact(), Some(left as u64));
        }
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, 7]);
        assert_eq!(pieces.concat(), bytes);
        assert!(body.is_end_stream());
        drop(body);
        // The last piece is yet to be sent, and the body has no more data.
        pieces.drain(..2);
        assert!(server.is_stuck());
        assert_eq!(server.permits.available_permits(), 0);
        assert_eq!(server.room.used(), bytes.len() as u64);
        drop(pieces);
        assert_eq!((server.permits.available_permits(), server.room.used()), (1, 0));

        // Over HTTP/1.1, in one piece; and a client that disconnects holds nothing.
        let mut body = server.hold(Body::from(bytes.clone()), Version::HTTP_11).unwrap();
        assert_eq!(take_piece(&mut body).unwrap(), bytes);
        drop(body);
        assert_eq!((server.permits.available_permits(), server.room.used()), (1, 0));
    }

    #[test]
    fn who_waits_for_this_server_is_not_stuck() {
        let server = Server::new(1 << 20);
        let bytes = stream::iter([Ok::<_, io::Error>(Bytes::from("begun"))]);
        let body = Body::from_stream(bytes.chain(stream::pending()));
        let mut body = server.hold(body, Version::HTTP_2).unwrap();
        // The body is not polled, because there is no window.
        assert!(server.is_stuck());
        assert_eq!(server.room.used(), 0);
        let begun = take_piece(&mut body).unwrap();
        assert_eq!(server.room.used(), 5);
        assert!(body.frame().now_or_never().is_none());
        assert!(server.is_stuck());
        drop(begun);
        assert_eq!(server.room.used(), 0);
        assert!(!server.is_stuck());
        drop(body);
        assert_eq!(server.permits.available_permits(), 1);
    }

    #[test]
    fn memory_for_answers_ends_and_what_has_no_body_needs_none() {
        let server = Server::new(10);
        // A single response may be larger.
        let body = server.hold(Body::from(vec![0; 11]), Version::HTTP_11).unwrap();
        server.permits.add_permits(1);
        let refused = server.hold(Body::from("x"), Version::HTTP_11).unwrap_err();
        assert_eq!(refused.status.as_u16(), 503);
        drop(body);
        let empty = server.hold(Body::empty(), Version::HTTP_11).unwrap();
        assert!(empty.is_end_stream());
        assert_eq!((server.permits.available_permits(), server.room.used()), (2, 0));
    }
}
