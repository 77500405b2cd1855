//! select and pselect.

use std::ffi::{c_int, c_short, c_ulong};
use std::{ptr, slice};

use libc::{
    FD_SETSIZE, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDBAND, POLLRDNORM,
    POLLWRBAND, POLLWRNORM, fd_set, pollfd, sigset_t, timespec, timeval,
};
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::{is_placed, open_from};
use smallvec::{SmallVec, smallvec};

use super::interpose::interpose;
use crate::ffi::{fail, guarded, keeping_errno};
use crate::hazard::outside;
use crate::poll::{PollAnswer, wait};
use crate::timeout::{Timeout, timespec as as_timespec};
use crate::{cancel, pointers, real, table};

const BITS: usize = c_ulong::BITS as usize;

/// The poll events for each set; then those that count as an answer.
const READ: c_short = POLLIN | POLLRDNORM | POLLRDBAND;
const READ_ANSWERS: c_short = READ | POLLHUP | POLLERR | POLLNVAL;
const WRITE: c_short = POLLOUT | POLLWRNORM | POLLWRBAND;
const WRITE_ANSWERS: c_short = WRITE | POLLERR | POLLNVAL;
const EXCEPT: c_short = POLLPRI;
const EXCEPT_ANSWERS: c_short = EXCEPT | POLLNVAL;

/// For each of the three sets.
const ANSWERS: [(c_short, c_short); 3] =
    [(READ, READ_ANSWERS), (WRITE, WRITE_ANSWERS), (EXCEPT, EXCEPT_ANSWERS)];

/// The three sets of select, each of them possibly missing. They may be longer than `fd_set`:
/// programs with many fds make their own, so only the first `count` bits are looked at.
struct Sets<'a> {
    read: &'a mut [c_ulong],
    write: &'a mut [c_ulong],
    except: &'a mut [c_ulong],
}

/// Number of bits that the kernel would look at without the library. The kernel stops at the end of
/// its descriptor table, and the library's own descriptors enlarge that table. A program that
/// passes its limit of descriptors as the count may have memory for only one `fd_set`.
fn looked_at(count: c_int) -> c_int {
    if count <= FD_SETSIZE as c_int || table::is_unused() {
        return count;
    }
    let Some(Ok(open)) = guarded(|| open_from(FD_SETSIZE as c_int)) else { return count };
    let highest = open.into_iter().filter(|fd| !is_placed(*fd)).map(Fd::raw).max();
    // The kernel doubles the size of its table.
    let size = highest.map_or(FD_SETSIZE, |highest| (highest as usize + 1).next_power_of_two());
    c_int::try_from(size).map_or(count, |size| size.min(count))
}

/// Number of bits to look at, and the sets if the library needs to look at them. `None` if the
/// kernel can handle the call alone.
fn asked<'a>(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
) -> Option<(c_int, Option<Sets<'a>>)> {
    let looked_at = looked_at(count);
    let sets = Sets::new(looked_at, read, write, except);
    (sets.is_some() || looked_at != count).then_some((looked_at, sets))
}

type List = SmallVec<[pollfd; 16]>;

impl Sets<'_> {
    /// `None` if the kernel is to answer alone.
    fn new<'a>(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
    ) -> Option<Sets<'a>> {
        if table::is_unused() {
            return None;
        }
        let words = usize::try_from(count).ok()?.div_ceil(BITS);
        let is_possible =
            |set: *mut fd_set| set.is_null() || pointers::can_write(set.cast::<c_ulong>(), words);
        if ![read, write, except].into_iter().all(is_possible) {
            return None;
        }
        let set = |set: *mut fd_set| match set.is_null() {
            true => &mut [][..],
            // SAFETY: there is memory; the application passes sets of at least `count` bits, which
            // the kernel reads and writes by words.
            false => unsafe { slice::from_raw_parts_mut(set.cast::<c_ulong>(), words) },
        };
        Some(Sets { read: set(read), write: set(write), except: set(except) })
    }

    /// Converts to a list for poll; also returns whether the library takes part in any of them.
    fn list(&self, count: c_int) -> (List, bool) {
        let mut list = List::new();
        let mut tracked = false;
        for fd in 0..count {
            let (word, bit) = (fd as usize / BITS, 1 << (fd as usize % BITS));
            let asks = |set: &[c_ulong], events| {
                if set.get(word).is_some_and(|word| word & bit != 0) { events } else { 0 }
            };
            let events =
                asks(self.read, READ) | asks(self.write, WRITE) | asks(self.except, EXCEPT);
            if events != 0 {
                list.push(pollfd { fd, events, revents: 0 });
                tracked |= table::get(fd).is_some();
            }
        }
        (list, tracked)
    }

    /// Leaves only the bits with answers; returns their number.
    fn answer(&mut self, count: c_int, list: &List) -> c_int {
        let mut ready = 0;
        for set in [&mut *self.read, &mut *self.write, &mut *self.except] {
            for fd in 0..count as usize {
                if let Some(word) = set.get_mut(fd / BITS) {
                    *word &= !(1 << (fd % BITS));
                }
            }
        }
        for entry in list {
            let (word, bit) = (entry.fd as usize / BITS, 1 << (entry.fd as usize % BITS));
            let sets = [&mut *self.read, &mut *self.write, &mut *self.except];
            for (set, (asked, answer)) in sets.into_iter().zip(ANSWERS) {
                if entry.events & asked != 0 && entry.revents & answer != 0 {
                    set[word] |= bit;
                    ready += 1;
                }
            }
        }
        ready
    }
}

