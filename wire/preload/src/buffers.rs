//! The application's buffers as Rust slices.

use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::slice;

use libc::iovec;
use seekwire_transport::Errno;
use smallvec::SmallVec;

use crate::pointers;

/// Maximum number of bytes that the kernel moves in one call.
pub(crate) const MAX_BYTES: usize = 0x7fff_f000;

/// Above all addresses that a process can have, on every current 64-bit processor.
const MEMORY_END: usize = 1 << 56;

/// True if memory can exist at the address of a buffer. If not, the kernel returns EFAULT before it
/// moves anything.
pub(crate) fn is_possible(base: *const c_void, len: usize) -> bool {
    base.addr().checked_add(len).is_some_and(|end| end <= MEMORY_END)
}

/// Buffers of an application, in the form in which it passed them.
#[derive(Copy, Clone)]
pub(crate) enum Buffers {
    /// A single buffer.
    Flat(*mut c_void, usize),
    /// An array of this many buffers.
    Vector(*const iovec, usize),
}

/// The pieces of a vector, usually few.
type Pieces<T> = SmallVec<[T; 8]>;

impl Buffers {
    /// From the arguments of readv and writev.
    pub(crate) fn vector(iov: *const iovec, count: c_int) -> Result<Buffers, Errno> {
        match usize::try_from(count) {
            Ok(count) => Buffers::message(iov, count),
            Err(_) => Err(Errno::INVAL),
        }
    }

    /// From the members of a msghdr: the kernel's limit is the same, but the error differs.
    pub(crate) fn message(iov: *const iovec, count: usize) -> Result<Buffers, Errno> {
        if count > libc::UIO_MAXIOV as usize {
            return Err(Errno::INVAL);
        }
        if !pointers::can_read(iov, count) {
            return Err(Errno::FAULT);
        }
        Ok(Buffers::Vector(iov, count))
    }

    /// Number of bytes that a call moves. As in the kernel, a total that is too large is cut down.
    ///
    /// # Safety
    ///
    /// The array of a vector must be readable.
    pub(crate) unsafe fn len(self) -> Result<usize, Errno> {
        // SAFETY: as the caller says.
        unsafe { self.asked() }.map(|len| len.min(MAX_BYTES))
    }

    /// Number of bytes requested. As in the kernel, a negative length anywhere gives EINVAL, and
    /// takes precedence over EFAULT for impossible memory.
    ///
    /// # Safety
    ///
    /// The array of a vector must be readable.
    pub(crate) unsafe fn asked(self) -> Result<usize, Errno> {
        match self {
            Buffers::Flat(_, len) => Ok(len),
            Buffers::Vector(iov, count) => {
                let (mut total, mut possible) = (0usize, true);
                for at in 0..count {
                    // SAFETY: as the caller says.
                    let piece = unsafe { *iov.add(at) };
                    if piece.iov_len > isize::MAX as usize {
                        return Err(Errno::INVAL);
                    }
                    possible &= is_possible(piece.iov_base, piece.iov_len);
                    total = total.saturating_add(piece.iov_len);
                }
                if possible { Ok(total) } else { Err(Errno::FAULT) }
            }
        }
    }

