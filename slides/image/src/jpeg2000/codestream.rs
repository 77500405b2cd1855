//! The headers of a JPEG 2000 codestream (ISO/IEC 15444-1, annex A), checked before the decoder
//! sees them: it allocates whatever they claim, and treats a missing tile as one without signal.
//!
//! The decoder computes the length of a marker segment itself, so each segment must have exactly
//! the length of its kind. Segments that slides do not need are refused.

use std::borrow::Cow;

const SOC: [u8; 2] = [0xff, 0x4f];
const SOD: [u8; 2] = [0xff, 0x93];
const EOC: [u8; 2] = [0xff, 0xd9];
const SOT: u8 = 0x90;
const SIZ: u8 = 0x51;
const CAP: u8 = 0x50;
const COD: u8 = 0x52;
const COC: u8 = 0x53;
const QCD: u8 = 0x5c;
const QCC: u8 = 0x5d;
const TLM: u8 = 0x55;
const PLT: u8 = 0x58;
const CRG: u8 = 0x63;
const COM: u8 = 0x64;
/// The first box of a file of JPEG 2000.
const JP2: [u8; 8] = *b"\0\0\0\x0cjP  ";

/// Maximum tiles within a codestream; each is scanned on its own.
const TILES: u64 = 16;
/// Maximum nodes of tag trees that the decoder may visit: a fraction of a second.
const NODES: u64 = 1 << 26;
/// Maximum bit-planes of a coefficient. Samples of 16 bits need fewer.
const PLANES: u8 = 26;
/// Maximum decomposition levels.
const LEVELS: u8 = 32;
/// Maximum passes of a code-block that the decoder reads.
const PASSES: u64 = 94;

/// A codestream that is complete according to its headers.
pub(super) struct Codestream<'a> {
    pub(super) components: Vec<Component>,
    /// True if the decoder converts the first three components to red, green and blue.
    pub(super) has_transform: bool,
    /// Input for the decoder: every part states its length, and the end marker is present.
    pub(super) bytes: Cow<'a, [u8]>,
    size: (u32, u32),
    tile: (u32, u32),
    tiles: u64,
    layers: u16,
    /// The tile of each part, and where the part begins and ends.
    parts: Vec<(u16, usize, usize)>,
    /// Bytes of packets, for each tile.
    bodies: Vec<u64>,
    /// An empty packet.
    packet: &'static [u8],
}

pub(super) struct Component {
    /// Pixels per sample, across and down.
    pub(super) step: (u8, u8),
    /// Bits of a sample.
    pub(super) precision: u8,
    coding: Coding,
}

/// How a component is divided into code-blocks.
#[derive(Clone, PartialEq)]
struct Coding {
    levels: u8,
    /// Exponents of the sides of a code-block.
    block: (u8, u8),
    /// Style of the coding passes.
    passes: u8,
    wavelet: u8,
    /// Exponents of the sides of a precinct, for each resolution.
    precincts: Vec<(u8, u8)>,
}

