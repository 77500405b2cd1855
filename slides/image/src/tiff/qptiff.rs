//! QPTIFF with fluorescence (PerkinElmer, Akoya): a page for each channel, then the pages of
//! smaller levels in the same order. XML in its description states the kind of each page.
//! Brightfield files are read like any other TIFF.

use super::directory::{DESCRIPTION, Directory, Reader, resolution};
use super::page::{self, NOT_SHOWN, Page, Unmarked};
use super::planes::{self, Described};
use crate::Result;
use crate::channels::ChannelMetadata;
use crate::grid::Parts;
use roxmltree::{Document, ParsingOptions};

const ROOT: &str = "PerkinElmer-QPI-ImageDescription";

/// Maximum bytes of the descriptions of all pages, and maximum nodes in one.
const TEXTS: u64 = 64 << 20;
const NODES: u32 = 1 << 16;

pub(super) fn is(description: &str) -> bool {
    let head = description.get(..4096.min(description.len())).unwrap_or(description);
    head.trim_start().starts_with('<') && head.contains(ROOT)
}

/// The parsed description of a page.
struct PageMetadata {
    kind: String,
    said: ChannelMetadata,
}

/// Reads a slide with several channels; false if it has none.
pub(super) fn fill(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    chain: &[Directory],
    pages: &[Page<'_>],
) -> Result<bool> {
    let mut left = TEXTS;
    let mut metadata = Vec::with_capacity(chain.len());
    for directory in chain {
        let length = reader.length(directory, DESCRIPTION);
        left = match left.checked_sub(length) {
            Some(left) => left,
            None => return Err(reader.limit(format!("descriptions of more than {TEXTS} bytes"))),
        };
        metadata.push(page_of(&reader.text(directory, DESCRIPTION)?.unwrap_or_default()));
    }
    let of = |kind: &str| -> Vec<usize> {
        let is = |metadata: &Option<PageMetadata>| {
            metadata.as_ref().is_some_and(|metadata| metadata.kind == kind)
        };
        (0..pages.len()).filter(|number| is(&metadata[*number])).collect()
    };
    let (full, reduced) = (of("FullResolution"), of("ReducedResolution"));
    let Some(first) = full.first().map(|number| &pages[*number]) else { return Ok(false) };
    if planes::has_colours(first) {
        return Ok(false);
    }
    let said = |number: &usize| metadata[*number].as_ref().map(|metadata| metadata.said.clone());
    for number in &full {
        if let Some(why) = planes::unlike(reader, first, &pages[*number])? {
            return Err(
                reader.unsupported(format!("QPTIFF whose page {number} is not a channel: {why}"))
            );
        }
    }
    let again = |reader: &mut Reader<'_>, numbers: &[usize]| -> Result<Vec<Page<'_>>> {
        numbers.iter().map(|number| Page::read(reader, &chain[*number])).collect()
    };
    let mut smaller = Vec::new();
    for group in reduced.chunks(full.len()) {
        // The same channels in the same order, all of one size.
        let names = |numbers: &[usize]| -> Vec<Option<String>> {
            numbers.iter().map(|number| said(number)?.name).collect()
        };
        let mut is_level = names(group) == names(&full);
        for (number, main) in group.iter().zip(&full) {
            let page = &pages[*number];
            is_level = is_level
                && page.is_level_of(&pages[*main], Unmarked::Always)
                && planes::unlike(reader, &pages[group[0]], page)?.is_none();
        }
        match is_level {
            true => smaller.push(again(reader, group)?),
            false => {
                let (width, height) = pages[group[0]].size;
                let what = format!(
                    "page {}: {width} x {height} pixels, no level of all channels",
                    group[0]
                );
                parts.not_shown(NOT_SHOWN, &what);
            }
        }
    }
    for (kind, name) in [("Thumbnail", "thumbnail"), ("Overview", "macro"), ("Label", "label")] {
        for number in of(kind) {
            page::aside(parts, reader, &pages[number], Some(name), &format!("page {number}"))?;
        }
    }
    for (number, metadata) in metadata.iter().enumerate() {
        if metadata.is_none() {
            page::aside(parts, reader, &pages[number], None, &format!("page {number}"))?;
        }
    }
    parts.format = "qptiff";
    parts.microns = resolution(reader, &chain[0])?;
    let of_channels = full.iter().filter_map(said).collect();
    let of = Described { said: of_channels, samples: 1, has_colours: false, planes: (1, 1) };
    let whole = again(reader, &full)?;
    planes::fill(parts, reader, of, &whole, &smaller)?;
    Ok(true)
}

/// Parses a description; `None` if it is something else, or malformed.
fn page_of(description: &str) -> Option<PageMetadata> {
    if !is(description) {
        return None;
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES, ..Default::default() };
    let xml = Document::parse_with_options(description, options).ok()?;
    let text = |name: &str| {
        let mut children = xml.root_element().children();
        let text = children.find(|node| node.tag_name().name() == name)?.text()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let colour = text("Color").and_then(|text| {
        let parts = text.split(',').map(|part| part.trim().parse().ok());
        <[u8; 3]>::try_from(parts.collect::<Option<Vec<u8>>>()?).ok()
    });
    let colour = colour.filter(|colour| *colour != [0; 3]);
    let said = ChannelMetadata { name: text("Name"), colour, ..ChannelMetadata::default() };
    Some(PageMetadata { kind: text("ImageType")?, said })
}
