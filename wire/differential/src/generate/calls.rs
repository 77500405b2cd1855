//! Random calls on the contents of slots: their arguments and their probable results.

use super::{Generator, Thing};
use crate::program::{Actor, Call, CloseWay, DupWay, OptionValue, PollWay, ReceiveWay, SendWay};

impl Generator {
    pub(super) fn send(&mut self, process: usize) -> Option<Call> {
        let slot = self.end(process)?;
        let length = self.length();
        self.reckon(process, slot, length, 0);
        Some(match self.random.u32(..100) {
            0..4 => Call::Sendfile { slot, length: length.min(60_000) },
            4..8 => Call::SpliceTo { slot, length: length.min(60_000) },
            8..12 => {
                let count = self.random.usize(2..200);
                Call::SendMany { slot, length: length.min(300), count, flags: 0 }
            }
            _ => {
                let way = self.one_of(&[
                    SendWay::Send,
                    SendWay::Send,
                    SendWay::Sendto,
                    SendWay::Write,
                    SendWay::Writev,
                    SendWay::Sendmsg,
                    SendWay::Sendmmsg,
                ]);
                let way = if self.chance(1) { SendWay::BadAddress } else { way };
                let mut flags = self.one_of(&[
                    0,
                    0,
                    0,
                    0,
                    libc::MSG_DONTWAIT,
                    libc::MSG_NOSIGNAL,
                    libc::MSG_EOR,
                ]);
                if self.corks && self.chance(10) {
                    flags |= libc::MSG_MORE;
                }
                if self.chance(1) {
                    flags |= self.one_of(&[
                        libc::MSG_OOB,
                        0x400,
                        0x8000,
                        libc::MSG_CONFIRM,
                        libc::MSG_DONTROUTE,
                        libc::MSG_MORE,
                    ]);
                }
                Call::Send { slot, length, flags, way }
            }
        })
    }

    pub(super) fn receive(&mut self, by: Actor) -> Option<Call> {
        let process = by.process;
        let slot = self.end(process)?;
        let there = self.there(process, slot);
        let length = if there > 0 && self.random.bool() {
            self.random.usize(1..=there)
        } else {
            self.length()
        };
        let mut flags = 0;
        for (flag, percent) in [
            (libc::MSG_PEEK, 15),
            (libc::MSG_DONTWAIT, 25),
            (libc::MSG_WAITALL, 8),
            (libc::MSG_TRUNC, 4),
            (libc::MSG_CTRUNC, 1),
            (0x10, 1),
            (libc::MSG_EOR, 1),
            (0x400, 1),
            (0x8000, 1),
            (libc::MSG_OOB, 1),
            (libc::MSG_ERRQUEUE, 1),
            (libc::MSG_NOSIGNAL, 1),
        ] {
            if self.chance(percent) {
                flags |= flag;
            }
        }
        if there == 0 && self.chance(50) {
            flags |= libc::MSG_DONTWAIT;
        }
        if flags & libc::MSG_PEEK == 0 {
            self.reckon(process, slot, 0, length);
        }
        let enough = if flags & libc::MSG_WAITALL != 0 { there >= length } else { there > 0 };
        match self.random.u32(..100) {
            0..3 => return Some(Call::SpliceFrom { slot, length: length.min(60_000), flags: 2 }),
            3..5 => return Some(Call::Drain { slot }),
            5..8 => {
                return Some(Call::Seek {
                    slot,
                    length: length.min(there).max(1),
                    flags: libc::MSG_DONTWAIT,
                });
            }
            _ => {}
        }
        self.processes[process].asleep[by.thread] = !enough && flags & libc::MSG_DONTWAIT == 0;
        let way = self.one_of(&[
            ReceiveWay::Recv,
            ReceiveWay::Recv,
            ReceiveWay::Recvfrom,
            ReceiveWay::Read,
            ReceiveWay::Readv,
            ReceiveWay::Recvmsg,
            ReceiveWay::Recvmsg,
            ReceiveWay::Recvmmsg,
        ]);
        let way = if self.chance(1) { ReceiveWay::BadAddress } else { way };
        Some(Call::Receive { slot, length, flags, way })
    }

