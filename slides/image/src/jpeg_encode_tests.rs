use super::*;
use image::codecs::jpeg::{JpegDecoder, JpegEncoder};
use image::{ImageDecoder, ImageEncoder};
use std::io::Cursor;

/// The pixels that another decoder reads from a file.
fn decoded(file: &[u8]) -> (u32, u32, Vec<u8>) {
    let image = image::load_from_memory_with_format(file, image::ImageFormat::Jpeg).unwrap();
    let (width, height) = (image.width(), image.height());
    (width, height, image.into_rgb8().into_raw())
}

/// Similarity of pixels in dB (PSNR).
fn likeness(one: &[u8], other: &[u8]) -> f64 {
    assert_eq!(one.len(), other.len());
    let squares = one.iter().zip(other).map(|(one, other)| f64::from(one.abs_diff(*other)).powi(2));
    let mean = squares.sum::<f64>() / one.len() as f64;
    10.0 * (255.0_f64.powi(2) / mean.max(1e-9)).log10()
}

/// Colour gradients with a pattern of the given contrast.
fn picture(width: u32, height: u32, contrast: u32) -> Vec<u8> {
    let pixel = |x: u32, y: u32| {
        let pattern = (x * 7 + y * 13 + x * y) % 17 * contrast / 16;
        [90 + (x + y) / 2 % 90, 60 + y % 100, 100 + x % 80].map(|of| (of + pattern).min(255) as u8)
    };
    (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect()
}

#[test]
fn it_is_as_like_as_the_encoder_of_image_and_no_larger() {
    let pixels = picture(96, 80, 40);
    let qualities = [10, 50, 75, 80, 89, 90, 95, 100];
    for (quality, full_colour) in qualities.iter().flat_map(|of| [(*of, false), (*of, true)]) {
        let ours = encode(&pixels, (96, 80), quality, full_colour, None).unwrap();
        let mut other = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut other, quality);
        encoder.write_image(&pixels, 96, 80, image::ExtendedColorType::Rgb8).unwrap();
        let [(.., ours_seen), (.., other_seen)] = [&ours, &other].map(|file| decoded(file));
        let [ours_like, other_like] = [&ours_seen, &other_seen].map(|seen| likeness(&pixels, seen));
        // Colours have fewer samples, which counts most where little else is lost.
        let allowed = match (full_colour, quality) {
            (true, _) => 0.1,
            (false, 90..) => 7.0,
            (false, _) => 2.5,
        };
        assert!(ours_like > other_like - allowed, "{quality}: {ours_like} dB, {other_like} dB");
        // At 100 it is larger, and 2 dB more like the original.
        let most = if quality == 100 { 120 } else { 103 };
        assert!(
            ours.len() <= other.len() * most / 100,
            "{quality}: {} {}",
            ours.len(),
            other.len()
        );
    }
}

#[test]
fn sides_of_all_lengths_come_back() {
    for (width, height) in [(1, 1), (2, 1), (7, 8), (8, 9), (15, 17), (16, 16), (33, 31), (1, 40)] {
        for (quality, full_colour) in [(80, false), (95, true)] {
            let pixels = picture(width, height, 0);
            let file = encode(&pixels, (width, height), quality, full_colour, None).unwrap();
            let (wide, high, seen) = decoded(&file);
            assert_eq!((wide, high), (width, height));
            let like = likeness(&pixels, &seen);
            assert!(like > 30.0, "{width} x {height} at {quality}: {like} dB");
        }
    }
}

#[test]
fn the_largest_contrast_and_noise_come_back() {
    let (mut state, side) = (1_u32, 48);
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let noise: Vec<u8> = (0..side * side * 3).map(|_| random()).collect();
    let edges: Vec<u8> = noise.iter().map(|byte| if *byte < 128 { 0 } else { 255 }).collect();
    let squares = (0..side * side).map(|at| (at % side + at / side) % 2 == 0);
    let squares: Vec<u8> = squares.flat_map(|white| [if white { 255 } else { 0 }; 3]).collect();
    for pixels in [noise, edges, squares] {
        let file = encode(&pixels, (side, side), 100, true, None).unwrap();
        let like = likeness(&pixels, &decoded(&file).2);
        assert!(like > 35.0, "{like} dB");
        // At the lowest quality the picture differs a lot, but the file is valid.
        decoded(&encode(&pixels, (side, side), 1, false, None).unwrap());
    }
}

#[test]
fn grey_stays_grey_and_flat_pixels_are_exact() {
    for full_colour in [false, true] {
        let grey: Vec<u8> = (0..64 * 64).flat_map(|at| [(at % 64 * 4) as u8; 3]).collect();
        let (.., seen) = decoded(&encode(&grey, (64, 64), 80, full_colour, None).unwrap());
        assert!(seen.chunks_exact(3).all(|pixel| pixel == [pixel[0]; 3]));
        for level in [0, 1, 128, 254, 255] {
            let flat = vec![level; 40 * 24 * 3];
            let (.., seen) = decoded(&encode(&flat, (40, 24), 100, full_colour, None).unwrap());
            assert_eq!(seen, flat);
        }
    }
}

#[test]
fn profiles_of_any_length_go_with_it() {
    for length in [1, 7, 65_519, 65_520, 150_000] {
        let icc: Vec<u8> = (0..length).map(|at| (at % 253) as u8).collect();
        let file = encode(&[200; 12], (2, 2), 80, false, Some(&icc)).unwrap();
        let mut decoder = JpegDecoder::new(Cursor::new(&file)).unwrap();
        assert_eq!(decoder.icc_profile().unwrap().as_deref(), Some(&icc[..]), "{length}");
    }
    let long = vec![0; 65_519 * 255 + 1];
    assert!(encode(&[200; 12], (2, 2), 80, false, Some(&long)).is_err());
}

#[test]
fn what_no_jpeg_can_have_is_an_error() {
    assert!(encode(&[], (0, 5), 80, false, None).is_err());
    assert!(encode(&[], (5, 0), 80, false, None).is_err());
    assert!(encode(&vec![0; 65_536 * 3], (65_536, 1), 80, false, None).is_err());
    assert!(encode(&[0; 11], (2, 2), 80, false, None).is_err());
}
