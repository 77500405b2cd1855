//! The parts of a dataset that a slide needs.

use super::element::{Cursor, Element, Visit};
use crate::source::{self, Source};
use crate::{Limits, Result};
use std::collections::BTreeMap;

/// The SOP class of slides.
pub(super) const SLIDE: &str = "1.2.840.10008.5.1.4.1.1.77.1.6";

/// Values under their DICOM names. Sizes are in pixels.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) class: String,
    pub(super) instance: String,
    pub(super) study: String,
    pub(super) series: String,
    /// `ORIGINAL`, `PRIMARY`, `VOLUME`, `NONE`.
    pub(super) image_type: Vec<String>,
    pub(super) full: bool,
    pub(super) samples: u16,
    pub(super) photometric: String,
    pub(super) number: Option<i32>,
    pub(super) planar: u16,
    pub(super) frames: u32,
    pub(super) rows: u16,
    pub(super) columns: u16,
    pub(super) allocated: u16,
    pub(super) stored: u16,
    /// The number of the highest bit of a sample, if the file states it.
    pub(super) high: Option<u16>,
    pub(super) signed: u16,
    pub(super) total_columns: u32,
    pub(super) total_rows: u32,
    /// Width and height of the whole image in millimetres.
    pub(super) volume: (f32, f32),
    /// Distance from row to row and from column to column, in millimetres.
    pub(super) spacing: Option<(f64, f64)>,
    /// The UID of the pyramid that the image is a level of; empty if the file does not name it.
    pub(super) pyramid: String,
    /// Where the upper left pixel lies on the glass, in millimetres.
    pub(super) origin: (Option<f64>, Option<f64>),
    pub(super) concatenation: String,
    pub(super) first_frame: Option<u32>,
    /// Number of instances in the concatenation; 0 if the file does not state it.
    pub(super) concatenated: u16,
    /// The upper left pixel of each frame, from 1: column and row.
    pub(super) positions: Vec<(i32, i32)>,
    /// Distance of the focal plane from the slide, in microns, of each frame that states it.
    pub(super) depths: Vec<f32>,
    /// Index into `paths`, from 1, of each frame that names its optical path.
    pub(super) used: Vec<u16>,
    /// The optical path of all frames.
    pub(super) shared: Option<String>,
    pub(super) paths: Vec<OpticalPath>,
    /// Number of focal planes.
    pub(super) focal_planes: u32,
    pub(super) icc: Option<Vec<u8>>,
    pub(super) properties: BTreeMap<String, String>,
    /// The table of 64-bit offsets, relative to the first frame.
    pub(super) offsets: Option<Vec<u64>>,
    path: Vec<(u32, u32)>,
}

/// A path of light through the microscope; each makes a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpticalPath {
    pub(super) identifier: String,
    pub(super) description: Option<String>,
}

/// Optical paths kept of an instance.
const PATHS: usize = 256;

const SHARED: u32 = 0x5200_9229;
const PER_FRAME: u32 = 0x5200_9230;
const MEASURES: u32 = 0x0028_9110;
const ORIGIN: u32 = 0x0048_0008;
const POSITION: u32 = 0x0048_021a;
const OPTICAL_PATH: u32 = 0x0048_0105;
const PATH_OF_FRAME: u32 = 0x0048_0207;
const IDENTIFIER: u32 = 0x0048_0106;

/// Properties of the device and the image; none of the patient.
const PROPERTIES: [(u32, &str); 9] = [
    (0x0008_0060, "Modality"),
    (0x0008_0070, "Manufacturer"),
    (0x0008_1090, "ManufacturerModelName"),
    (0x0018_1000, "DeviceSerialNumber"),
    (0x0018_1020, "SoftwareVersions"),
    (0x0008_002a, "AcquisitionDateTime"),
    (0x0040_0512, "ContainerIdentifier"),
    (0x0020_000d, "StudyInstanceUID"),
    (0x0020_000e, "SeriesInstanceUID"),
];

/// Transfer syntaxes other than explicit VR little endian.
pub(super) const OTHER_ENCODINGS: [&str; 3] =
    ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99"];

