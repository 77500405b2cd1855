//! A process that holds the memory of a link, and hands it to programs.
//!
//! A program sends one end of a channel to the socket of the holder. On the channel it receives the
//! file, and a message of three numbers: the token, the offset of the region in the file, and its
//! length.
//!
//! Everyone who may open that socket can send anything. A descriptor may take for ever to close: a
//! socket that lingers, or a file of a file system that does not respond. The receiver has to close
//! it. So the holder accepts one descriptor per datagram, and several threads receive datagrams.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fd::AsFd;
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::{LibraryFd, PrivateFd};
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::unix::{self, Channel, DatagramSocket};

use crate::access::{Access, give_access_to_socket};

/// Bytes of an answer.
const ANSWER: usize = 24;
/// Number of threads that answer. All but one may be blocked by what they received.
const SERVERS: usize = 16;
/// How long a program waits for the holder before it stays on TCP.
pub(crate) const PROGRAMS: Duration = Duration::from_millis(250);
/// How long a command waits for the holder.
pub(crate) const COMMANDS: Duration = Duration::from_secs(10);

/// Why the memory of another process is not available. Each message names a remedy.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// No process holds it.
    #[error("nobody holds the memory of this link; as root: seekwire vm hold {0}")]
    NotHeld(String),
    /// Another process already holds it.
    #[error("another process already holds the memory of this link; stop that process first")]
    Held,
    /// Only links of some kinds have memory to hold, and with Xen only the first side holds it.
    #[error(
        "there is nothing to hold; that is for links with the provider memory, and for links with \
         the provider xen on the machine that has the first side"
    )]
    NothingToHold,
    /// With Xen, both machines have to know the length.
    #[error("the map gives the size of a link with the provider xen; omit it here")]
    LengthOfMap,
    /// This process may not connect to the holder.
    #[error(
        "{path}: permission denied; as root: seekwire vm attach --group GROUP, where GROUP is a \
         group of this user"
    )]
    Permission {
        /// The socket.
        path: String,
    },
    /// The process that holds the memory does not answer.
    #[error(
        "the process that holds the memory of this link does not answer ({source}); try again. If \
         it still does not, as root: restart seekwire vm hold {name}, which makes new memory, and \
         then on the other machine: seekwire vm attach {name}"
    )]
    Silent {
        /// The name of the link.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The memory is not sealed, so its length could change.
    #[error(
        "{path}: the process that answers there hands out something other than sealed memory; run \
         seekwire vm hold in its place"
    )]
    NotSealed {
        /// The socket.
        path: String,
    },
    /// A system call failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl HolderError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

/// The memory of a link. It exists until this process and all that have mapped it have ended.
#[derive(Debug)]
pub struct HeldMemory {
    socket: DatagramSocket,
    file: LibraryFd,
    answer: [u8; ANSWER],
    /// Held by the thread that waits for the next datagram.
    turn: Mutex<()>,
}

impl HeldMemory {
    /// Hands the memory to programs as long as this process lives.
    ///
    /// # Errors
    /// Those of poll(2) and recvmsg(2) on a working socket, and of starting a thread.
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
            // From here on the client may delay this thread for ever.
            let Some(asked) = self.socket.receive_one(&mut [0])? else { continue };
            let Some(end) = asked.descriptors.into_iter().next() else { continue };
            // A client that has gone needs no answer.
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

/// Succeeds if no process hands out memory at this path.
pub(crate) fn is_free(path: &Path) -> Result<(), HolderError> {
    if unix::is_abandoned(path) { Ok(()) } else { Err(HolderError::Held) }
}

/// Listens for programs. An existing socket was left by a process that has ended.
pub(crate) fn listen(
    path: &Path,
    file: LibraryFd,
    answer: [u64; 3],
    access: Access,
) -> io::Result<HeldMemory> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = DatagramSocket::bind(path)?;
    give_access_to_socket(path, access)?;
    let mut bytes = [0; ANSWER];
    for (at, word) in bytes.chunks_exact_mut(8).zip(answer) {
        at.copy_from_slice(&word.to_ne_bytes());
    }
    Ok(HeldMemory { socket, file, answer: bytes, turn: Mutex::new(()) })
}

/// Memory received from a holder.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) file: PrivateFd,
    pub(crate) token: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Asks the holder of a link's memory for it.
pub(crate) fn ask(name: &str, path: &Path, patience: Duration) -> Result<Handed, HolderError> {
    match try_ask(path, patience) {
        Ok(handed) => Ok(handed),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                HolderError::NotHeld(name.to_owned())
            }
            io::ErrorKind::PermissionDenied => {
                HolderError::Permission { path: path.display().to_string() }
            }
            _ if is_scarce(&error) => HolderError::io(path, error),
            _ => HolderError::Silent { name: name.to_owned(), source: error },
        }),
    }
}

