//! Aperio SVS: the description of the first image has the properties, images in strips are label,
//! macro and thumbnail.

use super::directory::{Directory, Reader};
use super::{DESCRIPTION, grid};
use crate::Result;
use crate::grid::{Parts, microns};

pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    chain: &[Directory],
    description: &str,
) -> Result<()> {
    parts.format = "aperio";
    // As objects they would take many times the memory of their text.
    for pair in description.split('|').skip(1).take(reader.limits.entries) {
        if let Some((key, value)) = pair.split_once('=') {
            parts.properties.insert(format!("aperio.{}", key.trim()), value.trim().into());
        }
    }
    let pixel = parts.properties.get("aperio.MPP").and_then(|text| text.parse().ok());
    parts.microns = pixel.and_then(|pixel| microns(pixel, pixel));
    for (number, directory) in chain.iter().enumerate() {
        if number == 0 || directory.has(322) {
            parts.levels.push(grid::read(reader, directory)?);
            continue;
        }
        let text = reader.text(directory, DESCRIPTION)?.unwrap_or_default();
        let second = text.lines().nth(1).unwrap_or_default();
        let kind = reader.number(directory, 254)?.unwrap_or(0);
        let name = match second.split_whitespace().next() {
            Some(word @ ("label" | "macro")) => word,
            _ if kind == 1 => "label",
            _ if kind == 9 => "macro",
            _ if number == 1 => "thumbnail",
            _ => continue,
        };
        parts.associated.insert(name.into(), grid::read(reader, directory)?);
    }
    Ok(())
}