impl<'a> Codestream<'a> {
    /// Reads the headers of an image of the expected size.
    pub(super) fn read(bytes: &'a [u8], expected: (u32, u32)) -> Result<Self, String> {
        if bytes.starts_with(&JP2) {
            return Err("it is a file of JPEG 2000 (JP2), not a codestream".into());
        }
        if !bytes.starts_with(&SOC) {
            return Err("it does not begin as JPEG 2000".into());
        }
        let (marker, body, mut at) = segment(bytes, SOC.len()).ok_or("its header is cut")?;
        if marker != SIZ {
            return Err("its header does not begin with its size".into());
        }
        let wrong = |what: &str| format!("its {what} is broken");
        let Size { size, tile, components } = Size::read(body)?;
        if size != expected {
            let (width, height) = expected;
            return Err(format!("it is {} x {}, the tile {width} x {height}", size.0, size.1));
        }
        let mut default = None;
        let mut own: Vec<Option<Coding>> = vec![None; components.len()];
        loop {
            let (marker, body, next) = segment(bytes, at).ok_or("its header is cut")?;
            match marker {
                SOT => break,
                COD => default = Some(Default::read(body).ok_or_else(|| wrong("COD"))?),
                COC => {
                    let (component, coding) = coc(body).ok_or_else(|| wrong("COC"))?;
                    *own.get_mut(component).ok_or_else(|| wrong("COC"))? = Some(coding);
                }
                QCD if is_quantization(body) => {}
                QCC if body.get(1..).is_some_and(is_quantization) => {}
                TLM | CRG | COM => {}
                CAP => return Err("it is High-Throughput JPEG 2000".into()),
                other => {
                    return Err(format!("its header has an unsupported marker: ff{other:02x}"));
                }
            }
            at = next;
        }
        let Default { layers, has_transform, packet, coding } =
            default.ok_or("its header has no COD")?;
        let tiles = u64::from(size.0.div_ceil(tile.0)) * u64::from(size.1.div_ceil(tile.1));
        if tiles > TILES {
            return Err(format!("it is in {tiles} tiles, of {TILES} at most"));
        }
        let components = components.into_iter().zip(own).map(|((step, precision), own)| {
            Component { step, precision, coding: own.unwrap_or_else(|| coding.clone()) }
        });
        let components: Vec<Component> = components.collect();
        // Some encoders repeat the parameters in each tile. Quantisation steps may differ there.
        let is_known = |marker: u8, body: &[u8]| match marker {
            PLT | COM => true,
            QCD => is_quantization(body),
            QCC => body.get(1..).is_some_and(is_quantization),
            COD => Default::read(body).is_some_and(|own| {
                let is_same = |component: &Component| component.coding == own.coding;
                (own.layers, own.has_transform) == (layers, has_transform)
                    && components.iter().all(is_same)
            }),
            COC => coc(body).is_some_and(|(component, own)| {
                components.get(component).is_some_and(|component| component.coding == own)
            }),
            _ => false,
        };
        let Whole { bytes, parts, bodies } = whole(bytes, at, tiles as usize, is_known)?;
        Ok(Self {
            components,
            has_transform,
            bytes,
            size,
            tile,
            tiles,
            layers,
            parts,
            bodies,
            packet,
        })
    }

    /// Checks that the codestream does not have too many pieces to decode in a short time, and that
    /// each tile is long enough for all its packets.
    pub(super) fn check_pieces(&self) -> Result<(), String> {
        let (nodes, blocks) = self.work();
        let (width, height) = (u64::from(self.size.0), u64::from(self.size.1));
        let samples = width * height * self.components.len() as u64;
        if nodes > NODES || blocks > samples / 8 + (1 << 18) {
            return Err(format!("it is in too many pieces: {blocks} code-blocks"));
        }
        // A packet has at least one byte.
        if (0..).zip(&self.bodies).any(|(tile, body)| *body < self.packets(tile)) {
            return Err("some of its packets are missing".into());
        }
        Ok(())
    }

    /// Number of packets of a tile.
    fn packets(&self, tile: u32) -> u64 {
        let across = self.size.0.div_ceil(self.tile.0);
        let (left, top) = (tile % across * self.tile.0, tile / across * self.tile.1);
        let right = left.saturating_add(self.tile.0).min(self.size.0);
        let bottom = top.saturating_add(self.tile.1).min(self.size.1);
        let of = |component: &Component| -> u64 {
            let Coding { levels, precincts, .. } = &component.coding;
            let of = |(resolution, precinct): (u8, &(u8, u8))| {
                let along = |from: u32, to: u32, step: u8, precinct: u8| {
                    let at = |coordinate: u32| {
                        u64::from(coordinate.div_ceil(step.into()))
                            .div_ceil(1 << (levels - resolution))
                    };
                    let (from, to) = (at(from), at(to));
                    if from < to { to.div_ceil(1 << precinct) - (from >> precinct) } else { 0 }
                };
                let (across, down) = component.step;
                along(left, right, across, precinct.0) * along(top, bottom, down, precinct.1)
            };
            (0..).zip(precincts).map(of).sum()
        };
        self.components.iter().map(of).sum::<u64>() * u64::from(self.layers)
    }

    /// Upper bounds of the tag tree nodes that the decoder visits, and of the code-blocks. It
    /// visits all four children of each node, even those without code-blocks.
    fn work(&self) -> (u64, u64) {
        let of = |component: &Component| component.coding.count(self.tile, component.step);
        let all = self.components.iter().map(of).fold((0_u64, 0_u64), |sum, of| {
            (sum.0.saturating_add(of.nodes), sum.1.saturating_add(of.blocks))
        });
        (all.0.saturating_mul(self.tiles), all.1.saturating_mul(self.tiles))
    }

