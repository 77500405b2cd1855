//! The fd numbers of one object.

use std::ffi::c_int;

/// The fd numbers of this process for one object.
pub(crate) struct Numbers {
    /// Almost always the only number.
    first: Option<c_int>,
    others: Vec<c_int>,
}

impl Numbers {
    pub(crate) fn new(fd: c_int) -> Numbers {
        Numbers { first: Some(fd), others: Vec::new() }
    }

    pub(crate) fn any(&self) -> Option<c_int> {
        self.first
    }

    /// Returns false if the last number was removed: the object is on its way out, and is retired
    /// only once.
    #[must_use]
    pub(crate) fn add(&mut self, fd: c_int) -> bool {
        if self.first.is_some() {
            self.others.push(fd);
        }
        self.first.is_some()
    }

    /// Returns true if none is left.
    pub(crate) fn remove(&mut self, fd: c_int) -> bool {
        if self.first == Some(fd) {
            self.first = self.others.pop();
        } else {
            self.others.retain(|&other| other != fd);
        }
        self.first.is_none()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = c_int> + '_ {
        self.first.iter().chain(&self.others).copied()
    }

    pub(crate) fn has(&self, fd: c_int) -> bool {
        self.first == Some(fd) || self.others.contains(&fd)
    }
}

/// The fate of the kernel's object when its last number is removed.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Last {
    /// The caller closes it next.
    Closing,
    /// It is already closed.
    Gone,
    /// It stays open, unknown to the library, or in another process.
    Kept,
}