/// Where a dataset begins, and its transfer syntax.
pub(super) struct Start {
    pub(super) at: u64,
    pub(super) syntax: String,
}

/// True if this is a DICOM file (PS3.10).
pub(crate) fn is(source: &dyn Source) -> Result<bool> {
    Ok(source.length() >= 132 && source::read(source, 128, 4)? == b"DICM")
}

/// Reads the elements of group 2, which are in explicit VR little endian in every file.
pub(super) fn start(source: &dyn Source, limits: &Limits) -> Result<Start> {
    let mut cursor = Cursor::new(source, limits, 132);
    let mut syntax = String::new();
    while !cursor.at_end() {
        let at = cursor.at();
        // The dataset may have another syntax, so its first element is not parsed here.
        let group = source::read(source, at, 2)?;
        if group != [2, 0] {
            return Ok(Start { at, syntax });
        }
        let element = cursor.element()?;
        if element.tag == 0x0002_0010 {
            syntax = cursor.text(&element)?;
        }
        cursor.skip(&element)?;
    }
    Err(cursor.malformed(cursor.at(), "there is no dataset"))
}

/// The study, series and instance of a file.
pub(super) struct Names {
    /// Empty if the file does not name it before the series.
    pub(super) study: String,
    pub(super) series: String,
    /// Empty if the file does not name it before the series.
    pub(super) instance: String,
}

/// Maximum bytes of a UID in [`Names`]: many are in memory at once. The standard allows 64.
const LONGEST: u64 = 1024;

/// Reads the names of a file, and as little else of it as possible; `None` if it is not a slide, or
/// has an unsupported encoding.
pub(super) fn names(source: &dyn Source, limits: &Limits) -> Result<Option<Names>> {
    let start = start(source, limits)?;
    if OTHER_ENCODINGS.contains(&start.syntax.as_str()) {
        return Ok(None);
    }
    let mut cursor = Cursor::new(source, limits, start.at);
    let (mut slide, mut instance, mut study) = (false, String::new(), String::new());
    while !cursor.at_end() {
        let element = cursor.element()?;
        let is_short = element.length.is_some_and(|length| length <= LONGEST);
        match element.tag {
            0x0008_0016 => slide = cursor.text(&element)? == SLIDE,
            0x0008_0018 if is_short => instance = cursor.text(&element)?,
            0x0020_000d if is_short => study = cursor.text(&element)?,
            0x0020_000e if slide && is_short => {
                return Ok(Some(Names { study, series: cursor.text(&element)?, instance }));
            }
            _ => {}
        }
        if element.tag > 0x0020_000e {
            break;
        }
        cursor.skip(&element)?;
    }
    Ok(None)
}

/// Reads a dataset up to its pixels.
pub(super) fn read(source: &dyn Source, limits: &Limits, at: u64) -> Result<(Header, Element)> {
    let mut header = Header { frames: 1, ..Header::default() };
    let mut cursor = Cursor::new(source, limits, at);
    match cursor.walk(&mut header)? {
        Some(pixels) => Ok((header, pixels)),
        None => Err(cursor.malformed(cursor.at(), "there are no pixels")),
    }
}

