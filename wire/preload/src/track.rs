//! Enters objects into the table with their first number, and removes them with their last.

use std::ffi::c_int;
use std::sync::Arc;

use seekwire_endpoint::Role;
use seekwire_transport::sys::{Fd, thread};

use crate::deferred::{self, Task};
use crate::epoll;
use crate::fd_numbers::Last;
use crate::socket::Socket;
use crate::table::{self, Object, RETIRED, Set, SocketRef};
use crate::{allocator, deferred_close, ffi, log, process, spawn_actions, stats};

/// Tracks `fd`, which the kernel has just returned. `listener` is set if it was accepted.
pub(crate) fn track(fd: c_int, role: Role, nonblocking: bool, listener: Option<&Socket>) {
    if allocator::is_scarce() {
        fresh(fd);
        return;
    }
    let socket = Socket::new(fd, role);
    if nonblocking {
        socket.connection.settings().set_nonblocking(true);
    }
    if let Some(listener) = listener {
        socket.inherit(listener);
    }
    enter(fd, Object::socket(socket));
    if RETIRED.is_due(false) {
        RETIRED.reclaim();
    }
}

/// Tracks a new epoll fd.
pub(crate) fn track_set(fd: c_int) {
    enter(fd, Object::set(Set::new(fd)));
}

/// Enters an object for a number that the kernel has just returned.
pub(crate) fn enter(fd: c_int, object: Arc<Object>) {
    if let Some(stale) = table::insert(fd, object) {
        // Closed in a way that the library cannot see, such as a raw system call.
        log::debug!(fd, "a tracked fd was closed behind the library's back");
        leave(fd, stale, Last::Gone);
    }
}

/// Called when the kernel has just returned `fd` for a file that the library does not track: the
/// table's object was closed in a way that the library cannot see.
#[inline]
pub(crate) fn fresh(fd: c_int) -> c_int {
    if table::is_entered(fd) {
        ffi::keeping_errno(|| untrack_unseen(fd));
    }
    fd
}

/// Stops tracking `fd`, which no longer stands for the entered object.
#[cold]
pub(crate) fn untrack_unseen(fd: c_int) {
    match process::kind() {
        process::ProcessKind::Own => {
            log::debug!(fd, "a tracked fd was closed behind the library's back");
            untrack(fd, Last::Gone);
        }
        process::ProcessKind::RawFork => forget(fd),
        // It has closed its own number, but the table is its parent's.
        process::ProcessKind::Vfork => {}
    }
}

/// Stops tracking `fd`. Call it before the kernel can reuse the number.
pub(crate) fn untrack(fd: c_int, last: Last) {
    if let Some(object) = table::remove(fd) {
        leave(fd, object, last);
    }
}

/// Stops tracking `fd` because the caller closes it next.
pub(crate) fn untrack_closing(fd: c_int) {
    match process::kind() {
        process::ProcessKind::Own => untrack(fd, Last::Closing),
        process::ProcessKind::RawFork => forget(fd),
        // It closes its own number, but the table is its parent's.
        process::ProcessKind::Vfork => {}
    }
}

/// Removes `fd` from the table of a child with a copy of the memory. The object belongs to the
/// parent: its epoll sets and its ring are shared, and its locks may have been held when they were
/// copied.
pub(crate) fn forget(fd: c_int) {
    if let Some(object) = table::remove(fd) {
        std::mem::forget(object);
    }
}

