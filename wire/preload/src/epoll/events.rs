//! Events on their way to the application.

use libc::epoll_event;

/// Events on their way to the application.
pub(super) struct Events {
    base: *mut epoll_event,
    max: usize,
    len: usize,
}

impl Events {
    /// # Safety
    ///
    /// `base` must be valid for writes of `max` events while the value lives.
    pub(super) unsafe fn new(base: *mut epoll_event, max: usize) -> Events {
        Events { base, max, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn room(&self) -> usize {
        self.max - self.len
    }

    /// Where the kernel may put [`Events::room`] more events.
    pub(super) fn tail(&mut self) -> *mut epoll_event {
        // SAFETY: len <= max, so this is inside or one past the end.
        unsafe { self.base.add(self.len) }
    }

    pub(super) fn push(&mut self, event: epoll_event) {
        if self.len < self.max {
            // SAFETY: inside the array by the comparison; `new` demanded that it is writable.
            unsafe { self.base.add(self.len).write(event) };
            self.len += 1;
        }
    }

    pub(super) fn merge(&mut self, at: usize, events: u32) {
        if at < self.len {
            // SAFETY: an event that `push` has written.
            unsafe { (*self.base.add(at)).events |= events };
        }
    }

    /// Position of the event with `data` among the first `before` events. Searches circularly,
    /// starting at `from`.
    pub(super) fn find(&self, data: u64, before: usize, from: usize) -> Option<usize> {
        // SAFETY: an event that `push` has written, as `before` is not more than `len`.
        let is_it = |&at: &usize| unsafe { (*self.base.add(at)).u64 == data };
        (from..before).chain(0..from.min(before)).find(is_it)
    }
}
