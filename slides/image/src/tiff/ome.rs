//! OME-TIFF: the description of the first image is OME-XML, and smaller levels are below their
//! image.

use super::directory::{Directory, Reader};
use super::page::{self, Page, Unmarked};
use super::planes::{self, Described, NOT_SHOWN};
use crate::Result;
use crate::channels::Said;
use crate::grid::{Parts, microns};
use roxmltree::{Document, Node, ParsingOptions};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum nodes of the XML. Each costs some hundred bytes.
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
    // Document types are refused, and with them entities that expand.
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
        let Some(pixels) = children(image, "Pixels").next() else { continue };
        let data = children(pixels, "TiffData").next();
        let place = data.and_then(|data| data.attribute("IFD")).map_or(Ok(0), str::parse);
        let directory = place.ok().and_then(|place: usize| chain.get(place));
        let Some(directory) = directory else {
            return Err(
                reader.malformed(chain[0].at, "OME-XML names a directory that does not exist")
            );
        };
        let name = image.attribute("Name").unwrap_or_default();
        images.push(Image { name, pixels, page: Page::read(reader, directory)? });
    }
    // Of several images, those without the name of a label or the like come first, then the
    // largest.
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
    pixels(parts, reader, chain, slide)?;
    for (number, image) in images.iter().enumerate().filter(|(number, _)| *number != main) {
        let name = page::word(image.name).and_then(|(_, name)| name);
        page::aside(parts, reader, &image.page, name, &format!("image {number}"))?;
    }
    Ok(())
}

/// An image described in OME-XML, and its first page.
struct Image<'a, 'b> {
    name: &'a str,
    pixels: Node<'a, 'a>,
    page: Page<'b>,
}

fn children<'a>(of: Node<'a, 'a>, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    of.children().filter(move |node| node.tag_name().name() == name)
}

fn in_microns(unit: &str) -> Option<f64> {
    match unit {
        // Both Unicode characters for micro.
        "µm" | "μm" => Some(1.0),
        "nm" => Some(1e-3),
        "mm" => Some(1e3),
        "cm" => Some(1e4),
        "m" => Some(1e6),
        _ => None,
    }
}

/// Reads the pixels of the slide.
fn pixels(
    parts: &mut Parts,
    reader: &mut Reader<'_>,
    chain: &[Directory],
    slide: &Image<'_, '_>,
) -> Result<()> {
    let first = &slide.page;
    let wrong = |what: String| format!("OME-XML: {what}");
    let counts = match Counts::of(slide) {
        Ok(counts) => counts,
        Err(what) => return Err(reader.unsupported(wrong(what))),
    };
    let has_colours = planes::has_colours(first);
    let mut said = counts.said(slide.pixels);
    if counts.is_one() && (has_colours || planes::is_grey(first, &said)) {
        page::main_level(parts, reader, first)?;
        return page::below(parts, reader, first, Unmarked::Always);
    }
    if !has_colours && !is_as_described(slide) {
        let kind = slide.pixels.attribute("Type").unwrap_or_default();
        let what = format!("pixels of the type {kind:?}, unlike those of the file");
        return Err(reader.unsupported(wrong(what)));
    }
    let places = counts.places(slide.pixels, chain.len());
    let places = places.map_err(|what| reader.unsupported(wrong(what)))?;
    let mut whole: Vec<Vec<Page<'_>>> = Vec::new();
    let mut kept = Vec::new();
    let samples = counts.samples as usize;
    let mut here: BTreeSet<u64> = places.known.keys().map(|(channel, ..)| *channel).collect();
    if has_colours {
        // Colour images are not blended: the first one is shown.
        here.retain(|channel| *channel == 0);
    }
    for channel in &here {
        match planes_of(reader, chain, first, (*channel, &counts), &places)? {
            Ok(pages) => {
                let start = *channel as usize * samples;
                let numbers = start..start + samples;
                kept.extend(said.get_mut(numbers).into_iter().flatten().map(std::mem::take));
                whole.push(pages);
            }
            Err(why) => parts.not_shown(NOT_SHOWN, &format!("channel {channel}: {why}")),
        }
    }
    let more = counts.pages - here.len() as u64;
    if more > 0 {
        let files: Vec<&str> = places.elsewhere.iter().take(8).map(String::as_str).collect();
        let file = if files.is_empty() { "" } else { ", which may be in other files: " };
        parts.not_shown(NOT_SHOWN, &format!("{more} other channels{file}{}", files.join(", ")));
    }
    if whole.is_empty() {
        let why = parts.properties.remove(NOT_SHOWN).unwrap_or_default();
        return Err(reader.unsupported(wrong(why)));
    }
    let planes = (counts.depth as u32, counts.times as u32);
    let is_one = kept.len() == 1 && planes::is_grey(first, &kept);
    let has_colours = has_colours || is_one;
    let of = Described { said: kept, samples, has_colours, planes };
    let pages: Vec<Page<'_>> = whole.into_iter().flatten().collect();
    let directories = planes::directories(reader, &pages)?;
    let smaller = planes::below(reader, &pages, &directories)?;
    planes::fill(parts, reader, of, &pages, &smaller)
}