fn leave(fd: c_int, object: Arc<Object>, last: Last) {
    if deferred::is_interrupted() {
        deferred_close::push(fd, object, last);
        deferred::leave_behind(&FINISH);
        return;
    }
    let mut numbers = object.numbers().lock();
    let gone = numbers.remove(fd);
    if let (Some(socket), Some(other)) = (object.as_socket(), numbers.any()) {
        socket.connection.set_fd(Fd::new(other));
    }
    drop(numbers);
    if let Some(socket) = object.as_socket().filter(|_| last != Last::Gone) {
        ffi::guarded(|| await_users(&object, socket, gone));
    }
    let mut eager = false;
    ffi::guarded(|| {
        if let Some(socket) = object.as_socket() {
            epoll::forget(socket, (!gone).then_some(fd), last);
            if gone && !socket.is_listening() {
                spawn_actions::forget_socket(socket);
                eager = socket.connection.holds_resources();
                socket.connection.leave_number();
                // A connection that lives on in another program does not end with this number.
                match last {
                    Last::Closing if socket.is_handed_over() => socket.connection.close_beside(),
                    Last::Closing => socket.connection.close(),
                    Last::Gone => socket.connection.was_closed(),
                    Last::Kept => socket.connection.leave_file(),
                }
                stats::closed(socket);
            }
        } else if let Some(set) = object.as_set().filter(|_| gone) {
            set.clear();
        }
    });
    // While other numbers stand for it, their references keep it.
    if gone {
        RETIRED.retire(object);
        if RETIRED.is_due(eager) {
            ffi::guarded(|| RETIRED.reclaim());
        }
    }
}

/// Waits until no other thread can be about to use the number that is closed next: each has left
/// its call, or sleeps, and will use another number for the file when it wakes.
fn await_users(object: &Arc<Object>, socket: &Socket, gone: bool) {
    let connection = &socket.connection;
    if !connection.receives_by_library()
        || thread::is_only_one()
        // Those threads have already been waited for.
        || process::retreats()
    {
        return;
    }
    loop {
        RETIRED.wait_for_others(Arc::as_ptr(object), || connection.sleepers());
        if !(gone && connection.divert()) {
            return;
        }
    }
}

/// Enters `fd`, which has become another number for `object`.
pub(crate) fn duplicate(object: Arc<Object>, fd: c_int) {
    if object.numbers().lock_in_handler().is_some_and(|mut numbers| numbers.add(fd)) {
        enter(fd, object);
    }
}

impl SocketRef {
    /// Updates the epoll sets that contain this socket with the state of its connection. Call it
    /// after anything that may have attached the connection, or moved its sends to the other
    /// carrier, and after a send that found no room.
    #[inline]
    pub(crate) fn update_sets(&self) {
        if (self.has_more_to_show() || self.lacks_room()) && !process::retreats() {
            self.update_sets_now();
        }
    }

    #[cold]
    fn update_sets_now(&self) {
        if deferred::is_interrupted() {
            deferred::leave_behind(&FINISH);
            return;
        }
        ffi::guarded(|| {
            if self.has_more_to_show() {
                epoll::update(self);
            }
            if self.take_lack_of_room() {
                epoll::want_room(self);
            }
        });
    }

    /// Called when the number of the connection was found to stand for another file, or none.
    /// Returns true if the caller's number is another one, which still stands for the socket: then
    /// the library makes the call again.
    #[cold]
    pub(crate) fn untrack_stale(&self) -> bool {
        let has = |fd: c_int| {
            let has = || self.connection.has_number(Fd::new(fd));
            ffi::guarded(|| ffi::keeping_errno(has)).unwrap_or(false)
        };
        let is_it = |fd: c_int| {
            table::socket(fd)
                .is_some_and(|entered| std::ptr::eq(&raw const *entered, &raw const **self))
        };
        let mut fd = self.connection.fd().raw();
        // Several numbers may have been closed.
        while !has(fd) && is_it(fd) {
            ffi::keeping_errno(|| untrack_unseen(fd));
            let next = self.connection.fd().raw();
            if next == fd {
                break;
            }
            fd = next;
        }
        if !has(self.number()) {
            return false;
        }
        if !has(self.connection.fd().raw()) {
            // Another thread, or the interrupted one, is about to note the same.
            self.connection.set_fd(Fd::new(self.number()));
        }
        true
    }
}

/// The work that signal handlers have left to the interrupted thread.
static FINISH: Task = Task(finish);

fn finish() {
    ffi::guarded(|| {
        for closed in deferred_close::take() {
            leave(closed.fd, closed.object, closed.last);
        }
        for (fd, object) in table::entries() {
            drop(object);
            if let Some(socket) = table::socket(fd) {
                socket.update_sets();
            }
        }
    });
}
