//! The file in which an agent keeps the addresses that it has verified for a link: `NAME.peers`,
//! beside the state file. Programs read it in addition to the map.
//!
//! ```text
//! own 0123456789abcdef
//! peer fedcba9876543210
//! 10.0.0.2
//! fd00::2
//! ```
//!
//! It is valid for these two attachments of the machines, while the agent lives
//! ([`Link::believes`](crate::Link::believes)).

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use seekwire_transport::sys::file;
use seekwire_transport::sys::signal::without_signals;

use crate::address::is_usable;
use crate::layout::MAX_ADDRESSES;
use crate::map::Definition;
use crate::text;

const MAX_BYTES: usize = 8192;

/// The addresses of the machine at the other end of a link, as an agent has verified them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peers {
    /// The token of this machine's attachment.
    pub own: u64,
    /// The token of the other machine's attachment.
    pub peer: u64,
    /// In ascending order.
    pub addresses: Vec<IpAddr>,
}

impl Peers {
    /// The path of the file for a link with its state in the directory `state`.
    #[must_use]
    pub fn path(link: &Definition, state: &Path) -> PathBuf {
        state.join(format!("{}.peers", link.name))
    }

    /// Reads the file; `None` if it is missing or malformed.
    #[must_use]
    pub fn read(link: &Definition, state: &Path) -> Option<Self> {
        let path = Self::path(link, state);
        let bytes = text::read(&path, MAX_BYTES);
        let bytes = bytes.map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!("{}: {error}", path.display());
            }
        });
        Self::parse(std::str::from_utf8(&bytes.ok()??).ok()?)
    }

    /// Parses a text; `None` if it is malformed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut token = |name: &str| {
            let digits = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?;
            let is_number = digits.len() == 16 && digits.bytes().all(|it| it.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| is_number)
        };
        let (own, peer) = (token("own")?, token("peer")?);
        let addresses: Vec<IpAddr> = lines.map(|line| line.parse().ok()).collect::<Option<_>>()?;
        let is_theirs =
            |address: &IpAddr| is_usable(*address) && address.to_canonical() == *address;
        let is_possible = addresses.len() <= MAX_ADDRESSES
            && addresses.iter().all(is_theirs)
            && addresses.is_sorted_by(|one, next| one < next);
        is_possible.then_some(Self { own, peer, addresses })
    }

    /// Writes the file atomically: readers find the old file or the new one. Only the agent calls
    /// this.
    ///
    /// # Errors
    /// Those of open(2), write(2) and rename(2).
    pub fn write(&self, link: &Definition, state: &Path) -> io::Result<()> {
        replace(&Self::path(link, state), self.to_string().as_bytes())
    }

    /// Removes the file, if there is one. Only the agent calls this.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove(link: &Definition, state: &Path) -> io::Result<()> {
        match rustix::fs::unlink(Self::path(link, state)) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// In the format that [`Peers::parse`] reads.
impl std::fmt::Display for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "own {:016x}\npeer {:016x}", self.own, self.peer)?;
        self.addresses.iter().try_for_each(|address| writeln!(f, "{address}"))
    }
}

/// Replaces the file at a path with a complete one that every user may read.
fn replace(path: &Path, mut bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("peers-new");
    // Left by a process that was killed: only one process replaces the file.
    let _ = rustix::fs::unlink(&new);
    let flags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);
    let file = file::open(&new, flags, 0o644)?;
    let mut write = || -> io::Result<()> {
        while !bytes.is_empty() {
            let n = without_signals(|| {
                Ok(rustix::io::retry_on_intr(|| rustix::io::write(&file, bytes))?)
            })?;
            bytes = &bytes[n..];
        }
        // Independent of the umask.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        Ok(rustix::fs::rename(&new, path)?)
    };
    write().inspect_err(|_| _ = rustix::fs::unlink(&new))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::map::{Provider, Side};

    fn link() -> Definition {
        let provider = Provider::File("/dev/shm/a".into());
        Definition { name: "db-web".to_owned(), provider, side: Side::First }
    }

    fn peers() -> Peers {
        let addresses = ["10.0.0.2", "fd00::2"].map(|text| text.parse().unwrap()).into();
        Peers { own: 1, peer: u64::MAX, addresses }
    }

    #[test]
    fn what_is_written_is_read_until_it_is_removed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        assert_eq!(Peers::read(&link(), state), None);
        peers().write(&link(), state).unwrap();
        assert_eq!(Peers::read(&link(), state), Some(peers()));
        let none = Peers { addresses: Vec::new(), ..peers() };
        none.write(&link(), state).unwrap();
        assert_eq!(Peers::read(&link(), state), Some(none));
        let mode = std::fs::metadata(Peers::path(&link(), state)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(state).unwrap().count(), 1);
        for _ in 0..2 {
            Peers::remove(&link(), state).unwrap();
            assert_eq!(Peers::read(&link(), state), None);
        }
    }

    #[test]
    fn what_no_agent_writes_is_nothing() {
        let good = peers().to_string();
        let many: String = (0..65).map(|last| format!("10.0.0.{last}\n")).collect();
        for text in [
            "",
            "own 1\npeer 2\n",
            &good.replace("own", "peer"),
            &good.replace("own 0", "own +"),
            &good.replace("ffff\n", "fffg\n"),
            &good.replace("10.0.0.2", "10.0.0.2/8"),
            &good.replace("10.0.0.2", "127.0.0.1"),
            &good.replace("10.0.0.2", "::ffff:10.0.0.2"),
            &good.replace("10.0.0.2", "0.0.0.0"),
            &good.replace("10.0.0.2", "fd00::3"),
            &good.replace("10.0.0.2", "fd00::2"),
            &good.replace("10.0.0.2\n", "\n"),
            &good.replace("10.0.0.2\nfd00::2\n", &many),
        ] {
            assert_eq!(Peers::parse(text), None, "{text}");
        }
        assert_eq!(Peers::parse(&good), Some(peers()));
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(Peers::path(&link(), directory.path()), "\n".repeat(9000)).unwrap();
        assert_eq!(Peers::read(&link(), directory.path()), None);
        std::fs::write(Peers::path(&link(), directory.path()), [0xff; 60]).unwrap();
        assert_eq!(Peers::read(&link(), directory.path()), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_is_printed_or_not_at_all(
            text in "(own|peer| |[0-9a-f]|\\.|:|\n|\\PC){0,90}"
        ) {
            if let Some(peers) = Peers::parse(&text) {
                prop_assert_eq!(Peers::parse(&peers.to_string()), Some(peers));
            }
        }
    }
}
