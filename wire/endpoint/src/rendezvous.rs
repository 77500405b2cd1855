//! Where processes send each other offers: one UNIX datagram socket per process, next to the
//! registry.
//!
//! No thread waits at it. A datagram is announced by the signal word of its target slot, which the
//! connection checks during its own calls; the first one to see a signal takes all datagrams out
//! and keeps those for other connections here. Each connection has a box from the moment in which
//! it enters the registry to that in which it attaches or ends; a datagram without a box has come
//! too late, and is dropped at once.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use seekwire_protocol::Reason;
use seekwire_protocol::offer::{DATAGRAM, Datagram, SlotRef};
use seekwire_transport::sys::fd::PrivateFd;
use seekwire_transport::sys::unix::Sender;
use seekwire_transport::sys::{file, host, thread, unix};

use crate::config::Config;
use crate::fork::{Locked, patient_lock};
use crate::scarcity;

/// A decoded datagram, from a process of this user.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) datagram: Datagram,
    pub(crate) descriptors: Vec<PrivateFd>,
    pub(crate) sender: Sender,
}

struct Rendezvous {
    pid: u32,
    nonce: u64,
    path: PathBuf,
    socket: unix::DatagramSocket,
    /// Taken out, for connections that have not asked yet: by slot and token.
    boxes: HashMap<(u32, u64), Vec<Received>, foldhash::fast::RandomState>,
}

static RENDEZVOUS: Mutex<Option<Rendezvous>> = Mutex::new(None);

/// Maximum number of datagrams kept for one connection. An honest peer sends one.
const KEPT: usize = 4;

/// The process and the nonce of a [`rendezvous_path`].
pub(crate) fn rendezvous_of(path: &Path) -> Option<(u32, u64)> {
    let (pid, nonce) = path.file_stem()?.to_str()?.split_once('-')?;
    Some((pid.parse().ok()?, u64::from_str_radix(nonce, 16).ok()?))
}

/// The path of a process's rendezvous socket.
pub(crate) fn rendezvous_path(dir: &Path, pid: u32, nonce: u64) -> PathBuf {
    dir.join(format!("{pid}-{nonce:016x}.sock"))
}

fn key(slot: SlotRef) -> (u32, u64) {
    (slot.index, slot.token)
}

fn lock() -> Option<Locked<'static, Option<Rendezvous>>> {
    patient_lock(&RENDEZVOUS)
}

/// Makes sure that this process has a rendezvous in `dir` and returns its nonce. `clear_up` frees
/// the slots of a process that is gone, given its process id and nonce.
///
/// # Errors
/// The reason: only [`Reason::NoRegistry`] is permanent.
pub(crate) fn nonce(dir: &Path, clear_up: impl Fn(u32, u64)) -> Result<u64, Reason> {
    let mut guard = lock().ok_or(Reason::NoRegistry)?;
    let pid = thread::process_id();
    if let Some(rendezvous) = guard.as_ref().filter(|r| r.pid == pid) {
        return Ok(rendezvous.nonce);
    }
    // A child does not remove its parent's rendezvous; dropping the inherited socket only closes it
    // here.
    *guard = None;
    sweep(dir, clear_up);
    let nonce = host::random();
    let path = rendezvous_path(dir, pid, nonce);
    match unix::DatagramSocket::bind(&path) {
        Ok(socket) => {
            *guard = Some(Rendezvous { pid, nonce, path, socket, boxes: HashMap::default() });
            announce_counters(pid);
            Ok(nonce)
        }
        Err(error) => {
            tracing::error!("no rendezvous at {}: {error}", path.display());
            Err(scarcity::reason_of(&error).unwrap_or(Reason::NoRegistry))
        }
    }
}

/// Shows `seekwire run` that this process will write counters, unless it is killed.
fn announce_counters(pid: u32) {
    if let Some(directory) = Config::get().summary_directory() {
        // The directory may go at any time.
        let _ = file::write(&directory.join(format!("{pid}.begun")), b"");
    }
}

/// Removes the files and slots of killed processes.
fn sweep(dir: &Path, clear_up: impl Fn(u32, u64)) {
    let Ok(files) = file::names(dir) else { return };
    for path in files.into_iter().map(|name| dir.join(name)) {
        if path.extension().is_some_and(|extension| extension == "sock")
            && unix::is_abandoned(&path)
        {
            // First: without the file no process would know that they have to be freed.
            if let Some((pid, nonce)) = rendezvous_of(&path) {
                clear_up(pid, nonce);
            }
            let _ = fs::remove_file(path);
        }
    }
}