    /// Lends the buffers to `work` for reading.
    ///
    /// # Safety
    ///
    /// They must be what the C function demands of its caller: readable, and not written to during
    /// the call.
    #[inline]
    pub(crate) unsafe fn lend<T>(
        self,
        work: impl FnOnce(&[IoSlice<'_>]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self {
            Buffers::Flat(base, len) => {
                let piece = check(base, len.min(MAX_BYTES), pointers::readable, Extent::Whole)?;
                // SAFETY: not null; the caller vouches for the rest.
                let slice = unsafe { slice::from_raw_parts(piece.0, piece.1) };
                work(&[IoSlice::new(slice)])
            }
            Buffers::Vector(..) => {
                // SAFETY: as the caller says.
                let pieces = unsafe { self.pieces(pointers::readable, Extent::Whole)? };
                // SAFETY: as above, piece by piece.
                let slices: Pieces<_> = pieces
                    .iter()
                    .map(|piece| IoSlice::new(unsafe { slice::from_raw_parts(piece.0, piece.1) }))
                    .collect();
                work(&slices)
            }
        }
    }

    /// Lends the buffers to `work` for writing.
    ///
    /// # Safety
    ///
    /// They must be what the C function demands of its caller: writable, and not used by others
    /// during the call. They contain bytes of the application's own memory, which count as
    /// initialized to Rust, because it knows nothing else about them.
    #[inline]
    pub(crate) unsafe fn lend_mut<T>(
        self,
        work: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // SAFETY: as the caller says.
        unsafe { self.lend_extent(Extent::Whole, work) }
    }

    /// Like [`Self::lend_mut`], but only the part that is accessible memory.
    ///
    /// # Safety
    ///
    /// As for [`Self::lend_mut`].
    #[cold]
    pub(crate) unsafe fn lend_reachable<T>(
        self,
        work: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // SAFETY: as the caller says.
        unsafe { self.lend_extent(Extent::Reachable, work) }
    }

    /// # Safety
    ///
    /// As for [`Self::lend_mut`].
    #[inline]
    unsafe fn lend_extent<T>(
        self,
        extent: Extent,
        work: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self {
            Buffers::Flat(base, len) => {
                let piece = check(base, len.min(MAX_BYTES), pointers::writable, extent)?;
                // SAFETY: not null; the caller vouches for the rest.
                let slice = unsafe { slice::from_raw_parts_mut(piece.0, piece.1) };
                work(&mut [IoSliceMut::new(slice)])
            }
            Buffers::Vector(..) => {
                // SAFETY: as the caller says.
                let pieces = unsafe { self.pieces(pointers::writable, extent)? };
                let slice = |piece: &(_, _)| {
                    // SAFETY: as above, piece by piece. Overlapping pieces are an error of the
                    // application; their bytes end up in an unspecified order, as with the kernel.
                    IoSliceMut::new(unsafe { slice::from_raw_parts_mut(piece.0, piece.1) })
                };
                let mut slices: Pieces<_> = pieces.iter().map(slice).collect();
                work(&mut slices)
            }
        }
    }

    /// # Safety
    ///
    /// The array of a vector must be readable.
    unsafe fn pieces(
        self,
        reach: Reach,
        extent: Extent,
    ) -> Result<Pieces<(*mut u8, usize)>, Errno> {
        // SAFETY: as the caller says.
        let mut room = unsafe { self.len()? };
        let Buffers::Vector(iov, count) = self else { return Ok(Pieces::new()) };
        let mut pieces = Pieces::with_capacity(count);
        for at in 0..count {
            // SAFETY: as the caller says.
            let piece = unsafe { *iov.add(at) };
            let len = piece.iov_len.min(room);
            room -= len;
            if len == 0 {
                continue;
            }
            match check(piece.iov_base, len, reach, extent) {
                Ok(piece) if piece.1 == len => pieces.push(piece),
                Ok(piece) => {
                    pieces.push(piece);
                    break;
                }
                Err(_) if extent == Extent::Reachable && !pieces.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pieces)
    }

    /// True if the very first byte cannot be read.
    ///
    /// # Safety
    ///
    /// The array of a vector must be readable.
    pub(crate) unsafe fn begins_nowhere(self) -> bool {
        let is_nowhere =
            |base: *mut c_void| check(base, 1, pointers::readable, Extent::Whole).is_err();
        match self {
            Buffers::Flat(base, len) => len > 0 && is_nowhere(base),
            Buffers::Vector(iov, count) => {
                // SAFETY: as the caller says.
                let mut pieces = (0..count).map(|at| unsafe { *iov.add(at) });
                pieces
                    .find(|piece| piece.iov_len > 0)
                    .is_some_and(|piece| is_nowhere(piece.iov_base))
            }
        }
    }
}

/// The part of the buffers to lend if some of them are not accessible memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    /// All or nothing: EFAULT.
    Whole,
    /// The part before the first inaccessible byte; EFAULT if that is empty.
    Reachable,
}

/// Returns how many of the bytes are accessible.
type Reach = fn(*const c_void, usize) -> usize;

/// Checks that a slice may cover a buffer.
#[inline]
fn check(
    base: *mut c_void,
    len: usize,
    reach: Reach,
    extent: Extent,
) -> Result<(*mut u8, usize), Errno> {
    if pointers::is_likely(base, len) {
        return Ok((base.cast(), len));
    }
    if len == 0 {
        return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
    }
    match reach(base, len) {
        0 => Err(Errno::FAULT),
        less if less < len && extent == Extent::Whole => Err(Errno::FAULT),
        len => Ok((base.cast(), len)),
    }
}
