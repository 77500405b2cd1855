//! The file that says which links this machine has, and which addresses lie behind them:
//! `/etc/seekwire/links`, or what the environment variable `SEEKWIRE_LINKS` names.
//!
//! ```text
//! # link NAME PROVIDER WHERE SIDE
//! link  db-web  ivshmem 0000:00:04.0  first
//! link  tests   file /dev/shm/tests   second
//! link  cache   xen 3/64M             first
//! # where this machine keeps what it knows of links that it is attached to
//! state /run/seekwire
//! # ADDRESS  NAME: this address belongs to the machine at the other end of that link
//! 10.0.0.2   db-web
//! fd00::2    db-web
//! ```
//!
//! The administrator says so: that an address belongs to a machine is true only as long as the
//! network is as it was. So two ends of a connection prove it again before they share memory.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::agent::is_of_another;
use crate::text;

/// Where the map is, unless the environment says otherwise.
pub const PATH: &str = "/etc/seekwire/links";
/// The environment variable that says otherwise.
pub const VARIABLE: &str = "SEEKWIRE_LINKS";
/// Where state is kept, unless the map says otherwise.
pub const STATE: &str = "/run/seekwire";

const MAX_LINKS: usize = 64;
const MAX_ADDRESSES: usize = 4096;
const MAX_BYTES: usize = 1 << 20;
const MAX_NAME: usize = 32;

/// Which half of the region is this machine's. The other machine has the other side.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Side {
    /// The first half.
    First,
    /// The second half.
    Second,
}

impl Side {
    /// That of the other machine.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::First => "first",
            Self::Second => "second",
        })
    }
}

/// Where a region comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Provider {
    /// A file that both sides can open, as in /dev/shm.
    File(PathBuf),
    /// Sealed memory that a process hands out at this socket.
    Memory(PathBuf),
    /// A PCI device of QEMU's, by its address.
    Ivshmem(String),
    /// Pages that the first side grants to the second one, both domains of Xen's.
    Xen {
        /// The number of the other domain.
        domain: u16,
        /// Bytes of the region.
        length: u64,
    },
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Memory(socket) => write!(f, "memory {}", socket.display()),
            Self::Ivshmem(address) => write!(f, "ivshmem {address}"),
            Self::Xen { domain, length } => write!(f, "xen {domain}/{}M", length >> 20),
        }
    }
}

/// One link of the map.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Definition {
    /// 1 to 32 of a-z, 0-9 and -.
    pub name: String,
    /// Where its region comes from.
    pub provider: Provider,
    /// Which half is this machine's.
    pub side: Side,
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} {} {}", self.name, self.provider, self.side)
    }
}

/// What cannot be read as a map.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}{what}", place(.path, .line))]
pub struct MapError {
    /// The file; empty where the text came from none.
    pub path: PathBuf,
    /// Which line; 0 where it is none of them.
    pub line: usize,
    /// What is wrong, and what is expected.
    pub what: String,
}

fn place(path: &Path, line: &usize) -> String {
    match (path.as_os_str().is_empty(), *line) {
        (true, 0) => String::new(),
        (true, line) => format!("line {line}: "),
        (false, 0) => format!("{}: ", path.display()),
        (false, line) => format!("{}:{line}: ", path.display()),
    }
}

/// The map, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Map {
    links: Vec<Definition>,
    /// To the place of its link.
    addresses: BTreeMap<IpAddr, usize>,
    state: PathBuf,
}

impl Default for Map {
    fn default() -> Self {
        Self { links: Vec::new(), addresses: BTreeMap::new(), state: STATE.into() }
    }
}

impl Map {
    /// Where the map of this process is.
    #[must_use]
    pub fn path() -> PathBuf {
        path_by(env::var_os(VARIABLE))
    }

