//! The proof that a process holds a socket. The process can show it to another one without giving
//! the socket away.
//!
//! It is an epoll set with the socket in it. Only a process that has the socket open can put it
//! there, and only such a process can change the number that is kept with it, which identifies the
//! prover: passed on, the set proves nothing. An epoll set does not keep a socket open, so a proof
//! that nobody has examined yet does not delay the end of a connection. The kernel lists the
//! content of a set in fdinfo (proc_pid_fdinfo(5)), also for a set that this process was sent, and
//! whatever the pid namespace of the sender.
//!
//! The fdinfo of other files holds text that their owner chose, such as the name of a dma-buf, and
//! could hold the lines of a set. So the kernel is asked first whether the file is an epoll set.

use std::io;
use std::sync::Mutex;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::getpid;

use super::call;
use super::fd::{Fd, LibraryFd, PrivateFd};
use crate::Errno;

/// A socket's number in the kernel: the file system and the inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Inode {
    device: u64,
    number: u64,
}

/// Proof that this process holds `socket`.
///
/// # Errors
/// Those of epoll_create1(2), epoll_ctl(2) and socketpair(2); EMFILE if no number above the
/// library's floor is free.
pub fn of(socket: Fd) -> io::Result<PrivateFd> {
    let set = PrivateFd::new(epoll::create(CreateFlags::CLOEXEC)?)?;
    let own = own_identity()?.ok_or(rustix::io::Errno::SRCH)?;
    epoll::add(set.as_fd(), socket.borrow(), EventData::new_u64(own), EventFlags::empty())?;
    Ok(set)
}

/// Whether `proof` is one by the process with that identity, for the socket with that inode number.
/// `socket` is any other socket of this process.
///
/// # Errors
/// Those of epoll_ctl(2), and of open(2) and read(2) on /proc's files about descriptors.
pub fn holds(proof: BorrowedFd<'_>, socket: Fd, number: u64, identity: u64) -> io::Result<bool> {
    if !is_epoll_set(proof, socket)? {
        return Ok(false);
    }
    let device = rustix::fs::fstat(socket.borrow())?.st_dev;
    // The kernel's encoding: linux/kdev_t.h.
    let device = u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
    let path = format!("/proc/thread-self/fdinfo/{}", proof.as_raw_fd());
    let info =
        LibraryFd::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    // An honest set has less text.
    let mut text = [0; 1024];
    let len = rustix::io::read(info.as_fd(), &mut text)?;
    let text = String::from_utf8_lossy(&text[..len]);
    let wanted = (identity, Inode { device, number });
    Ok(text.split_inclusive('\n').filter_map(target).any(|target| target == wanted))
}

