//! Whole-slide images: tiled TIFF and BigTIFF, Aperio SVS, OME-TIFF, QPTIFF, stacks of ImageJ,
//! DICOM and OME-Zarr, in files or on a web server.
//!
//! A [`Slide`] has levels, properties and associated images. A viewer gets its data in one of these
//! ways:
//!
//! - [`Slide::stored_jpeg`]: the region is one stored tile, whose bytes are returned undecoded.
//! - [`Slide::read`] and [`Slide::render`]: pixels of a level or of a scale between levels, which
//!   [`Raster::encode`] turns into JPEG, PNG or WebP.
//! - [`Slide::tile`] with [`StoredTile::to_block`], and elsewhere [`StoredTile::from_block`] and
//!   [`StoredTile::decode`]: the process that decodes needs no access to the file.
//! - [`Slide::tile_of`] with a [`Rendering`] of [`Slide::channels`]: a [`Tile`] of a slide that may
//!   have channels, focal planes and times. [`Slide::raw`] returns the samples of one channel.
//! - [`Slide::dicom`]: the instances of a slide in DICOM, with frames as they are stored and the
//!   dataset in JSON, as in DICOMweb; a [`DatasetSummary`] describes a file that is not open.
//!
//! When a slide is opened, its format finds out what images it has, and how to find a tile of one;
//! everything else is the same for all formats:
//!
//! ```text
//! Slide      regions, scales, names of associated images
//!   Grid       an image in tiles                        grid.rs
//!     Tiles      where a tile is: tiff/, dicom/, zarr/
//!       Source     bytes by range: file, memory, HTTP   (Store: many files by name)
//!   StoredTile   compressed bytes -> Raster             tile.rs, codec.rs, blosc.rs, jpeg2000/,
//!                                                       jpeg.rs, jpeg_blocks.rs
//!     Layout       samples -> pixels                      samples.rs
//!   Blend        channels of stored tiles -> Raster     blend.rs, channel_samples.rs
//! Rendering       channels, planes, windows, colours         channels.rs, rendering.rs, auto_window.rs
//! Raster     pixels -> JPEG, PNG, WebP                  raster.rs, jpeg_encode.rs
//! ```
//!
//! OpenSlide may read scanner files that these readers refuse ([`Limits::openslide`],
//! openslide.rs): its tiles are pixels, decoded when they are read.
//!
//! Everything can be used by many threads at once. Only the tables that locate tiles stay in
//! memory: a cache of tiles belongs to the server. Files may be hostile: each is read within
//! [`Limits`], and every fault becomes an [`Error`] that names the file.
//!
//! TIFF tiles are uncompressed or use LZW, deflate, JPEG, PackBits, Zstandard, LZMA, WebP or JPEG
//! 2000; OME-Zarr uses none, Blosc, Zstandard, zlib, gzip or LZ4; DICOM none, JPEG, RLE or JPEG
//! 2000. A [`Layout`] describes the samples: any number per pixel, integer or floating point, of 1
//! to 64 bits, of which 8 are shown. (The JPEG 2000 decoder, hayro-jpeg2000, has no unsafe code
//! without its feature `simd`. It allocates as much as headers claim and does not notice missing
//! tiles, so jpeg2000/ checks these first. Other decoders are C, or C translated to Rust. JPEG-LS
//! in DICOM would need CharLS, which is C++. dicom-rs has RLE, but panics on a frame that is too
//! short.)
//!
//! The tables of TIFF are read here, and crates decompress the tiles. The crate `tiff` reads a
//! whole file through one handle and cannot decode a tile elsewhere; `async-tiff` can, but needs a
//! newer Rust and decodes WebP with a C library. Neither supports fill order 2.
#![forbid(unsafe_code)]

mod auto_window;
mod blend;
mod block_cache;
mod blosc;
mod channel_samples;
mod channels;
mod codec;
mod dicom;
mod error;
mod files;
mod formats;
mod grid;
mod http;
mod jpeg;
mod jpeg2000;
mod jpeg_blocks;
mod jpeg_encode;
mod limits;
mod openslide;
mod raster;
mod real_path;
mod redirect;
mod rendering;
mod s3;
mod s3_credentials;
mod s3_list;
mod samples;
mod slide;
mod source;
mod tiff;
mod tile;
mod tls;
mod zarr;

pub use blend::{Blend, Tile};
pub use block_cache::CachedSource;
pub use channels::{Channel, Ink, Layer, Plane, Rendering, Window};
pub use codec::Codec;
pub use dicom::{DatasetSummary, Dicom, Instance};
pub use error::{Error, Result};
pub use formats::sniff;
pub use http::{HttpSource, HttpStore, public};
pub use limits::Limits;
pub use raster::{Format, Raster};
pub use rendering::Raw;
pub use s3_list::list;
pub use samples::{Colours, Layout, Number, Predictor};
pub use slide::{Level, Region, Slide};
pub use source::{FileSource, MemorySource, Source};
pub use tile::{HALVINGS, StoredTile};
pub use zarr::{DirectoryStore, Store};
