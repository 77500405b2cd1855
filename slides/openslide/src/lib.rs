//! OpenSlide, the C library that reads slides of many scanners, loaded on demand: a program that
//! uses this crate builds and runs without it.
//!
//! ```text
//! Library   the loaded library: its functions          library.rs
//! Slide     an open slide: levels, pixels, properties  slide.rs
//!   Handle    what OpenSlide calls one, with checks      handle.rs
//! ```
//!
//! This is a crate of its own because it needs `unsafe`, which the readers of slides do not. It
//! relies on these statements in `openslide.h`:
//!
//! - All functions except `openslide_close` may be called from any threads at once.
//! - Texts and lists belong to the handle that returned them. They are copied at once.
//! - The first error of a handle persists, and its functions do nothing from then on. [`Slide`]
//!   checks for an error after each call, and continues with a new handle.
//!
//! OpenSlide also has a reader for TIFF files that are not from a scanner, `generic-tiff`.
//! [`Slide`] never uses it: with libtiff since its fix for CVE-2025-9900, OpenSlide 3.4 returns
//! uninitialised memory for an image that is smaller than its tiles, and any program may have
//! written such a pyramid.
//!
//! OpenSlide does not call back, so no panic crosses the boundary. This crate cannot contain what
//! OpenSlide does with a hostile file: its memory is not bounded here, and a fault in it affects
//! the whole program.

mod error;
mod handle;
mod library;
mod pixels;
mod slide;

pub use error::{Error, Result};
pub use library::Library;
pub use slide::{Level, Slide};
