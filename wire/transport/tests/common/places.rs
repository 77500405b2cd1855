//! The location of the memory of two ends on two machines: in a new file for each pair, or in the
//! place that `SEEKWIRE_TEST_REGION` names, so that the tests can run on memory that real machines
//! share.
//!
//! - `PATH` is a file or device, such as `resource2` of a PCI device.
//! - `xen:NUMBER` is memory that this domain of Xen's, which has that number, grants to itself: one
//!   mapping is the granting side's, the other one the granted side's.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::{LazyLock, Mutex, PoisonError};

use seekwire_transport::mem::Region;
use seekwire_transport::sys::grants::{self, Grants};

use super::report;

/// Room for several pairs of the largest ends that tests have.
const GRANTED_PAGES: usize = 4096;

/// Part of a region.
#[derive(Debug)]
pub(crate) struct Place {
    /// The region as each of the two machines has it mapped.
    pub(crate) regions: [Region; 2],
    /// Offset of the part in it.
    pub(crate) at: usize,
}

impl Place {
    /// The atomic word at a byte offset (a multiple of 8) of the part.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.regions[0].word(self.at + offset)
    }
}

/// A region that all pairs share, and the offset of the next part.
struct Given {
    regions: [Region; 2],
    next: Mutex<usize>,
}

static GIVEN: LazyLock<Option<Given>> = LazyLock::new(|| {
    let name = std::env::var("SEEKWIRE_TEST_REGION").ok()?;
    let regions = match name.strip_prefix("xen:") {
        Some(domain) => granted(domain.parse().expect("the number of a domain")),
        None => {
            let file = open(&name);
            let len = file.metadata().unwrap().len() as usize;
            mapped_twice(&file, len)
        }
    };
    report(&format!("memory of two machines: {} bytes of {name}", regions[0].len()));
    Some(Given { regions, next: Mutex::new(0) })
});

/// Whether a region was named.
pub(crate) fn are_given() -> bool {
    GIVEN.is_some()
}

/// Memory of this size for the ends of a pair.
pub(crate) fn place(len: usize) -> Place {
    let Some(Given { regions, next }) = &*GIVEN else {
        let file = rustix::fs::memfd_create(c"region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, len as u64).unwrap();
        return Place { regions: mapped_twice(file, len), at: 0 };
    };
    let most = regions[0].len();
    assert!(len <= most, "the region has {most} bytes, and the ends take {len}");
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    // Tests have one pair at a time: the pair that had the first part is gone when it is reused.
    let at = if *next + len > most { 0 } else { *next };
    *next = at + len;
    Place { regions: regions.clone(), at }
}

fn open(path: &str) -> File {
    let file = File::options().read(true).write(true).open(path);
    file.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Each machine maps it itself.
fn mapped_twice(file: impl AsFd, len: usize) -> [Region; 2] {
    [(); 2].map(|()| Region::of_file(file.as_fd(), len).unwrap())
}

fn granted(domain: u16) -> [Region; 2] {
    let file = open(grants::ALLOCATOR);
    let (at, references) = grants::allocate(&file, domain, GRANTED_PAGES, true).unwrap();
    let grants = Grants::new(domain, &references).unwrap();
    let here = Region::of_file_from(file.as_fd(), at, grants.bytes()).unwrap();
    [here, Region::of_grants(grants).unwrap()]
}
