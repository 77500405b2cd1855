//! One file: an instance of VL Whole Slide Microscopy Image Storage.

use super::element::Element;
use super::frames::{FrameSize, Frames};
use super::header::{self, Header, SLIDE};
use super::json;
use crate::codec::Codec;
use crate::samples::{Colours, Layout};
use crate::source::{self, Source};
use crate::tile::StoredTile;
use crate::{Error, Limits, Result};
use bytes::Bytes;
use std::sync::Arc;

/// An instance: one file of a slide in DICOM, as DICOMweb serves it. Any number of threads may use
/// it at once.
pub struct Instance {
    source: Arc<dyn Source>,
    limits: Limits,
    pub(super) header: Header,
    pub(super) layout: Layout,
    syntax: String,
    /// Where the dataset begins.
    start: u64,
    pixels: Element,
    frames: Frames,
}

/// A slide's DICOM series, for DICOMweb.
pub struct Dicom {
    pub(super) instances: Vec<Arc<Instance>>,
}

impl Dicom {
    /// The UID of the study.
    pub fn study(&self) -> &str {
        &self.instances[0].header.study
    }

    /// The UID of the series.
    pub fn series(&self) -> &str {
        &self.instances[0].header.series
    }

    /// The instances, those of the largest images first.
    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().map(|instance| &**instance)
    }

    /// The instance of this number among [`instances`](Self::instances), from 0.
    pub fn numbered(&self, number: usize) -> Option<&Instance> {
        self.instances.get(number).map(|instance| &**instance)
    }

    /// The instance of a UID.
    pub fn instance(&self, uid: &str) -> Option<&Instance> {
        self.instances().find(|instance| instance.uid() == uid)
    }
}

/// The role of an instance, from the third word of its image type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InstanceKind {
    Level,
    Associated(&'static str),
}

impl Instance {
    /// Reads everything but the pixels.
    pub(super) fn open(source: &Arc<dyn Source>, limits: &Limits) -> Result<Self> {
        let unsupported = |what: String| Error::Unsupported { name: source.name().into(), what };
        let limit = |what: String| Error::Limit { name: source.name().into(), what };
        let start = header::start(&**source, limits)?;
        let codec = codec(&start.syntax).map_err(unsupported)?;
        let (mut header, pixels) = header::read(&**source, limits, start.at)?;
        if header.class != SLIDE {
            return Err(unsupported(format!("DICOM of the class {}", header.class)));
        }
        let malformed =
            |what: String| Error::Malformed { name: source.name().into(), at: pixels.at, what };
        if header.rows == 0 || header.columns == 0 || header.frames == 0 {
            return Err(malformed("frames without pixels".into()));
        }
        // An image that is not tiled is one frame.
        if header.total_columns == 0 && header.total_rows == 0 && header.frames == 1 {
            (header.total_columns, header.total_rows) = (header.columns.into(), header.rows.into());
        }
        if header.total_columns == 0 || header.total_rows == 0 {
            return Err(malformed("an image without pixels".into()));
        }
        if header.total_columns.max(header.total_rows) > limits.side {
            let (width, height) = (header.total_columns, header.total_rows);
            return Err(limit(format!("an image of {width} x {height} pixels")));
        }
        let area = u64::from(header.rows) * u64::from(header.columns);
        if area > limits.tile_pixels {
            let what = format!("frames of {} x {}", header.columns, header.rows);
            let (name, most) = (source.name().into(), limits.tile_pixels);
            return Err(Error::LargeTiles { name, what, most });
        }
        if u64::from(header.frames) > limits.tables / 8 {
            return Err(limit(format!("{} frames", header.frames)));
        }
        let layout = layout(&header, codec).map_err(unsupported)?;
        if (codec == Codec::Raw) != pixels.length.is_some() {
            return Err(malformed("pixels that do not match the transfer syntax".into()));
        }
        let each = area * u64::from(layout.samples) * u64::from(layout.bits / 8);
        let offsets = header.offsets.take();
        header.positions.shrink_to_fit();
        header.depths.shrink_to_fit();
        header.used.shrink_to_fit();
        let size = FrameSize { bytes: each, is_item: codec == Codec::Rle };
        let frames = Frames::new(&**source, limits, &pixels, header.frames, size, offsets)?;
        let (source, limits) = (Arc::clone(source), limits.clone());
        let (syntax, start) = (start.syntax, start.at);
        Ok(Self { source, limits, header, layout, syntax, start, pixels, frames })
    }

