//! A real slide, and other programs that read and write slides.
#![allow(dead_code, reason = "each test program uses a part")]

use image::RgbImage;
use seekwire_slides_image::Raster;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SHA256: &str = "ed92d5a9f2e86df67640d6f92ce3e231419ce127131697fbbce42ad5e002c8a7";

/// A slide of an Aperio scanner, which the crate `openslide-rs` has for its own tests. Cargo fetches
/// that crate as the dependency of a package that is never built.
pub(crate) fn aperio() -> PathBuf {
    let package = tempfile::tempdir().unwrap();
    std::fs::create_dir(package.path().join("src")).unwrap();
    std::fs::write(package.path().join("src/lib.rs"), "").unwrap();
    let manifest = package.path().join("Cargo.toml");
    let text = "[package]\nname = \"assets\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                [dependencies]\nopenslide-rs = \"=3.0.0\"\n[workspace]\n";
    std::fs::write(&manifest, text).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = run(Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--quiet", "--manifest-path"])
        .arg(&manifest));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let found = packages.iter().find(|package| package["name"] == "openslide-rs").unwrap();
    let manifest = Path::new(found["manifest_path"].as_str().unwrap());
    let slide = manifest.with_file_name("tests").join("assets/default.svs");
    let hash = Sha256::digest(std::fs::read(&slide).unwrap());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hash, SHA256, "{}", slide.display());
    slide
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
