//! libjpeg-turbo, the C library that most programs read and write JPEG by, loaded when it is wanted:
//! a program that uses this crate builds and runs without it.
//!
//! ```text
//! Library   the loaded library: its functions        library.rs
//! codec     an image to pixels, and pixels to one    codec.rs
//! ```
//!
//! It is for speed: it decodes to a half, a quarter or an eighth of the size out of as many
//! coefficients, and codes by the instructions of the processor. The interface is the one that
//! `turbojpeg.h` of version 2.0 has, which later versions have, too.
//!
//! This is a crate of its own because it needs `unsafe`. What it relies on, of that header:
//!
//! - A handle is used by one thread at a time, and handles are independent of each other.
//! - Where `TJFLAG_NOREALLOC` is given, and a buffer is as long as `tjBufSize` says, no more is
//!   written than that.
//! - Pixels are written into `pitch * height` bytes of the size that is asked for, which is one that
//!   the image can be scaled to.
//!
//! The library calls nothing of ours, so no panic crosses its border. What it does with hostile
//! bytes is beyond this crate: a fault in it is one of the whole program.

mod codec;
mod library;

pub use codec::{Pixels, decode, encode};
pub use library::Library;

/// Why there is no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is not installed, or not one that can be used. What the loader says.
    #[error("libjpeg-turbo cannot be loaded: {0}")]
    Missing(String),
    /// What it says is wrong with the image.
    #[error("{0}")]
    Broken(String),
    /// A size that cannot be.
    #[error("{0}")]
    Argument(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
