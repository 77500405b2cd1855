//! OME-TIFF: the description of the first image is OME-XML, and smaller levels are below their
//! image.

use super::directory::{Directory, Reader};
use super::page::{self, NOT_SHOWN, Page, Unmarked};
use super::planes::{self, Described};
use crate::Result;
use crate::channels::ChannelMetadata;
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
        let companion = last_part(only.attribute("MetadataFile").unwrap_or_default());
        let what = "OME-TIFF whose description is in another file";
        return Err(reader.unsupported(format!("{what}: {companion:?}")));
    }
    let blocks = OwnBlocks::of(&xml, reader.source.name());
    let mut images: Vec<Image<'_, '_>> = Vec::new();
    let described = xml.descendants().filter(|node| node.tag_name().name() == "Image");
    for (number, image) in described.enumerate() {
        let Some(pixels) = children(image, "Pixels").next() else { continue };
        let data = children(pixels, "TiffData").find(|block| blocks.has(*block));
        if data.is_none() && children(pixels, "TiffData").next().is_some() {
            parts.not_shown(NOT_SHOWN, &format!("image {number}: in another file"));
            continue;
        }
        let at = data.and_then(|data| data.attribute("IFD")).map_or(Ok(0), str::parse);
        let directory = at.ok().and_then(|at: usize| chain.get(at));
        let Some(directory) = directory else {
            return Err(
                reader.malformed(chain[0].at, "OME-XML names a directory that does not exist")
            );
        };
        let name = image.attribute("Name").unwrap_or_default();
        let image = Image { number, name, pixels, page: Page::read(reader, directory)? };
        if let Some(why) = image.why_not_here(&images) {
            parts.not_shown(NOT_SHOWN, &format!("image {number}: {why}"));
            continue;
        }
        images.push(image);
    }
    // Of several images, those without the name of a label or the like come first, then the
    // largest.
    let key = |image: &&Image<'_, '_>| {
        (page::word(image.name).is_none(), image.page.pixels(), Reverse(image.number))
    };
    let slide = images.iter().max_by_key(key);
    // If the slide is not here, its label does not take its place.
    if let Some(why) = parts.properties.get(NOT_SHOWN)
        && slide.is_none_or(|slide| page::word(slide.name).is_some())
    {
        return Err(reader.unsupported(format!("OME-XML without the slide: {why}")));
    }
    let Some(slide) = slide else { return Ok(()) };
    parts.properties.insert("ome.Name".into(), slide.name.into());
    let side = |side| {
        let number: f64 = slide.pixels.attribute(side)?.parse().ok()?;
        let unit = slide.pixels.attribute(format!("{side}Unit").as_str()).unwrap_or("µm");
        Some(number * in_microns(unit)?)
    };
    parts.microns =
        side("PhysicalSizeX").zip(side("PhysicalSizeY")).and_then(|(x, y)| microns(x, y));
    pixels(parts, reader, chain, slide, &blocks)?;
    for image in images.iter().filter(|image| image.number != slide.number) {
        let name = page::word(image.name).and_then(|(_, name)| name);
        page::aside(parts, reader, &image.page, name, &format!("image {}", image.number))?;
    }
    Ok(())
}

/// An image described in OME-XML, and its first page in this file.
struct Image<'a, 'b> {
    number: usize,
    name: &'a str,
    pixels: Node<'a, 'a>,
    page: Page<'b>,
}

impl Image<'_, '_> {
    /// Why its page cannot be its own, after those of other images; `None` if it can.
    fn why_not_here(&self, others: &[Self]) -> Option<String> {
        let is_same = |other: &&Self| std::ptr::eq(other.page.directory, self.page.directory);
        if let Some(other) = others.iter().find(is_same) {
            return Some(format!("of the same directory as image {}", other.number));
        }
        let side = |name: &str| self.pixels.attribute(name)?.parse::<u32>().ok();
        let described = (side("SizeX")?, side("SizeY")?);
        let size = self.page.size;
        (described != size).then(|| {
            let (wide, high) = described;
            format!("{wide} x {high} pixels, but its directory has {} x {}", size.0, size.1)
        })
    }
}

/// Decides which blocks of TiffData are of this file: each file of a set has the OME-XML of all.
struct OwnBlocks<'a> {
    /// The identifier of this file.
    uuid: Option<&'a str>,
    /// The name of this file, if it has no identifier and there are others.
    name: Option<&'a str>,
}

impl<'a> OwnBlocks<'a> {
    fn of(xml: &'a Document<'a>, name: &'a str) -> Self {
        let uuid = xml.root_element().attribute("UUID");
        let files = xml.descendants().filter(|node| node.tag_name().name() == "UUID");
        let files: BTreeSet<Option<&str>> = files.map(|file| file.text().map(str::trim)).collect();
        let is_set = uuid.is_none() && files.len() > 1;
        Self { uuid, name: is_set.then(|| last_part(name)) }
    }

