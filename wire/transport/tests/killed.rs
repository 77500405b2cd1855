//! A process that shares an end is killed, at any time, and the other one goes on with a complete
//! stream.
#![cfg(not(loom))]

mod common;

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

use common::{Random, geometries, joined, memory, queues, report};
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::{Geometry, RX_LOCK, TX_LOCK};
use seekwire_transport::mem::{Common, Own, OwnMemory, Peer};
use seekwire_transport::queue::QueuePair;

const ROUNDS: usize = 60;

type End = QueuePair<Own, Peer>;

/// A child of this process that repeats an action until it is killed.
struct Child(libc::pid_t);

impl Child {
    fn forked(mut body: impl FnMut()) -> Self {
        // SAFETY: the child only runs `body`, which touches shared memory and memory of its own,
        // allocates nothing and takes no lock of this process, and it never returns.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 => loop {
                body();
            },
            pid => Self(pid),
        }
    }

    /// Checks that it has not ended by itself.
    fn check(&self) {
        let mut status = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let how = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        // SAFETY: a plain system call about a child of this process; `status` is writable, and
        // zeroed, and stays zero while the child lives.
        let ended = unsafe {
            libc::waitid(libc::P_PID, self.0 as u32, status.as_mut_ptr(), how);
            status.assume_init().si_pid() != 0
        };
        assert!(!ended, "the child ended by itself");
    }

    /// Killed and dead, but not waited for: a waiter for its lock must see that it is dead.
    fn kill(&self) {
        let mut status = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: plain system calls about a child of this process; `status` is writable.
        let waited = unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitid(
                libc::P_PID,
                self.0 as u32,
                status.as_mut_ptr(),
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        assert_eq!(waited, 0);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: plain system calls about a child of this process that was not waited for yet.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

fn ends() -> (End, End) {
    let geometry = Geometry::new(64, 4096, 8).unwrap();
    let ((a, a_fd), (b, b_fd)) = (memory(geometry), memory(geometry));
    let (a, b) = (joined(a, geometry, &b_fd), joined(b, geometry, &a_fd));
    a.set_ready();
    b.set_ready();
    (a, b)
}

/// Each message is one record: its writer, its number, its length, and bytes that follow from
/// these.
const LENGTHS: [usize; 6] = [16, 56, 300, 1016, 1017, 4000];

fn message(writer: u32, number: u32, into: &mut [u8; 4096]) -> &[u8] {
    let len = LENGTHS[number as usize % LENGTHS.len()];
    for (at, byte) in into[..len].iter_mut().enumerate() {
        *byte = (writer * 7 + number).wrapping_add(at as u32) as u8;
    }
    into[..4].copy_from_slice(&writer.to_ne_bytes());
    into[4..8].copy_from_slice(&number.to_ne_bytes());
    into[8..12].copy_from_slice(&(len as u32).to_ne_bytes());
    &into[..len]
}

fn push(end: &End, bytes: &[u8]) -> bool {
    let tx = end.tx();
    let pushed = tx.carrier().is_ok()
        && tx.push(&mut Gather::new(&[IoSlice::new(bytes)])).expect("the peer is honest") > 0;
    let _ = tx.announce();
    pushed
}

fn pull(end: &End, into: &mut [u8]) -> usize {
    let rx = end.rx();
    rx.step().expect("the peer is honest");
    let n = rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(into)])).expect("the peer is honest");
    let _ = rx.announce();
    n
}

/// Puts a stream back into messages and checks each.
#[derive(Default)]
struct Reader {
    pending: Vec<u8>,
    /// For each writer, the next number.
    next: std::collections::HashMap<u32, u32>,
    messages: usize,
}

impl Reader {
    fn read(&mut self, end: &End) {
        let mut bytes = [0; 5000];
        let n = pull(end, &mut bytes);
        self.take(&bytes[..n]);
    }

    fn take(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() >= 12 {
            let word = |at: usize| u32::from_ne_bytes(self.pending[at..at + 4].try_into().unwrap());
            let (writer, number, len) = (word(0), word(4), word(8) as usize);
            if self.pending.len() < len {
                break;
            }
            let next = self.next.entry(writer).or_default();
            assert_eq!(number, *next, "of writer {writer}");
            *next += 1;
            assert!(
                self.pending[..len] == *message(writer, number, &mut [0; 4096]),
                "message {number}"
            );
            self.pending.drain(..len);
            self.messages += 1;
        }
    }
}

