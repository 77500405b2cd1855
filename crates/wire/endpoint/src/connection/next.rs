//! What the next bytes of an attached connection come from: the part of the receiving half's
//! protocol that receives in order and seeks have in common.

use seekwire_protocol::switch::RxStep;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Rx, Violation};

#[cfg(not(test))]
pub(super) use no_peer::between_looks;
#[cfg(test)]
pub(super) use peer::between_looks;

/// Where an attached connection goes on.
pub(super) enum Next<'r, 'q> {
    /// On the ring.
    Ring,
    /// With so many bytes from the kernel at most.
    Tcp(u64),
    /// With as many as the kernel has.
    TcpUnbounded(UnboundedRead<'r, 'q>),
    /// The ring is empty. TCP may have something to say: its end ends the stream.
    Empty,
    /// Nowhere: the stream has ended.
    End,
}

/// A read from the kernel without a bound: the sender keeps to TCP until this is dropped. The end
/// that it finds is not that of the stream if the ring has a record afterwards: the sender may have
/// entered it, and shut TCP down, since the ring was looked at.
pub(super) struct UnboundedRead<'r, 'q>(&'r Rx<'q, Own, Peer>);

impl Drop for UnboundedRead<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end_unbounded_read();
    }
}

impl<'r, 'q> Next<'r, 'q> {
    /// Takes the switches off the head of the ring, and announces the read that has to be.
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
    /// Where the peer may do something between two looks of this end's.
    #[inline]
    pub(in super::super) fn between_looks() {}
}

/// A peer that does something between two looks of this end's.
#[cfg(test)]
pub(super) mod peer {
    use std::cell::RefCell;
    use std::rc::Rc;

    type Act = Rc<dyn Fn()>;

    thread_local! {
        static PEER: RefCell<Option<Act>> = const { RefCell::new(None) };
    }

    /// What the peer does, for this thread.
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
