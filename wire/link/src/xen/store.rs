//! xenstore, through the kernel's device (xen/include/public/io/xs_wire.h): no Xen library is
//! needed. Commands of root use it; programs never do.

use std::io;
use std::path::Path;

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use seekwire_transport::sys::fd::LibraryFd;
use seekwire_transport::sys::file;

/// The device.
pub(super) const DEVICE: &str = "/dev/xen/xenbus";

const READ: u32 = 2;
const WRITE: u32 = 11;
const SET_PERMS: u32 = 14;
const ERROR: u32 = 16;
/// Maximum length of a message.
const MOST: usize = 4096;

/// The path in xenstore where a domain announces the pages it grants for a link, relative to the
/// domain.
pub(super) fn below_domain(name: &str) -> String {
    format!("data/seekwire/{name}")
}

/// The same path for other domains.
pub(super) fn of_domain(domain: u16, name: &str) -> String {
    format!("/local/domain/{domain}/{}", below_domain(name))
}

/// The value at that path: the reference of the root, and the token.
pub(super) fn offer(root: u32, token: u64) -> String {
    format!("{root} {token:016x}")
}

pub(super) fn read_offer(text: &str) -> Option<(u32, u64)> {
    let (root, token) = text.split_once(' ')?;
    Some((root.parse().ok()?, u64::from_str_radix(token, 16).ok()?))
}

/// A connection to xenstore.
pub(super) struct Store<F = LibraryFd>(F);

impl Store {
    pub(super) fn open() -> io::Result<Self> {
        file::open(Path::new(DEVICE), OFlags::RDWR, 0).map(Self)
    }
}

impl<F: AsFd> Store<F> {
    /// The value of a path. A path that does not begin with / is relative to this domain.
    pub(super) fn read(&self, path: &str) -> io::Result<String> {
        let value = self.call(READ, &[path.as_bytes(), b"\0"].concat())?;
        String::from_utf8(value).map_err(|_| io::Error::other("the value is not UTF-8"))
    }

    pub(super) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.call(WRITE, &[path.as_bytes(), b"\0", value.as_bytes()].concat()).map(drop)
    }

    /// Makes `own` the owner of a path; of the other domains only `reader` may read it.
    pub(super) fn show(&self, path: &str, own: u16, reader: u16) -> io::Result<()> {
        self.call(SET_PERMS, format!("{path}\0n{own}\0r{reader}\0").as_bytes()).map(drop)
    }

    fn call(&self, kind: u32, body: &[u8]) -> io::Result<Vec<u8>> {
        if body.len() > MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        const NUMBER: u32 = 1;
        let mut message = Vec::new();
        for word in [kind, NUMBER, 0, body.len() as u32] {
            message.extend(word.to_ne_bytes());
        }
        message.extend(body);
        let mut rest = &message[..];
        while !rest.is_empty() {
            let len = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, rest))?;
            rest = &rest[len..];
        }
        let mut header = [0; 16];
        self.read_all(&mut header)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&header[at * 4..at * 4 + 4]);
            u32::from_ne_bytes(word)
        };
        let len = usize::try_from(word(3)).ok().filter(|len| *len <= MOST);
        let len = len.filter(|_| word(1) == NUMBER && (word(0) == ERROR || word(0) == kind));
        let mut answer =
            vec![0; len.ok_or_else(|| io::Error::other("xenstore sent an invalid answer"))?];
        self.read_all(&mut answer)?;
        if word(0) == ERROR { Err(error(&answer)) } else { Ok(answer) }
    }

    fn read_all(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut *into))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => into = &mut into[len..],
            }
        }
        Ok(())
    }
}

/// xenstore reports errors by name.
fn error(name: &[u8]) -> io::Error {
    match name {
        b"ENOENT\0" => io::ErrorKind::NotFound.into(),
        b"EACCES\0" | b"EPERM\0" => io::ErrorKind::PermissionDenied.into(),
        name => {
            let name = String::from_utf8_lossy(name);
            io::Error::other(format!("xenstore reports {}", name.trim_end_matches('\0')))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Answers one message; returns its kind and body.
    fn answer(mut end: UnixStream, kind: Option<u32>, body: &[u8]) -> (u32, Vec<u8>) {
        let mut words = [0; 16];
        end.read_exact(&mut words).unwrap();
        let words: Vec<u32> =
            words.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        let mut asked = vec![0; words[3] as usize];
        end.read_exact(&mut asked).unwrap();
        for word in [kind.unwrap_or(words[0]), words[1], words[2], body.len() as u32] {
            end.write_all(&word.to_ne_bytes()).unwrap();
        }
        end.write_all(body).unwrap();
        (words[0], asked)
    }

    fn between<T>(
        kind: Option<u32>,
        body: &'static [u8],
        ask: impl FnOnce(&Store<UnixStream>) -> T,
    ) -> (T, (u32, Vec<u8>)) {
        let (here, there) = UnixStream::pair().unwrap();
        let other = std::thread::spawn(move || answer(there, kind, body));
        (ask(&Store(here)), other.join().unwrap())
    }

    #[test]
    fn messages_are_those_of_the_protocol() {
        let (value, asked) = between(None, b"17", |store| store.read("domid"));
        assert_eq!((value.unwrap().as_str(), asked), ("17", (2, b"domid\0".to_vec())));
        let (done, asked) = between(None, b"OK\0", |store| store.write("data/a", "1 2"));
        assert!(done.is_ok());
        assert_eq!(asked, (11, b"data/a\x001 2".to_vec()));
        let (done, asked) = between(None, b"OK\0", |store| store.show("data/a", 1, 2));
        assert!(done.is_ok());
        assert_eq!(asked, (14, b"data/a\0n1\0r2\0".to_vec()));
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        for (root, token) in [(0, 0), (8, 0x1234), (u32::MAX, u64::MAX)] {
            assert_eq!(read_offer(&offer(root, token)), Some((root, token)));
        }
        for other in ["", "8", "8 ", "x 1", "-1 1", "8 1 1", "99999999999 1"] {
            assert_eq!(read_offer(other), None, "{other:?}");
        }
        assert_eq!(of_domain(3, "db-web"), "/local/domain/3/data/seekwire/db-web");
    }

    #[test]
    fn errors_are_told_and_nonsense_is_none_of_the_answers() {
        let kind = |result: io::Result<String>| result.unwrap_err().kind();
        let asked = |kind, body| between(kind, body, |store| store.read("a")).0;
        assert_eq!(kind(asked(Some(ERROR), b"ENOENT\0")), io::ErrorKind::NotFound);
        assert_eq!(kind(asked(Some(ERROR), b"EACCES\0")), io::ErrorKind::PermissionDenied);
        let other = asked(Some(ERROR), b"EQUOTA\0").unwrap_err().to_string();
        assert_eq!(other, "xenstore reports EQUOTA");
        assert!(asked(Some(99), b"x").unwrap_err().to_string().contains("invalid answer"));
        assert!(asked(None, b"\xff").is_err());
    }
}
