//! Detects when a connection is idle or stuck.
//!
//! Data in the kernel counts as moving as long as the client's kernel acknowledges any of it,
//! however slow the link and the client are. HTTP/2 has its own windows (RFC 9113, section 5.2): a
//! client that opens none leaves responses here, on a connection that transfers nothing. And a
//! client that requests nothing occupies the connection.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use seekwire::os::unacknowledged;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// Checks within the time that a client has.
const LOOKS: u32 = 4;
/// How many times longer a response may be left while others are read. A link that takes so long
/// for a round of all responses of a connection is too slow for viewing tiles.
const PASSED_OVER: u32 = 10;

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client requests nothing more.
    Idle,
    /// The client accepts nothing of a response.
    Stuck,
}

/// Tracks the requests of a connection, and the progress of their responses.
#[derive(Default)]
pub(crate) struct Traffic {
    state: Mutex<State>,
}

struct State {
    /// Time of the last request, response, or progress of a response.
    moved: Instant,
    /// Number of requests without a response.
    unanswered: usize,
    /// Responses being sent.
    answers: BTreeMap<u64, Flow>,
    next: u64,
    kernel: Kernel,
}

/// State of the kernel's send buffer at the last check.
#[derive(Clone, Copy)]
struct Kernel {
    /// Bytes that the other end has acknowledged since the beginning.
    acknowledged: u64,
    /// Since when this count has not increased, although there are unacknowledged bytes.
    since: Instant,
    /// When it last increased, with more bytes unacknowledged.
    moved: Instant,
}

struct Flow {
    moved: Instant,
    /// Number of pieces not sent yet.
    pieces: usize,
    /// True if the response waits for this server.
    waits: bool,
}

impl Default for State {
    fn default() -> Self {
        let now = Instant::now();
        let kernel = Kernel { acknowledged: 0, since: now, moved: now };
        Self { moved: now, unanswered: 0, answers: BTreeMap::new(), next: 0, kernel }
    }
}

impl State {
    /// Records that `unacknowledged` of the `written` bytes given to the kernel are unacknowledged.
    fn look(&mut self, now: Instant, written: u64, unacknowledged: u64) {
        let acknowledged = written.saturating_sub(unacknowledged);
        let has_moved = acknowledged > self.kernel.acknowledged;
        if has_moved || unacknowledged == 0 {
            self.kernel.since = now;
        }
        if has_moved && unacknowledged > 0 {
            self.kernel.moved = now;
        }
        self.kernel.acknowledged = acknowledged;
    }
}

impl Traffic {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request.
    pub(crate) fn asked(this: &Arc<Self>) -> Asked {
        let mut state = this.state();
        (state.moved, state.unanswered) = (Instant::now(), state.unanswered + 1);
        Asked(Arc::clone(this))
    }

    /// Records a response, which the client has to read.
    pub(crate) fn answer(this: &Arc<Self>) -> PendingResponse {
        let mut state = this.state();
        let number = state.next;
        state.next += 1;
        let flow = Flow { moved: Instant::now(), pieces: 0, waits: false };
        state.answers.insert(number, flow);
        PendingResponse { traffic: Arc::clone(this), number }
    }

    /// Decides whether to close the connection at time `now`: because for `patience`, and since
    /// `since`, nothing was requested and nothing was left to read; or because for `patience` no
    /// progress was made although there was data. `unacknowledged` of the `written` bytes given to
    /// the kernel are unacknowledged.
    pub(crate) fn end(
        &self,
        now: Instant,
        since: Instant,
        patience: Duration,
        written: u64,
        unacknowledged: u64,
    ) -> Option<CloseReason> {
        let mut state = self.state();
        state.look(now, written, unacknowledged);
        let past = |moved: Instant| now.saturating_duration_since(moved);
        if past(state.kernel.since) > patience {
            return Some(CloseReason::Stuck);
        }
        let moved = state.moved.max(state.kernel.moved);
        if state.unanswered == 0 && state.answers.is_empty() {
            return (past(moved.max(since)) > patience).then_some(CloseReason::Idle);
        }
        let longest = if past(moved) > patience { patience } else { patience * PASSED_OVER };
        let is_stuck = |flow: &Flow| (flow.pieces > 0 || !flow.waits) && past(flow.moved) > longest;
        (unacknowledged == 0 && state.answers.values().any(is_stuck)).then_some(CloseReason::Stuck)
    }

    /// Waits until the connection should be closed.
    pub(crate) async fn ended(&self, stream: &TrackedStream, patience: Duration) -> CloseReason {
        let since = Instant::now();
        loop {
            sleep(patience / LOOKS).await;
            let (written, unacknowledged) = stream.counts();
            if let Some(end) = self.end(Instant::now(), since, patience, written, unacknowledged) {
                return end;
            }
        }
    }
}

/// A request, until it has a response or is abandoned.
pub(crate) struct Asked(Arc<Traffic>);

impl Drop for Asked {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.moved, state.unanswered) = (Instant::now(), state.unanswered - 1);
    }
}

/// A response, until it has been sent.
pub(crate) struct PendingResponse {
    traffic: Arc<Traffic>,
    number: u64,
}

impl PendingResponse {
    fn change(&self, change: impl FnOnce(&mut Flow)) {
        if let Some(flow) = self.traffic.state().answers.get_mut(&self.number) {
            change(flow);
        }
    }

