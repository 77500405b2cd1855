//! The machine of the first side: allocates the pages of a region, grants them to the other domain,
//! and hands them to programs.
//!
//! A program sends one end of a channel to the socket of who holds the pages, and gets on it the
//! file, and a message of three numbers: the token, where the region begins in the file, and its
//! length.
//!
//! Whoever may open that socket can send anything. A descriptor may take for ever to be closed: a
//! socket that lingers, a file of a file system that does not answer. And whoever receives it has
//! to close it. So one descriptor is taken of each datagram, and several threads take datagrams.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use seekwire_transport::Errno;
use seekwire_transport::mem::Region;
use seekwire_transport::sys::fd::{Opened, Placed};
use seekwire_transport::sys::grants::{self, ALLOCATOR};
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::unix::{self, Channel, DatagramSocket};
use seekwire_transport::sys::{Fd, file, host};

use super::store::{self, Store};
use super::{XenError, lists, pages_of};
use crate::attach::{Access, alone, give_access_at, make_directory};
use crate::error::LinkError;
use crate::map::{Definition, Provider, Side};

/// The kernel's module that grants pages.
pub(super) const MODULE: &str = "xen-gntalloc";
/// Bytes of an answer.
const ANSWER: usize = 24;
/// Threads that answer. So many less one may be held up by what they were sent.
const SERVERS: usize = 16;

/// Where programs ask for the memory of a link.
pub(super) fn path_of(name: &str, state: &Path) -> PathBuf {
    state.join(format!("{name}.holder"))
}

/// The memory of a link, which is there as long as this process, or one that has mapped it.
#[derive(Debug)]
pub struct Held {
    socket: DatagramSocket,
    file: Opened,
    answer: [u8; ANSWER],
    /// Who has it waits for the next datagram.
    turn: Mutex<()>,
}

impl Held {
    /// Hands the memory to programs for as long as this process lives.
    ///
    /// # Errors
    /// Those of poll(2) and recvmsg(2) on a socket that nothing is wrong with; no thread can be
    /// started.
    pub fn serve(self) -> io::Result<Infallible> {
        let held = Arc::new(self);
        let (failed, failures) = mpsc::channel();
        for _ in 0..SERVERS {
            let (held, failed) = (Arc::clone(&held), failed.clone());
            thread::Builder::new().spawn(move || failed.send(held.answer()))?;
        }
        drop(failed);
        failures.recv().unwrap_or_else(|_| Err(io::Error::other("all threads have ended")))
    }

    fn answer(&self) -> io::Result<Infallible> {
        loop {
            self.wait()?;
            // From here on it may take as long as whoever asks likes.
            let Some(asked) = self.socket.receive_one(&mut [0])? else { continue };
            let Some(end) = asked.descriptors.into_iter().next() else { continue };
            // Whoever has gone meanwhile wants no answer.
            let _ = Channel::from_peer(end).send(&self.answer, &[self.file.as_fd()]);
        }
    }

    fn wait(&self) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match poll::wait(Fd::new(-1), self.socket.fd(), Events::READ, Deadline::NEVER) {
                Err(Errno::INTR) => {}
                result => return Ok(result.map(drop)?),
            }
        }
    }
}

/// Allocates the memory of a link and grants it to the other domain.
pub(crate) fn hold(
    definition: &Definition,
    state: &Path,
    access: Access,
) -> Result<Held, LinkError> {
    let name = &definition.name;
    let held = match (&definition.provider, definition.side) {
        (Provider::Xen { domain, length }, Side::First) => {
            grant_and_show(name, *domain, *length, state, access)
        }
        _ => Err(XenError::NothingToHold),
    };
    held.map_err(|source| LinkError::Provider { name: name.clone(), source: source.into() })
}

fn grant_and_show(
    name: &str,
    domain: u16,
    length: u64,
    state: &Path,
    access: Access,
) -> Result<Held, XenError> {
    let of_state = |error| XenError::io(state, error);
    make_directory(state).map_err(of_state)?;
    let _alone = alone(state).map_err(of_state)?;
    let path = path_of(name, state);
    if !unix::is_abandoned(&path) {
        return Err(XenError::Held);
    }
    let token = host::random();
    let (file, offset, root) = grant(domain, length, token)?;
    let held = listen(&path, file, [token, offset, length], access)
        .map_err(|error| XenError::io(&path, error))?;
    show(name, domain, root, token).map_err(|error| XenError::io(store::DEVICE.as_ref(), error))?;
    Ok(held)
}

