//! Small files of all formats, generated for tests of malformed input and for fuzzing.
#![allow(dead_code, reason = "each program uses a part")]

use std::collections::BTreeMap;

pub(crate) const SHORT: u16 = 3;
pub(crate) const LONG: u16 = 4;

/// An entry of a TIFF directory: tag, type, count, value.
pub(crate) type Entry = (u16, u16, u32, u32);

/// A little-endian TIFF with one directory at byte 8, followed by `rest`.
fn directory(entries: &[Entry], next: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    bytes.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes.extend_from_slice(&next.to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// One grey tile of 64 x 64, whose bytes end the file, with changed entries.
pub(crate) fn tiff(changes: &[Entry], next: u32, tile: &[u8]) -> Vec<u8> {
    let mut entries = vec![
        (256, LONG, 1, 64),
        (257, LONG, 1, 64),
        (258, SHORT, 1, 8),
        (259, SHORT, 1, 1),
        (262, SHORT, 1, 1),
        (322, LONG, 1, 64),
        (323, LONG, 1, 64),
        (324, LONG, 1, 0),
        (325, LONG, 1, tile.len() as u32),
    ];
    let extra = changes.iter().filter(|change| entries.iter().all(|entry| entry.0 != change.0));
    let at = 8 + 2 + 12 * (entries.len() + extra.count()) + 4;
    entries[7].3 = at as u32;
    for change in changes {
        match entries.iter_mut().find(|entry| entry.0 == change.0) {
            Some(entry) => *entry = *change,
            None => entries.push(*change),
        }
    }
    directory(&entries, next, tile)
}

pub(crate) const NATIVE: &str = "1.2.840.10008.1.2.1";
pub(crate) const JPEG: &str = "1.2.840.10008.1.2.4.50";
pub(crate) const JPEG_2000: &str = "1.2.840.10008.1.2.4.91";
pub(crate) const RLE: &str = "1.2.840.10008.1.2.5";

/// A DICOM dataset, by tag.
#[derive(Clone)]
pub(crate) struct Dataset(BTreeMap<u32, Vec<u8>>);

/// An element in explicit VR little endian.
pub(crate) fn element(tag: u32, vr: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = head(tag, vr, value.len() as u32 + value.len() as u32 % 2);
    bytes.extend_from_slice(value);
    if value.len() % 2 == 1 {
        bytes.push(if vr == "UI" { 0 } else { b' ' });
    }
    bytes
}

/// The head of an element of this length.
pub(crate) fn head(tag: u32, vr: &str, length: u32) -> Vec<u8> {
    let mut bytes = ((tag >> 16) as u16).to_le_bytes().to_vec();
    bytes.extend((tag as u16).to_le_bytes());
    bytes.extend(vr.as_bytes());
    if vr.is_empty() {
        bytes.extend(length.to_le_bytes());
    } else if ["OB", "OW", "OV", "SQ", "UC", "UN", "UT"].contains(&vr) {
        bytes.extend([0, 0]);
        bytes.extend(length.to_le_bytes());
    } else {
        bytes.extend((length as u16).to_le_bytes());
    }
    bytes
}

/// A sequence of items, with lengths or, if `defined` is false, delimiters.
pub(crate) fn sequence(tag: u32, items: &[Vec<u8>], defined: bool) -> Vec<u8> {
    let mut value = Vec::new();
    for item in items {
        value.extend(head(0xfffe_e000, "", if defined { item.len() as u32 } else { u32::MAX }));
        value.extend(item);
        if !defined {
            value.extend(head(0xfffe_e00d, "", 0));
        }
    }
    if defined {
        return element(tag, "SQ", &value);
    }
    let mut bytes = head(tag, "SQ", u32::MAX);
    bytes.extend(value);
    bytes.extend(head(0xfffe_e0dd, "", 0));
    bytes
}

impl Dataset {
    /// A level of 100 x 64 grey pixels in two frames of 64 x 64.
    pub(crate) fn slide() -> Self {
        let mut new = Self(BTreeMap::new());
        new.set(0x0008_0008, "CS", b"ORIGINAL\\PRIMARY\\VOLUME\\NONE");
        new.set(0x0008_0016, "UI", b"1.2.840.10008.5.1.4.1.1.77.1.6");
        new.set(0x0008_0018, "UI", b"1.2.3");
        new.set(0x0020_000d, "UI", b"1.2.1");
        new.set(0x0020_000e, "UI", b"1.2.2");
        new.set(0x0020_9311, "CS", b"TILED_FULL");
        new.short(0x0028_0002, 1);
        new.set(0x0028_0004, "CS", b"MONOCHROME2");
        new.set(0x0028_0008, "IS", b"2");
        new.short(0x0028_0010, 64);
        new.short(0x0028_0011, 64);
        new.short(0x0028_0100, 8);
        new.short(0x0028_0101, 8);
        new.short(0x0028_0103, 0);
        new.long(0x0048_0006, 100);
        new.long(0x0048_0007, 64);
        let profile = element(0x0028_2000, "OB", b"profile!");
        new.insert(0x0048_0105, sequence(0x0048_0105, &[profile], true));
        new
    }

    /// The same in two frames that state their positions, in another order.
    pub(crate) fn sparse(defined: bool) -> Self {
        let mut new = Self::slide();
        new.set(0x0020_9311, "CS", b"TILED_SPARSE");
        let item = |column: i32| {
            let mut position = element(0x0048_021e, "SL", &column.to_le_bytes());
            position.extend(element(0x0048_021f, "SL", &1_i32.to_le_bytes()));
            sequence(0x0048_021a, &[position], defined)
        };
        new.insert(0x5200_9230, sequence(0x5200_9230, &[item(65), item(1)], defined));
        new
    }

    pub(crate) fn set(&mut self, tag: u32, vr: &str, value: &[u8]) {
        self.insert(tag, element(tag, vr, value));
    }

    pub(crate) fn short(&mut self, tag: u32, value: u16) {
        self.set(tag, "US", &value.to_le_bytes());
    }

    pub(crate) fn long(&mut self, tag: u32, value: u32) {
        self.set(tag, "UL", &value.to_le_bytes());
    }

    pub(crate) fn insert(&mut self, tag: u32, element: Vec<u8>) {
        self.0.insert(tag, element);
    }

    /// A file with this dataset and the element of its pixels.
    pub(crate) fn file(&self, syntax: &str, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes.extend(b"DICM");
        let syntax = element(0x0002_0010, "UI", syntax.as_bytes());
        bytes.extend(element(0x0002_0000, "UL", &(syntax.len() as u32).to_le_bytes()));
        bytes.extend(syntax);
        bytes.extend(self.0.values().flatten());
        bytes.extend(pixels);
        bytes
    }
}

/// Native pixels.
pub(crate) fn native(length: usize) -> Vec<u8> {
    element(0x7fe0_0010, "OB", &vec![7; length])
}

/// Encapsulated pixels, with or without the basic offset table.
pub(crate) fn encapsulated(frames: &[&[u8]], table: bool) -> Vec<u8> {
    let mut items = Vec::new();
    let mut offsets = Vec::new();
    for frame in frames {
        offsets.extend((items.len() as u32).to_le_bytes());
        items.extend(head(0xfffe_e000, "", frame.len() as u32));
        items.extend_from_slice(frame);
    }
    if !table {
        offsets.clear();
    }
    let mut bytes = head(0x7fe0_0010, "OB", u32::MAX);
    bytes.extend(head(0xfffe_e000, "", offsets.len() as u32));
    bytes.extend(offsets);
    bytes.extend(items);
    bytes.extend(head(0xfffe_e0dd, "", 0));
    bytes
}

/// A grey JPEG of 64 x 64 pixels, all of the colour of zero coefficients.
pub(crate) fn jpeg() -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    bytes.extend([1; 64]);
    bytes.extend([0xff, 0xc0, 0, 11, 8, 0, 64, 0, 64, 1, 1, 0x11, 0]);
    // One code of one bit each: no difference, and no further coefficients.
    for class in [0x00, 0x10] {
        bytes.extend([0xff, 0xc4, 0, 20, class, 1]);
        bytes.extend([0; 15]);
        bytes.push(0);
    }
    bytes.extend([0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0]);
    // Two bits for each of 64 blocks.
    bytes.extend([0; 16]);
    bytes.extend([0xff, 0xd9]);
    bytes
}

/// An OME-Zarr store by names; a name that is missing may be the chunk.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

const IMAGE: &str = r#"{"version": "0.4", "name": "seed", "axes": [
    {"name": "c", "type": "channel"}, {"name": "y", "type": "space", "unit": "micrometer"},
    {"name": "x", "type": "space", "unit": "micrometer"}],
    "datasets": [{"path": "0", "coordinateTransformations": [
        {"type": "scale", "scale": [1.0, 0.5, 0.5]}]}]}"#;

