//! Blosc 1, the most common compression of Zarr arrays: a header, then blocks. The bytes or bits of
//! a block's elements are sorted, then split into streams that are compressed one by one. The
//! format is that of c-blosc, README_CHUNK_FORMAT.rst. The crates for it wrap the C library; these
//! bytes may be hostile, so the contents of frames are decoded in safe Rust or by libraries that
//! are linked anyway.

const HEADER: usize = 16;
/// A block is split into one stream for each byte of an element if an element has at most this many
/// bytes, and the block has at least this many elements.
const MOST_STREAMS: usize = 16;
const LEAST_ELEMENTS: usize = 128;
/// Smallest block, unless it is the whole: writers use at least 128 bytes, rounded down to a
/// multiple of the element size.
const LEAST_BLOCK: usize = 64;

/// Unpacks a stream that is not BloscLZ: the number of its format, its bytes, and the length after
/// decompression.
pub(crate) type UnpackStream = fn(u8, &[u8], usize) -> Result<Vec<u8>, String>;

/// Unpacks a frame that may have at most `most` bytes.
pub(crate) fn unpack(
    frame: &[u8],
    most: usize,
    unpack_stream: UnpackStream,
) -> Result<Vec<u8>, String> {
    let word = |at: usize| word(frame, at).map(|word| word as usize);
    let cut = || "its Blosc frame is truncated".to_owned();
    let flags = *frame.get(2).ok_or_else(cut)?;
    let typesize = usize::from(*frame.get(3).ok_or_else(cut)?);
    let (length, blocksize) = (word(4).ok_or_else(cut)?, word(8).ok_or_else(cut)?);
    word(12).ok_or_else(cut)?;
    if length > most {
        return Err(format!("its Blosc frame has {length} bytes, of at most {most}"));
    }
    if flags & 2 != 0 {
        return Ok(frame.get(HEADER..HEADER + length).ok_or_else(cut)?.to_vec());
    }
    // Each block costs a decoder of its own. No writer makes smaller blocks.
    if typesize == 0 || (length > 0 && blocksize < length.min(LEAST_BLOCK)) {
        return Err("its Blosc header is broken".into());
    }
    let mut unpacked = Vec::with_capacity(length);
    for number in 0..length.div_ceil(blocksize.max(1)) {
        let size = blocksize.min(length - unpacked.len());
        let start = word(HEADER + 4 * number).ok_or_else(cut)?;
        let whole = size == blocksize;
        let split = flags & 0x10 == 0
            && whole
            && typesize <= MOST_STREAMS
            && blocksize / typesize >= LEAST_ELEMENTS;
        let streams = if split { typesize } else { 1 };
        let block = streams_of(frame, start, flags >> 5, streams, size, unpack_stream)?;
        if flags & 1 != 0 && typesize > 1 {
            unpacked.extend(unshuffled(&block, typesize));
        } else if flags & 4 != 0 && size >= typesize {
            unpacked.extend(bits_unshuffled(&block, typesize));
        } else {
            unpacked.extend(block);
        }
    }
    Ok(unpacked)
}

