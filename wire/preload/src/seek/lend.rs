//! seekwire_recv_borrow and seekwire_recv_return.

use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;
use std::slice;
use std::sync::atomic::Ordering;

use libc::{iovec, size_t, ssize_t};
use seekwire_endpoint::{At, LoanPiece, SeekOptions};
use seekwire_transport::Errno;
use seekwire_transport::seek::SegmentLoan;

use super::call::{answer, find};
use super::request::SeekRequest;
use crate::ffi::{guarded_own, status};
use crate::loan::IovecLoan;
use crate::pointers;
use crate::table::SocketRef;

/// Takes bytes from the middle of the stream, and lends them in place.
///
/// # Safety
///
/// As seekwire.h demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn seekwire_recv_borrow(
    fd: c_int,
    pieces: *mut iovec,
    number: c_int,
    len: size_t,
    flags: c_int,
    offset: u64,
) -> ssize_t {
    let prepare = || {
        let request = SeekRequest::new(flags, 0, offset)?;
        let number = usize::try_from(number).ok().filter(|&number| number > 0);
        let number = number.ok_or(Errno::INVAL)?;
        if !pointers::can_write(pieces, number) {
            return Err(Errno::FAULT);
        }
        // SAFETY: memory, and the caller has `number` places, which are plain data.
        let pieces = unsafe {
            std::ptr::write_bytes(pieces, 0, number);
            slice::from_raw_parts_mut(pieces, number)
        };
        Ok((request, pieces))
    };
    answer(fd, prepare, |socket, (request, pieces)| borrow(socket, pieces, len, request))
}

fn borrow(
    socket: &SocketRef,
    places: &mut [iovec],
    len: usize,
    request: &mut SeekRequest,
) -> Result<usize, Errno> {
    let mut pieces = lend(socket, len, request)?;
    if pieces.len() > places.len() {
        join(socket, &mut pieces, places.len() - 1);
    }
    let mut loans = socket.loans().lock();
    let mut taken = 0;
    for (place, piece) in places.iter_mut().zip(pieces) {
        let (base, len) = match &piece {
            LoanPiece::Segment(loan) => {
                let bytes = socket.connection.loan_bytes(loan);
                (bytes.as_ptr().cast::<u8>(), bytes.len())
            }
            LoanPiece::Copy(bytes) => (bytes.as_ptr(), bytes.len()),
        };
        *place = iovec { iov_base: base.cast_mut().cast::<c_void>(), iov_len: len };
        loans.push(IovecLoan { address: base.addr(), len, piece });
        taken += len;
    }
    Ok(taken)
}

/// Joins all pieces from the one at `first` on.
fn join(socket: &SocketRef, pieces: &mut Vec<LoanPiece>, first: usize) {
    let mut bytes = Vec::new();
    let mut loans = Vec::new();
    for piece in pieces.drain(first..) {
        match piece {
            LoanPiece::Segment(loan) => {
                let lent = socket.connection.loan_bytes(&loan);
                bytes.extend(lent.iter().map(|byte| byte.load(Ordering::Relaxed)));
                loans.push(loan);
            }
            LoanPiece::Copy(copy) => bytes.extend_from_slice(&copy),
        }
    }
    let _ = socket.connection.return_loans(&loans);
    pieces.push(LoanPiece::Copy(bytes));
}

/// Takes bytes and lends them; no piece is empty. A call that is repeated after a signal refers to
/// the same bytes as before.
pub(super) fn lend(
    socket: &SocketRef,
    len: usize,
    request: &mut SeekRequest,
) -> Result<Vec<LoanPiece>, Errno> {
    let len = request.most(len)?;
    if len == 0 {
        return Ok(Vec::new());
    }
    let SeekRequest { at, options, dont_wait, .. } = request;
    let mut pieces = if options.partial {
        lend_what_is_there(socket, at, len, *dont_wait)?
    } else {
        socket.connection.seek_lend_again(at, len, *dont_wait)?
    };
    pieces.retain(|piece| !matches!(piece, LoanPiece::Copy(bytes) if bytes.is_empty()));
    Ok(pieces)
}

fn lend_what_is_there(
    socket: &SocketRef,
    at: &mut At,
    len: usize,
    dont_wait: bool,
) -> Result<Vec<LoanPiece>, Errno> {
    let connection = &socket.connection;
    let start = match *at {
        At::Offset(offset) => connection.extent()?.head.checked_add(offset).ok_or(Errno::INVAL)?,
        At::Position(position) => position,
    };
    *at = At::Position(start);
    loop {
        let first_byte = SeekOptions::PEEK.partial(true);
        if connection.seek(&mut [IoSliceMut::new(&mut [0])], *at, first_byte, dont_wait)? == 0 {
            return Ok(Vec::new());
        }
        let extent = connection.extent()?;
        let hole = extent.holes.iter().map(|hole| hole.start).find(|&hole| hole > start);
        let there = hole.unwrap_or(u64::MAX).min(extent.arrived).saturating_sub(start);
        let most = len.min(usize::try_from(there).unwrap_or(usize::MAX));
        match connection.seek_lend(*at, most, true) {
            // Another thread was faster.
            Err(Errno::AGAIN | Errno::NXIO) => {}
            lent => return lent,
        }
    }
}

/// Returns lent bytes.
///
/// # Safety
///
/// As seekwire.h demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn seekwire_recv_return(
    fd: c_int,
    pieces: *const iovec,
    number: c_int,
) -> c_int {
    status(guarded_own(|| {
        let pieces = match usize::try_from(number) {
            Err(_) => return Err(Errno::INVAL),
            Ok(0) => &[][..],
            Ok(number) if !pointers::can_read(pieces, number) => return Err(Errno::FAULT),
            // SAFETY: memory, and the caller passes `number` of them.
            Ok(number) => unsafe { slice::from_raw_parts(pieces, number) },
        };
        let socket = find(fd)?;
        let result = return_loans(&socket, pieces);
        socket.update_sets();
        result
    }))
}

/// Returns all of them, or none if one is not on loan.
fn return_loans(socket: &SocketRef, pieces: &[iovec]) -> Result<(), Errno> {
    let mut loans = socket.loans().lock();
    let mut positions = Vec::with_capacity(pieces.len());
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        let is_it =
            |loan: &IovecLoan| (loan.address, loan.len) == (piece.iov_base.addr(), piece.iov_len);
        positions.push(loans.iter().position(is_it).ok_or(Errno::INVAL)?);
    }
    positions.sort_unstable();
    if positions.windows(2).any(|two| two[0] == two[1]) {
        return Err(Errno::INVAL);
    }
    let lent = |&at: &usize| match &loans[at].piece {
        LoanPiece::Segment(loan) => Some(*loan),
        LoanPiece::Copy(_) => None,
    };
    let lent: Vec<SegmentLoan> = positions.iter().filter_map(lent).collect();
    // Bytes that cannot be returned now are still on loan.
    socket.connection.return_loans(&lent)?;
    // From the end, so that the earlier positions stay valid.
    for at in positions.into_iter().rev() {
        loans.swap_remove(at);
    }
    Ok(())
}
