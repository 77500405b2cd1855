//! A real slide, and other programs that read and write slides.

pub(crate) mod cases;
pub(crate) mod nginx;
pub(crate) mod seeds;

use image::RgbImage;
use seekwire_slides_image::{Limits, Raster, Region, Slide};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A slide of an Aperio scanner, fetched if it is missing.
pub(crate) fn aperio() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slide");
    let output = run(&mut Command::new(script));
    String::from_utf8(output.stdout).unwrap().trim_end().into()
}

/// Runs one of the programs in `make` with the Python that has their dependencies.
pub(crate) fn make(program: &str, arguments: &[&Path]) -> Output {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = run(&mut Command::new(crate_root.join("../../scripts/slide-tools")));
    let python = String::from_utf8(output.stdout).unwrap();
    let program = crate_root.join("tests/make").join(program);
    run(Command::new(python.trim_end()).arg(program).args(arguments))
}

/// Makes slides from a specification, which is written to a file in a directory.
pub(crate) fn make_of(program: &str, before: &[&Path], directory: &Path, of: &serde_json::Value) {
    let specification = directory.join("specification.json");
    std::fs::write(&specification, of.to_string()).unwrap();
    let mut arguments = before.to_vec();
    arguments.push(&specification);
    make(program, &arguments);
}

/// All pixels of a level.
pub(crate) fn whole(slide: &Slide, level: usize) -> Raster {
    let Some(size) = slide.levels().get(level).copied() else { panic!("no level {level}") };
    slide.read(level, Region { x: 0, y: 0, width: size.width, height: size.height }).unwrap()
}

/// Opens a file or directory within the usual limits.
pub(crate) fn open(path: &Path) -> Slide {
    Slide::open(path.to_str().unwrap(), Limits::default()).unwrap()
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error} (scripts/deps test installs it)"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs a vips operation in a directory; words are separated by spaces.
pub(crate) fn vips(directory: &Path, words: &str) {
    run(Command::new("vips").args(words.split(' ')).current_dir(directory));
}

/// Puts `base.v` there, the part of the real slide from which the tests make others: odd in both
/// directions. Returns its pixels as vips reads them through OpenSlide.
pub(crate) fn base(directory: &Path) -> RgbImage {
    // Made once for all tests of a program.
    static MADE: OnceLock<(Vec<u8>, RgbImage)> = OnceLock::new();
    let (file, pixels) = MADE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        std::fs::copy(aperio(), directory.join("real.svs")).unwrap();
        vips(directory, "openslideload real.svs whole.v");
        vips(directory, "extract_area whole.v part.v 500 700 1111 777");
        vips(directory, "flatten part.v base.v");
        (std::fs::read(directory.join("base.v")).unwrap(), ppm(directory, "base.v"))
    });
    std::fs::write(directory.join("base.v"), file).unwrap();
    pixels.clone()
}

/// The pixels of an image, read by vips.
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