/// Zarr version 2, RGB in three chunks of 64 x 64.
pub(crate) fn zarr_2(compressor: &str, chunk: &[u8]) -> Files {
    let array = format!(
        r#"{{"zarr_format": 2, "shape": [3, 64, 100], "chunks": [1, 64, 64], "dtype": "|u1",
            "compressor": {compressor}, "fill_value": 9, "order": "C", "filters": null}}"#
    );
    let group = format!(r#"{{"multiscales": [{IMAGE}]}}"#);
    let mut files = Files::new();
    files.insert(".zattrs".into(), group.into());
    files.insert("0/.zarray".into(), array.into());
    for channel in 0..3 {
        files.insert(format!("0/{channel}.0.0"), chunk.to_vec());
    }
    files
}

/// Version 2, two channels of 16 bits in three focal planes, two of which share a chunk.
pub(crate) fn zarr_channels() -> Files {
    let mut files = zarr_2("null", &[]);
    let array = String::from_utf8_lossy(&files["0/.zarray"]).into_owned();
    let array =
        array.replace("[3, 64, 100]", "[2, 3, 64, 100]").replace("[1, 64, 64]", "[1, 2, 64, 64]");
    files.insert("0/.zarray".into(), array.replace("|u1", "<u2").into());
    let group = r#"{"multiscales": [{"axes": ["c", "z", "y", "x"], "datasets": [{"path": "0"}]}],
        "omero": {"channels": [{"color": "FF0000", "window": {"start": 0, "end": 9}}, {"active": true}],
            "rdefs": {"defaultZ": 1}}}"#;
    files.insert(".zattrs".into(), group.into());
    files.insert("0/0.0.0.0".into(), vec![5; 2 * 2 * 64 * 64]);
    files
}