    /// For each tile, the codestream with one extra packet in that tile and none in the others. The
    /// decoder refuses it unless packets are missing: then it takes the extra packet for the next
    /// one.
    pub(super) fn with_another_packet(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        (0..self.tiles as u16).map(|tile| {
            let begin = self.parts.iter().map(|part| part.1).min().unwrap_or(0);
            let mut bytes = self.bytes[..begin].to_vec();
            let last = self.parts.iter().rposition(|part| part.0 == tile);
            for (number, &(of, begin, end)) in self.parts.iter().enumerate() {
                if of == tile {
                    let at = bytes.len();
                    bytes.extend(&self.bytes[begin..end]);
                    if Some(number) == last {
                        bytes.extend(self.packet);
                        let length = (bytes.len() - at) as u32;
                        bytes[at + 6..at + 10].copy_from_slice(&length.to_be_bytes());
                    }
                }
            }
            for other in (0..self.tiles as u16).filter(|other| *other != tile) {
                let [high, low] = other.to_be_bytes();
                bytes.extend([0xff, SOT, 0, 10, high, low, 0, 0, 0, 14, 0, 1]);
                bytes.extend(SOD);
            }
            bytes.extend(EOC);
            bytes
        })
    }

    /// Maximum bytes that the decoder may take for tiles, precincts, code-blocks and their parts:
    /// all memory that is not proportional to the pixels. Sizes are those of its types, tripled
    /// because vectors grow by doubling.
    pub(super) fn structures(&self) -> u64 {
        const TILE: u64 = 2048;
        const PRECINCT: u64 = 3 * 128;
        const BLOCK: u64 = 3 * 320;
        const LAYER: u64 = 3 * 24;
        const PART: u64 = 3 * 32;
        let layers = u64::from(self.layers);
        let mut sum = self.tiles * self.components.len() as u64 * TILE;
        let (mut blocks, mut parts) = (0_u64, 0_u64);
        for component in &self.components {
            let Count { precincts, blocks: more, .. } =
                component.coding.count(self.tile, component.step);
            sum = sum.saturating_add(precincts.saturating_mul(PRECINCT));
            blocks = blocks.saturating_add(more);
            // Terminated at each pass, or for some without arithmetic coding.
            let is_split = component.coding.passes & 0b101 != 0;
            let each = if is_split { PASSES + layers } else { layers };
            parts = parts.saturating_add(more.saturating_mul(each));
        }
        // The length of each part takes at least three bits.
        let parts = parts.min(3 * self.bytes.len() as u64);
        let blocks = blocks.saturating_mul(BLOCK + layers * LAYER);
        sum.saturating_add(blocks).saturating_add(parts.saturating_mul(PART))
    }
}

/// The sizes of the marker segment SIZ.
struct Size {
    size: (u32, u32),
    tile: (u32, u32),
    /// Step and precision of each component.
    components: Vec<((u8, u8), u8)>,
}

impl Size {
    fn read(body: &[u8]) -> Result<Self, String> {
        let words: Vec<u32> = (2..34).step_by(4).filter_map(|at| word(body, at)).collect();
        let (&[width, height, left, top, wide, high, from, above], Some(count)) =
            (&words[..], half(body, 34))
        else {
            return Err("its SIZ is broken".into());
        };
        let rest = body.get(36..).unwrap_or_default();
        if !matches!(count, 1 | 3) {
            return Err(format!("it has {count} components"));
        }
        if rest.len() != 3 * usize::from(count)
            || width == 0
            || height == 0
            || wide == 0
            || high == 0
        {
            return Err("its SIZ is broken".into());
        }
        if [left, top, from, above] != [0; 4] {
            return Err("it does not begin at the left upper corner of its grid".into());
        }
        let components = rest.chunks_exact(3).map(|of| match of[0] {
            bits @ 0..0x80 if of[1] > 0 && of[2] > 0 => Ok(((of[1], of[2]), bits + 1)),
            0x80.. => Err("its samples have a sign"),
            _ => Err("its SIZ is broken"),
        });
        let components = components.collect::<Result<_, _>>()?;
        Ok(Self { size: (width, height), tile: (wide.min(width), high.min(height)), components })
    }
}

