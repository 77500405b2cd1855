//! OpenSlide, the C library that reads slides of many scanners, loaded when it is wanted: a program
//! that uses this crate builds and runs without it.
//!
//! ```text
//! Library   the loaded library: its functions          library.rs
//! Slide     an open slide: levels, pixels, properties  slide.rs
//!   Handle    what OpenSlide calls one, with checks      handle.rs
//! ```
//!
//! This is a crate of its own because it needs `unsafe`, which readers of slides do without. What
//! it relies on is in `openslide.h`:
//!
//! - All functions but `openslide_close` may be called from any threads at once.
//! - Texts and lists belong to the handle that has given them out. They are copied at once.
//! - The first error of a handle stays, and from then on its functions do nothing. [`Slide`] looks
//!   for one after each call, and goes on with a new handle.
//!
//! OpenSlide also has a reader for TIFF files of no scanner, `generic-tiff`. [`Slide`] never uses it:
//! with libtiff since its fix for CVE-2025-9900, OpenSlide 3.4 returns uninitialised memory for an
//! image that is smaller than its tiles, and any program may have written such a pyramid.
//!
//! OpenSlide calls nothing of ours, so no panic crosses its border. What it does with a hostile
//! file is beyond this crate: memory that it takes has no bound here, and a fault in it is one of
//! the whole program.

mod handle;
mod library;
mod pixels;
mod slide;

pub use library::Library;
pub use slide::{Level, Slide};

/// Why OpenSlide does not give something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is not installed, or not one that can be used. What the loader says.
    #[error("OpenSlide cannot be loaded: {0}")]
    Missing(String),
    /// The file is of no format that it knows, or cannot be read.
    #[error("OpenSlide does not know the format")]
    Unknown,
    /// A TIFF of no scanner's format, which OpenSlide is not used for.
    #[error("a TIFF of no scanner's format, which OpenSlide is not used for")]
    Generic,
    /// What it says is wrong with the file.
    #[error("OpenSlide: {0}")]
    Broken(String),
    /// What was asked for does not exist, or is larger than was said.
    #[error("{0}")]
    Argument(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
