//! TCP_CORK and MSG_MORE on the ring: the receiver holds back the bytes that TCP would hold back
//! ([`Tx::push_held`]).

use std::sync::atomic::Ordering;

use seekwire_transport::iov::Gather;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Tx, Violation};
use seekwire_transport::sys::{Fd, socket};

use super::data_path::DataPath;
use super::state::Connection;
use super::types::SendFlags;

impl DataPath {
    /// Whether this end can hold bytes back: the two machines of a link have different clocks.
    fn may_hold(&self) -> bool {
        !self.is_remote()
    }

    /// Asks the kernel whether the socket is corked, under the lock of the sending half: so the
    /// latest answer is the one that counts.
    pub(super) fn follow_cork(&self, tx: &Tx<'_, Own, Peer>, fd: Fd) {
        if self.may_hold() {
            tx.set_corked(socket::is_corked(fd));
        }
    }

    /// Bytes of a full segment. The kernel changes the number with its windows, which traffic on
    /// the ring leaves alone.
    fn full_segment(&self, fd: Fd) -> usize {
        let cached = self.segment.load(Ordering::Relaxed);
        if cached != 0 {
            return cached;
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
        data_path: &DataPath,
        tx: &Tx<'_, Own, Peer>,
        gather: &mut Gather<'_>,
        flags: SendFlags,
    ) -> Result<usize, Violation> {
        if !data_path.may_hold() {
            return tx.push(gather);
        }
        // The cork may have been removed by a call that the library did not see.
        if !flags.more && !tx.is_holding() {
            data_path.follow_cork(tx, self.fd());
        }
        let pushed = tx.push_held(gather, flags.more, data_path.full_segment(self.fd()))?;
        if flags.end_of_record && pushed > 0 {
            tx.end_record();
        }
        Ok(pushed)
    }

    /// The application has set TCP_CORK or TCP_NODELAY. `pushes`: the kernel sends at once the
    /// bytes that it held back.
    pub fn follow_cork(&self, pushes: bool) {
        let Some(data_path) = self.attached() else { return };
        // Not as for a send, after which waiters for data are rung for. A signal handler that
        // interrupted a send cannot know whether that still follows.
        let Some(tx) = data_path.ring.queue.try_tx() else { return };
        data_path.follow_cork(&tx, self.fd());
        let is_released = pushes && tx.release();
        drop(tx);
        if is_released {
            data_path.ring.send_with(|_, _| ());
        }
    }
}