/// From now on programs can ask. A socket there is one that somebody has left.
fn listen(path: &Path, file: Opened, answer: [u64; 3], access: Access) -> io::Result<Held> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = DatagramSocket::bind(path)?;
    give_access_at(path, access)?;
    let mut bytes = [0; ANSWER];
    for (at, word) in bytes.chunks_exact_mut(8).zip(answer) {
        at.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(Held { socket, file, answer: bytes, turn: Mutex::new(()) })
}

/// Returns the file that has the pages, where in it the region begins, and the reference of the
/// root.
fn grant(domain: u16, length: u64, token: u64) -> Result<(Opened, u64, u32), XenError> {
    let file = file::open(ALLOCATOR.as_ref(), OFlags::RDWR, 0)
        .map_err(|error| XenError::device(ALLOCATOR, MODULE, error))?;
    check_limit(length)?;
    let failed = |source| XenError::Grant { domain, needed: needed(length), source };
    let count = lists::count(length);
    let (at, own) = grants::allocate(&file, domain, 1 + count, false).map_err(failed)?;
    let (offset, references) =
        grants::allocate(&file, domain, pages_of(length), true).map_err(failed)?;
    let bytes = lists::write(token, length, &own[1..], &references);
    let pages = Region::of_file_from(file.as_fd(), at, bytes.len()).map_err(failed)?;
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        let mut number = [0; 8];
        number.copy_from_slice(word);
        pages.word(at * 8).store(u64::from_ne_bytes(number), Ordering::Release);
    }
    Ok((file, offset, own[0]))
}

/// Names the root in xenstore, for the other domain alone.
fn show(name: &str, domain: u16, root: u32, token: u64) -> io::Result<()> {
    let store = Store::open()?;
    let own = store.read("domid")?;
    let own = own.trim().parse().map_err(|_| io::Error::other("domid in xenstore is no number"))?;
    let path = store::below_domain(name);
    store.write(&path, &store::offer(root, token))?;
    store.show(&path, own, domain)
}

/// All pages of a link.
fn needed(length: u64) -> u64 {
    (pages_of(length) + lists::count(length) + 1) as u64
}

/// Whether the kernel would grant so much.
pub(super) fn check_limit(length: u64) -> Result<(), XenError> {
    let needed = needed(length);
    match grants::limit() {
        Some(limit) if limit < needed => Err(XenError::Limit { needed, limit }),
        _ => Ok(()),
    }
}

/// What a program has got.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) file: Placed,
    pub(super) token: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Asks who holds the memory of a link for it.
pub(super) fn ask(name: &str, state: &Path, patience: Duration) -> Result<Handed, XenError> {
    let path = path_of(name, state);
    match try_ask(&path, patience) {
        Ok(handed) => Ok(handed),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                XenError::NotHeld(name.to_owned())
            }
            io::ErrorKind::PermissionDenied => {
                XenError::Permission { path: path.display().to_string() }
            }
            _ if is_scarce(&error) => XenError::io(&path, error),
            _ => XenError::Silent { name: name.to_owned(), source: error },
        }),
    }
}

/// Whether it is this process or this machine that lacks something, and not who is asked.
fn is_scarce(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    scarce.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn try_ask(path: &Path, patience: Duration) -> io::Result<Handed> {
    let (here, there) = Channel::pair()?;
    DatagramSocket::nameless()?.send(path, b"?", &[there.as_fd()])?;
    // The only one is on its way: if nobody takes it, that is heard here.
    drop(there);
    let until = Deadline::after(Some(patience));
    let mut answer = [0; ANSWER];
    let delivery = loop {
        if let Some(delivery) = here.receive(&mut answer)? {
            break delivery;
        }
        match poll::wait(Fd::new(-1), here.fd(), Events::READ, until) {
            Err(Errno::INTR) => {}
            result => _ = result?,
        }
    };
    let file = delivery.descriptors.into_iter().next().filter(|_| delivery.len == ANSWER);
    let file = file.ok_or_else(|| io::Error::other("it has sent no file"))?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&answer[at * 8..at * 8 + 8]);
        u64::from_ne_bytes(word)
    };
    Ok(Handed { file, token: word(0), offset: word(1), length: word(2) })
}

