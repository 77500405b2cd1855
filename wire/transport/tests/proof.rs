//! A proof that its maker forged with the name of a dma-buf, which fdinfo shows unchanged.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{MemfdFlags, SealFlags, major, minor};
use seekwire_transport::sys::{Fd, proof};

const DEVICE: &str = "/dev/udmabuf";

/// A dma-buf of one page with that name.
fn dma_buf(name: &str) -> io::Result<OwnedFd> {
    /// `struct udmabuf_create` of linux/udmabuf.h.
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    const UDMABUF_CREATE: libc::Ioctl = 0x4018_7542;
    /// linux/dma-buf.h
    const DMA_BUF_SET_NAME: libc::Ioctl = 0x4008_6201;
    let device = File::options().read(true).write(true).open(DEVICE)?;
    let memory = rustix::fs::memfd_create("page", MemfdFlags::ALLOW_SEALING)?;
    let size = rustix::param::page_size() as u64;
    rustix::fs::ftruncate(&memory, size)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK)?;
    let create = Create { memfd: memory.as_raw_fd() as u32, flags: 0, offset: 0, size };
    // SAFETY: the kernel reads `create`.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE, &raw const create) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nothing else refers to.
    let buffer = unsafe { OwnedFd::from_raw_fd(made) };
    let name = CString::new(name)?;
    // SAFETY: the kernel reads a C string.
    match unsafe { libc::ioctl(buffer.as_raw_fd(), DMA_BUF_SET_NAME, name.as_ptr()) } {
        0 => Ok(buffer),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn the_name_of_a_dma_buf_proves_nothing() {
    if !Path::new(DEVICE).exists() {
        eprintln!("not tried: there is no {DEVICE}");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (wanted, _) = listener.accept().unwrap();
    let wanted = rustix::fs::fstat(&wanted).unwrap();
    let device = u64::from(major(wanted.st_dev)) << 20 | u64::from(minor(wanted.st_dev));
    let me = proof::own_identity().unwrap().unwrap();
    let name = format!("\ntfd:data:{me:x} ino:{:x} sdev:{device:x}", wanted.st_ino);
    let forged = dma_buf(&name).unwrap();
    let shown = fs::read_to_string(format!("/proc/self/fdinfo/{}", forged.as_raw_fd())).unwrap();
    assert!(shown.contains(&name), "{shown:?}");
    assert!(!proof::holds(forged.as_fd(), Fd::from(&end), wanted.st_ino, me).unwrap());
}
