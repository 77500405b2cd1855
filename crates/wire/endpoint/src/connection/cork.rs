//! TCP_CORK and MSG_MORE on the ring: the receiver holds back what TCP would
//! ([`Tx::push_held`]).

use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire_transport::iov::Gather;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Tx, Violation};
use seekwire_transport::sys::{Fd, socket};

use super::link::Link;
use super::state::Connection;
use super::terms::{Interest, SendFlags};

impl Link {
    /// Whether this end can hold bytes back: both machines of a link have a clock of their own.
    fn may_hold(&self) -> bool {
        !self.is_across()
    }

    /// Asks the kernel whether the socket is corked, under the lock of the sending half: so the
    /// last one who asks knows best.
    pub(super) fn follow_cork(&self, tx: &Tx<'_, Own, Peer>, fd: Fd) {
        if self.may_hold() {
            tx.set_corked(socket::is_corked(fd));
        }
    }

    /// Bytes of a full segment. The kernel changes the number with its windows, which traffic on
    /// the ring leaves alone.
    fn full_segment(&self, fd: Fd) -> usize {
        let known = self.segment.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let segment = socket::segment(fd).unwrap_or(1).max(1);
        self.segment.store(segment, Ordering::Relaxed);
        segment
    }
}

impl Connection {
    #[cold]
    pub(super) fn push_held(
        &self,
        link: &Link,
        tx: &Tx<'_, Own, Peer>,
        gather: &mut Gather<'_>,
        flags: SendFlags,
    ) -> Result<usize, Violation> {
        if !link.may_hold() {
            return tx.push(gather);
        }
        // The cork may have been taken out by a call that nobody saw.
        if !flags.more && !tx.is_holding() {
            link.follow_cork(tx, self.fd());
        }
        let pushed = tx.push_held(gather, flags.more, link.full_segment(self.fd()))?;
        if flags.end_of_record && pushed > 0 {
            tx.end_record();
        }
        Ok(pushed)
    }

    /// The application has set TCP_CORK or TCP_NODELAY. `pushes`: the kernel sends at once what it
    /// held back.
    pub fn follow_cork(&self, pushes: bool) {
        let Some(link) = self.attached() else { return };
        // Not as for a send, after which whoever waits for data is rung for. A signal handler that
        // interrupted a send cannot know whether that comes before it.
        let Some(tx) = link.ring.queue.try_tx() else { return };
        link.follow_cork(&tx, self.fd());
        let is_released = pushes && tx.release();
        drop(tx);
        if is_released {
            link.ring.send_with(|_, _| ());
        }
    }

    /// For a caller that is armed and looks once more before it sleeps: how long the sleep may
    /// last. The peer holds bytes back until then, and does not ring when they become visible.
    #[must_use]
    pub fn held_for(&self, want: Interest) -> Option<Duration> {
        if want.read { self.attached()?.ring.queue.note_hold() } else { None }
    }
}