/// The default coding style, of the marker segment COD.
struct Default {
    layers: u16,
    has_transform: bool,
    packet: &'static [u8],
    coding: Coding,
}

impl Default {
    fn read(body: &[u8]) -> Option<Self> {
        let (&[style, _, high, low, transform], rest) = body.split_first_chunk()?;
        let layers = u16::from_be_bytes([high, low]);
        let coding = Coding::read(style, rest)?;
        // With the marker EPH after its header, or without.
        let packet: &[u8] = if style & 4 == 0 { &[0] } else { &[0, 0xff, 0x92] };
        (transform < 2).then_some(Self { layers, has_transform: transform == 1, packet, coding })
    }
}

/// The component of a marker segment COC, and its coding style.
fn coc(body: &[u8]) -> Option<(usize, Coding)> {
    let (&[component, style], rest) = body.split_first_chunk()?;
    (style < 2).then_some((component.into(), Coding::read(style, rest)?))
}

impl Coding {
    fn read(style: u8, body: &[u8]) -> Option<Self> {
        let (&[levels, across, down, passes, wavelet], precincts) = body.split_first_chunk()?;
        let count = if style & 1 == 1 { usize::from(levels) + 1 } else { 0 };
        let is_known = style < 8 && passes < 0x40;
        let is_allowed = levels <= LEVELS && across <= 8 && down <= 8;
        if !is_known || !is_allowed || precincts.len() != count {
            return None;
        }
        let precincts = match count {
            0 => vec![(15, 15); usize::from(levels) + 1],
            _ => precincts.iter().map(|sides| (sides & 15, sides >> 4)).collect(),
        };
        Some(Self { levels, block: (across + 2, down + 2), passes, wavelet, precincts })
    }

    /// Upper bounds for a tile, over all sub-bands.
    fn count(&self, tile: (u32, u32), step: (u8, u8)) -> Count {
        let (mut precincts, mut blocks, mut nodes) = (0_u64, 0_u64, 0_u64);
        for (resolution, precinct) in (0_u8..).zip(&self.precincts) {
            let along = |side: u32, step: u8, precinct: u8, block: u8| {
                let side = u64::from(side.div_ceil(step.into()));
                let side = side.div_ceil(1 << (self.levels - resolution)) + 1;
                let precincts = (side >> precinct) + 2;
                // A sub-band has half the size, and so have its precincts.
                let half = u8::from(resolution > 0);
                let precinct = precinct.saturating_sub(half);
                let block = block.min(precinct);
                let blocks = ((side >> half) >> block) + 2;
                (precincts, blocks, blocks.min(1 << (precinct - block)))
            };
            let across = along(tile.0, step.0, precinct.0, self.block.0);
            let down = along(tile.1, step.1, precinct.1, self.block.1);
            let bands = if resolution == 0 { 1 } else { 3 };
            let of = |one: u64, other: u64| bands * one.saturating_mul(other).min(u64::MAX / 4);
            precincts = precincts.saturating_add(of(across.0, down.0));
            blocks = blocks.saturating_add(of(across.1, down.1));
            // Two trees, each with a third more nodes than leaves.
            let side = across.2.max(down.2).next_power_of_two();
            let tree = 3 * side.saturating_mul(side);
            nodes = nodes.saturating_add(of(across.0, down.0).saturating_mul(tree));
        }
        Count { precincts, blocks, nodes }
    }
}

struct Count {
    precincts: u64,
    blocks: u64,
    /// Nodes of the tag trees of all precincts.
    nodes: u64,
}

/// True if this is the body of a marker segment QCD of valid length: exponents, one step, or
/// several.
fn is_quantization(body: &[u8]) -> bool {
    let bands = 3 * usize::from(LEVELS) + 1;
    let Some((style, steps)) = body.split_first() else { return false };
    let (is_known, size) = match style & 0x1f {
        0 => ((1..=bands).contains(&steps.len()), 1),
        1 => (steps.len() == 2, 2),
        2 => (steps.len() % 2 == 0 && (1..=bands).contains(&(steps.len() / 2)), 2),
        _ => (false, 1),
    };
    // The exponent is in the upper five bits.
    let is_usual = |step: &[u8]| (step[0] >> 3) + (style >> 5) <= PLANES + 1;
    is_known && steps.chunks(size).all(is_usual)
}

