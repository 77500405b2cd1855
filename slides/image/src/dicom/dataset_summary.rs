//! The beginning of a dataset: attributes of the patient, the study and the series.

use super::element::{Cursor, Visit};
use super::header::{self, OTHER_ENCODINGS};
use super::json::Writer;
use crate::source::{FileSource, Source};
use crate::{Error, Limits, Result};
use std::path::Path;

/// The attributes in the first few hundred bytes of a DICOM file, used to find slides that are not
/// open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetSummary {
    /// The UID of the study.
    pub study: String,
    /// The UID of the series.
    pub series: String,
    /// An object of the DICOM JSON model (PS3.18, annex F). Of the study it has UID, date, time,
    /// identifier, description, accession number and referring physician; of the patient name,
    /// identifier, birth date and sex; of the series UID, number, description and modality.
    /// Attributes missing in the file are left out, and so is text in a character set that is not
    /// supported; each value has at most 1024 bytes.
    pub json: String,
}

/// The attributes in [`DatasetSummary::json`].
const SHOWN: [u32; 16] = [
    0x0008_0005,
    0x0008_0020,
    0x0008_0030,
    0x0008_0050,
    0x0008_0060,
    0x0008_0090,
    0x0008_1030,
    0x0008_103e,
    0x0010_0010,
    0x0010_0020,
    0x0010_0030,
    0x0010_0040,
    0x0020_000d,
    0x0020_000e,
    0x0020_0010,
    0x0020_0011,
];

/// Bytes of one value.
const LONGEST: u64 = 1024;

impl DatasetSummary {
    /// Reads the heading of a file, and the UID of its instance; `None` if it is not a slide in
    /// DICOM, or has an unsupported encoding. Only the beginning of the file is read.
    ///
    /// # Errors
    /// File system errors, and a malformed beginning.
    pub fn read(path: &Path, limits: &Limits) -> Result<Option<(Self, String)>> {
        let source = FileSource::open(path)?;
        if header::is(&source)? { Self::of(&source, limits) } else { Ok(None) }
    }

    fn of(source: &dyn Source, limits: &Limits) -> Result<Option<(Self, String)>> {
        let start = header::start(source, limits)?;
        if OTHER_ENCODINGS.contains(&start.syntax.as_str()) {
            return Ok(None);
        }
        let mut writer = Writer::new(limits);
        let mut cursor = Cursor::new(source, limits, start.at);
        let (mut study, mut series, mut is_slide) = (String::new(), String::new(), false);
        let mut instance = String::new();
        while !cursor.at_end() {
            let element = cursor.element()?;
            let is_short = element.length.is_some_and(|length| length <= LONGEST);
            match element.tag {
                0x0008_0016 => is_slide = cursor.text(&element)? == header::SLIDE,
                0x0008_0018 if is_short => instance = cursor.text(&element)?,
                0x0020_000d if is_short => study = cursor.text(&element)?,
                0x0020_000e if is_short => series = cursor.text(&element)?,
                tag if tag > SHOWN[SHOWN.len() - 1] => break,
                _ => {}
            }
            if SHOWN.contains(&element.tag) && is_short && element.vr != *b"SQ" {
                match writer.value(&mut cursor, &element) {
                    // A text in a character set that is not supported is left out.
                    Err(Error::Unsupported { .. }) => {}
                    other => other?,
                }
            }
            cursor.skip(&element)?;
        }
        let json = writer.finish(source.name())?;
        let is_one = is_slide && !series.is_empty();
        Ok(is_one.then_some((Self { study, series, json }, instance)))
    }
}
