//! Whole-slide images: tiled TIFF and BigTIFF, Aperio SVS, OME-TIFF, QPTIFF, stacks of ImageJ, DICOM
//! and OME-Zarr, in files or on a web server.
//!
//! A [`Slide`] has levels, properties and associated images. What a viewer asks for comes out of
//! it in one of these ways:
//!
//! - [`Slide::stored_jpeg`]: the region is one stored tile, whose bytes are given out undecoded.
//! - [`Slide::read`] and [`Slide::render`]: pixels of a level or of a scale between levels, which
//!   [`Raster::encode`] makes JPEG, PNG or WebP.
//! - [`Slide::tile`] with [`StoredTile::to_block`], and elsewhere [`StoredTile::from_block`] and
//!   [`StoredTile::decode`]: the process that decodes needs no access to the file.
//! - [`Slide::tile_of`] with a [`Rendering`] of [`Slide::channels`]: a [`Tile`] of a slide that may have
//!   channels, focal planes and times. [`Slide::raw`] has the samples of one channel.
//! - [`Slide::dicom`]: the instances of a slide in DICOM, with frames as they are stored and the
//!   dataset in JSON, as DICOMweb has them; [`Heading`] is of a file that is not open.
//!
//! Each format finds out when a slide is opened what images it has, and how a tile of one is found;
//! everything else is the same for all:
//!
//! ```text
//! Slide      regions, scales, names of associated images
//!   Grid       an image in tiles                        grid.rs
//!     Tiles      where a tile is: tiff/, dicom/, zarr/
//!       Source     bytes by range: file, memory, HTTP   (Store: many files by name)
//!   StoredTile   compressed bytes -> Raster             tile.rs, codec.rs, blosc.rs, jpeg.rs, jpeg2000/
//!     Layout       samples -> pixels                      samples.rs
//!   Blend        channels of stored tiles -> Raster     blend.rs, pick.rs
//! Rendering       channels, planes, windows, colours         channels.rs, rendering.rs, measure.rs
//! Raster     pixels -> JPEG, PNG, WebP                  raster.rs, encoder/
//! ```
//!
//! OpenSlide may read files of scanners that these readers refuse ([`Limits::openslide`], foreign.rs):
//! its tiles are pixels, decoded when they are read.
//!
//! Everything can be used by many threads at once, and nothing is kept but the tables of where
//! tiles are: a cache of tiles belongs to the server. Files may be hostile: each is read within
//! [`Limits`], and what is wrong with it is an [`Error`] that names it.
//!
//! Compression is none, LZW, deflate or JPEG, in TIFF also PackBits, Zstandard, LZMA or WebP, and
//! in OME-Zarr Blosc, Zstandard, gzip or LZ4, in DICOM none, JPEG or RLE; JPEG 2000 in TIFF and
//! DICOM. A [`Layout`] says what samples there are: of any number in a pixel, whole or floating point,
//! of 1 to 64 bits, of which 8 are shown. (The decoder of JPEG 2000, hayro-jpeg2000, has no unsafe code
//! without its feature `simd`. It allocates by what headers say and does not miss tiles, so jpeg2000/
//! checks these first. Others are C, or C translated to Rust. For JPEG-LS in DICOM there is CharLS,
//! which is C++. dicom-rs has RLE, but panics at a frame that is too short.)
//!
//! Tables of TIFF are read by own code, and tiles are decompressed by crates. The crate `tiff` reads
//! a whole file by one handle and cannot decode a tile elsewhere; `async-tiff` can, but needs a newer
//! Rust and decodes WebP by a library in C. Neither knows fill order 2.
#![forbid(unsafe_code)]

mod blend;
mod blosc;
mod cached;
mod channels;
mod codec;
mod dicom;
mod encoder;
mod error;
mod files;
mod foreign;
mod formats;
mod grid;
mod http;
mod jpeg;
mod jpeg2000;
mod keys;
mod limits;
mod measure;
mod pick;
mod raster;
mod redirect;
mod rendering;
mod s3;
mod samples;
mod slide;
mod source;
mod tiff;
mod tile;
mod tls;
mod within;
mod zarr;

pub use blend::{Blend, Tile};
pub use cached::CachedSource;
pub use channels::{Channel, Ink, Layer, Plane, Rendering, Window};
pub use codec::Codec;
pub use dicom::{Dicom, Heading, Instance};
pub use error::{Error, Result};
pub use formats::sniff;
pub use http::{HttpSource, HttpStore};
pub use limits::Limits;
pub use raster::{Format, Raster};
pub use rendering::Raw;
pub use s3::list;
pub use samples::{Colours, Layout, Number, Predictor};
pub use slide::{Level, Region, Slide};
pub use source::{FileSource, MemorySource, Source};
pub use tile::{HALVINGS, StoredTile};
pub use zarr::{DirectoryStore, Store};
