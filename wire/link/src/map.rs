//! The file that lists the links of this machine, and the addresses at their other ends:
//! `/etc/seekwire/links`, or the file in the environment variable `SEEKWIRE_LINKS`.
//!
//! ```text
//! # link NAME PROVIDER WHERE SIDE
//! link  db-web  ivshmem 0000:00:04.0  first
//! link  tests   file /dev/shm/tests   second
//! link  cache   xen 3/64M             first
//! # directory for the state of attached links
//! state /run/seekwire
//! # ADDRESS  NAME: this address belongs to the machine at the other end of that link
//! 10.0.0.2   db-web
//! fd00::2    db-web
//! ```
//!
//! The administrator vouches for these addresses, and they are correct only while the network stays
//! as it was. So both ends of a connection prove the peer's machine again before they share memory.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use seekwire_values::{Size, SizeUnit};

use crate::address::is_of_another;
use crate::text;

/// The default path of the map.
pub const PATH: &str = "/etc/seekwire/links";
/// The environment variable with another path.
pub const VARIABLE: &str = "SEEKWIRE_LINKS";
/// The default directory of the state.
pub const STATE: &str = "/run/seekwire";

const MAX_LINKS: usize = 64;
const MAX_ADDRESSES: usize = 4096;
const MAX_BYTES: usize = 1 << 20;
const MAX_NAME: usize = 32;

/// The half of the region that belongs to this machine. The other machine has the other side.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Side {
    /// The first half.
    First,
    /// The second half.
    Second,
}

impl Side {
    /// The side of the other machine.
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

/// The origin of a region.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Provider {
    /// A file that both sides can open, as in /dev/shm.
    File(PathBuf),
    /// Sealed memory that a process hands out at this socket.
    Memory(PathBuf),
    /// A PCI device of QEMU, by its address.
    Ivshmem(String),
    /// Pages that the first side grants to the second; both are domains of Xen.
    Xen {
        /// The number of the other domain.
        domain: u16,
        /// Length of the region in bytes.
        length: u64,
    },
}

// No match on the provider has an arm for all others: the compiler lists what a new one decides.
impl Provider {
    /// True if both sides are on this host.
    pub(crate) fn is_on_this_host(&self) -> bool {
        match self {
            Self::File(_) | Self::Memory(_) => true,
            Self::Ivshmem(_) | Self::Xen { .. } => false,
        }
    }

    /// The other domain of Xen, whose event channels ring.
    pub(crate) fn domain(&self) -> Option<u16> {
        match self {
            Self::Xen { domain, .. } => Some(*domain),
            Self::File(_) | Self::Memory(_) | Self::Ivshmem(_) => None,
        }
    }

    /// True if pages of the region may be missing until they are allocated.
    pub(crate) fn has_holes(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Memory(_) | Self::Ivshmem(_) | Self::Xen { .. } => false,
        }
    }

    /// True if the users of a link need access to the region's file itself.
    pub(crate) fn is_device(&self) -> bool {
        match self {
            Self::Ivshmem(_) => true,
            Self::File(_) | Self::Memory(_) | Self::Xen { .. } => false,
        }
    }
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
    /// The origin of its region.
    pub provider: Provider,
    /// The half of this machine.
    pub side: Side,
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} {} {}", self.name, self.provider, self.side)
    }
}

/// An error in a map.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}{what}", place(.path, .line))]
pub struct MapError {
    /// The file; empty if the text came from none.
    pub path: PathBuf,
    /// The line number, or 0 if the error belongs to no line.
    pub line: usize,
    /// The mistake, and the expected form.
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

/// A parsed map.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Map {
    links: Vec<Definition>,
    /// Each address with the index of its link.
    addresses: BTreeMap<IpAddr, usize>,
    state: PathBuf,
}

impl Default for Map {
    fn default() -> Self {
        Self { links: Vec::new(), addresses: BTreeMap::new(), state: STATE.into() }
    }
}

impl Map {
    /// The path of the map for this process.
    #[must_use]
    pub fn path() -> PathBuf {
        path_by(env::var_os(VARIABLE))
    }