/// True if the samples of a page have the type and size given in OME-XML.
fn is_as_described(slide: &Image<'_, '_>) -> bool {
    let kind = slide.pixels.attribute("Type").and_then(planes::sample);
    let side = |name: &str| slide.pixels.attribute(name).and_then(|text| text.parse().ok());
    let size = side("SizeX").zip(side("SizeY"));
    kind.is_some_and(|(number, bits)| planes::is_of(&slide.page, number, bits))
        && size.is_none_or(|size: (u32, u32)| size == slide.page.size)
}

/// The pages of a channel if all are planes of the same image as `first`; otherwise the reason.
fn planes_of<'a>(
    reader: &mut Reader<'_>,
    chain: &'a [Directory],
    first: &Page<'_>,
    (channel, counts): (u64, &Counts),
    places: &Places,
) -> Result<std::result::Result<Vec<Page<'a>>, String>> {
    let each = counts.depth * counts.times;
    let range = (channel, 0, 0)..(channel + 1, 0, 0);
    let found: Vec<usize> = places.known.range(range).map(|(_, place)| *place).collect();
    if found.len() as u64 != each {
        return Ok(Err(format!("{} of its {each} planes are here", found.len())));
    }
    let mut pages = Vec::with_capacity(found.len());
    for place in found {
        if places.twice.contains(&place) {
            return Ok(Err(format!("the file maps directory {place} to several planes")));
        }
        let page = Page::read(reader, &chain[place])?;
        if let Some(why) = planes::unlike(reader, first, &page)? {
            return Ok(Err(format!("directory {place}: {why}")));
        }
        pages.push(page);
    }
    Ok(Ok(pages))
}

/// Numbers of planes of an image, from OME-XML.
struct Counts {
    /// Directories per plane. A directory has one channel for each sample of a pixel, or colours.
    pages: u64,
    samples: u64,
    depth: u64,
    times: u64,
    /// Channels, counting each sample.
    channels: u64,
}

/// The directories of an image's planes, by channel, depth and time.
struct Places {
    known: BTreeMap<(u64, u64, u64), usize>,
    /// Directories that the file maps to several planes.
    twice: BTreeSet<usize>,
    /// Names of files that contain further planes.
    elsewhere: BTreeSet<String>,
}

impl Counts {
    fn of(slide: &Image<'_, '_>) -> std::result::Result<Self, String> {
        let size = |name: &str| match slide.pixels.attribute(name) {
            Some(text) => text.parse().ok().filter(|size| (1..=u64::from(u32::MAX)).contains(size)),
            None => Some(1),
        };
        let sizes = [size("SizeC"), size("SizeZ"), size("SizeT")];
        let [Some(channels), Some(depth), Some(times)] = sizes else {
            return Err("SizeC, SizeZ or SizeT is no number of planes".into());
        };
        let samples = slide.page.common(277).first().copied().unwrap_or(1).max(1);
        // The count may omit an alpha sample.
        if planes::has_colours(&slide.page) && channels <= samples {
            return Ok(Self { pages: 1, samples: 1, depth, times, channels: 1 });
        }
        if channels < samples {
            return Ok(Self { pages: 1, samples: channels, depth, times, channels });
        }
        if channels % samples != 0 {
            return Err(format!("{channels} channels, but {samples} samples of a pixel"));
        }
        Ok(Self { pages: channels / samples, samples, depth, times, channels })
    }

    /// True if there is one plane of one channel, or of colours.
    fn is_one(&self) -> bool {
        (self.channels, self.depth, self.times) == (1, 1, 1)
    }