    pub(super) fn kind(&self) -> Option<InstanceKind> {
        match self.header.image_type.get(2)?.as_str() {
            "VOLUME" => Some(InstanceKind::Level),
            "LABEL" => Some(InstanceKind::Associated("label")),
            "OVERVIEW" | "LOCALIZER" => Some(InstanceKind::Associated("macro")),
            "THUMBNAIL" => Some(InstanceKind::Associated("thumbnail")),
            _ => None,
        }
    }

    /// Bytes of memory that its tables and texts take, without the colour profile.
    pub(super) fn kept(&self) -> u64 {
        self.header.kept() + self.frames.kept(self.header.frames)
    }

    pub(super) fn state(&self) -> Option<String> {
        self.source.state()
    }

    /// The name of the file, for errors.
    pub(super) fn name(&self) -> &str {
        self.source.name()
    }

    /// Its SOP instance UID.
    pub fn uid(&self) -> &str {
        &self.header.instance
    }

    /// Its SOP class UID.
    pub fn class(&self) -> &str {
        &self.header.class
    }

    /// Its instance number, if it has one.
    pub fn number(&self) -> Option<i32> {
        self.header.number
    }

    /// Width and height, in pixels, of the whole image that its frames belong to.
    pub fn size(&self) -> (u32, u32) {
        (self.header.total_columns, self.header.total_rows)
    }

    /// True if it holds pixels of the slide itself, not of a label or another associated image.
    pub fn is_level(&self) -> bool {
        self.kind() == Some(InstanceKind::Level)
    }

    /// The name of the associated image whose pixels it holds.
    pub fn associated(&self) -> Option<&'static str> {
        match self.kind() {
            Some(InstanceKind::Associated(name)) => Some(name),
            _ => None,
        }
    }

    /// True if it holds all of its image: it is not part of a concatenation.
    pub fn is_whole(&self) -> bool {
        self.header.concatenation.is_empty()
    }

    /// The UID of its transfer syntax.
    pub fn transfer_syntax(&self) -> &str {
        &self.syntax
    }

    /// The type of a frame's bytes: `image/jpeg`, `image/jp2`, `image/dicom-rle` or
    /// `application/octet-stream`.
    pub fn media_type(&self) -> &'static str {
        match self.layout.codec {
            Codec::Jpeg => "image/jpeg",
            Codec::Jpeg2000 => "image/jp2",
            Codec::Rle => "image/dicom-rle",
            _ => "application/octet-stream",
        }
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.header.frames
    }

    /// The width of a frame in pixels.
    pub fn columns(&self) -> u32 {
        self.header.columns.into()
    }

    /// The height of a frame in pixels.
    pub fn rows(&self) -> u32 {
        self.header.rows.into()
    }

    /// Bits per sample.
    pub fn bits(&self) -> u8 {
        self.layout.bits
    }

    /// The length of its file in bytes.
    pub fn length(&self) -> u64 {
        self.source.length()
    }

    /// Bytes of its file, from byte `at` on.
    ///
    /// # Errors
    /// A range that is not wholly inside the file, and read errors.
    pub fn bytes(&self, at: u64, length: usize) -> Result<Bytes> {
        Ok(source::read(&*self.source, at, length as u64)?.into())
    }

    /// Where in its file the pixels are, if they are not encapsulated: the first byte, and how
    /// many.
    pub fn native(&self) -> Option<(u64, u64)> {
        self.pixels.length.map(|length| (self.pixels.at, length))
    }

    /// A frame as a tile that can be decoded. The first frame has the number 1.
    ///
    /// # Errors
    /// As [`frame`](Self::frame).
    pub fn tile(&self, number: u32) -> Result<StoredTile> {
        let bytes = self.frame(number)?;
        let name = format!("{}: frame {number}", self.name());
        Ok(StoredTile { name, layout: self.layout, halvings: 0, tables: Bytes::new(), bytes })
    }

    /// The bytes of a frame as stored. The first frame has the number 1.
    ///
    /// # Errors
    /// A frame that does not exist or exceeds the limits, and read errors.
    pub fn frame(&self, number: u32) -> Result<Bytes> {
        let frame = number.checked_sub(1).filter(|frame| *frame < self.header.frames);
        let Some(frame) = frame else {
            let what = format!("{}: no frame {number}", self.name());
            return Err(Error::Argument(what));
        };
        self.frames.read(&*self.source, &self.limits, frame, self.header.frames)
    }

    /// The dataset as an object of the DICOM JSON model (PS3.18, annex F), read anew at each call.
    /// The pixels are a reference to the address `bulk`; all other values are included.
    ///
    /// # Errors
    /// A dataset whose JSON exceeds [`Limits::tables`], and read errors.
    pub fn json(&self, bulk: &str) -> Result<String> {
        json::write(&*self.source, &self.limits, self.start, self.pixels.vr, bulk)
    }
}

