//! Scanner formats that are valid TIFF, but describe their images and tiles elsewhere in the file.
//! Read as plain TIFF, they would show something other than the scan.

use super::directory::{Directory, Reader};
use crate::Result;

const SOFTWARE: u16 = 305;
const XMP: u16 = 700;
/// Hamamatsu's tag that identifies its files.
const NDPI: u16 = 65420;
/// Number of first directories in which a Ventana file may have its XML.
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