    /// The description of each channel, empty if the number of elements is wrong. If there are
    /// several channels and all are white, no colour was chosen: white is the default of the
    /// schema.
    fn said(&self, pixels: Node<'_, '_>) -> Vec<Said> {
        let mut said: Vec<Said> = children(pixels, "Channel").map(channel).collect();
        if said.len() > 1 && said.iter().all(|said| said.colour == Some([255; 3])) {
            said.iter_mut().for_each(|said| said.colour = None);
        }
        // A count beyond the limit is refused later.
        let count = self.channels.min(crate::channels::MOST + 1) as usize;
        match said.len() as u64 == self.channels {
            true => said,
            false => vec![Said::default(); count],
        }
    }

    /// Locates all planes, in a file of `count` directories.
    fn places(&self, pixels: Node<'_, '_>, count: usize) -> std::result::Result<Places, String> {
        let order = pixels.attribute("DimensionOrder").unwrap_or("XYCZT");
        let lengths = [('C', self.pages), ('Z', self.depth), ('T', self.times)];
        let axes: Option<Vec<(usize, u64)>> = order
            .strip_prefix("XY")
            .unwrap_or_default()
            .chars()
            .map(|axis| lengths.iter().position(|(name, _)| *name == axis))
            .map(|at| Some((at?, lengths[at?].1)))
            .collect();
        let is_each_once = |axes: &Vec<(usize, u64)>| {
            axes.len() == 3 && (0..3).all(|axis| axes.iter().any(|(known, _)| *known == axis))
        };
        let axes = axes.filter(is_each_once).ok_or_else(|| format!("the order {order:?}"))?;
        let own = pixels.document().root_element().attribute("UUID");
        let (known, twice, elsewhere) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut places = Places { known, twice, elsewhere };
        let mut used = BTreeSet::new();
        let mut blocks: Vec<Node<'_, '_>> = Vec::new();
        for block in children(pixels, "TiffData") {
            let file = children(block, "UUID").next();
            let is_own = |of: Node<'_, '_>| own.is_none() || of.text().map(str::trim) == own;
            match file.filter(|of| !is_own(*of)) {
                Some(of) => {
                    let name = of.attribute("FileName").unwrap_or("another file");
                    places.elsewhere.insert(name.to_owned());
                }
                None => blocks.push(block),
            }
        }
        let is_silent = blocks.is_empty() && places.elsewhere.is_empty();
        let blocks = blocks.into_iter().map(Some).chain(is_silent.then_some(None));
        for block in blocks {
            let said = |name: &str| match block.and_then(|block| block.attribute(name)) {
                Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name}={text:?}")),
                None => Ok(None),
            };
            let (ifd, planes) = (said("IFD")?, said("PlaneCount")?);
            let planes = planes.unwrap_or(if ifd.is_some() { 1 } else { count as u64 });
            let first = [said("FirstC")?, said("FirstZ")?, said("FirstT")?];
            let mut at = first.map(|place| place.unwrap_or(0));
            for place in (ifd.unwrap_or(0)..count as u64).take(planes.min(count as u64) as usize) {
                if (0..3).any(|axis| at[axis] >= lengths[axis].1) {
                    break;
                }
                let place = place as usize;
                let old = places.known.insert((at[0], at[1], at[2]), place);
                if !used.insert(place) || old.is_some() {
                    places.twice.insert(place);
                    places.twice.extend(old);
                }
                // The next plane in dimension order.
                let (mut carries, mut next) = (true, at);
                for (axis, length) in &axes {
                    if carries {
                        next[*axis] += 1;
                        carries = next[*axis] >= *length;
                        next[*axis] %= length;
                    }
                }
                at = if carries { [u64::MAX; 3] } else { next };
            }
        }
        Ok(places)
    }
}

/// The name and colour of a channel.
fn channel(of: Node<'_, '_>) -> Said {
    // Red, green, blue and opacity in one signed integer.
    let colour = of.attribute("Color").and_then(|text| text.parse::<i32>().ok());
    let colour = colour.map(|colour| {
        let [red, green, blue, _] = colour.to_be_bytes();
        [red, green, blue]
    });
    // A black channel would be invisible.
    let colour = colour.filter(|colour| *colour != [0; 3]);
    let name = of.attribute("Name").or_else(|| of.attribute("Fluor"));
    Said { name: name.map(str::to_owned), colour, ..Said::default() }
}
