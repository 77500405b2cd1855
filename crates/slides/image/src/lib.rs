//! Whole-slide images: tiled TIFF and BigTIFF, Aperio SVS and OME-TIFF, in a file or on a web
//! server.
//!
//! A [`Slide`] has levels, properties and associated images. What a viewer asks for comes out of
//! it in one of these ways:
//!
//! - [`Slide::stored_jpeg`]: the region is one stored tile, whose bytes are given out undecoded.
//! - [`Slide::read`] and [`Slide::render`]: pixels of a level or of a scale between levels, which
//!   [`Raster::encode`] makes JPEG, PNG or WebP.
//! - [`Slide::tile`] with [`StoredTile::to_block`], and elsewhere [`StoredTile::from_block`] and
//!   [`StoredTile::decode`]: the process that decodes needs no access to the file.
//!
//! Everything can be used by many threads at once, and nothing is kept but the tables of where
//! tiles are: a cache of tiles belongs to the server. Files may be hostile: each is read within
//! [`Limits`], and what is wrong with it is an [`Error`] that names it.
//!
//! Compression is none, LZW, deflate or JPEG, of 8 bits (or 16, of which 8 are used) in grey, RGB
//! or, in JPEG, YCbCr. JPEG 2000 is named as not supported.
#![forbid(unsafe_code)]

mod cached;
mod error;
mod http;
mod jpeg;
mod limits;
mod raster;
mod slide;
mod source;
mod tiff;
mod tile;

pub use cached::CachedSource;
pub use error::{Error, Result};
pub use http::HttpSource;
pub use limits::Limits;
pub use raster::{Format, Raster};
pub use slide::{Level, Region, Slide};
pub use source::{FileSource, MemorySource, Source};
pub use tile::{Codec, Colours, Layout, StoredTile};