/// Keeps datagrams for a slot of this process from now on, until [`forget`].
pub(crate) fn expect(slot: SlotRef) {
    if let Some(rendezvous) = lock().as_mut().and_then(|guard| guard.as_mut()) {
        rendezvous.boxes.entry(key(slot)).or_default();
    }
}

/// Takes the datagrams for one slot.
pub(crate) fn datagrams(slot: SlotRef) -> Vec<Received> {
    let mut guard = lock();
    let Some(rendezvous) = guard.as_mut().and_then(|guard| guard.as_mut()) else {
        return Vec::new();
    };
    let unclaimed = rendezvous.take_out();
    let mine = rendezvous.boxes.get_mut(&key(slot)).map(std::mem::take).unwrap_or_default();
    drop(guard);
    drop(unclaimed);
    mine
}

/// Maximum number of datagrams to take out in one call: a process that keeps sending does not hold
/// it up for ever.
const AT_ONCE: usize = 1024;

impl Rendezvous {
    /// Takes out the datagrams that have arrived. Returns those without a box, for the caller to
    /// drop when it no longer holds the lock.
    #[must_use]
    fn take_out(&mut self) -> Vec<Received> {
        let mut unclaimed = Vec::new();
        let mut bytes = [0; DATAGRAM + 1];
        for _ in 0..AT_ONCE {
            match self.socket.receive(&mut bytes) {
                Ok(Some(delivery)) => {
                    let Some(sender) = delivery.sender else { continue };
                    if sender.user != host::user() {
                        tracing::warn!("refused a datagram of user {}", sender.user);
                        continue;
                    }
                    match Datagram::decode(&bytes[..delivery.len]) {
                        Ok(datagram) => {
                            let received =
                                Received { datagram, descriptors: delivery.descriptors, sender };
                            match self.boxes.get_mut(&key(datagram.target)) {
                                Some(kept) if kept.len() < KEPT => kept.push(received),
                                _ => unclaimed.push(received),
                            }
                        }
                        Err(error) => {
                            tracing::warn!(
                                "process {} sent no offer of ours: {error:?}",
                                sender.pid
                            )
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("rendezvous: {error}");
                    break;
                }
            }
        }
        unclaimed
    }
}

/// The outcome of sending a datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sent {
    Yes,
    /// The queue there is full (net.unix.max_dgram_qlen, 10 by default): try later.
    Full,
    /// No process listens there.
    Nobody,
    /// It could not be sent now, whether or not a process listens: the kernel lacks memory, or too
    /// many descriptors are in flight.
    Failed,
}

/// Sends a datagram from this process's rendezvous to another one's.
pub(crate) fn send(to: &Path, datagram: &Datagram, descriptors: &[BorrowedFd<'_>]) -> Sent {
    let guard = lock();
    let Some(own) = guard.as_ref().and_then(|guard| guard.as_ref()) else { return Sent::Nobody };
    match own.socket.send(to, &datagram.encode(), descriptors) {
        Ok(()) => Sent::Yes,
        Err(error) => {
            tracing::debug!("nothing can be sent to {}: {error}", to.display());
            match error.kind() {
                ErrorKind::WouldBlock => Sent::Full,
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => Sent::Nobody,
                _ => Sent::Failed,
            }
        }
    }
}

/// The slot's connection needs no datagrams any more: those that have come are dropped, and so are
/// those to come.
pub(crate) fn forget(slot: SlotRef) {
    let mut guard = lock();
    let kept = guard
        .as_mut()
        .and_then(|guard| guard.as_mut())
        .and_then(|own| own.boxes.remove(&key(slot)));
    drop(guard);
    drop(kept);
}

/// Ends this process's part, after `before`.
pub(crate) fn leave(before: impl FnOnce()) {
    let Some(mut guard) = lock() else { return };
    if let Some(rendezvous) = guard.take().filter(|r| r.pid == thread::process_id()) {
        before();
        // Last: without the file no process would know of slots that still have to be freed.
        let _ = fs::remove_file(&rendezvous.path);
    }
}
