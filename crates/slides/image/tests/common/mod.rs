//! A real slide, and other programs that read and write slides.
#![allow(dead_code, reason = "each test program uses a part")]

use image::RgbImage;
use seekwire_slides_image::Raster;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A slide of an Aperio scanner; where it is not yet, it is fetched.
pub(crate) fn aperio() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/slide");
    let output = run(&mut Command::new(script));
    String::from_utf8(output.stdout).unwrap().trim_end().into()
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error} (scripts/deps test installs it)"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// An operation of vips, in a directory; words are separated by spaces.
pub(crate) fn vips(directory: &Path, words: &str) {
    run(Command::new("vips").args(words.split(' ')).current_dir(directory));
}

/// The part of the real slide out of which the tests make others: odd in both directions. It is
/// `base.v`, and here as vips reads it through OpenSlide.
pub(crate) fn base(directory: &Path) -> RgbImage {
    std::fs::copy(aperio(), directory.join("real.svs")).unwrap();
    vips(directory, "openslideload real.svs whole.v");
    vips(directory, "flatten whole.v flat.v");
    vips(directory, "extract_area flat.v base.v 500 700 1111 777");
    ppm(directory, "base.v")
}

/// The pixels that vips finds in an image.
pub(crate) fn ppm(directory: &Path, image: &str) -> RgbImage {
    vips(directory, &format!("copy {image} pixels.ppm"));
    image::open(directory.join("pixels.ppm")).unwrap().into_rgb8()
}

/// Peak signal to noise ratio in dB; infinite if both are equal.
pub(crate) fn psnr(ours: &Raster, theirs: &RgbImage) -> f64 {
    assert_eq!((ours.width(), ours.height()), theirs.dimensions());
    let pairs = ours.pixels().iter().zip(theirs.as_raw());
    let sum: f64 = pairs.map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    10.0 * (255.0 * 255.0 * ours.pixels().len() as f64 / sum).log10()
}