    /// Reads a file. If it does not exist, the map is empty.
    ///
    /// # Errors
    /// [`MapError`], with the line.
    pub fn read(path: &Path) -> Result<Self, MapError> {
        let error = |line, what| MapError { path: path.to_owned(), line, what };
        let bytes = match text::read(path, MAX_BYTES) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            bytes => bytes.map_err(|cause| error(0, cause.to_string()))?,
        };
        let bytes = bytes.ok_or_else(|| error(0, TOO_LONG.to_owned()))?;
        let text = std::str::from_utf8(&bytes).map_err(|cause| {
            let lines = bytes[..cause.valid_up_to()].iter().filter(|byte| **byte == b'\n');
            error(lines.count() + 1, "this is not text in UTF-8".to_owned())
        })?;
        Self::parse(text).map_err(|cause| error(cause.line, cause.what))
    }

    /// Parses a text.
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

    /// All links, in the order of the file.
    #[must_use]
    pub fn links(&self) -> &[Definition] {
        &self.links
    }

    /// The link with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The link to the machine that has this address.
    #[must_use]
    pub fn of_address(&self, address: IpAddr) -> Option<&Definition> {
        self.addresses.get(&address.to_canonical()).map(|at| &self.links[*at])
    }

    /// The addresses of the machine at the other end of a link, in ascending order.
    pub fn addresses(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let at = self.links.iter().position(|link| link.name == name);
        self.addresses.iter().filter(move |(_, link)| Some(**link) == at).map(|(ip, _)| *ip)
    }

    /// The directory in which this machine keeps the state of attached links.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }
}

fn path_by(variable: Option<OsString>) -> PathBuf {
    let named = variable.filter(|path| !path.is_empty());
    named.map_or_else(|| PATH.into(), PathBuf::from)
}

/// In the format of the file, without comments.
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

/// The parser's result so far.
#[derive(Default)]
struct Reader {
    links: Vec<Definition>,
    state: Option<PathBuf>,
    /// The line and the name of the link, which may be defined later in the file.
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
            return Err(format!("the link {name} already exists: give this one another name"));
        }
        let provider = match provider {
            "file" => Provider::File(absolute(place)?),
            "memory" => Provider::Memory(absolute(place)?),
            "ivshmem" => Provider::Ivshmem(pci_address(place)?),
            "xen" => domain_and_size(place)?,
            _ => {
                return Err(format!(
                    "{provider} is not a provider of memory: use memory, file, ivshmem or xen"
                ));
            }
        };
        if let Some(other) = self.links.iter().find(|link| link.provider == provider) {
            return Err(format!("{place} already belongs to the link {}", other.name));
        }
        let side = match side {
            "first" => Side::First,
            "second" => Side::Second,
            _ => {
                return Err(format!(
                    "{side} is not a side: use first on one machine, and second on the other"
                ));
            }
        };
        self.links.push(Definition { name: name.to_owned(), provider, side });
        Ok(())
    }

    fn state(&mut self, path: &str) -> Result<(), String> {
        if self.state.is_some() {
            return Err("the state directory is already set above".to_owned());
        }
        self.state = Some(absolute(path)?);
        Ok(())
    }

    fn address(&mut self, line: usize, text: &str, name: &str) -> Result<(), String> {
        let address: IpAddr = text.parse().map_err(|_| {
            format!(
                "{text} is not an IP address: expected link, state, or an address without a prefix \
                 length and without an interface name"
            )
        })?;
        let address = address.to_canonical();
        if !is_of_another(address) {
            return Err(format!("{address} is not an address of another machine"));
        }
        check_name(name)?;
        if let Some((other, _)) = self.addresses.get(&address) {
            return Err(format!("{address} is already in line {other}"));
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
            return Err((line, format!("the link {name} is not defined; {LINK}")));
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
        "{name} is not a name for a link: use 1 to {MAX_NAME} of a-z, 0-9 and -, and do not begin \
         with -"
    ))
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    if path.starts_with('/') {
        return Ok(path.into());
    }
    Err(format!("{path} is not an absolute path: it must begin with /"))
}

/// Checks an address in the form of sysfs.
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
        "{address} is not a PCI address: expected one like 0000:00:04.0 (lspci -D shows them)"
    ))
}

/// The number of the other domain, and the size of the memory shared with it: at most as much as
/// the kernel maps at once.
fn domain_and_size(place: &str) -> Result<Provider, String> {
    /// Numbers from here on are reserved (`DOMID_FIRST_RESERVED`).
    const DOMAINS: u16 = 0x7ff0;
    const MIB: std::ops::RangeInclusive<u64> = 1..=256;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let read = || {
        let (domain, size) = place.split_once('/')?;
        let domain = u16::try_from(number(domain)?).ok().filter(|domain| *domain < DOMAINS)?;
        let length = Size::parse(size, SizeUnit::Byte)?.get();
        let is_possible = length % (1 << 20) == 0 && MIB.contains(&(length >> 20));
        is_possible.then_some(Provider::Xen { domain, length })
    };
    read().ok_or_else(|| {
        format!(
            "{place} is not a domain with a size: expected one like 3/64M, with the number of the \
             other domain (xl domid NAME, on the host) and 1M to 256M"
        )
    })
}

#[cfg(test)]
mod tests;