/// A codestream whose parts are all present.
struct Whole<'a> {
    bytes: Cow<'a, [u8]>,
    parts: Vec<(u16, usize, usize)>,
    /// Bytes of packets, for each tile.
    bodies: Vec<u64>,
}

/// Checks that the parts of all tiles are present, beginning with the first at `at`, and that their
/// marker segments are known.
fn whole(
    bytes: &[u8],
    mut at: usize,
    tiles: usize,
    is_known: impl Fn(u8, &[u8]) -> bool,
) -> Result<Whole<'_>, String> {
    let cut = "it is cut";
    // For each tile, the parts found, and the number declared, or 0.
    let mut counts = vec![(0_u16, 0_u8); tiles];
    let (mut parts, mut bodies) = (Vec::new(), vec![0; tiles]);
    let mut open = None;
    let end = loop {
        let (_, body, mut next) = segment(bytes, at).ok_or(cut)?;
        let (Some(tile), Some(length), &[_, _, _, _, _, _, part, of]) =
            (half(body, 0), word(body, 2), body)
        else {
            return Err("a part of it has a broken header".into());
        };
        let count = counts.get_mut(usize::from(tile)).ok_or("a part belongs to no tile")?;
        if count.0 != u16::from(part) {
            return Err("the parts of a tile are not in order".into());
        }
        *count = (count.0 + 1, count.1.max(of));
        let mut is_own = false;
        // The decoder applies each of these to the whole tile, and the last one of a kind to all
        // components.
        let mut is_allowed = |marker: u8| match marker {
            PLT | COM => true,
            QCC | COC => {
                is_own = true;
                part == 0
            }
            _ => part == 0 && !is_own,
        };
        while bytes.get(next..next + 2) != Some(&SOD) {
            let (marker, body, after) = segment(bytes, next).ok_or(cut)?;
            if !is_allowed(marker) || !is_known(marker, body) {
                return Err(format!("a tile of it has an unsupported marker: ff{marker:02x}"));
            }
            next = after;
        }
        let end = match length {
            // Up to the end marker, which a padding byte may follow to make the length even.
            0 => {
                open = Some(at);
                let stream = bytes.strip_suffix(&[0]).unwrap_or(bytes);
                stream.strip_suffix(&EOC).ok_or(cut)?.len()
            }
            _ => at.saturating_add(length as usize),
        };
        if end < next + 2 || end > bytes.len() {
            return Err(cut.into());
        }
        parts.push((tile, at, end));
        bodies[usize::from(tile)] += (end - next - 2) as u64;
        at = end;
        let rest = &bytes[at..];
        // If only the end marker is missing, nothing is lost, unless the last bytes could be taken
        // for it.
        let is_open = matches!(rest, [] | [0]) && !bytes[next..at].ends_with(&EOC);
        if rest.starts_with(&EOC) || is_open {
            break at;
        }
        if length == 0 || !rest.starts_with(&[0xff, SOT]) {
            return Err("a part of it has the wrong length".into());
        }
    };
    let has_end = open.is_some() || bytes[end..].starts_with(&EOC);
    // Some encoders declare one part too few. The declared number matters only if the stream may be
    // truncated.
    let is_whole = |(parts, of): &(u16, u8)| match (*parts, u16::from(*of)) {
        (0, _) => false,
        (parts, 0) => has_end || parts == 1,
        (parts, of) => parts == of || (has_end && parts > of),
    };
    if !counts.iter().all(is_whole) {
        return Err("some of its tiles are missing".into());
    }
    if open.is_none() && has_end {
        return Ok(Whole { bytes: bytes.into(), parts, bodies });
    }
    let mut bytes = bytes[..end].to_vec();
    if let Some(at) = open {
        let length = u32::try_from(end - at).map_err(|_| "it is too long")?;
        bytes[at + 6..at + 10].copy_from_slice(&length.to_be_bytes());
    }
    bytes.extend(EOC);
    Ok(Whole { bytes: bytes.into(), parts, bodies })
}

/// The marker segment at that offset: its marker, its body, and where the next one begins.
fn segment(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let &[0xff, marker] = bytes.get(at..at + 2)? else { return None };
    let next = at + 2 + usize::from(half(bytes, at + 2)?);
    Some((marker, bytes.get(at + 4..next)?, next))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
