//! Sleeping when poll(2) is refused: it takes no more descriptors than RLIMIT_NOFILE allows
//! numbers, which a program that wants no more of them sets to 0. select(2) has no such rule, but
//! reports less: states of a socket that it cannot report are polled for.

use std::time::Duration;

use super::call;
use super::fd::Fd;
use super::socket::{self, ClosedEnds};
use super::wait::{Deadline, Events};
use crate::Errno;

const LOOK: Duration = Duration::from_millis(100);

const BITS: usize = u64::BITS as usize;

/// As [`super::poll::wait`].
pub(super) fn wait(
    doorbell: Fd,
    socket: Fd,
    want: Events,
    until: Deadline,
) -> Result<(bool, Events), Errno> {
    loop {
        let [mut readable, mut writable] = [Set::default(), Set::default()];
        readable.add(doorbell);
        if want.read {
            readable.add(socket);
        }
        if want.write {
            writable.add(socket);
        }
        let unseen = socket.raw() >= 0;
        let slice = if unseen { until.at_most(LOOK) } else { until };
        select(&mut readable, &mut writable, slice)?;
        let rang = readable.has(doorbell);
        let ends = if unseen { socket::ends(socket) } else { ClosedEnds::default() };
        let hangup = want.hangup && ends.peers;
        let events = Events {
            read: readable.has(socket),
            write: writable.has(socket),
            hangup,
            dead: ends.both,
        };
        if rang || events != Events::default() {
            return Ok((rang, events));
        }
        if until.is_over() {
            return Err(Errno::TIMEDOUT);
        }
    }
}

#[derive(Default)]
struct Set(Vec<u64>);

impl Set {
    fn add(&mut self, fd: Fd) {
        if let Ok(number) = usize::try_from(fd.raw()) {
            self.0.resize(self.0.len().max(number / BITS + 1), 0);
            self.0[number / BITS] |= 1 << (number % BITS);
        }
    }

    fn has(&self, fd: Fd) -> bool {
        usize::try_from(fd.raw()).is_ok_and(|number| {
            self.0.get(number / BITS).is_some_and(|word| word >> (number % BITS) & 1 != 0)
        })
    }
}

fn select(readable: &mut Set, writable: &mut Set, until: Deadline) -> Result<(), Errno> {
    let words = readable.0.len().max(writable.0.len());
    readable.0.resize(words, 0);
    writable.0.resize(words, 0);
    let time =
        until.left().map(|time| [time.as_secs().min(i64::MAX as u64), time.subsec_nanos().into()]);
    let place = time.as_ref().map_or(0, |time| time.as_ptr().expose_provenance());
    let blocked =
        until.blocked().map(|set| [(&raw const *set).expose_provenance(), size_of::<u64>()]);
    let blocked = blocked.as_ref().map_or(0, |set| set.as_ptr().expose_provenance());
    let sets = [&mut readable.0, &mut writable.0].map(|set| set.as_mut_ptr().expose_provenance());
    // SAFETY: the kernel reads and writes sets of as many bits, and reads a timespec of two words
    // and a set of signals with its size, if there are any.
    unsafe { call(libc::SYS_pselect6, [words * BITS, sets[0], sets[1], 0, place, blocked]) }
        .map(drop)
}
