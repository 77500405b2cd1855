//! Reading small files with a size limit.

use std::io;
use std::path::Path;

use rustix::fs::{FileType, OFlags};
use seekwire_transport::sys::file;

/// The contents of a regular file, or `None` if it has more than `most` bytes.
pub(crate) fn read(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    // Opening a pipe would block.
    let file = file::open(path, OFlags::RDONLY.union(OFlags::NONBLOCK), 0)?;
    let metadata = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(metadata.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("this is not a regular file"));
    }
    let mut bytes = vec![0; most + 1];
    let mut len = 0;
    while len < bytes.len() {
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut bytes[len..]))? {
            0 => break,
            n => len += n,
        }
    }
    bytes.truncate(len);
    Ok((len <= most).then_some(bytes))
}
