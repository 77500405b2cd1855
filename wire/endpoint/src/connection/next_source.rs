//! The source of the next bytes of an attached connection: the part of the receiving half's
//! protocol that receives in order and seeks have in common.

use seekwire_protocol::switch::RxStep;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Rx, Violation};

#[cfg(not(test))]
pub(super) use no_peer::between_looks;
#[cfg(test)]
pub(super) use peer::between_looks;

/// The source of the next byte.
pub(super) enum NextSource<'r, 'q> {
    /// The ring.
    Ring,
    /// The kernel, with at most this many bytes.
    Tcp(u64),
    /// The kernel, with as many bytes as it has.
    TcpUnbounded(UnboundedRead<'r, 'q>),
    /// The ring is empty. TCP may have news: its end ends the stream.
    Empty,
    /// None: the stream has ended.
    End,
}

/// A read from the kernel without a bound: the sender stays on TCP until this is dropped. If the
/// read finds the end of TCP, but the ring has a record afterwards, the stream has not ended: the
/// sender may have entered the ring, and shut TCP down, since the last look.
pub(super) struct UnboundedRead<'r, 'q>(&'r Rx<'q, Own, Peer>);

impl Drop for UnboundedRead<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end_unbounded_read();
    }
}

impl<'r, 'q> NextSource<'r, 'q> {
    /// Takes the switches off the head of the ring, and announces the read that follows.
    #[inline]
    pub(super) fn of(rx: &'r Rx<'q, Own, Peer>) -> Result<Self, Violation> {
        loop {
            between_looks();
            return Ok(match rx.step()? {
                RxStep::Ring => Self::Ring,
                RxStep::End => Self::End,
                RxStep::Tcp(bound) => Self::Tcp(bound),
                RxStep::TcpUnbounded => {
                    let is_empty = rx.begin_unbounded_read();
                    let read = UnboundedRead(rx);
                    if !is_empty {
                        continue;
                    }
                    Self::TcpUnbounded(read)
                }
                RxStep::RingEmpty => Self::Empty,
                RxStep::Advance | RxStep::Violation => return Err(Violation),
            });
        }
    }
}

#[cfg(not(test))]
mod no_peer {
    /// A point between two looks of this end at which a test's peer may act.
    #[inline]
    pub(in super::super) fn between_looks() {}
}

/// A peer that acts between two looks of this end.
#[cfg(test)]
pub(super) mod peer {
    use std::cell::RefCell;
    use std::rc::Rc;

    type Act = Rc<dyn Fn()>;

    thread_local! {
        static PEER: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// Sets the peer's action, for this thread.
    pub(in super::super) fn acts(act: Option<Act>) {
        PEER.set(act);
    }

    pub(in super::super) fn between_looks() {
        let act = PEER.with_borrow(Clone::clone);
        if let Some(act) = act {
            act();
        }
    }
}