/// Whether the kernel accepts `file` as an epoll set, in which `socket` need not be. It checks the
/// operations of the file, which no other kind of file has.
fn is_epoll_set(file: BorrowedFd<'_>, socket: Fd) -> io::Result<bool> {
    match epoll::delete(file, socket.borrow()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(true),
        Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A line of an epoll set's fdinfo, with its end: the number kept with the file, and the file.
/// `None` unless it is exactly what `ep_show_fdinfo` in the kernel's fs/eventpoll.c writes.
fn target(line: &str) -> Option<(u64, Inode)> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let ["tfd:", file, "events:", events, "data:", data, position, number, device] = words[..]
    else {
        return None;
    };
    let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
    let file: i32 = file.parse().ok()?;
    let position: i64 = position.strip_prefix("pos:")?.parse().ok()?;
    let [events, data] = [hexadecimal(events)?, hexadecimal(data)?];
    let number = hexadecimal(number.strip_prefix("ino:")?)?;
    let device = hexadecimal(device.strip_prefix("sdev:")?)?;
    let written = format!(
        "tfd: {file:8} events: {events:8x} data: {data:16x}  pos:{position} ino:{number:x} sdev:{device:x}\n"
    );
    (line == written).then_some((data, Inode { device, number }))
}

/// The [`identity`] of this process, as others receive it: through its socket. pidfd_open(2) would
/// also do, but valgrind and older system call filters do not know it.
///
/// # Errors
/// Those of socketpair(2).
pub fn own_identity() -> io::Result<Option<u64>> {
    let pid = getpid().as_raw_nonzero().get().unsigned_abs();
    // Does not wait: the holder may be a thread of another process, or one that is interrupted.
    let mut cached = CACHED.try_lock();
    if let Some((_, identity)) = cached.iter().filter_map(|cached| **cached).find(|of| of.0 == pid)
    {
        return Ok(Some(identity));
    }
    let identity = asked_identity(pid)?;
    if let (Ok(cached), Some(identity)) = (&mut cached, identity) {
        **cached = Some((pid, identity));
    }
    Ok(identity)
}

/// This process is the child of a fork, perhaps with the same id, in another pid namespace.
pub fn after_fork_child() {
    if let Ok(mut cached) = CACHED.try_lock() {
        *cached = None;
    }
}

/// The id of this process, and its identity: determining it takes three system calls and more for
/// each connection. A wrong one proves nothing, and keeps connections on TCP.
static CACHED: Mutex<Option<(u32, u64)>> = Mutex::new(None);

fn asked_identity(pid: u32) -> io::Result<Option<u64>> {
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let [here, _there] = [here, there].map(LibraryFd::from);
    // Before Linux 6.5 there is no such option, and others receive the process id.
    let pidfd = peer_pidfd(here.as_fd()).ok();
    Ok(identity(pidfd.as_ref().map(LibraryFd::as_fd), pid))
}

/// The process at the other end of a UNIX socket.
fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<LibraryFd, Errno> {
    /// From linux/socket.h.
    const SO_PEERPIDFD: usize = 77;
    let (mut pidfd, mut len) = (-1i32, size_of::<i32>() as libc::socklen_t);
    let places = [(&raw mut pidfd).expose_provenance(), (&raw mut len).expose_provenance()];
    let [at, level] = [socket.as_raw_fd() as usize, libc::SOL_SOCKET as usize];
    // SAFETY: the kernel writes an int, and its length.
    unsafe { call(libc::SYS_getsockopt, [at, level, SO_PEERPIDFD, places[0], places[1], 0])? };
    // SAFETY: a new descriptor, which nothing else refers to.
    Ok(LibraryFd::from(unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// Identifies a process: the number of its inode in pidfs, which no other process gets (Linux 6.9),
/// or else its id, which means nothing in another pid namespace. Marked, so that neither is ever
/// taken for the other.
#[must_use]
pub fn identity(pidfd: Option<BorrowedFd<'_>>, pid: u32) -> Option<u64> {
    const PIDFS: u64 = 0x5049_4446;
    const IS_ID: u64 = 1 << 63;
    let pidfs = |fd: &BorrowedFd<'_>| {
        rustix::fs::fstatfs(fd).is_ok_and(|about| about.f_type as u64 == PIDFS)
    };
    match pidfd.filter(pidfs) {
        Some(pidfd) => rustix::fs::fstat(pidfd).ok().map(|about| about.st_ino & !IS_ID),
        None => (pid != 0).then_some(u64::from(pid) | IS_ID),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use rustix::event::EventfdFlags;
    use rustix::fs::{MemfdFlags, inotify};

    use super::super::unix::{Channel, Sender};
    use super::*;

    fn inode(socket: &impl AsFd) -> u64 {
        rustix::fs::fstat(socket).unwrap().st_ino
    }

    /// This process, as another one sees it that receives something from it.
    fn myself() -> Sender {
        let (here, there) = Channel::pair().unwrap();
        Channel::from_peer(there).send(b"x", &[]).unwrap();
        here.receive(&mut [0; 8]).unwrap().unwrap().sender.unwrap()
    }

    #[test]
    fn a_proof_holds_for_one_socket_and_one_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let proof = of(Fd::from(&listener)).unwrap();
        let me = myself().identity.unwrap();
        assert_eq!(own_identity().unwrap(), Some(me));
        let holds =
            |number, identity| holds(proof.as_fd(), Fd::from(&other), number, identity).unwrap();
        assert!(holds(inode(&listener), me));
        assert!(!holds(inode(&other), me));
        assert!(!holds(inode(&listener), me + 1));
        let end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!holds(inode(&end), me));
    }

    #[test]
    fn what_is_no_epoll_set_proves_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Fd::from(&listener);
        let me = myself().identity.unwrap();
        let doorbell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let memory = rustix::fs::memfd_create("tfd:", MemfdFlags::CLOEXEC).unwrap();
        let watches = rustix::fs::inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        for not_a_proof in [doorbell.as_fd(), memory.as_fd(), watches.as_fd(), listener.as_fd()] {
            assert!(!is_epoll_set(not_a_proof, socket).unwrap());
            assert!(!holds(not_a_proof, socket, inode(&listener), me).unwrap());
        }
    }

    #[test]
    fn an_epoll_set_is_one_with_and_without_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Fd::from(&listener);
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        assert!(is_epoll_set(set.as_fd(), socket).unwrap());
        assert!(is_epoll_set(of(socket).unwrap().as_fd(), socket).unwrap());
    }

    #[test]
    fn a_proof_does_not_keep_a_connection_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut to = listener.accept().unwrap().0;
        let proof = of(Fd::from(&from)).unwrap();
        let number = inode(&from);
        drop(from);
        assert_eq!(std::io::Read::read(&mut to, &mut [0]).unwrap(), 0);
        assert!(!holds(proof.as_fd(), Fd::from(&to), number, myself().identity.unwrap()).unwrap());
    }

    #[test]
    fn only_a_line_as_the_kernel_writes_it_counts() {
        const LINE: &str =
            "tfd:        3 events:       18 data: 1234567890abcdef  pos:0 ino:c96db sdev:9\n";
        let inode = Inode { device: 9, number: 0xc96db };
        assert_eq!(target(LINE), Some((0x1234_5678_90ab_cdef, inode)));
        // More text follows the part that was read.
        assert_eq!(target(LINE.trim_end()), None);
        for forged in [
            "tfd:data:1da ino:da sdev:9\n",
            "name:\ttfd:        3 events:       18 data:              1da  pos:0 ino:da sdev:9\n",
            "tfd: 3 events: 18 data: 1da  pos:0 ino:da sdev:9\n",
            "tfd:        3 events:       18 data:              1da  pos:0 ino:da sdev:9 \n",
            "tfd:        3 events:       18 data:              1da  pos:0 ino:0da sdev:9\n",
            "tfd:        3 events:       18 data:              1da  pos:0 ino:+da sdev:9\n",
            "tfd:        3 events:       18 data:              1DA  pos:0 ino:da sdev:9\n",
            "tfd:        3 events:       18\n",
            "inotify wd:1 ino:9e sdev:800013\n",
        ] {
            assert_eq!(target(forged), None, "{forged:?}");
        }
    }

    #[test]
    fn an_id_is_never_taken_for_an_inode() {
        let of_id = identity(None, 5).unwrap();
        assert_ne!(own_identity().unwrap(), Some(of_id));
        assert_eq!(identity(None, 0), None);
    }
}
