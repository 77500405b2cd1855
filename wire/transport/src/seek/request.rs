//! A seek: where it begins, how it takes bytes, and which bytes there are.

use std::io::IoSliceMut;

use seekwire_protocol::span::Span;

use crate::Errno;
use crate::iov::Scatter;
use crate::sys::poll::Deadline;

/// The bytes that can be received, by position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Position of the first byte that was neither received nor taken.
    pub head: u64,
    /// Position after the last byte that has arrived.
    pub arrived: u64,
    /// The taken bytes between them, in order.
    pub holes: Vec<Span>,
}

/// Where a seek begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// This many bytes after the head, including those of holes.
    Offset(u64),
    /// At this position of the stream, whatever was received meanwhile.
    Position(u64),
}

/// How to take bytes out of the middle: one of the constants, with changes.
///
/// ```
/// use seekwire_transport::seek::SeekOptions;
///
/// let after_a_header_of_four_bytes = SeekOptions::TAKE.skip(4);
/// let whatever_is_there = SeekOptions::PEEK.partial(true);
/// # assert_eq!((after_a_header_of_four_bytes.skip, whatever_is_there.peek), (4, true));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SeekOptions {
    /// MSG_PEEK: the bytes stay.
    pub peek: bool,
    /// Take those of the bytes that have arrived, at least one, up to the next hole.
    pub partial: bool,
    /// This many bytes at the beginning are not wanted: they are taken with the others, but
    /// discarded. Nothing is taken if the stream ends before the others, or, if there are none,
    /// before all of these.
    pub skip: u64,
    /// More requests of small pieces will follow: everything that has arrived is best moved to
    /// library memory at once.
    pub bulk: bool,
}

impl SeekOptions {
    /// Takes the bytes, all of them.
    pub const TAKE: Self = Self { peek: false, partial: false, skip: 0, bulk: false };
    /// Leaves the bytes there.
    pub const PEEK: Self = Self { peek: true, ..Self::TAKE };

    /// With [`field@SeekOptions::peek`] as given.
    #[must_use]
    pub const fn peek(self, peek: bool) -> Self {
        Self { peek, ..self }
    }

    /// With [`field@SeekOptions::partial`] as given.
    #[must_use]
    pub const fn partial(self, partial: bool) -> Self {
        Self { partial, ..self }
    }

    /// With [`field@SeekOptions::skip`] as given, in bytes.
    #[must_use]
    pub const fn skip(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// With [`field@SeekOptions::bulk`] as given.
    #[must_use]
    pub const fn bulk(self, bulk: bool) -> Self {
        Self { bulk, ..self }
    }
}

/// Attempts until the bytes are there. Bytes that one attempt has copied need not be copied again
/// by the next.
///
/// # Errors
/// Those of the closures, except EAGAIN of `attempt`.
pub fn until_there(
    into: &mut [IoSliceMut<'_>],
    mut attempt: impl FnMut(&mut Scatter<'_, '_>) -> Result<usize, Errno>,
    mut wait: impl FnMut(Deadline) -> Result<(), Errno>,
    until: &dyn Fn() -> Result<Deadline, Errno>,
) -> Result<usize, Errno> {
    let mut scatter = Scatter::new(into);
    let mut deadline = None;
    loop {
        match attempt(&mut scatter) {
            Err(Errno::AGAIN) => {
                let deadline = match deadline {
                    Some(deadline) => deadline,
                    None => *deadline.insert(until()?),
                };
                wait(deadline)?;
            }
            done => return done,
        }
    }
}
