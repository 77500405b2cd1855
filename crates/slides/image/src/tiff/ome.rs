//! OME-TIFF: the description of the first image is OME-XML, smaller levels are below their image.

use super::directory::{Directory, Reader};
use super::page::{self, Page, Unmarked};
use crate::Result;
use crate::grid::{Parts, microns};
use roxmltree::{Document, Node, ParsingOptions};
use std::cmp::Reverse;

/// Nodes of the XML. Each costs some hundred bytes.
const NODES: u32 = 1 << 20;

pub(super) fn is(description: &str) -> bool {
    let head = description.get(..4096.min(description.len())).unwrap_or(description);
    head.starts_with('<') && head.contains("<OME")
}

pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    chain: &[Directory],
    description: &str,
) -> Result<()> {
    parts.format = "ome-tiff";
    // No document type, so no entities that grow.
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES, ..Default::default() };
    let xml = Document::parse_with_options(description, options)
        .map_err(|error| reader.malformed(chain[0].at, format!("OME-XML: {error}")))?;
    if let Some(only) = xml.descendants().find(|node| node.tag_name().name() == "BinaryOnly") {
        let companion = only.attribute("MetadataFile").unwrap_or_default();
        let what = "OME-TIFF whose description is in another file";
        return Err(reader.unsupported(format!("{what}: {companion:?}")));
    }
    let mut images = Vec::new();
    for image in xml.descendants().filter(|node| node.tag_name().name() == "Image") {
        let child = |of: Node<'_, '_>, name| {
            of.children().find(|node| node.tag_name().name() == name).map(|node| node.id())
        };
        let Some(pixels) = child(image, "Pixels").and_then(|id| xml.get_node(id)) else { continue };
        let data = child(pixels, "TiffData").and_then(|id| xml.get_node(id));
        let place = data.and_then(|data| data.attribute("IFD")).map_or(Ok(0), str::parse);
        let directory = place.ok().and_then(|place: usize| chain.get(place));
        let Some(directory) = directory else {
            return Err(
                reader.malformed(chain[0].at, "OME-XML names a directory that is not there")
            );
        };
        let name = image.attribute("Name").unwrap_or_default();
        images.push(Image { name, pixels, page: Page::read(reader, directory)? });
    }
    // Of several, an unnamed or otherwise named one before a label or the like, then the largest.
    let key = |(number, image): &(usize, &Image<'_, '_>)| {
        (page::word(image.name).is_none(), image.page.pixels(), Reverse(*number))
    };
    let Some((main, slide)) = images.iter().enumerate().max_by_key(key) else { return Ok(()) };
    parts.properties.insert("ome.Name".into(), slide.name.into());
    let side = |side| {
        let number: f64 = slide.pixels.attribute(side)?.parse().ok()?;
        let unit = slide.pixels.attribute(format!("{side}Unit").as_str()).unwrap_or("µm");
        Some(number * in_microns(unit)?)
    };
    parts.microns =
        side("PhysicalSizeX").zip(side("PhysicalSizeY")).and_then(|(x, y)| microns(x, y));
    page::main_level(parts, reader, &slide.page)?;
    page::below(parts, reader, &slide.page, Unmarked::Always)?;
    for (number, image) in images.iter().enumerate().filter(|(number, _)| *number != main) {
        let name = page::word(image.name).and_then(|(_, name)| name);
        page::aside(parts, reader, &image.page, name, &format!("image {number}"))?;
    }
    Ok(())
}

/// An image that OME-XML describes, and its first page.
struct Image<'a, 'b> {
    name: &'a str,
    pixels: Node<'a, 'a>,
    page: Page<'b>,
}

fn in_microns(unit: &str) -> Option<f64> {
    match unit {
        // Both signs for micro.
        "µm" | "μm" => Some(1.0),
        "nm" => Some(1e-3),
        "mm" => Some(1e3),
        "cm" => Some(1e4),
        "m" => Some(1e6),
        _ => None,
    }
}
