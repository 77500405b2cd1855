//! Memory that one domain of Xen's grants to another, through the kernel's devices `gntalloc` and
//! `gntdev` (include/uapi/xen/gntalloc.h and gntdev.h). They are a stable interface, and need none
//! of Xen's libraries.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, AsRawFd};

use super::call;
use crate::Errno;

/// The device that allocates pages, and grants them.
pub const ALLOCATOR: &str = "/dev/xen/gntalloc";
/// The device that maps pages of other domains.
pub const MAPPER: &str = "/dev/xen/gntdev";
/// Maximum number of pages that one request can map, unless the parameter `limit` of gntdev says
/// otherwise.
pub const MOST: usize = 64 << 10;
/// Size of Xen's pages, on every processor.
pub const PAGE: usize = 4096;

/// Bytes before the references in both requests, and the same in words.
const HEADER: usize = 16;
const HEADER_WORDS: usize = HEADER / 4;
/// Minimum number of words that the kernel reads: `sizeof` of both structs, which end in one
/// reference.
const LEAST_WORDS: usize = 6;

/// `_IOC(_IOC_NONE, 'G', number, 24)`.
const fn code(number: usize) -> usize {
    (LEAST_WORDS * 4) << 16 | (b'G' as usize) << 8 | number
}

const ALLOC_GREF: usize = code(5);
const MAP_GRANT_REF: usize = code(0);
/// `GNTALLOC_FLAG_WRITABLE`.
const WRITABLE: u16 = 1;

/// Makes a request, into which the kernel writes its answer. Returns the word after the first two,
/// which is the offset of the pages in the file.
fn ask(device: impl AsFd, code: usize, request: &mut [u32]) -> Result<u64, Errno> {
    assert!(request.len() >= LEAST_WORDS, "the kernel would read more");
    let place = request.as_mut_ptr().expose_provenance();
    let device = device.as_fd().as_raw_fd() as usize;
    // SAFETY: for one of these devices, the kernel reads and writes a header and as many references
    // as it states, all of which are in the slice: callers make it that long. Other files have no
    // such request and refuse it.
    unsafe { call(libc::SYS_ioctl, [device, code, place, 0, 0, 0]) }?;
    let [low, high] = [request[2].to_ne_bytes(), request[3].to_ne_bytes()];
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low);
    bytes[4..].copy_from_slice(&high);
    Ok(u64::from_ne_bytes(bytes))
}

/// Has the kernel allocate zeroed pages that a domain may map, and write if `is_writable`. They
/// belong to the open file, after those that it has already, and stay until it and all mappings of
/// it, in any process, are closed. Returns their offset in the file, and their references.
///
/// # Errors
/// ENOSPC: more than the parameter `limit` of gntalloc allows, or the domain's table of grants is
/// full. ENOMEM. EINVAL for no pages; ENOTTY if the file is not this device.
pub fn allocate(
    file: impl AsFd,
    domain: u16,
    pages: usize,
    is_writable: bool,
) -> io::Result<(u64, Vec<u32>)> {
    let count = u32::try_from(pages).ok().filter(|count| (1..=MOST as u32).contains(count));
    let count = count.ok_or(io::ErrorKind::InvalidInput)?;
    let flags = if is_writable { WRITABLE } else { 0 };
    let mut request = vec![0; (HEADER_WORDS + pages).max(LEAST_WORDS)];
    request[0] = halves(domain, flags);
    request[1] = count;
    let at = ask(file, ALLOC_GREF, &mut request)?;
    Ok((at, request[HEADER_WORDS..HEADER_WORDS + pages].to_vec()))
}

/// Two consecutive numbers of 16 bits.
fn halves(first: u16, second: u16) -> u32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}

/// Pages of another domain, in the order in which they will be mapped.
#[derive(Clone, Debug)]
pub struct Grants {
    request: Vec<u32>,
    pages: usize,
}

impl Grants {
    /// The pages that a domain has granted to this one under these references. `None` if there are
    /// none, or more than can be mapped at once.
    #[must_use]
    pub fn new(domain: u16, references: &[u32]) -> Option<Self> {
        let pages = references.len();
        if !(1..=MOST).contains(&pages) {
            return None;
        }
        let mut request = vec![0; HEADER_WORDS];
        request[0] = pages as u32;
        request.extend(references.iter().flat_map(|reference| [u32::from(domain), *reference]));
        Some(Self { request, pages })
    }

    /// Their size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    /// Associates them with a file of gntdev; returns their offset in it. They can be mapped there
    /// once, and only all of them. Only the mapping shows whether they are granted. Allocates
    /// nothing: in a child, new memory could occupy the place where these are to be mapped.
    pub(crate) fn request(&mut self, file: impl AsFd) -> Result<u64, Errno> {
        ask(file, MAP_GRANT_REF, &mut self.request)
    }
}

/// Maximum number of pages that gntalloc may have in use at a time; `None` if it is not loaded.
#[must_use]
pub fn limit() -> Option<u64> {
    const PATH: &str = "/sys/module/xen_gntalloc/parameters/limit";
    let text = super::file::read(Path::new(PATH)).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernels_headers() {
        // Printed by a C program with these headers.
        assert_eq!((ALLOC_GREF, MAP_GRANT_REF), (0x0018_4705, 0x0018_4700));
        let grants = Grants::new(7, &[8, 9]).unwrap();
        assert_eq!(grants.request, [2, 0, 0, 0, 7, 8, 7, 9]);
        assert_eq!(grants.bytes(), 8192);
        assert!(Grants::new(7, &[]).is_none() && Grants::new(7, &vec![0; MOST + 1]).is_none());
        if cfg!(target_endian = "little") {
            assert_eq!(halves(0x1234, 1), 0x0001_1234);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no such calls")]
    fn another_file_grants_and_maps_nothing() {
        let other = std::fs::File::open("/dev/null").unwrap();
        let error = allocate(&other, 0, 1, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOTTY.raw_os_error()));
        let mut grants = Grants::new(0, &[1]).unwrap();
        assert_eq!(grants.request(&other), Err(Errno::NOTTY));
        let none = allocate(&other, 0, 0, true).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::InvalidInput);
    }
}
