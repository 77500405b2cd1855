//! JPEG 2000 as a bare codestream, which is how TIFF and DICOM store it.

mod codestream;

use crate::samples::{Colours, Layout, Number};
use codestream::Codestream;
use hayro_jpeg2000::{ComponentData, DecodeSettings, DecoderContext, Image};
use std::panic::catch_unwind;

/// Bytes of [`Codestream::structures`] that are allowed even if the limit is small.
const STRUCTURES: u64 = 1 << 20;

/// The interleaved samples of an image of exactly this layout; YCbCr becomes red, green and blue.
/// `most` bounds the memory that the decoder takes in addition to the samples.
pub(crate) fn decode(bytes: &[u8], layout: &Layout, most: u64) -> Result<Vec<u8>, String> {
    let stream = Codestream::read(bytes, (layout.width, layout.height))?;
    let converts = check(&stream, layout)?;
    let structures = stream.structures();
    if structures > most.saturating_add(STRUCTURES) {
        return Err(format!("its precincts and code-blocks may take {structures} bytes"));
    }
    stream.check_pieces()?;
    let bytes = &stream.bytes[..];
    // A broken stream may make the decoder panic.
    catch_unwind(|| {
        let settings = DecodeSettings {
            resolve_palette_indices: false,
            strict: true,
            target_resolution: None,
        };
        let wrong = |error: hayro_jpeg2000::DecodeError| error.to_string();
        let is_decoded = |bytes: &[u8]| {
            let image = Image::new(bytes, &settings);
            image.is_ok_and(|image| image.decode(&mut DecoderContext::default()).is_ok())
        };
        // Missing packets would show as grey or blurred areas. The decoder accepts fewer packets
        // than there should be, but not more.
        if stream.with_another_packet().any(|bytes| is_decoded(&bytes)) {
            return Err("some of its packets are missing".into());
        }
        let image = Image::new(bytes, &settings).map_err(wrong)?;
        let mut context = DecoderContext::default();
        let decoded = image.decode(&mut context).map_err(wrong)?;
        interleaved(decoded.components(), layout, converts)
    })
    .unwrap_or_else(|_| Err("the decoder panicked".into()))
}

/// Returns whether luminance and colour differences have to be converted. An error describes how
/// the codestream contradicts the layout.
fn check(stream: &Codestream<'_>, layout: &Layout) -> Result<bool, String> {
    let count = stream.components.len();
    if count != usize::from(layout.samples) {
        return Err(format!("{count} components, not {}", layout.samples));
    }
    let is_known = matches!(
        (layout.colours, count, layout.bits),
        (Colours::Grey | Colours::Inverted, 1, 8 | 16)
            | (Colours::Rgb, 3, 8 | 16)
            | (Colours::YCbCr, 3, 8)
    );
    if !is_known || layout.number != Number::Unsigned || layout.planes {
        return Err(format!("an unsupported layout: {layout:?}"));
    }
    // If black is 0, white is the largest value of the stored bits.
    let stored = match layout.window {
        Some((_, white)) if layout.bits == 16 => (white + 1.0).log2(),
        _ => f64::from(layout.bits),
    };
    for component in &stream.components {
        if f64::from(component.precision) != stored {
            return Err(format!("samples of {} bits, not {stored}", component.precision));
        }
    }
    let steps: Vec<(u8, u8)> = stream.components.iter().map(|component| component.step).collect();
    let is_plain = steps.iter().all(|step| *step == (1, 1));
    let is_usual = |step: (u8, u8)| matches!(step, (1 | 2 | 4, 1 | 2 | 4));
    let is_subsampled = layout.colours == Colours::YCbCr
        && !stream.has_transform
        && matches!(steps[..], [(1, 1), one, other] if one == other && is_usual(one));
    if !is_plain && !is_subsampled {
        return Err(format!("components for {steps:?} pixels, which is not supported"));
    }
    // The decoder undoes the codestream's transform, and converts subsampled components.
    Ok(layout.colours == Colours::YCbCr && is_plain && !stream.has_transform)
}

fn interleaved(
    components: &[ComponentData],
    layout: &Layout,
    converts: bool,
) -> Result<Vec<u8>, String> {
    let all = layout.width as usize * layout.height as usize;
    let planes: Vec<&[f32]> = components.iter().map(ComponentData::samples).collect();
    if planes.len() != usize::from(layout.samples) || planes.iter().any(|plane| plane.len() != all)
    {
        return Err("its decoder returns other samples than its header announces".into());
    }
    let largest = components.iter().map(|component| (1_u32 << component.bit_depth()) - 1);
    let largest: Vec<f32> = largest.map(|largest| largest as f32).collect();
    let mut samples = Vec::with_capacity(all * planes.len() * usize::from(layout.bits / 8));
    let mut put = |value: f32, largest: f32| {
        let value = (value.clamp(0.0, largest) + 0.5) as u16;
        match (layout.bits, layout.big_endian) {
            (8, _) => samples.push(value as u8),
            (_, false) => samples.extend(value.to_le_bytes()),
            (_, true) => samples.extend(value.to_be_bytes()),
        }
    };
    for at in 0..all {
        match planes[..] {
            [luminance, blue, red] if converts => {
                let (luminance, blue, red) = (luminance[at], blue[at] - 128.0, red[at] - 128.0);
                // As in JPEG (ITU-T T.871).
                put(luminance + 1.402 * red, 255.0);
                put(luminance - 0.344_136 * blue - 0.714_136 * red, 255.0);
                put(luminance + 1.772 * blue, 255.0);
            }
            _ => planes.iter().zip(&largest).for_each(|(plane, largest)| put(plane[at], *largest)),
        }
    }
    Ok(samples)
}
