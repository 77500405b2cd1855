//! Locks a half of the ring, if it is free or its holder has died; or finds that it must not.
//!
//! A signal handler may interrupt a call on a connection and make another call of that kind on it.
//! The first call cannot go on before the handler returns, so the second one can neither move bytes
//! nor wait: it fails with EAGAIN, even if calls wait. (After EINTR it would be repeated for ever,
//! and a deadlock would be worse.) The same happens to a process that a handler has forked and
//! waits for, if it takes the halves within a time limit.

use seekwire_transport::Errno;
#[cfg(doc)]
use seekwire_transport::lock;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{Rx, Violation};
use seekwire_transport::ring::{Receiving, Sending};
use seekwire_transport::sys::socket;

use super::data_path::DataPath;
use super::state::Connection;

impl Connection {
    /// Takes the sending half.
    ///
    /// # Errors
    /// EAGAIN in a handler that has interrupted its holder; ECONNRESET if a holder was killed while
    /// it gave the kernel bytes again, perhaps without counting them.
    #[inline]
    pub(super) fn tx<'l>(&self, data_path: &'l DataPath) -> Result<Sending<'l>, Errno> {
        let tx = data_path.ring.sending().ok_or(Errno::AGAIN)?;
        if tx.owner_died_retransmitting() {
            return Err(self.violated(data_path, Violation));
        }
        Ok(tx)
    }

    /// Takes the receiving half. A holder that died may have received bytes by TCP without counting
    /// them: the bytes after them on the ring would then be waited for in vain. The kernel has
    /// counted them.
    #[inline]
    pub(super) fn rx<'l>(&self, data_path: &'l DataPath) -> Result<Receiving<'l>, Errno> {
        let rx = data_path.ring.receiving().ok_or(Errno::AGAIN)?;
        self.inherit(&rx);
        Ok(rx)
    }

    /// Whether this thread can take both halves: false if it was interrupted while it held one, or
    /// if another thread keeps one for longer than [`lock::within`] allows.
    #[must_use]
    pub fn can_take_halves(&self) -> bool {
        self.attached().is_none_or(|data_path| {
            let sends = self.tx(data_path).is_ok();
            sends && self.rx(data_path).is_ok()
        })
    }

    /// To be called after taking the receiving half: recounts if the previous holder has died.
    #[inline]
    pub(super) fn inherit(&self, rx: &Rx<'_, Own, Peer>) {
        if rx.owner_died() {
            self.recount(rx);
        }
    }

    #[cold]
    fn recount(&self, rx: &Rx<'_, Own, Peer>) {
        match socket::bytes_taken(self.fd()) {
            Ok(bytes) => rx.recount_tcp(bytes),
            Err(error) => {
                tracing::warn!("fd {}: bytes by TCP not counted anew: {error}", self.fd().raw())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::Ordering;

    use seekwire_protocol::Role;
    use seekwire_transport::layout::RX_LOCK;
    use seekwire_transport::mem::OwnMemory;
    use seekwire_transport::sys::Fd;
    use seekwire_transport::sys::socket::{self, KernelRecv, KernelSend};

    use crate::connection::{Connection, RecvFlags, SendFlags};

    /// A thread id that no thread ever has: they end at 2^22.
    const DEAD: u64 = 0x3fff_ffff;

    /// Both ends of an attached connection; the first one has sent `first` by TCP before.
    fn attached(first: &[u8]) -> ((TcpStream, Connection), (TcpStream, Connection)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (b, _) = listener.accept().unwrap();
        let (from, to) = (
            Connection::new(Fd::from(&a), Role::Connected),
            Connection::new(Fd::from(&b), Role::Accepted),
        );
        let bracket = from.enter_plain().unwrap();
        let sent = socket::send(from.fd(), &[IoSlice::new(first)], KernelSend::empty()).unwrap();
        bracket.sent(sent);
        drop(bracket);
        while !(from.is_attached() && to.is_attached()) {
            to.hurry();
            from.hurry();
        }
        ((a, from), (b, to))
    }

    #[test]
    fn what_a_dead_receiver_took_from_the_kernel_is_not_waited_for() {
        for ends in [false, true] {
            let ((_a, from), (_b, to)) = attached(&[b't'; 100]);
            let flags = SendFlags { no_signal: true, ..SendFlags::default() };
            assert_eq!(from.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
            assert!(from.tx_on_ring());
            if ends {
                from.shutdown(std::net::Shutdown::Write).unwrap();
            }
            // It died between the system call and the count.
            socket::recv(to.fd(), &mut [0; 60], KernelRecv::empty()).unwrap();
            to.data_path
                .get()
                .unwrap()
                .ring
                .queue
                .own()
                .word(RX_LOCK)
                .store(DEAD, Ordering::SeqCst);

            let mut got = Vec::new();
            let mut bytes = [0; 64];
            let flags = RecvFlags { dont_wait: true, ..RecvFlags::default() };
            while let Ok(n @ 1..) = to.recv(&mut [IoSliceMut::new(&mut bytes)], flags) {
                got.extend_from_slice(&bytes[..n]);
            }
            assert_eq!(got, [&[b't'; 40][..], b"by the ring"].concat(), "with the end: {ends}");
            assert_eq!(to.totals().rx_tcp, 100);
            let end = to.recv(&mut [IoSliceMut::new(&mut bytes)], flags);
            assert_eq!(end, if ends { Ok(0) } else { Err(seekwire_transport::Errno::AGAIN) });
        }
    }

    #[test]
    fn what_a_caller_sends_by_tcp_itself_does_not_follow_the_end_on_the_ring() {
        let ((_a, from), (_b, to)) = attached(b"");
        let flags = SendFlags { no_signal: true, ..SendFlags::default() };
        assert_eq!(from.send(&[IoSlice::new(b"by the ring")], flags), Ok(11));
        // Another thread is in the middle of a shutdown.
        from.data_path.get().unwrap().shut();
        from.fall_back(seekwire_protocol::Reason::UnknownOption).unwrap();
        from.stay_on_tcp();
        let sent = socket::send(from.fd(), &[IoSlice::new(b"too late")], KernelSend::NOSIGNAL);
        assert_eq!(sent, Err(seekwire_transport::Errno::PIPE));
        let mut bytes = [0; 64];
        let received =
            [(); 2].map(|()| to.recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::default()));
        assert_eq!(received, [Ok(11), Ok(0)]);
    }
}