#[test]
fn a_sender_is_killed_and_another_goes_on() {
    let (a, b) = ends();
    let progress = Common::with_forks(4096).unwrap();
    let mut random = Random::new(5);
    let (mut reader, mut mine, mut held) = (Reader::default(), 0, 0);
    for round in 1..=ROUNDS as u32 {
        progress.word(0).store(0, Ordering::SeqCst);
        let (mut number, mut buffer) = (0, [0; 4096]);
        let child = Child::forked(|| {
            if push(&a, message(round, number, &mut buffer)) {
                number += 1;
                progress.word(0).store(number.into(), Ordering::SeqCst);
            }
        });
        let until = reader.messages + random.below(100);
        while reader.messages < until {
            reader.read(&b);
            child.check();
        }
        for _ in 0..random.below(1000) {
            std::hint::spin_loop();
        }
        child.kill();
        held += usize::from(a.own().word(TX_LOCK).load(Ordering::Relaxed) != 0);
        for _ in 0..5 {
            while !push(&a, message(0, mine, &mut [0; 4096])) {
                reader.read(&b);
            }
            mine += 1;
        }
        while b.has_record() {
            reader.read(&b);
        }
        assert!(reader.pending.is_empty(), "half a message");
        assert_eq!(reader.next[&0], mine);
        let (sent, seen) =
            (progress.word(0).load(Ordering::SeqCst) as u32, reader.next.get(&round).copied());
        let seen = seen.unwrap_or(0);
        assert!(seen == sent || seen == sent + 1, "{sent} messages were sent, {seen} arrived");
    }
    let all: Vec<_> = (0..9).map_while(|_| a.tx().reserve().ok()).collect();
    assert_eq!(all.len(), 8, "segments were lost");
    report(&format!(
        "killed: {ROUNDS} senders, {held} of them under the lock; {} messages",
        reader.messages
    ));
}

#[test]
fn a_receiver_is_killed_and_another_goes_on() {
    let (a, b) = ends();
    let mut random = Random::new(6);
    let (mut sent, mut held) = (0u64, 0);
    // Each 8 bytes hold their position in the stream.
    let mut fill = |end: &End| {
        let words = [1, 3, 30, 127, 500][sent as usize % 5];
        let bytes: Vec<u8> = (sent..sent + words).flat_map(u64::to_ne_bytes).collect();
        let pushed = push(end, &bytes);
        sent += if pushed { words } else { 0 };
        pushed
    };
    let mut next = 0;
    for _ in 0..ROUNDS {
        let child = Child::forked(|| {
            pull(&b, &mut [0; 1000]);
        });
        for _ in 0..random.below(300) {
            fill(&a);
        }
        for _ in 0..random.below(1000) {
            std::hint::spin_loop();
        }
        child.kill();
        held += usize::from(b.own().word(RX_LOCK).load(Ordering::Relaxed) != 0);
        // A message that is certainly read by this process.
        let mut read = Vec::new();
        let mut bytes = [0; 5000];
        let mut fresh = 0;
        while fresh < 5 || b.has_record() {
            if fresh < 5 && fill(&a) {
                fresh += 1;
            }
            let n = pull(&b, &mut bytes);
            read.extend_from_slice(&bytes[..n]);
        }
        assert!(read.len() % 8 == 0);
        let words: Vec<u64> =
            read.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        assert!(words[0] >= next, "word {} came twice", words[0]);
        assert!(words.is_sorted_by(|a, b| a + 1 == *b), "something is missing");
        next = words[words.len() - 1] + 1;
    }
    let all: Vec<_> = (0..9).map_while(|_| a.tx().reserve().ok()).collect();
    assert_eq!(all.len(), 8, "segments were lost");
    report(&format!("killed: {ROUNDS} receivers, {held} of them under the lock; {next} words"));
}

#[test]
fn more_holders_than_there_are_places_are_forgotten_once_none_is_left() {
    let geometry = geometries()[0].0;
    let [end, _peer] = queues(false, geometry, geometry);
    let (me, dead) = (std::process::id(), 0x3fff_ff00);
    end.add_holder(me);
    // Places of dead processes are reused.
    for child in 0..20 {
        end.fork_pending();
        assert!(!end.is_only_holder(me), "the child may be anywhere");
        end.fork_arrived(dead + child);
        assert!(end.is_only_holder(me));
    }
    // Process 1 stands for children that are alive.
    for _ in 0..20 {
        end.fork_pending();
        end.fork_arrived(1);
    }
    assert!(end.has_unlisted_holders() && !end.is_only_holder(me));
    end.forget_unlisted(me, || false, || panic!("one is listed that lives"));
    let _ = end.remove_holder(1);
    end.forget_unlisted(me, || false, || true);
    assert!(end.has_unlisted_holders() && !end.is_only_holder(me), "the kernel knows another one");
    end.fork_pending();
    end.forget_unlisted(me, || false, || panic!("one is about to come"));
    end.fork_failed();
    // Another one comes during the look, and has a place.
    end.forget_unlisted(
        me,
        || false,
        || {
            end.fork_pending();
            end.fork_arrived(1);
            false
        },
    );
    assert!(!end.has_unlisted_holders() && !end.is_only_holder(me), "it is listed");
    let _ = end.remove_holder(1);
    assert!(end.is_only_holder(me));
    // The caller may have had no place.
    let _ = end.remove_holder(me);
    for _ in 0..9 {
        end.fork_pending();
        end.fork_arrived(1);
    }
    let _ = end.remove_holder(1);
    end.forget_unlisted(me, || false, || false);
    assert_eq!(end.all_holders(), [me]);
    // One has died before it began.
    end.fork_pending();
    end.forget_unlisted(me, || true, || true);
    assert!(!end.is_only_holder(me), "the kernel knows it");
    end.forget_unlisted(me, || true, || false);
    assert!(end.is_only_holder(me));
    end.fork_arrived(1);
    let _ = end.remove_holder(1);
    assert!(end.remove_holder(me), "one that came late is one");
}
