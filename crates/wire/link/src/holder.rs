//! A process that holds the memory of a link, and hands it to programs.
//!
//! A program sends one end of a channel to the socket of who holds the memory, and gets on it the
//! file, and a message of three numbers: the token, where the region begins in the file, and its
//! length.
//!
//! Whoever may open that socket can send anything. A descriptor may take for ever to be closed: a
//! socket that lingers, a file of a file system that does not answer. And whoever receives it has
//! to close it. So one descriptor is taken of each datagram, and several threads take datagrams.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fd::AsFd;
use seekwire_transport::Errno;
use seekwire_transport::sys::Fd;
use seekwire_transport::sys::fd::{Opened, Placed};
use seekwire_transport::sys::poll::{self, Deadline, Events};
use seekwire_transport::sys::unix::{self, Channel, DatagramSocket};

use crate::attach::{Access, give_access_at};
use crate::error::LinkError;
use crate::map::{Definition, Provider};
use crate::provider::ProviderError;
use crate::{memory, xen};

/// Bytes of an answer.
const ANSWER: usize = 24;
/// Threads that answer. So many less one may be held up by what they were sent.
const SERVERS: usize = 16;
/// For how long a program waits for who holds the memory, before it stays on TCP.
pub(crate) const PROGRAMS: Duration = Duration::from_millis(250);
/// For how long a command does.
pub(crate) const COMMANDS: Duration = Duration::from_secs(10);

/// Why memory that another process holds cannot be had. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// Nobody holds it.
    #[error("nobody holds the memory of this link; as root: seekwire vm hold {0}")]
    NotHeld(String),
    /// Somebody does already.
    #[error("another process holds the memory of this link already; end that one first")]
    Held,
    /// Only links of some kinds have something to hold, and by Xen the first side alone.
    #[error(
        "there is nothing to hold; that is for links by memory, and for links by xen on the machine \
         that has the first side"
    )]
    NothingToHold,
    /// By Xen, both machines have to know the length.
    #[error("the map says how much memory a link by xen has; leave the size out")]
    LengthOfMap,
    /// This process may not ask the one that holds the memory.
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
        "who holds the memory of this link gives nothing out ({source}); try again. If that goes on, \
         as root: start seekwire vm hold {name} anew, which has other memory, and then on the other \
         machine: seekwire vm attach {name}"
    )]
    Silent {
        /// Of the link.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The memory could be cut short.
    #[error(
        "{path}: who answers there hands out something else than sealed memory; have seekwire vm \
         hold answer there"
    )]
    NotSealed {
        /// The socket.
        path: String,
    },
    /// The kernel said no.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl HolderError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

/// The memory of a link, which is there as long as this process, or one that has mapped it.
#[derive(Debug)]
pub struct Held {
    socket: DatagramSocket,
    file: Opened,
    answer: [u8; ANSWER],
    /// The thread that has it waits for the next datagram.
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

/// Makes the memory of a link, of `length` bytes where the map does not say how many, and has it
/// ready to be handed out.
pub(crate) fn hold(
    definition: &Definition,
    state: &Path,
    length: Option<u64>,
    access: Access,
) -> Result<Held, LinkError> {
    let held = match (&definition.provider, length) {
        (Provider::Memory(socket), length) => {
            memory::hold(socket, length, access).map_err(ProviderError::from)
        }
        (Provider::Xen { .. }, Some(_)) => Err(HolderError::LengthOfMap.into()),
        (Provider::Xen { domain, length }, None) => {
            xen::hold(definition, *domain, *length, state, access).map_err(ProviderError::from)
        }
        (Provider::File(_) | Provider::Ivshmem(_), _) => Err(HolderError::NothingToHold.into()),
    };
    held.map_err(|source| LinkError::Provider { name: definition.name.clone(), source })
}

/// Whether nobody hands anything out there.
pub(crate) fn is_free(path: &Path) -> Result<(), HolderError> {
    if unix::is_abandoned(path) { Ok(()) } else { Err(HolderError::Held) }
}

/// From now on programs can ask. A socket there is one that somebody has left.
pub(crate) fn listen(
    path: &Path,
    file: Opened,
    answer: [u64; 3],
    access: Access,
) -> io::Result<Held> {
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

/// Memory that was handed to a program.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) file: Placed,
    pub(crate) token: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Asks who holds the memory of a link for it.
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

/// The tests hand out any file that can be mapped; pages of gntalloc are for tests/vm.
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
    use crate::map::Side;

    const ACCESS: Access = Access { mode: 0o600, group: None };
    const PATIENCE: Duration = Duration::from_secs(60);

    fn socket(state: &Path) -> PathBuf {
        state.join("socket")
    }

    /// The memory of the link `a` is the last page of a file of so many bytes.
    fn held_in(state: &Path, bytes: u64) -> Held {
        let region = state.join("region");
        File::create(&region).unwrap().set_len(bytes).unwrap();
        let file = file::open(&region, OFlags::RDWR, 0).unwrap();
        listen(&socket(state), file, [5, bytes - 4096, 4096], ACCESS).unwrap()
    }

    #[test]
    fn who_asks_gets_the_same_file() {
        let state = tempfile::tempdir().unwrap();
        let path = socket(state.path());
        // Somebody was here before.
        drop(UnixDatagram::bind(&path).unwrap());
        let held = held_in(state.path(), 8192);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::thread::spawn(move || held.serve());
        // A program that goes without having waited keeps nobody else from it.
        let gone = UnixDatagram::unbound().unwrap();
        gone.send_to(b"?", &path).unwrap();
        let [one, other] = [(); 2].map(|()| ask("a", &socket(state.path()), PATIENCE).unwrap());
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
        let path = socket(state.path());
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
            assert_eq!(ask("a", &socket(state.path()), PATIENCE).unwrap().token, 5);
        }
        drop(others);
    }

    #[test]
    fn where_nobody_holds_it_or_answers_one_is_told_so() {
        let state = tempfile::tempdir().unwrap();
        assert!(matches!(ask("a", &socket(state.path()), PATIENCE), Err(HolderError::NotHeld(_))));
        let path = socket(state.path());
        let held = UnixDatagram::bind(&path).unwrap();
        let silent =
            ask("a", &socket(state.path()), Duration::from_millis(1)).unwrap_err().to_string();
        assert!(silent.contains("gives nothing out"), "{silent}");
        let lack = |errno: Errno| is_scarce(&io::Error::from(errno));
        assert!(lack(Errno::MFILE) && !lack(Errno::TIMEDOUT));
        drop(held);
        // A process that another test starts has it too until it has become its program.
        let said = (0..100)
            .map(|_| ask("a", &socket(state.path()), PATIENCE).unwrap_err().to_string())
            .find(|said| !said.contains("gives nothing out"))
            .unwrap();
        assert!(said.contains("nobody holds"), "{said}");
        assert!(said.ends_with("; as root: seekwire vm hold a"), "{said}");
    }

    #[test]
    fn what_has_nothing_to_hold_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let (file, xen) =
            (Provider::File("/a".into()), Provider::Xen { domain: 3, length: 1 << 20 });
        for (provider, side, length, why) in [
            (xen.clone(), Side::Second, None, "there is nothing to hold"),
            (xen, Side::First, Some(1 << 20), "the map says how much"),
            (file, Side::First, None, "there is nothing to hold"),
        ] {
            let definition = Definition { name: "a".to_owned(), provider, side };
            let said = hold(&definition, state.path(), length, ACCESS).unwrap_err().to_string();
            assert!(said.contains("link a: ") && said.contains(why), "{said}");
        }
    }
}