    /// There is no more data, for now or at all.
    pub(crate) fn waits(&self) {
        self.change(|flow| flow.waits = true);
    }

    /// A piece is ready to be sent.
    pub(crate) fn goes(&self) {
        self.change(|flow| {
            (flow.moved, flow.pieces, flow.waits) = (Instant::now(), flow.pieces + 1, false);
        });
    }

    /// A piece has been sent.
    pub(crate) fn gone(&self) {
        let now = Instant::now();
        self.change(|flow| (flow.moved, flow.pieces) = (now, flow.pieces.saturating_sub(1)));
        self.traffic.state().moved = now;
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        let mut state = self.traffic.state();
        state.answers.remove(&self.number);
        state.moved = Instant::now();
    }
}

/// A connection that can be checked while others use it.
#[derive(Clone)]
pub(crate) struct TrackedStream {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    stream: TcpStream,
    /// Bytes given to the kernel.
    written: u64,
}

impl TrackedStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { stream, written: 0 })) }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes given to the kernel, and those of them that are unacknowledged.
    fn counts(&self) -> (u64, u64) {
        let shared = self.shared();
        let left = unacknowledged(&shared.stream).unwrap_or(0);
        (shared.written, left as u64)
    }

    /// Makes the kernel discard unsent data when the connection is closed.
    pub(crate) fn forget(&self) {
        let _ = set_socket_linger(&self.shared().stream, Some(Duration::ZERO));
    }
}

impl Shared {
    fn count(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = result {
            self.written += bytes as u64;
        }
        result
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.shared().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.shared();
        let result = Pin::new(&mut shared.stream).poll_write(context, bytes);
        shared.count(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.shared();
        let result = Pin::new(&mut shared.stream).poll_write_vectored(context, pieces);
        shared.count(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.shared().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.shared().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
    const IDLE: Option<CloseReason> = Some(CloseReason::Idle);
    const STUCK: Option<CloseReason> = Some(CloseReason::Stuck);

    /// A connection, checked so many seconds after its beginning, with the bytes given to the
    /// kernel and the unacknowledged ones.
    struct Looked {
        traffic: Arc<Traffic>,
        began: Instant,
    }

    impl Looked {
        fn new() -> Self {
            Self { traffic: Arc::default(), began: Instant::now() }
        }

        fn after(&self, seconds: u64) -> Instant {
            self.began + Duration::from_secs(seconds)
        }

        fn end(&self, seconds: u64, bytes: (u64, u64)) -> Option<CloseReason> {
            let (now, (written, left)) = (self.after(seconds), bytes);
            self.traffic.end(now, self.began, IDLE_TIMEOUT, written, left)
        }
    }

    #[test]
    fn who_has_asked_or_has_something_to_take_is_not_idle() {
        let looked = Looked::new();
        assert_eq!(looked.end(59, (0, 0)), None);
        assert_eq!(looked.end(61, (0, 0)), IDLE);
        // After an error, the client has the same time again.
        let since = looked.after(61);
        assert_eq!(looked.traffic.end(looked.after(100), since, IDLE_TIMEOUT, 0, 0), None);
        let asked = Traffic::asked(&looked.traffic);
        assert_eq!(looked.end(1000, (0, 0)), None);
        let answer = Traffic::answer(&looked.traffic);
        drop(asked);
        answer.waits();
        assert_eq!(looked.end(1000, (0, 0)), None);
        drop(answer);
        assert_eq!(looked.end(61, (0, 0)), IDLE);
    }

    #[test]
    fn a_slow_client_is_waited_for_as_long_as_anything_moves() {
        let looked = Looked::new();
        // All of the response is in the kernel; a few bytes are sent each minute.
        for look in 0..40 {
            assert_eq!(looked.end(30 * look, (1000, 999 - look / 2)), None, "{look}");
        }
        // Then none are.
        assert_eq!(looked.end(1199, (1000, 980)), None);
        assert_eq!(looked.end(1201, (1000, 980)), STUCK);
        // Or the next piece does not fit, because the link is slow.
        let looked = Looked::new();
        let answer = Traffic::answer(&looked.traffic);
        answer.goes();
        for look in 0..40 {
            assert_eq!(looked.end(30 * look, (1000, 999 - look / 2)), None, "{look}");
        }
        assert_eq!(looked.end(1201, (1000, 980)), STUCK);
    }

    #[test]
    fn an_answer_is_stuck_if_nothing_goes_though_it_could() {
        let looked = Looked::new();
        let [stuck, moves] = [(); 2].map(|()| Traffic::answer(&looked.traffic));
        stuck.goes();
        moves.goes();
        assert_eq!(looked.end(59, (9, 0)), None);
        assert_eq!(looked.end(61, (9, 0)), STUCK);
        // Something is acknowledged: from then on the client could read the response.
        assert_eq!(looked.end(300, (20, 5)), None);
        assert_eq!(looked.end(359, (20, 0)), None);
        assert_eq!(looked.end(361, (20, 0)), STUCK);
        // The other response is read all the time.
        looked.traffic.state().moved = looked.after(590);
        assert_eq!(looked.end(599, (20, 0)), None);
        looked.traffic.state().moved = looked.after(602);
        assert_eq!(looked.end(602, (20, 0)), STUCK);
        drop(stuck);
        moves.gone();
        moves.waits();
        assert_eq!(looked.end(602, (20, 0)), None);
    }
}
