//! Sockets that the library did not track before: made with a raw system call, inherited over exec,
//! or made while the library was switched off.
//!
//! They are tracked from the first seek on, and never accelerated: they may have been used out of
//! the library's sight. Other numbers of the same socket, and the epoll sets that contain it, are
//! found in /proc (proc_pid_fdinfo(5)).

use std::ffi::c_int;
use std::fs;
use std::path::PathBuf;

use seekwire_endpoint::{Reason, Role};
use seekwire_transport::Errno;
use seekwire_transport::sys::{Fd, file, socket as kernel};

use crate::ffi::guarded;
use crate::lock::Lock;
use crate::process::{self, ProcessKind};
use crate::socket_options::read_inherited;
use crate::table::{self, SocketRef};
use crate::{epoll, real, start, track};

/// Tracks the connected socket `fd` under all of its numbers, because receives through the others
/// must also respect the holes.
pub(super) fn adopt(fd: c_int) -> Result<SocketRef, Errno> {
    /// Two threads must not make two objects of one socket.
    static ADOPTING: Lock<()> = Lock::new(());
    guarded(start::prepare);
    if process::kind() != ProcessKind::Own {
        // A child that uses its parent's table, or that was created without fork handlers.
        return Err(Errno::OPNOTSUPP);
    }
    guarded(|| {
        let _adopting = ADOPTING.lock();
        let numbers = same_socket(fd);
        if !numbers.iter().any(|&number| table::socket(number).is_some()) {
            track(fd);
        }
        if let Some(tracked) = numbers.iter().find_map(|&number| table::socket(number)) {
            for &number in numbers.iter().filter(|&&number| table::get(number).is_none()) {
                track::duplicate(tracked.share().into_object(), number);
            }
            let is_same = |number| table::socket(number).filter(|_| numbers.contains(&number));
            epoll::find(is_same);
        }
    });
    // If it failed, the number is beyond the table.
    table::socket(fd).ok_or(Errno::MFILE)
}

fn track(fd: c_int) {
    // SAFETY: takes no argument.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    track::track(fd, Role::Connected, flags & libc::O_NONBLOCK != 0, None);
    if let Some(socket) = table::socket(fd) {
        read_inherited(&socket, fd);
        socket.connection.set_shared();
        let _ = socket.fall_back(Reason::Bypassed);
        if let Some(plain) = socket.connection.enter_plain() {
            // Positions count from the first byte that ever arrived.
            plain.received(kernel::bytes_taken(Fd::new(fd)).unwrap_or(0) as usize);
        }
    }
}

/// The numbers of this process for the same socket as `fd`, according to /proc; `fd` first.
fn same_socket(fd: c_int) -> Vec<c_int> {
    const NUMBERS: &str = "/proc/self/fd";
    let target =
        |number: c_int| fs::read_link(PathBuf::from(NUMBERS).join(number.to_string())).ok();
    let mut same = vec![fd];
    if let (Some(this), Ok(names)) = (target(fd), file::names(NUMBERS.as_ref())) {
        // The link names the socket by its inode.
        let numbers = names.iter().filter_map(|name| name.to_str()?.parse::<c_int>().ok());
        same.extend(
            numbers.filter(|&number| number != fd && target(number).as_ref() == Some(&this)),
        );
    }
    same
}