    /// Reads a file. One that is not there is an empty map.
    ///
    /// # Errors
    /// [`MapError`], with the line.
    pub fn read(path: &Path) -> Result<Self, MapError> {
        let error = |line, what| MapError { path: path.to_owned(), line, what };
        let bytes = match text::read(path, MAX_BYTES) {
            Err(found) if found.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            bytes => bytes.map_err(|found| error(0, found.to_string()))?,
        };
        let bytes = bytes.ok_or_else(|| error(0, TOO_LONG.to_owned()))?;
        let text = std::str::from_utf8(&bytes).map_err(|found| {
            let lines = bytes[..found.valid_up_to()].iter().filter(|byte| **byte == b'\n');
            error(lines.count() + 1, "this is not text in UTF-8".to_owned())
        })?;
        Self::parse(text).map_err(|found| error(found.line, found.what))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// [`MapError`], with the line.
    pub fn parse(text: &str) -> Result<Self, MapError> {
        let error = |line, what| MapError { path: PathBuf::new(), line, what };
        if text.len() > MAX_BYTES {
            return Err(error(0, TOO_LONG.to_owned()));
        }
        let mut reader = Reader::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split_once('#').map_or(text, |(before, _)| before);
            let fields: Vec<&str> = text.split_whitespace().collect();
            reader.line(line, &fields).map_err(|what| error(line, what))?;
        }
        reader.finish().map_err(|(line, what)| error(line, what))
    }

    /// All links, as they stand in the file.
    #[must_use]
    pub fn links(&self) -> &[Definition] {
        &self.links
    }

    /// The link of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The link to the machine that has this address.
    #[must_use]
    pub fn of_address(&self, address: IpAddr) -> Option<&Definition> {
        self.addresses.get(&address.to_canonical()).map(|at| &self.links[*at])
    }

    /// The addresses of the machine at the other end of a link, in their order.
    pub fn addresses(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let at = self.links.iter().position(|link| link.name == name);
        self.addresses.iter().filter(move |(_, link)| Some(**link) == at).map(|(ip, _)| *ip)
    }

    /// Where this machine keeps what it knows of links that it is attached to.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }
}

fn path_by(variable: Option<OsString>) -> PathBuf {
    let named = variable.filter(|path| !path.is_empty());
    named.map_or_else(|| PATH.into(), PathBuf::from)
}

/// In the same form, without comments.
impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for link in &self.links {
            writeln!(f, "{link}")?;
        }
        writeln!(f, "state {}", self.state.display())?;
        for (address, link) in &self.addresses {
            writeln!(f, "{address} {}", self.links[*link].name)?;
        }
        Ok(())
    }
}

const TOO_LONG: &str = "a map has at most 1 MiB";

/// What was read so far.
#[derive(Default)]
struct Reader {
    links: Vec<Definition>,
    state: Option<PathBuf>,
    /// With the line and the name of the link, which may be defined behind it.
    addresses: BTreeMap<IpAddr, (usize, String)>,
}

const LINK: &str = "expected: link NAME memory SOCKET first|second, or: link NAME file PATH \
    first|second, or: link NAME ivshmem PCI-ADDRESS first|second, or: link NAME xen DOMAIN/SIZE first|second";

impl Reader {
    fn line(&mut self, line: usize, fields: &[&str]) -> Result<(), String> {
        match fields {
            [] => Ok(()),
            ["link", name, provider, place, side] => self.link(name, provider, place, side),
            ["link", ..] => Err(LINK.to_owned()),
            ["state", path] => self.state(path),
            ["state", ..] => Err("expected: state PATH".to_owned()),
            [address, name] => self.address(line, address, name),
            _ => Err("expected: link ..., state PATH, or: ADDRESS NAME".to_owned()),
        }
    }

    fn link(&mut self, name: &str, provider: &str, place: &str, side: &str) -> Result<(), String> {
        check_name(name)?;
        if self.links.len() == MAX_LINKS {
            return Err(format!("a map has at most {MAX_LINKS} links"));
        }
        if self.links.iter().any(|link| link.name == name) {
            return Err(format!("there is a link {name} already: give this one another name"));
        }
        let provider = match provider {
            "file" => Provider::File(absolute(place)?),
            "memory" => Provider::Memory(absolute(place)?),
            "ivshmem" => Provider::Ivshmem(pci_address(place)?),
            "xen" => domain_and_size(place)?,
            _ => {
                return Err(format!(
                    "{provider} is no provider of memory: use memory, file, ivshmem or xen"
                ));
            }
        };
        if let Some(other) = self.links.iter().find(|link| link.provider == provider) {
            return Err(format!("{place} is that of the link {} already", other.name));
        }
        let side = match side {
            "first" => Side::First,
            "second" => Side::Second,
            _ => {
                return Err(format!(
                    "{side} is no side: use first on one machine, and second on the other"
                ));
            }
        };
        self.links.push(Definition { name: name.to_owned(), provider, side });
        Ok(())
    }