fn is_answered(entry: &pollfd) -> bool {
    ANSWERS.iter().any(|(asked, answer)| entry.events & asked != 0 && entry.revents & answer != 0)
}

/// True if select would reject a number. If another thread sleeps in accept or open, the kernel has
/// already reserved a number: it is invalid to poll, but ready to select.
fn is_refused(fd: c_int) -> bool {
    let mut set: SmallVec<[c_ulong; 16]> = smallvec![0; fd as usize / BITS + 1];
    set[fd as usize / BITS] = 1 << (fd as usize % BITS);
    let mut at_once = timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: a set of `fd` + 1 bits at least, and a live timeout.
    keeping_errno(|| unsafe {
        real::select(
            fd + 1,
            set.as_mut_ptr().cast(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut at_once,
        )
    }) < 0
}

/// The answer of select, if the library takes part. `go_on` makes the application's own call for
/// the remaining time.
fn select_ours(
    sets: &mut Sets<'_>,
    count: c_int,
    mut left: Timeout,
    mask: *const sigset_t,
    kernel: impl Fn() -> c_int,
    go_on: impl Fn(&mut Timeout) -> c_int,
) -> c_int {
    let (mut list, tracked) = sets.list(count);
    if !tracked {
        return kernel();
    }
    // The time counts from now on, over all sleeps.
    left.left();
    let mut has_waited = false;
    loop {
        let mut rest = left;
        let rest = || if has_waited { outside(|| go_on(&mut rest)) } else { kernel() };
        match cancel::point(|| wait(&mut list, left, mask, true, rest)) {
            PollAnswer::Kernel(result) => return result,
            PollAnswer::Left(mut left) => return outside(|| go_on(&mut left)),
            PollAnswer::Poll { result, .. } if result < 0 => return result,
            // A number that is closed while the call sleeps counts as ready.
            PollAnswer::Poll { has_slept: false, .. }
                if list
                    .iter()
                    .any(|entry| entry.revents & POLLNVAL != 0 && is_refused(entry.fd)) =>
            {
                return fail(Errno::BADF);
            }
            // The end of a connection is no event for a caller that waits only for exceptions,
            // since none can come any more.
            PollAnswer::Poll { result: 1.., .. } if !list.iter().any(is_answered) => {
                list.retain(|entry| entry.revents == 0);
                has_waited = true;
            }
            PollAnswer::Poll { .. } => return sets.answer(count, &list),
        }
    }
}

interpose! {
    /// select(2)
    fn select(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int = asked(count, read, write, except) => |asked, _kernel| {
        let (count, sets) = asked;
        // SAFETY: the caller's own arguments.
        let kernel = || outside(|| unsafe { real::select(count, read, write, except, timeout) });
        // SAFETY: valid or null, as select demands.
        let limit = unsafe { timeout.as_mut() };
        // select, unlike the other calls, accepts more than a second of microseconds.
        let left = match &limit {
            None => Some(Timeout::ENDLESS),
            Some(limit) if limit.tv_usec < 0 => None,
            Some(limit) => Timeout::from_parts(limit.tv_sec + limit.tv_usec / 1_000_000, limit.tv_usec % 1_000_000 * 1000),
        };
        let (Some(left), Some(mut sets)) = (left, sets) else { return kernel() };
        let begin = limit.as_ref().map(|_| std::time::Instant::now());
        let by_kernel = std::cell::Cell::new(false);
        let result = select_ours(&mut sets, count, left, ptr::null(), || {
            by_kernel.set(true);
            kernel()
        }, |left| {
            let mut left = left.left().map(|left| timeval {
                tv_sec: left.as_secs() as i64,
                tv_usec: left.subsec_micros().into(),
            });
            let left = left.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
            // SAFETY: the caller's own sets, and a live timeout or none.
            unsafe { real::select(count, read, write, except, left) }
        });
        // Linux stores the remaining time in the timeout.
        if let (Some(limit), Some(begin), false) = (limit, begin, by_kernel.get()) {
            let elapsed = begin.elapsed().as_micros();
            let whole = u128::from(limit.tv_sec.unsigned_abs()) * 1_000_000 + u128::from(limit.tv_usec.unsigned_abs());
            let rest = whole.saturating_sub(elapsed);
            (limit.tv_sec, limit.tv_usec) = ((rest / 1_000_000) as i64, (rest % 1_000_000) as i64);
        }
        result
    };
    /// pselect(2)
    fn pselect(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int = asked(count, read, write, except) => |asked, _kernel| {
        let (count, sets) = asked;
        // SAFETY: the caller's own arguments.
        let kernel = || outside(|| unsafe { real::pselect(count, read, write, except, timeout, mask) });
        // SAFETY: valid or null, as pselect demands.
        let left = match unsafe { timeout.as_ref() } {
            None => Some(Timeout::ENDLESS),
            Some(limit) => Timeout::from_parts(limit.tv_sec, limit.tv_nsec),
        };
        let (Some(left), Some(mut sets)) = (left.filter(|_| pointers::is_mask(mask)), sets) else { return kernel() };
        select_ours(&mut sets, count, left, mask, kernel, |left| {
            let left = left.left().map(as_timespec);
            let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the caller's own sets and mask, and a live timeout or none.
            unsafe { real::pselect(count, read, write, except, left, mask) }
        })
    };
}
