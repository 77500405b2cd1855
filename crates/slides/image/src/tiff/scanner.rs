//! Formats of scanners that are TIFF as well, but say elsewhere in the file what its images and
//! tiles are. Read as a TIFF like others, they would show something else than what was scanned.

use super::directory::{Directory, Reader};
use crate::Result;

const SOFTWARE: u16 = 305;
const XMP: u16 = 700;
/// Of Hamamatsu: says that the file is one of theirs.
const NDPI: u16 = 65420;
/// Directories of a file of Ventana in which its XML is.
const FIRST: usize = 3;

/// The name of such a format.
pub(super) fn of(
    reader: &Reader<'_>,
    chain: &[Directory],
    description: &str,
) -> Result<Option<&'static str>> {
    let Some(main) = chain.first() else { return Ok(None) };
    if main.has(NDPI) {
        return Ok(Some("Hamamatsu NDPI"));
    }
    if description.contains("http://www.leica-microsystems.com/scn/") {
        return Ok(Some("Leica SCN"));
    }
    let software = reader.text(main, SOFTWARE)?.unwrap_or_default();
    if software.starts_with("Philips") && description.contains("DPUfsImport") {
        return Ok(Some("Philips TIFF"));
    }
    if software.starts_with("MedScan") {
        return Ok(Some("Trestle TIFF"));
    }
    for directory in chain.iter().take(FIRST) {
        let xml = reader.text(directory, XMP)?.unwrap_or_default();
        if xml.contains("<iScan") {
            return Ok(Some("Ventana BIF"));
        }
    }
    Ok(None)
}