    fn state(&mut self, path: &str) -> Result<(), String> {
        if self.state.is_some() {
            return Err("the directory of the state is named above already".to_owned());
        }
        self.state = Some(absolute(path)?);
        Ok(())
    }

    fn address(&mut self, line: usize, text: &str, name: &str) -> Result<(), String> {
        let address: IpAddr = text.parse().map_err(|_| {
            format!(
                "{text} is no IP address: expected link, state, or an address without a prefix and \
                 without the name of an interface"
            )
        })?;
        let address = address.to_canonical();
        if !is_of_another(address) {
            return Err(format!("{address} is no address of another machine"));
        }
        check_name(name)?;
        if let Some((other, _)) = self.addresses.get(&address) {
            return Err(format!("{address} is in line {other} already"));
        }
        if self.addresses.len() == MAX_ADDRESSES {
            return Err(format!("a map has at most {MAX_ADDRESSES} addresses"));
        }
        self.addresses.insert(address, (line, name.to_owned()));
        Ok(())
    }

    fn finish(self) -> Result<Map, (usize, String)> {
        let mut addresses = BTreeMap::new();
        let mut unknown: Option<(usize, String)> = None;
        for (address, (line, name)) in self.addresses {
            match self.links.iter().position(|link| link.name == name) {
                Some(link) => _ = addresses.insert(address, link),
                None if unknown.as_ref().is_none_or(|(first, _)| line < *first) => {
                    unknown = Some((line, name));
                }
                None => {}
            }
        }
        if let Some((line, name)) = unknown {
            return Err((line, format!("no line says what the link {name} is; {LINK}")));
        }
        let state = self.state.unwrap_or_else(|| STATE.into());
        Ok(Map { links: self.links, addresses, state })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_possible = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    if (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(is_possible)
        && !name.starts_with('-')
    {
        return Ok(());
    }
    Err(format!(
        "{name} is no name of a link: that has 1 to {MAX_NAME} of a-z, 0-9 and -, and begins with \
         no -"
    ))
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    if path.starts_with('/') {
        return Ok(path.into());
    }
    Err(format!("{path} is no absolute path: it has to begin with /"))
}

/// As sysfs writes it.
fn pci_address(address: &str) -> Result<String, String> {
    let form = b"hhhh:hh:hh.o";
    let fits = address.len() == form.len()
        && address.bytes().zip(form).all(|(byte, form)| match form {
            b'h' => byte.is_ascii_hexdigit(),
            b'o' => (b'0'..=b'7').contains(&byte),
            other => byte == *other,
        });
    if fits {
        return Ok(address.to_ascii_lowercase());
    }
    Err(format!(
        "{address} is no address of a PCI device: expected one like 0000:00:04.0 (lspci -D shows \
         them)"
    ))
}

/// The number of the other domain, and how much memory is shared with it: no more than the kernel
/// maps at once.
fn domain_and_size(place: &str) -> Result<Provider, String> {
    /// Numbers from here on have meanings of their own (`DOMID_FIRST_RESERVED`).
    const DOMAINS: u16 = 0x7ff0;
    const MIB: std::ops::RangeInclusive<u64> = 1..=256;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let read = || {
        let (domain, size) = place.split_once('/')?;
        let domain = u16::try_from(number(domain)?).ok().filter(|domain| *domain < DOMAINS)?;
        let mib = number(size.strip_suffix('M')?).filter(|mib| MIB.contains(mib))?;
        Some(Provider::Xen { domain, length: mib << 20 })
    };
    read().ok_or_else(|| {
        format!(
            "{place} is no domain with a size: expected one like 3/64M, with the number of the \
             other domain (xl domid NAME, on the host) and 1M to 256M"
        )
    })
}

#[cfg(test)]
mod tests;
