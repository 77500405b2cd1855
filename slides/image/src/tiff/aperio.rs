//! Aperio SVS: the description of the first image contains the properties, and images in strips are
//! label, macro and thumbnail.

use super::directory::Reader;
use super::page::{self, Page, Unmarked};
use crate::Result;
use crate::grid::{Parts, microns};

pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    pages: &[Page<'_>],
    description: &str,
) -> Result<()> {
    parts.format = "aperio";
    // As objects they would take many times the memory of the text.
    for pair in description.split('|').skip(1).take(reader.limits.entries) {
        if let Some((key, value)) = pair.split_once('=') {
            parts.properties.insert(format!("aperio.{}", key.trim()), value.trim().into());
        }
    }
    let pixel = parts.properties.get("aperio.MPP").and_then(|text| text.parse().ok());
    let main = page::main(reader, pages)?;
    // The properties describe the first image.
    parts.microns = pixel.filter(|_| main == 0).and_then(|pixel| microns(pixel, pixel));
    page::fill(parts, reader, pages, main, Unmarked::Aperio)
}