    fn has(&self, block: Node<'_, '_>) -> bool {
        let Some(file) = children(block, "UUID").next() else { return true };
        match (self.uuid, self.name) {
            (Some(own), _) => file.text().map(str::trim) == Some(own),
            (None, Some(name)) => file.attribute("FileName").map(last_part) == Some(name),
            (None, None) => true,
        }
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
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
    own: &OwnBlocks<'_>,
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
    let directories = counts.plane_directories(slide.pixels, chain.len(), own);
    let directories = directories.map_err(|what| reader.unsupported(wrong(what)))?;
    let mut whole: Vec<Vec<Page<'_>>> = Vec::new();
    let mut kept = Vec::new();
    let samples = counts.samples as usize;
    let mut here: BTreeSet<u64> =
        directories.by_plane.keys().map(|(channel, ..)| *channel).collect();
    if has_colours {
        // Colour images are not blended: the first one is shown.
        here.retain(|channel| *channel == 0);
    }
    for channel in &here {
        match planes_of(reader, chain, first, *channel, &counts, &directories)? {
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
        // The names of the files may name a patient.
        let file = if directories.has_others { ", which may be in other files" } else { "" };
        parts.not_shown(NOT_SHOWN, &format!("{more} other channels{file}"));
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

/// True if the samples of a page have the type given in OME-XML.
fn is_as_described(slide: &Image<'_, '_>) -> bool {
    let kind = slide.pixels.attribute("Type").and_then(planes::sample);
    kind.is_some_and(|(number, bits)| planes::is_of(&slide.page, number, bits))
}

/// The pages of a channel if all are planes of the same image as `first`; otherwise the reason.
fn planes_of<'a>(
    reader: &mut Reader<'_>,
    chain: &'a [Directory],
    first: &Page<'_>,
    channel: u64,
    counts: &Counts,
    directories: &PlaneDirectories,
) -> Result<std::result::Result<Vec<Page<'a>>, String>> {
    let each = counts.depth * counts.times;
    let range = (channel, 0, 0)..(channel + 1, 0, 0);
    let numbers: Vec<usize> =
        directories.by_plane.range(range).map(|(_, number)| *number).collect();
    if numbers.len() as u64 != each {
        return Ok(Err(format!("{} of its {each} planes are here", numbers.len())));
    }
    let mut pages = Vec::with_capacity(numbers.len());
    for number in numbers {
        if directories.twice.contains(&number) {
            return Ok(Err(format!("the file maps directory {number} to several planes")));
        }
        let page = Page::read(reader, &chain[number])?;
        if let Some(why) = planes::unlike(reader, first, &page)? {
            return Ok(Err(format!("directory {number}: {why}")));
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
struct PlaneDirectories {
    by_plane: BTreeMap<(u64, u64, u64), usize>,
    /// Directories that the file maps to several planes.
    twice: BTreeSet<usize>,
    /// True if other files contain further planes.
    has_others: bool,
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
    fn said(&self, pixels: Node<'_, '_>) -> Vec<ChannelMetadata> {
        let mut said: Vec<ChannelMetadata> = children(pixels, "Channel").map(channel).collect();
        if said.len() > 1 && said.iter().all(|said| said.colour == Some([255; 3])) {
            said.iter_mut().for_each(|said| said.colour = None);
        }
        // A count beyond the limit is refused later.
        let count = self.channels.min(crate::channels::MOST + 1) as usize;
        match said.len() as u64 == self.channels {
            true => said,
            false => vec![ChannelMetadata::default(); count],
        }
    }

    /// Locates all planes, in a file of `count` directories.
    fn plane_directories(
        &self,
        pixels: Node<'_, '_>,
        count: usize,
        own: &OwnBlocks<'_>,
    ) -> std::result::Result<PlaneDirectories, String> {
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
            axes.len() == 3 && (0..3).all(|axis| axes.iter().any(|(other, _)| *other == axis))
        };
        let axes = axes.filter(is_each_once).ok_or_else(|| format!("the order {order:?}"))?;
        let (by_plane, twice) = (BTreeMap::new(), BTreeSet::new());
        let mut directories = PlaneDirectories { by_plane, twice, has_others: false };
        let mut used = BTreeSet::new();
        let mut blocks: Vec<Node<'_, '_>> = Vec::new();
        for block in children(pixels, "TiffData") {
            match own.has(block) {
                true => blocks.push(block),
                false => directories.has_others = true,
            }
        }
        let is_silent = blocks.is_empty() && !directories.has_others;
        let blocks = blocks.into_iter().map(Some).chain(is_silent.then_some(None));
        for block in blocks {
            let said = |name: &str| match block.and_then(|block| block.attribute(name)) {
                Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name}={text:?}")),
                None => Ok(None),
            };
            let (ifd, planes) = (said("IFD")?, said("PlaneCount")?);
            let planes = planes.unwrap_or(if ifd.is_some() { 1 } else { count as u64 });
            let first = [said("FirstC")?, said("FirstZ")?, said("FirstT")?];
            let mut at = first.map(|index| index.unwrap_or(0));
            for number in (ifd.unwrap_or(0)..count as u64).take(planes.min(count as u64) as usize) {
                if (0..3).any(|axis| at[axis] >= lengths[axis].1) {
                    break;
                }
                let number = number as usize;
                let old = directories.by_plane.insert((at[0], at[1], at[2]), number);
                if !used.insert(number) || old.is_some() {
                    directories.twice.insert(number);
                    directories.twice.extend(old);
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
        Ok(directories)
    }
}

/// The name and colour of a channel.
fn channel(of: Node<'_, '_>) -> ChannelMetadata {
    // Red, green, blue and opacity in one signed integer.
    let colour = of.attribute("Color").and_then(|text| text.parse::<i32>().ok());
    let colour = colour.map(|colour| {
        let [red, green, blue, _] = colour.to_be_bytes();
        [red, green, blue]
    });
    // A black channel would be invisible.
    let colour = colour.filter(|colour| *colour != [0; 3]);
    let name = of.attribute("Name").or_else(|| of.attribute("Fluor"));
    ChannelMetadata { name: name.map(str::to_owned), colour, ..ChannelMetadata::default() }
}