    /// At once, a moment, or without limit.
    fn timeout(&mut self, by: Actor) -> i32 {
        let timeout = self.one_of(&[0, 0, 0, 1, -1]);
        if timeout == -1 {
            self.processes[by.process].asleep[by.thread] = self.chance(30);
        }
        timeout
    }

    pub(super) fn poll(&mut self, by: Actor) -> Option<Call> {
        let mut entries = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let slot = self.slot_with(by.process, |thing| !matches!(thing, Thing::Nothing))?;
            let events = self.one_of(&[
                libc::POLLIN,
                libc::POLLIN,
                libc::POLLIN | libc::POLLOUT,
                libc::POLLOUT,
                libc::POLLIN | libc::POLLRDHUP,
                libc::POLLPRI,
            ]);
            entries.push((slot, events));
        }
        let way = self.one_of(&[
            PollWay::Poll,
            PollWay::Poll,
            PollWay::Ppoll,
            PollWay::Select,
            PollWay::Pselect,
        ]);
        Some(Call::Poll { entries, timeout: self.timeout(by), way })
    }

    pub(super) fn epoll(&mut self, by: Actor) -> Option<Call> {
        let process = by.process;
        let Some(epoll) = self.slot_with(process, |thing| thing == Thing::Epoll) else {
            let slot = self.free(process);
            self.processes[process].slots[slot] = Thing::Epoll;
            return Some(Call::EpollCreate { slot });
        };
        if self.chance(50) {
            let slot =
                self.slot_with(process, |thing| !matches!(thing, Thing::Nothing | Thing::Epoll))?;
            let operation = self.one_of(&[
                libc::EPOLL_CTL_ADD,
                libc::EPOLL_CTL_ADD,
                libc::EPOLL_CTL_ADD,
                libc::EPOLL_CTL_MOD,
                libc::EPOLL_CTL_MOD,
                libc::EPOLL_CTL_DEL,
            ]);
            let ready = self.one_of(&[
                libc::EPOLLIN,
                libc::EPOLLIN,
                libc::EPOLLIN | libc::EPOLLOUT,
                libc::EPOLLOUT,
            ]);
            let mode = self.one_of(&[0, 0, libc::EPOLLET, libc::EPOLLONESHOT, libc::EPOLLRDHUP]);
            return Some(Call::EpollControl {
                epoll,
                operation,
                slot,
                events: (ready | mode) as u32,
            });
        }
        let room = self.one_of(&[1, 1, 2, 8]);
        let times = if room < 8 { 20 } else { 1 };
        let timeout = if times > 1 { 0 } else { self.timeout(by) };
        Some(Call::EpollWait { epoll, room, timeout, times })
    }

    pub(super) fn close(&mut self, process: usize) -> Option<Call> {
        let slot = if self.chance(85) {
            self.end(process)?
        } else {
            self.slot_with(process, |thing| !matches!(thing, Thing::Nothing | Thing::Listener))?
        };
        let way = self.close_way();
        self.processes[process].slots[slot] = Thing::Closed;
        Some(Call::Close { slot, way })
    }

    pub(super) fn close_way(&mut self) -> CloseWay {
        let unseen = if self.unseen { CloseWay::Inline } else { CloseWay::Libc };
        self.one_of(&[CloseWay::Libc, CloseWay::Syscall, CloseWay::Range, unseen])
    }

    pub(super) fn dup(&mut self, process: usize) -> Option<Call> {
        let slot = self.end(process)?;
        let way =
            self.one_of(&[DupWay::Dup, DupWay::Dup2, DupWay::Dup3, DupWay::Fcntl, DupWay::Syscall]);
        let to = if matches!(way, DupWay::Dup2 | DupWay::Dup3) {
            self.slot_with(process, |thing| !matches!(thing, Thing::Nothing | Thing::Listener))?
        } else {
            self.free(process)
        };
        self.processes[process].slots[to] = self.processes[process].slots[slot];
        Some(Call::Dup { slot, to, way })
    }

    pub(super) fn option(&mut self, process: usize) -> Option<Call> {
        const SOCKET: i32 = libc::SOL_SOCKET;
        const TCP: i32 = libc::IPPROTO_TCP;
        let slot = self.end(process)?;
        if self.chance(40) {
            let (level, name) = self.one_of(&[
                (SOCKET, libc::SO_ERROR),
                (SOCKET, libc::SO_ERROR),
                (SOCKET, libc::SO_TYPE),
                (SOCKET, libc::SO_ACCEPTCONN),
                (SOCKET, libc::SO_RCVLOWAT),
                (SOCKET, libc::SO_KEEPALIVE),
                (SOCKET, libc::SO_LINGER),
                (SOCKET, libc::SO_OOBINLINE),
                (SOCKET, libc::SO_RCVTIMEO),
                (SOCKET, libc::SO_PEEK_OFF),
                (TCP, libc::TCP_NODELAY),
                (TCP, libc::TCP_CORK),
                (TCP, libc::TCP_INFO),
                (TCP, libc::TCP_INQ),
                (TCP, libc::TCP_USER_TIMEOUT),
                (SOCKET, libc::SO_ZEROCOPY),
            ]);
            return Some(Call::GetOption { slot, level, name });
        }
        if self.corks && self.random.bool() {
            let value = self.one_of(&[OptionValue::ON, OptionValue::Int(0)]);
            return Some(Call::SetOption { slot, level: TCP, name: libc::TCP_CORK, value });
        }
        let lowat = OptionValue::Int(self.random.i32(1..200));
        let (level, name, value) = self.one_of(&[
            (SOCKET, libc::SO_RCVLOWAT, lowat),
            (SOCKET, libc::SO_RCVLOWAT, OptionValue::Int(1)),
            (SOCKET, libc::SO_LINGER, OptionValue::Pair(1, 0)),
            (SOCKET, libc::SO_LINGER, OptionValue::Pair(0, 0)),
            (SOCKET, libc::SO_KEEPALIVE, OptionValue::ON),
            (SOCKET, libc::SO_OOBINLINE, OptionValue::ON),
            (SOCKET, libc::SO_TIMESTAMP, OptionValue::ON),
            (SOCKET, libc::SO_RCVTIMEO, OptionValue::Time { seconds: 0, microseconds: 2000 }),
            (SOCKET, libc::SO_RCVTIMEO, OptionValue::Time { seconds: -1, microseconds: 0 }),
            (SOCKET, libc::SO_RCVTIMEO, OptionValue::Time { seconds: 0, microseconds: 0 }),
            (SOCKET, libc::SO_SNDTIMEO, OptionValue::Time { seconds: -1, microseconds: 0 }),
            (SOCKET, libc::SO_SNDTIMEO, OptionValue::Time { seconds: 0, microseconds: 0 }),
            (SOCKET, libc::SO_SNDBUF, OptionValue::Int(100_000)),
            (SOCKET, libc::SO_RCVBUF, OptionValue::Int(100_000)),
            (SOCKET, libc::SO_PRIORITY, OptionValue::Int(3)),
            (SOCKET, libc::SO_BUSY_POLL, OptionValue::Int(0)),
            (TCP, libc::TCP_NODELAY, OptionValue::ON),
            (TCP, libc::TCP_NODELAY, OptionValue::Int(0)),
            (TCP, libc::TCP_QUICKACK, OptionValue::ON),
            (TCP, libc::TCP_INQ, OptionValue::ON),
            (TCP, libc::TCP_INQ, OptionValue::ON),
            (TCP, libc::TCP_INQ, OptionValue::Int(0)),
            // Longer than any program waits.
            (TCP, libc::TCP_USER_TIMEOUT, OptionValue::Int(600_000)),
            (SOCKET, libc::SO_ZEROCOPY, OptionValue::ON),
            (TCP, libc::TCP_KEEPIDLE, OptionValue::Int(100)),
        ]);
        Some(Call::SetOption { slot, level, name, value })
    }
}
