//! How the samples of a directory are stored. Anything on which TIFF readers disagree is refused.

use super::directory::{Directory, Reader};
use crate::Result;
use crate::codec::Codec;
use crate::samples::{Colours, Layout, Number, Predictor};
use bytes::Bytes;

/// Maximum samples per pixel in a directory; those that a viewer shows come first.
const SAMPLES: u64 = 64;

pub(super) fn read(
    reader: &mut Reader<'_>,
    of: &Directory,
    width: u32,
    height: u32,
) -> Result<Layout> {
    let codec = match reader.number(of, 259)?.unwrap_or(1) {
        1 => Codec::Raw,
        5 => Codec::Lzw,
        7 => Codec::Jpeg,
        8 | 32946 => Codec::Deflate,
        32773 => Codec::PackBits,
        34925 => Codec::Lzma,
        50000 => Codec::Zstd,
        50001 => Codec::WebP,
        33003..=33005 | 34712 => Codec::Jpeg2000,
        other => return Err(reader.unsupported(format!("compression {other}"))),
    };
    let is_image = matches!(codec, Codec::Jpeg | Codec::WebP | Codec::Jpeg2000);
    let colours = colours(reader, of, codec)?;
    let samples = reader.number(of, 277)?.unwrap_or(1);
    let needed = colours.needed();
    let is_exact = matches!(codec, Codec::Jpeg | Codec::Jpeg2000);
    let most = if is_exact { needed.into() } else { SAMPLES };
    if !(u64::from(needed)..=most).contains(&samples) {
        return Err(reader.unsupported(format!("{samples} samples of a pixel")));
    }
    let planes = samples > 1 && reader.number(of, 284)?.unwrap_or(1) != 1;
    let (number, bits) = number(reader, of)?;
    let is_fit = match (codec, colours) {
        (Codec::Jpeg2000, Colours::Grey | Colours::Inverted | Colours::Rgb) => {
            number == Number::Unsigned && matches!(bits, 8 | 16)
        }
        (_, Colours::Cmyk | Colours::Units { .. }) => number == Number::Unsigned && bits == 8,
        _ => !is_image || number == Number::Unsigned && bits == 8,
    };
    if !is_fit {
        return Err(reader.unsupported(format!("{colours:?} of {bits} bits by {codec:?}")));
    }
    if colours == Colours::Palette && !(number == Number::Unsigned && bits <= 16) {
        return Err(reader.unsupported(format!("a palette for {bits} bits")));
    }
    let is_packed = matches!(colours, Colours::Units { .. });
    if planes && (is_image || is_packed) || is_packed && samples != 3 {
        return Err(reader.unsupported("samples of an image in planes of their own"));
    }
    let reversed = match reader.number(of, 266)?.unwrap_or(1) {
        1 => false,
        // JPEG has a bit order of its own.
        2 if codec == Codec::Jpeg => false,
        2 if !is_image => true,
        other => return Err(reader.unsupported(format!("fill order {other} by {codec:?}"))),
    };
    let predictor = match reader.number(of, 317)?.unwrap_or(1) {
        1 => Predictor::None,
        _ if is_image => Predictor::None,
        2 if has_predictor(codec) && bits >= 8 && !is_packed => Predictor::Horizontal,
        3 if has_predictor(codec) && number == Number::Float => Predictor::Float,
        other => return Err(reader.unsupported(format!("predictor {other} by {codec:?}"))),
    };
    // Of separate planes, only those shown are read.
    let samples = if planes { needed } else { samples as u16 };
    Ok(Layout {
        colours,
        samples,
        number,
        bits,
        predictor,
        big_endian: reader.numbers.big_endian,
        reversed,
        planes: planes && needed > 1,
        fill: if colours == Colours::Inverted { 0.0 } else { f64::INFINITY },
        ..Layout::of_bytes((width, height), codec)
    })
}

fn has_predictor(codec: Codec) -> bool {
    matches!(codec, Codec::Lzw | Codec::Deflate | Codec::Zstd | Codec::Lzma)
}

