//! Resources that a process, or the host, has run out of, and that may be available later.

use std::io;

use seekwire_protocol::Reason;
use seekwire_transport::Errno;

const DESCRIPTORS: [Errno; 3] = [Errno::MFILE, Errno::NFILE, Errno::TOOMANYREFS];
/// Limits of RLIMIT_AS or the host, a file system, a quota, or RLIMIT_FSIZE.
const MEMORY: [Errno; 5] = [Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC, Errno::DQUOT, Errno::FBIG];

/// Why a connection stays on TCP for now, if the failure was for lack of descriptors, memory or
/// room.
pub(crate) fn reason_of(error: &io::Error) -> Option<Reason> {
    let is_one_of = |codes: &[Errno]| {
        codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
    };
    if is_one_of(&DESCRIPTORS) {
        Some(Reason::FdLimit)
    } else {
        is_one_of(&MEMORY).then_some(Reason::Memory)
    }
}

/// Advice for the administrator.
pub(crate) fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::FdLimit => "raise the limit on open files (ulimit -n)",
        _ => {
            "see the limits on memory and on the size of files (ulimit -v, -f), and the room in \
             SEEKWIRE_DIR"
        }
    }
}