/// The compression of a transfer syntax.
fn codec(syntax: &str) -> std::result::Result<Codec, String> {
    let what = match syntax.strip_prefix("1.2.840.10008.1.2").unwrap_or("?") {
        ".1" => return Ok(Codec::Raw),
        ".4.50" | ".4.51" => return Ok(Codec::Jpeg),
        ".4.90" | ".4.91" => return Ok(Codec::Jpeg2000),
        ".5" => return Ok(Codec::Rle),
        "" => "implicit value representations",
        ".2" => "the byte order of DICOM that was retired",
        ".1.99" => "a deflated dataset",
        ".4.57" | ".4.70" => "compression by lossless JPEG",
        ".4.80" | ".4.81" => "compression by JPEG-LS",
        ".4.92" | ".4.93" => "compression by the extensions of JPEG 2000",
        ".4.201" | ".4.202" | ".4.203" => "compression by High-Throughput JPEG 2000",
        _ => return Err(format!("the transfer syntax {syntax:?}")),
    };
    Err(what.into())
}

fn layout(header: &Header, codec: Codec) -> std::result::Result<Layout, String> {
    let colours = match header.photometric.as_str() {
        // JPEG decoders do not know this interpretation.
        "MONOCHROME1" if codec != Codec::Jpeg => Colours::Inverted,
        "MONOCHROME2" => Colours::Grey,
        "RGB" => Colours::Rgb,
        "YBR_FULL" | "YBR_FULL_422" if codec == Codec::Jpeg => Colours::YCbCr,
        // The decoder undoes the reversible transform.
        "YBR_RCT" if codec == Codec::Jpeg2000 => Colours::Rgb,
        // Some programs copy Aperio's YCbCr tiles, whose codestream has no transform.
        "YBR_FULL" | "YBR_ICT" if codec == Codec::Jpeg2000 => Colours::YCbCr,
        other => return Err(format!("the photometric interpretation {other:?}")),
    };
    let needed = if matches!(colours, Colours::Rgb | Colours::YCbCr) { 3 } else { 1 };
    if header.samples != needed {
        return Err(format!("{} samples of a pixel", header.samples));
    }
    if header.signed != 0 {
        return Err("samples with a sign".into());
    }
    let bits = match header.allocated {
        8 => 8,
        16 if codec != Codec::Jpeg && colours != Colours::YCbCr => 16,
        other => return Err(format!("samples of {other} bits")),
    };
    // They are the lowest bits (PS3.5, section 8.1.1). A codestream says itself where its bits are.
    let is_lowest = |high: u16| header.stored == 0 || high.checked_add(1) == Some(header.stored);
    let high = header.high.filter(|_| matches!(codec, Codec::Raw | Codec::Rle));
    if let Some(high) = high.filter(|high| !is_lowest(*high)) {
        let stored = header.stored;
        return Err(format!("samples of {stored} bits of which the highest is bit {high}"));
    }
    let window = match (bits, header.stored) {
        (16, stored @ 1..=15) => Some((0.0, f64::from((1_u16 << stored) - 1))),
        _ => None,
    };
    let size = (header.columns.into(), header.rows.into());
    Ok(Layout {
        colours,
        samples: needed,
        bits,
        planes: codec == Codec::Rle || codec == Codec::Raw && header.planar == 1,
        window,
        fill: if colours == Colours::Inverted { 0.0 } else { f64::INFINITY },
        ..Layout::of_bytes(size, codec)
    })
}