fn colours(reader: &mut Reader<'_>, of: &Directory, codec: Codec) -> Result<Colours> {
    // Readers that accept such files disagree on which colour is black.
    let Some(photometric) = reader.number(of, 262)? else {
        return Err(reader.unsupported("pixels without a photometric interpretation"));
    };
    // In Aperio files the compression decides; in others, the two are indistinguishable.
    match reader.number(of, 259)? {
        Some(33003) if reader.is_aperio && matches!(photometric, 2 | 6) => {
            return Ok(Colours::YCbCr);
        }
        Some(33005) if reader.is_aperio && matches!(photometric, 2 | 6) => return Ok(Colours::Rgb),
        _ => {}
    }
    let has_table = !matches!(codec, Codec::Jpeg | Codec::WebP | Codec::Jpeg2000);
    Ok(match photometric {
        0 if codec != Codec::WebP => Colours::Inverted,
        1 if codec != Codec::WebP => Colours::Grey,
        2 => Colours::Rgb,
        3 if has_table => Colours::Palette,
        5 if has_table => {
            if reader.number(of, 332)?.unwrap_or(1) != 1 {
                return Err(reader.unsupported("inks other than cyan, magenta, yellow and black"));
            }
            Colours::Cmyk
        }
        6 if codec == Codec::Jpeg => Colours::YCbCr,
        6 if codec == Codec::Jpeg2000 => {
            // The codestream states how many pixels share a colour difference.
            units(reader, of)?;
            Colours::YCbCr
        }
        6 if codec != Codec::WebP => units(reader, of)?,
        other => {
            let what = format!("photometric interpretation {other} by {codec:?}");
            return Err(reader.unsupported(what));
        }
    })
}

/// The units of luminance and colour differences without JPEG.
fn units(reader: &mut Reader<'_>, of: &Directory) -> Result<Colours> {
    let sampling = reader.numbers(of, 530)?.unwrap_or_else(|| vec![2, 2]);
    let [across @ (1 | 2 | 4), down @ (1 | 2 | 4)] = sampling[..] else {
        return Err(reader.unsupported(format!("differences of colour for {sampling:?} pixels")));
    };
    let is = |values: Option<Vec<f64>>, wanted: &[f64]| {
        values.is_none_or(|values| {
            values.len() == wanted.len()
                && values.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-3)
        })
    };
    let usual = is(reader.ratios(of, 529)?, &[0.299, 0.587, 0.114])
        && is(reader.ratios(of, 532)?, &[0.0, 255.0, 128.0, 255.0, 128.0, 255.0])
        && reader.number(of, 531)?.unwrap_or(1) <= 2;
    if !usual {
        return Err(reader.unsupported("unusual coefficients of luminance and colour"));
    }
    Ok(Colours::Units { across: across as u8, down: down as u8 })
}

/// The type and bits of a sample, the same for all samples.
fn number(reader: &mut Reader<'_>, of: &Directory) -> Result<(Number, u8)> {
    let bits = reader.numbers(of, 258)?.unwrap_or_else(|| vec![1]);
    let formats = reader.numbers(of, 339)?.unwrap_or_else(|| vec![1]);
    let same = |values: &[u64]| values.iter().all(|each| Some(each) == values.first());
    let first = bits.first().copied().unwrap_or(1);
    let number = match formats.first() {
        // Format 4 is undefined data: the reader decides what the bits mean.
        Some(1 | 4) => Some(Number::Unsigned),
        Some(2) => Some(Number::Signed),
        Some(3) => Some(Number::Float),
        _ => None,
    };
    let number = number.filter(|_| same(&bits) && same(&formats));
    match (number, u8::try_from(first)) {
        (Some(number), Ok(bits)) if number.has(bits) => Ok((number, bits)),
        _ => Err(reader.unsupported(format!("samples of {first} bits in format {formats:?}"))),
    }
}

/// The colours of a palette, three bytes each.
pub(super) fn palette(reader: &mut Reader<'_>, of: &Directory, bits: u8) -> Result<Bytes> {
    let values = reader.numbers(of, 320)?.unwrap_or_default();
    let count = 1 << bits;
    if values.len() != 3 * count || values.iter().any(|value| *value > 0xffff) {
        let what = format!("a palette of {} values for {count} colours", values.len());
        return Err(reader.malformed(of.at, what));
    }
    // Some programs write 8-bit values.
    let shift = if values.iter().all(|value| *value < 256) { 0 } else { 8 };
    let colours = (0..count).flat_map(|at| [0, 1, 2].map(|colour| values[colour * count + at]));
    Ok(colours.map(|value| (value >> shift) as u8).collect::<Vec<u8>>().into())
}