fn word(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(frame.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The streams of a block, one after the other.
fn streams_of(
    frame: &[u8],
    mut at: usize,
    format: u8,
    streams: usize,
    size: usize,
    unpack_stream: UnpackStream,
) -> Result<Vec<u8>, String> {
    let cut = || "its Blosc frame is truncated".to_owned();
    let each = size / streams;
    let mut block = Vec::with_capacity(size);
    for _ in 0..streams {
        let length = word(frame, at).ok_or_else(cut)? as usize;
        let start = at + 4;
        at = start.checked_add(length).ok_or_else(cut)?;
        let stream = frame.get(start..at).ok_or_else(cut)?;
        let before = block.len();
        if length == each {
            block.extend_from_slice(stream);
        } else {
            block.extend(match format {
                0 => blosclz(stream, each).ok_or("its BloscLZ stream is broken")?,
                _ => unpack_stream(format, stream, each)?,
            });
        }
        if block.len() - before != each {
            return Err("a stream of its Blosc frame is too short".into());
        }
    }
    // A division with a remainder would lose bytes.
    if block.len() != size {
        return Err("its Blosc header is broken".into());
    }
    Ok(block)
}

/// Input: the first bytes of all elements, then the second bytes, and so on. Bytes left over at the
/// end are copied as they are.
fn unshuffled(block: &[u8], typesize: usize) -> Vec<u8> {
    let elements = block.len() / typesize;
    let mut sorted = vec![0; block.len()];
    for byte in 0..typesize {
        for element in 0..elements {
            sorted[element * typesize + byte] = block[byte * elements + element];
        }
    }
    let whole = elements * typesize;
    sorted[whole..].copy_from_slice(&block[whole..]);
    sorted
}

/// Input: the first bits of all elements, then the second bits, and so on. A block whose number of
/// elements is not a multiple of eight was not sorted.
fn bits_unshuffled(block: &[u8], typesize: usize) -> Vec<u8> {
    let elements = block.len() / typesize;
    if !elements.is_multiple_of(8) {
        return block.to_vec();
    }
    let row = elements / 8;
    let mut sorted = vec![0; block.len()];
    for byte in 0..typesize {
        for eight in 0..row {
            for bit in 0..8 {
                let bits = block[(byte * 8 + bit) * row + eight];
                for element in 0..8 {
                    sorted[(eight * 8 + element) * typesize + byte] |=
                        ((bits >> element) & 1) << bit;
                }
            }
        }
    }
    let whole = elements * typesize;
    sorted[whole..].copy_from_slice(&block[whole..]);
    sorted
}

/// Literal runs, and matches of at least three bytes, as in FastLZ. A distance that does not fit
/// into 13 bits has 16 more.
fn blosclz(stream: &[u8], length: usize) -> Option<Vec<u8>> {
    const FAR: usize = 8191;
    let mut bytes = stream.iter().copied();
    let mut unpacked = Vec::with_capacity(length);
    // The upper bits of the first byte are a mark.
    let mut control = bytes.next().map(|byte| byte & 31);
    while let Some(code) = control {
        if code < 32 {
            let run = usize::from(code) + 1;
            if run > length - unpacked.len() {
                return None;
            }
            for _ in 0..run {
                unpacked.push(bytes.next()?);
            }
        } else {
            let mut run = usize::from(code >> 5) + 2;
            let upper = usize::from(code & 31) << 8;
            if code >> 5 == 7 {
                loop {
                    let more = bytes.next()?;
                    run += usize::from(more);
                    if more != 255 {
                        break;
                    }
                }
            }
            let lower = usize::from(bytes.next()?);
            let mut distance = upper + lower + 1;
            if lower == 255 && upper == 31 << 8 {
                distance = (usize::from(bytes.next()?) << 8) + usize::from(bytes.next()?) + FAR + 1;
            }
            if run > length - unpacked.len() {
                return None;
            }
            let from = unpacked.len().checked_sub(distance)?;
            for at in from..from + run {
                unpacked.push(unpacked[at]);
            }
        }
        control = bytes.next();
    }
    Some(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(frame: &[u8], most: usize) -> Result<Vec<u8>, String> {
        super::unpack(frame, most, |_, _, _| Err("compressed".into()))
    }

    /// A frame of 256 bytes in blocks, each of one stream that is not compressed.
    fn frame(blocksize: u32) -> Vec<u8> {
        let (count, each) = (256_u32.div_ceil(blocksize), 4 + blocksize);
        let mut frame = vec![2, 1, 0x30, 1];
        let first = HEADER as u32 + 4 * count;
        frame.extend([256, blocksize, first + each * count].map(u32::to_le_bytes).concat());
        frame.extend((0..count).flat_map(|block| (first + block * each).to_le_bytes()));
        for block in 0..count {
            let size = blocksize.min(256 - block * blocksize);
            frame.extend(size.to_le_bytes());
            frame.resize(frame.len() + size as usize, 7);
        }
        frame
    }

    #[test]
    fn blocks_are_not_smaller_than_writers_make_them() {
        for blocksize in [64, 100, 128, 256] {
            assert_eq!(unpack(&frame(blocksize), 256), Ok(vec![7; 256]), "{blocksize}");
        }
        for blocksize in [1, 63] {
            assert!(unpack(&frame(blocksize), 256).is_err(), "{blocksize}");
        }
        assert!(unpack(&frame(128), 255).is_err());
    }
}
