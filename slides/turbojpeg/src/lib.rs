//! libjpeg-turbo, the C library with which most programs read and write JPEG, loaded on demand: a
//! program that uses this crate builds and runs without it.
//!
//! ```text
//! Library   the loaded library: its functions        library.rs
//! codec     an image to pixels, and pixels to one    codec.rs
//! ```
//!
//! It is used for speed: it decodes to a half, a quarter or an eighth of the size from
//! correspondingly fewer coefficients, and uses the processor's vector instructions. The interface
//! is that of `turbojpeg.h` of version 2.0, which later versions also have.
//!
//! This is a crate of its own because it needs `unsafe`. It relies on these statements of that
//! header:
//!
//! - A handle is used by one thread at a time, and handles are independent of each other.
//! - With `TJFLAG_NOREALLOC`, and a buffer as long as `tjBufSize` returns, no more is written than
//!   that.
//! - Pixels are written into `pitch * height` bytes of the requested size, which is one that the
//!   image can be scaled to.
//!
//! The library does not call back, so no panic crosses the boundary. This crate cannot contain what
//! it does with hostile bytes: a fault in it affects the whole program.

mod codec;
mod error;
mod library;

pub use codec::{Pixels, decode, encode};
pub use error::{Error, Result};
pub use library::Library;
