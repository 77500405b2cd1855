//! Standard input and output, unless they are closed.
//!
//! Before `main`, Rust opens /dev/null for reading and writing instead of a closed descriptor 0, 1
//! or 2, and its [`Stdout`] reports success for a write to a descriptor that is not open for
//! writing. So a program whose standard output is closed (`>&-`) would write nothing and succeed.
//! `prepare` comes first, and does what glibc does in a program with special rights: it opens
//! /dev/null with the wrong access mode.

use std::io::{self, ErrorKind, IsTerminal, Stdin, Stdout, StdoutLock, Write};

use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use rustix::io::fcntl_getfd;
use rustix::stdio::{stdin, stdout};
use thiserror::Error;

/// The error of a write to standard output whose reader has gone.
#[derive(Debug, Error)]
#[error("nobody reads standard output any more")]
pub(crate) struct Unread;

/// Standard output, or its lock.
#[derive(Debug)]
pub struct Output<W = Stdout>(W);

impl Output {
    /// As [`Stdout::lock`].
    #[must_use]
    pub fn lock(&self) -> Output<StdoutLock<'static>> {
        Output(self.0.lock())
    }
}

impl<W: IsTerminal> Output<W> {
    /// As [`IsTerminal::is_terminal`].
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// Sets the error apart from that of another pipe, or of a socket.
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, Unread),
        _ => error,
    }
}

/// Standard output.
///
/// # Errors
///
/// It is closed, or not open for writing.
pub fn output() -> io::Result<Output> {
    let is_open = is_open(stdout(), OFlags::RDONLY);
    let why = || io::Error::other("standard output is closed, or not open for writing");
    is_open.then(|| Output(io::stdout())).ok_or_else(why)
}

/// Standard input.
///
/// # Errors
///
/// It is closed, or not open for reading.
pub fn input() -> io::Result<Stdin> {
    let is_open = is_open(stdin(), OFlags::WRONLY);
    let why = || io::Error::other("standard input is closed, or not open for reading");
    is_open.then(io::stdin).ok_or_else(why)
}

fn is_open(descriptor: BorrowedFd<'_>, wrong: OFlags) -> bool {
    fcntl_getfl(descriptor)
        .is_ok_and(|flags| flags & OFlags::RWMODE != wrong && !flags.contains(OFlags::PATH))
}

/// Opens /dev/null instead of closed descriptors, so that writing to standard output, or reading
/// from standard input, fails as before. Programs that this one starts inherit it.
extern "C" fn prepare() {
    for (descriptor, wrong) in [(stdin(), OFlags::WRONLY), (stdout(), OFlags::RDONLY)] {
        if fcntl_getfd(descriptor).is_err() {
            // The lowest free number: that of the closed descriptor, for lower ones are open by
            // now.
            let _ = open(c"/dev/null", wrong, Mode::empty()).map(IntoRawFd::into_raw_fd);
        }
    }
}

// SAFETY: the C library calls each function in this section once before `main`, in the only thread,
// with the arguments of `main`, which a C function may leave unread. `prepare` needs nothing of
// Rust's runtime: it makes system calls, and neither allocates nor panics.
#[allow(unsafe_code)]
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;
