//! Tasks that wait for a stream.
//!
//! Four sources can wake a task: the kernel's socket, the doorbell, another task that has brought
//! the connection to the ring, and a timer where no event would come. They share one waker, which
//! wakes all waiting tasks, and each of them checks for itself. So no event is lost because another
//! task consumed it. A task first enters itself, then listens, then arms the ring, and only then
//! makes a last attempt: any event after that attempt wakes it.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use ::tokio::runtime::Handle;
use ::tokio::task::coop;
use ::tokio::time::{Instant, Sleep, sleep_until};
use seekwire_endpoint::{Armed, Connection, Interest, Sends};
use seekwire_protocol::Reason;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::reactor::Watched;

/// A waiting task. The reader and the writer have fixed numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Id(u64);

pub(super) const READER: Id = Id(0);
pub(super) const WRITER: Id = Id(1);

/// The waiting tasks.
#[derive(Debug, Default)]
struct Waiters(Mutex<Vec<(Id, Waker)>>);

impl Waiters {
    fn enter(&self, id: Id, waker: &Waker) {
        let mut waiters = lock(&self.0);
        match waiters.iter_mut().find(|(of, _)| *of == id) {
            Some((_, registered)) => registered.clone_from(waker),
            None => waiters.push((id, waker.clone())),
        }
    }

    fn leave(&self, id: Id) {
        lock(&self.0).retain(|(of, _)| *of != id);
    }

    fn wake_all(&self) {
        let waiters = std::mem::take(&mut *lock(&self.0));
        waiters.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Wake for Waiters {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

/// The sources that wake the tasks of a stream.
#[derive(Debug)]
pub(super) struct TaskWakers {
    socket: Watched,
    /// Set once the connection is attached.
    doorbell: OnceLock<Watched>,
    /// True once the other tasks have been woken because the connection was attached.
    is_reported: AtomicBool,
    waiters: Arc<Waiters>,
    /// Wakes all waiting tasks.
    waker: Waker,
    /// The events for which the peer is asked to ring. The request stays until the end: it costs
    /// the peer nothing until it rings, which it does once per request.
    armed: Mutex<Armed>,
    timer: Mutex<Pin<Box<Sleep>>>,
    runtime: Handle,
    next: AtomicU64,
}

impl TaskWakers {
    /// Waits for events of a nonblocking socket.
    pub(super) fn new(socket: Fd) -> io::Result<Self> {
        let waiters = Arc::new(Waiters::default());
        Ok(Self {
            socket: Watched::socket(socket)?,
            doorbell: OnceLock::new(),
            is_reported: AtomicBool::new(false),
            waker: waiters.clone().into(),
            waiters,
            armed: Mutex::default(),
            // Created now so that a runtime without time fails here.
            timer: Mutex::new(Box::pin(sleep_until(Instant::now()))),
            runtime: Handle::current(),
            next: AtomicU64::new(WRITER.0 + 1),
        })
    }

    /// Registers a further task until the result is dropped.
    pub(super) fn waiter(&self) -> Waiter<'_> {
        Waiter { waiting: self, id: Id(self.next.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Tries until there is a result; `attempt` returns `None` if it would block. `connection` is
    /// given for a stream that may come to the ring.
    pub(super) fn poll<T, E: From<io::Error>>(
        &self,
        cx: &mut Context<'_>,
        id: Id,
        want: Interest,
        connection: Option<&Connection>,
        mut attempt: impl FnMut() -> Result<Option<T>, E>,
    ) -> Poll<Result<T, E>> {
        // A task gives way to others even if the kernel is not involved.
        let turn = ready!(coop::poll_proceed(cx));
        let is_ready = |connection: &Connection| {
            let now = connection.readiness();
            (want.read && now.read) || (want.write && now.write)
        };
        if connection.is_some_and(is_ready) {
            if let Some(result) = attempt().transpose() {
                turn.made_progress();
                return Poll::Ready(result);
            }
        }
        self.waiters.enter(id, cx.waker());
        let result = loop {
            let attached = self.listen(connection)?;
            let (done, held) = match connection.filter(|_| attached) {
                Some(connection) => {
                    connection.rearm(&mut lock(&self.armed), want);
                    connection.last_look(want, &mut attempt)
                }
                None => (attempt(), None),
            };
            if let Some(result) = done.transpose() {
                break result;
            }
            // This attempt or another task has brought the connection to the ring in the meantime.
            let is_new = !attached && connection.is_some_and(Connection::is_attached);
            if !is_new {
                let recheck_after =
                    connection.and_then(|connection| self.recheck_after(connection, want));
                if let Some(soon) = held.into_iter().chain(recheck_after).min() {
                    self.wake_within(soon);
                }
                return Poll::Pending;
            }
        };
        self.waiters.leave(id);
        self.follow(connection);
        turn.made_progress();
        Poll::Ready(result)
    }

    /// Called after an operation that may have brought the connection to the ring: watches the
    /// doorbell, and wakes the tasks that wait for the socket alone. Returns whether the connection
    /// is attached.
    pub(super) fn follow(&self, connection: Option<&Connection>) -> bool {
        let Some(connection) = connection.filter(|connection| connection.is_attached()) else {
            return false;
        };
        if !self.is_reported.swap(true, Ordering::AcqRel) {
            let _inside = self.runtime.enter();
            // The same doorbell rings for room to write.
            match connection.doorbell_for(Interest::WRITE).map(Watched::doorbell) {
                Some(Ok(doorbell)) => _ = self.doorbell.set(doorbell),
                // An error means that TCP has ended, and the ring with it.
                _ => _ = connection.fall_back(Reason::FdLimit),
            }
            self.waiters.wake_all();
        }
        true
    }

    /// From now on any event wakes all waiting tasks.
    fn listen(&self, connection: Option<&Connection>) -> io::Result<bool> {
        let attached = self.follow(connection);
        let mut cx = Context::from_waker(&self.waker);
        self.socket.listen(&mut cx)?;
        if let Some(doorbell) = self.doorbell.get() {
            doorbell.listen(&mut cx)?;
        }
        Ok(attached)
    }

    /// When to look again, if the awaited event may come without a notification.
    fn recheck_after(&self, connection: &Connection, want: Interest) -> Option<Duration> {
        let lacks_doorbell = connection.is_attached() && self.doorbell.get().is_none();
        // The read that kept the attempt from TCP may have ended since.
        let sends = if connection.was_held_up() { Sends::HeldUp } else { Sends::default() };
        let soon = connection.longest_sleep(want, sends);
        soon.or_else(|| lacks_doorbell.then_some(Connection::RECHECK_INTERVAL))
    }

    fn wake_within(&self, soon: Duration) {
        let mut timer = lock(&self.timer);
        let at = Instant::now() + soon;
        // Another task may need an earlier one.
        if timer.is_elapsed() || at < timer.deadline() {
            timer.as_mut().reset(at);
        }
        // Already expired: the tasks look again at once.
        if timer.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready() {
            self.waiters.wake_all();
        }
    }

    /// Withdraws all requests for the doorbell, because no task waits any more.
    pub(super) fn disarm(&self, connection: &Connection) {
        connection.disarm(std::mem::take(&mut lock(&self.armed)));
    }
}

/// A waiting task other than the reader and the writer.
pub(super) struct Waiter<'w> {
    waiting: &'w TaskWakers,
    id: Id,
}

impl Waiter<'_> {
    pub(super) fn id(&self) -> Id {
        self.id
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiting.waiters.leave(self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