/// True if this process or machine lacks a resource, so that the holder is not to blame.
fn is_scarce(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    scarce.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn try_ask(path: &Path, patience: Duration) -> io::Result<Handed> {
    let (here, there) = Channel::pair()?;
    DatagramSocket::nameless()?.send(path, b"?", &[there.as_fd()])?;
    // The only other copy is in the datagram: if nobody receives it, this end is notified.
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
    let file = file.ok_or_else(|| io::Error::other("it sent no file"))?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&answer[at * 8..at * 8 + 8]);
        u64::from_ne_bytes(word)
    };
    Ok(Handed { file, token: word(0), offset: word(1), length: word(2) })
}

/// The tests hand out any mappable file; wire/tests/vm tests pages of gntalloc.
#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixDatagram;
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;

    use rustix::fd::OwnedFd;
    use rustix::fs::OFlags;
    use rustix::net::sockopt::set_socket_linger;
    use seekwire_transport::mem::Region;
    use seekwire_transport::sys::file;

    use super::*;

    const ACCESS: Access = Access { mode: 0o600, group: None };
    const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

    fn socket(state: &Path) -> PathBuf {
        state.join("socket")
    }

    /// The memory of the link `a` is the last page of a file of `bytes` bytes.
    fn held_in(state: &Path, bytes: u64) -> HeldMemory {
        let region = state.join("region");
        File::create(&region).unwrap().set_len(bytes).unwrap();
        let file = file::open(&region, OFlags::RDWR, 0).unwrap();
        listen(&socket(state), file, [5, bytes - 4096, 4096], ACCESS).unwrap()
    }

    #[test]
    fn who_asks_gets_the_same_file() {
        let state = tempfile::tempdir().unwrap();
        let path = socket(state.path());
        // A socket that an earlier holder has left.
        drop(UnixDatagram::bind(&path).unwrap());
        let held = held_in(state.path(), 8192);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::thread::spawn(move || held.serve());
        // A program that goes away without waiting does not block others.
        let gone = UnixDatagram::unbound().unwrap();
        gone.send_to(b"?", &path).unwrap();
        let [one, other] =
            [(); 2].map(|()| ask("a", &socket(state.path()), REPLY_TIMEOUT).unwrap());
        assert_eq!((one.token, one.offset, one.length), (5, 4096, 4096));
        let map = |handed: &Handed| {
            Region::of_file_from(handed.file.as_fd(), handed.offset, 4096).unwrap()
        };
        map(&one).word(8).store(77, Ordering::Relaxed);
        assert_eq!(map(&other).word(8).load(Ordering::Relaxed), 77);
        assert_eq!(std::fs::read(state.path().join("region")).unwrap()[4096 + 8], 77);
    }

    /// Both ends of a connection with so many unsent bytes that closing the first end blocks until
    /// the second is closed.
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
        let path = socket(state.path());
        let held = held_in(state.path(), 4096);
        let others: Vec<TcpStream> = (0..SERVERS / 2)
            .map(|_| {
                let ((one, of_one), (two, _)) = (lingering(), lingering());
                let bad = DatagramSocket::nameless().unwrap();
                bad.send(&path, b"?", &[one.as_fd(), two.as_fd()]).unwrap();
                // Only the datagrams hold these descriptors, so the receiver is the last to close
                // them.
                of_one
            })
            .collect();
        std::thread::spawn(move || held.serve());
        for _ in 0..2 * SERVERS {
            assert_eq!(ask("a", &socket(state.path()), REPLY_TIMEOUT).unwrap().token, 5);
        }
        drop(others);
    }

    #[test]
    fn where_nobody_holds_it_or_answers_one_is_told_so() {
        let state = tempfile::tempdir().unwrap();
        assert!(matches!(
            ask("a", &socket(state.path()), REPLY_TIMEOUT),
            Err(HolderError::NotHeld(_))
        ));
        let path = socket(state.path());
        let held = UnixDatagram::bind(&path).unwrap();
        let silent =
            ask("a", &socket(state.path()), Duration::from_millis(1)).unwrap_err().to_string();
        assert!(silent.contains("does not answer"), "{silent}");
        let lack = |errno: Errno| is_scarce(&io::Error::from(errno));
        assert!(lack(Errno::MFILE) && !lack(Errno::TIMEDOUT));
        drop(held);
        // A process that another test starts inherits the socket until its exec.
        let error = (0..100)
            .map(|_| ask("a", &socket(state.path()), REPLY_TIMEOUT).unwrap_err().to_string())
            .find(|error| !error.contains("does not answer"))
            .unwrap();
        assert!(error.contains("nobody holds"), "{error}");
        assert!(error.ends_with("; as root: seekwire vm hold a"), "{error}");
    }
}