impl Visit for Header {
    fn value(&mut self, cursor: &mut Cursor<'_>, element: &Element) -> Result<()> {
        match self.path[..] {
            [] => self.main(cursor, element),
            [(SHARED, 0), (MEASURES, 0)] if element.tag == 0x0028_0030 => {
                let text = cursor.text(element)?;
                let (row, column) = text.split_once('\\').unwrap_or_default();
                self.spacing = row.trim().parse().ok().zip(column.trim().parse().ok());
                Ok(())
            }
            [(ORIGIN, 0)] if matches!(element.tag, 0x0040_072a | 0x0040_073a) => {
                let millimetres = cursor.text(element)?.trim().parse().ok();
                match element.tag {
                    0x0040_072a => self.origin.0 = millimetres,
                    _ => self.origin.1 = millimetres,
                }
                Ok(())
            }
            [(PER_FRAME, frame), (POSITION, 0)] => {
                let value = |cursor: &mut Cursor<'_>| -> Result<i32> {
                    Ok(i32::from_le_bytes(numbers(cursor, element)?))
                };
                let frame = frame as usize;
                match element.tag {
                    0x0048_021e => {
                        self.positions.resize(frame + 1, (0, 0));
                        self.positions[frame].0 = value(cursor)?;
                    }
                    0x0048_021f => {
                        self.positions.resize(frame + 1, (0, 0));
                        self.positions[frame].1 = value(cursor)?;
                    }
                    0x0040_074a => {
                        self.depths.resize(frame + 1, 0.0);
                        self.depths[frame] = cursor.text(element)?.trim().parse().unwrap_or(0.0);
                    }
                    _ => {}
                }
                Ok(())
            }
            [(SHARED, 0), (PATH_OF_FRAME, 0)] if element.tag == IDENTIFIER => {
                self.shared = Some(cursor.identifier(element)?);
                Ok(())
            }
            [(PER_FRAME, frame), (PATH_OF_FRAME, 0)] if element.tag == IDENTIFIER => {
                let identifier = cursor.identifier(element)?;
                let number = self.paths.iter().position(|path| path.identifier == identifier);
                self.used.resize(frame as usize + 1, 0);
                // A path that is not in the sequence belongs to no channel.
                self.used[frame as usize] = number.map_or(0, |number| number as u16 + 1);
                Ok(())
            }
            [(OPTICAL_PATH, number)] if element.tag == IDENTIFIER => {
                let identifier = cursor.identifier(element)?;
                if self.paths.len() == number as usize && self.paths.len() < PATHS {
                    self.paths.push(OpticalPath { identifier, description: None });
                }
                Ok(())
            }
            [(OPTICAL_PATH, number)] if element.tag == 0x0048_0107 => {
                let text = cursor.decoded(element)?;
                if let Some(path) = self.paths.get_mut(number as usize) {
                    path.description = text;
                }
                Ok(())
            }
            [(OPTICAL_PATH, 0)] if element.tag == 0x0028_2000 => {
                match cursor.refuse_profile(element) {
                    Some(why) => _ = self.properties.insert("dicom.ColourProfile".into(), why),
                    None => self.icc = Some(cursor.value(element)?),
                }
                Ok(())
            }
            [(OPTICAL_PATH, 0)] if element.tag == 0x0048_0112 => {
                let power = cursor.text(element)?;
                self.properties.insert("dicom.ObjectiveLensPower".into(), power);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sequence(&mut self, element: &Element) -> Result<bool> {
        let wanted = match (&self.path[..], element.tag) {
            ([], SHARED | OPTICAL_PATH | ORIGIN) => true,
            // If frames are in order, their items add nothing.
            ([], PER_FRAME) => !self.full,
            ([(SHARED, 0)], MEASURES | PATH_OF_FRAME) => true,
            ([(PER_FRAME, _)], POSITION | PATH_OF_FRAME) => true,
            _ => false,
        };
        if wanted {
            // The first item makes it 0.
            self.path.push((element.tag, u32::MAX));
        }
        Ok(wanted)
    }

    fn item(&mut self) {
        if let Some(last) = self.path.last_mut() {
            last.1 = last.1.wrapping_add(1);
        }
    }

    fn end_sequence(&mut self) {
        self.path.pop();
    }
}

impl Header {
    /// Bytes that stay in memory, without the colour profile.
    pub(super) fn kept(&self) -> u64 {
        let texts = [&self.class, &self.instance, &self.study, &self.series, &self.photometric];
        let texts =
            texts.into_iter().chain([&self.concatenation, &self.pyramid]).chain(&self.image_type);
        let texts: usize = texts.chain(self.properties.values()).map(String::len).sum();
        let paths = self
            .paths
            .iter()
            .map(|path| path.identifier.len() + path.description.as_ref().map_or(0, String::len));
        let texts = texts + paths.sum::<usize>() + self.shared.as_ref().map_or(0, String::len);
        let frames = 4 * self.depths.len() + 2 * self.used.len();
        (texts + frames + size_of::<(i32, i32)>() * self.positions.len()) as u64
    }

    /// The depth of a frame, without a negative zero.
    pub(super) fn depth(&self, frame: usize) -> f32 {
        self.depths.get(frame).copied().unwrap_or(0.0) + 0.0
    }

    /// An element outside all sequences.
    fn main(&mut self, cursor: &mut Cursor<'_>, element: &Element) -> Result<()> {
        let short = |cursor: &mut Cursor<'_>| -> Result<u16> {
            Ok(u16::from_le_bytes(numbers(cursor, element)?))
        };
        let long = |cursor: &mut Cursor<'_>| -> Result<u32> {
            Ok(u32::from_le_bytes(numbers(cursor, element)?))
        };
        let float = |cursor: &mut Cursor<'_>| -> Result<f32> {
            Ok(f32::from_le_bytes(numbers(cursor, element)?))
        };
        match element.tag {
            0x0008_0008 => {
                let text = cursor.text(element)?;
                // Words after the third are not used.
                let words = text.split('\\').take(3);
                self.image_type = words.map(|word| word.trim().to_owned()).collect();
            }
            0x0008_0016 => self.class = cursor.text(element)?,
            0x0008_0018 => self.instance = cursor.text(element)?,
            0x0008_0019 => self.pyramid = cursor.text(element)?,
            0x0020_000d => self.study = cursor.text(element)?,
            0x0020_000e => self.series = cursor.text(element)?,
            0x0020_0013 => self.number = cursor.text(element)?.trim().parse().ok(),
            0x0020_9161 => self.concatenation = cursor.text(element)?,
            0x0020_9163 => self.concatenated = short(cursor)?,
            0x0020_9228 => self.first_frame = Some(long(cursor)?),
            0x0020_9311 => self.full = cursor.text(element)? == "TILED_FULL",
            0x0028_0002 => self.samples = short(cursor)?,
            0x0028_0004 => self.photometric = cursor.text(element)?,
            0x0028_0006 => self.planar = short(cursor)?,
            0x0028_0008 => {
                let text = cursor.text(element)?;
                self.frames = text.trim().parse().map_err(|_| {
                    cursor.malformed(element.at, format!("{text:?} is no number of frames"))
                })?;
            }
            0x0028_0010 => self.rows = short(cursor)?,
            0x0028_0011 => self.columns = short(cursor)?,
            0x0028_0100 => self.allocated = short(cursor)?,
            0x0028_0101 => self.stored = short(cursor)?,
            0x0028_0102 => self.high = Some(short(cursor)?),
            0x0028_0103 => self.signed = short(cursor)?,
            0x0048_0001 => self.volume.0 = float(cursor)?,
            0x0048_0002 => self.volume.1 = float(cursor)?,
            0x0048_0006 => self.total_columns = long(cursor)?,
            0x0048_0007 => self.total_rows = long(cursor)?,
            0x0048_0303 => self.focal_planes = long(cursor)?,
            0x7fe0_0001 => self.offsets = Some(offsets(cursor, element)?),
            _ => {}
        }
        if let Some((_, name)) = PROPERTIES.iter().find(|(tag, _)| *tag == element.tag)
            && let Some(text) = cursor.decoded(element)?
        {
            self.properties.insert(format!("dicom.{name}"), text);
        }
        Ok(())
    }
}

/// The first bytes of a value that is a number.
fn numbers<const N: usize>(cursor: &mut Cursor<'_>, element: &Element) -> Result<[u8; N]> {
    let bytes = cursor.value(element)?;
    let number = bytes.get(..N).and_then(|bytes| bytes.try_into().ok());
    number.ok_or_else(|| {
        cursor.malformed(element.at, format!("element {:08x} is not a number", element.tag))
    })
}

fn offsets(cursor: &mut Cursor<'_>, element: &Element) -> Result<Vec<u64>> {
    let bytes = cursor.table(element)?;
    Ok(bytes.chunks_exact(8).map(number).collect())
}

/// A little-endian number.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}