/// Version 3, RGB in a shard of two chunks, of which only the first exists.
pub(crate) fn zarr_3(codec: &str, chunk: &[u8]) -> Files {
    let array = format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [3, 64, 100], "data_type": "uint8",
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [3, 64, 128]}}}},
            "chunk_key_encoding": {{"name": "default", "configuration": {{"separator": "/"}}}},
            "fill_value": 9, "codecs": [{{"name": "sharding_indexed", "configuration": {{
                "chunk_shape": [3, 64, 64], "codecs": [{{"name": "bytes"}}{codec}],
                "index_codecs": [
                    {{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}}}]}}"#
    );
    let group = format!(
        r#"{{"zarr_format": 3, "node_type": "group",
            "attributes": {{"ome": {{"version": "0.5", "multiscales": [{IMAGE}]}}}}}}"#
    );
    let mut shard = chunk.to_vec();
    for word in [0, chunk.len() as u64, u64::MAX, u64::MAX] {
        shard.extend(word.to_le_bytes());
    }
    let mut files = Files::new();
    files.insert("zarr.json".into(), group.into());
    files.insert("0/zarr.json".into(), array.into());
    files.insert("0/c/0/0/0".into(), shard);
    files
}

/// A Blosc frame of `length` bytes in one block, which is a series of literal runs.
pub(crate) fn blosc(length: u32) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..length / 32 {
        stream.push(31);
        stream.extend([5; 32]);
    }
    // Not split, BloscLZ, elements of one byte.
    let mut frame = vec![2, 1, 0x10, 1];
    for word in [length, length, 16 + 4 + 4 + stream.len() as u32, 20, stream.len() as u32] {
        frame.extend(word.to_le_bytes());
    }
    frame.extend(stream);
    frame
}

/// A grey JPEG 2000 codestream of 64 x 64 pixels: waves, in three resolutions, as OpenJPEG writes
/// them.
pub(crate) fn jpeg_2000() -> Vec<u8> {
    const DIGITS: &str = "\
    ff4fff510029000000000040000000400000000000000000000000400000004000000000000000000001070101ff5200\
    0f01020001000204040000888888ff5c0011425f5250055005504757d357d35762ff90000a0000000000490001ff93c3\
    6d8024527f4ad7687b0f197dc5c90f3706b8d20de13598b7586397cf1734eac965d056f00df7a1d0729fb6b43bf11f8d\
    00bf3e29a7e489048080ffd9\
    ";
    let pairs = DIGITS.trim_end().as_bytes().chunks_exact(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or_default(), 16);
    pairs.map(|pair| byte(pair).unwrap_or_default()).collect()
}