/// What is handed out is any file that can be mapped; that gntalloc has such pages is for tests/vm.
#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixDatagram;

    use rustix::fd::OwnedFd;
    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    const ACCESS: Access = Access { mode: 0o600, group: None };
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The memory of the link `a` is the last page of a file of so many bytes.
    fn held_in(state: &Path, bytes: u64) -> Held {
        let region = state.join("region");
        File::create(&region).unwrap().set_len(bytes).unwrap();
        let file = file::open(&region, OFlags::RDWR, 0).unwrap();
        listen(&path_of("a", state), file, [5, bytes - 4096, 4096], ACCESS).unwrap()
    }

    #[test]
    fn who_asks_gets_the_same_file() {
        let state = tempfile::tempdir().unwrap();
        let path = path_of("a", state.path());
        // Somebody was here before.
        drop(UnixDatagram::bind(&path).unwrap());
        let held = held_in(state.path(), 8192);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::thread::spawn(move || held.serve());
        // Who goes without having waited keeps nobody else from it.
        let gone = UnixDatagram::unbound().unwrap();
        gone.send_to(b"?", &path).unwrap();
        let [one, other] = [(); 2].map(|()| ask("a", state.path(), PATIENCE).unwrap());
        assert_eq!((one.token, one.offset, one.length), (5, 4096, 4096));
        let map = |handed: &Handed| {
            Region::of_file_from(handed.file.as_fd(), handed.offset, 4096).unwrap()
        };
        map(&one).word(8).store(77, Ordering::Relaxed);
        assert_eq!(map(&other).word(8).load(Ordering::Relaxed), 77);
        assert_eq!(std::fs::read(state.path().join("region")).unwrap()[4096 + 8], 77);
    }

    /// Both ends of a connection with so much in it that closing the first one takes until the
    /// second one is closed.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        full.set_nonblocking(true).unwrap();
        while full.write(&[0; 1 << 16]).is_ok() {}
        set_socket_linger(&full, Some(Duration::from_secs(3600))).unwrap();
        (full.into(), other)
    }

    #[test]
    fn who_sends_what_takes_long_to_close_keeps_nobody_from_the_memory() {
        let state = tempfile::tempdir().unwrap();
        let path = path_of("a", state.path());
        let held = held_in(state.path(), 4096);
        let others: Vec<TcpStream> = (0..SERVERS / 2)
            .map(|_| {
                let ((one, of_one), (two, _)) = (lingering(), lingering());
                let bad = DatagramSocket::nameless().unwrap();
                bad.send(&path, b"?", &[one.as_fd(), two.as_fd()]).unwrap();
                // On their way: whoever takes them closes them as the last one.
                of_one
            })
            .collect();
        std::thread::spawn(move || held.serve());
        for _ in 0..2 * SERVERS {
            assert_eq!(ask("a", state.path(), PATIENCE).unwrap().token, 5);
        }
        drop(others);
    }

    #[test]
    fn where_nobody_holds_it_or_answers_one_is_told_so() {
        let state = tempfile::tempdir().unwrap();
        assert!(matches!(ask("a", state.path(), PATIENCE), Err(XenError::NotHeld(_))));
        let path = path_of("a", state.path());
        let held = UnixDatagram::bind(&path).unwrap();
        let silent = ask("a", state.path(), Duration::from_millis(1)).unwrap_err().to_string();
        assert!(silent.contains("gives nothing out"), "{silent}");
        let lack = |errno: Errno| is_scarce(&io::Error::from(errno));
        assert!(lack(Errno::MFILE) && !lack(Errno::TIMEDOUT));
        drop(held);
        let said = ask("a", state.path(), PATIENCE).unwrap_err().to_string();
        assert!(said.contains("nobody holds") && said.ends_with("; as root: seekwire vm hold a"));
    }

    #[test]
    fn only_the_first_side_of_a_link_by_xen_has_something_to_hold() {
        let state = tempfile::tempdir().unwrap();
        let xen = Provider::Xen { domain: 3, length: 1 << 20 };
        for (provider, side) in [(xen, Side::Second), (Provider::File("/a".into()), Side::First)] {
            let definition = Definition { name: "a".to_owned(), provider, side };
            let said = hold(&definition, state.path(), ACCESS).unwrap_err().to_string();
            assert!(said.contains("link a: there is nothing to hold"), "{said}");
        }
    }

    #[test]
    fn a_link_needs_a_page_for_each_1024_pages_and_one_more() {
        assert_eq!(needed(1 << 20), 256 + 1 + 1);
        assert_eq!(needed(64 << 20), 16384 + 16 + 1);
    }
}
