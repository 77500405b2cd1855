//! TIFF in random layouts, compared with tifffile.

use crate::common::{base, make, open, ppm, psnr, vips, whole};
use seekwire_slides_image::{Limits, Region, Slide};
use std::path::Path;

/// Number of random layouts in each run of the tests; a failure reports the seed.
const LAYOUTS: usize = 150;

#[test]
fn random_layouts_are_as_tifffile_reads_them() {
    let seed = std::env::var("SEEKWIRE_TEST_SEED").unwrap_or_else(|_| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.subsec_nanos().to_string()
    });
    let directory = tempfile::tempdir().unwrap();
    let count = LAYOUTS.to_string();
    make("make_layouts.py", &[directory.path(), Path::new(&seed), Path::new(&count)]);
    for number in 0..LAYOUTS {
        let file = directory.path().join(format!("{number}.tif"));
        let layout = std::fs::read_to_string(file.with_extension("json")).unwrap();
        let what = format!("SEEKWIRE_TEST_SEED={seed}, file {number}: {layout}");
        let slide = Slide::open(file.to_str().unwrap(), Limits::default());
        let slide = slide.unwrap_or_else(|error| panic!("{error}; {what}"));
        let ours = whole(&slide, 0);
        let theirs = std::fs::read(file.with_extension("rgb")).unwrap();
        assert_eq!(ours.pixels().len(), theirs.len(), "{what}");
        let most = ours.pixels().iter().zip(&theirs).map(|(one, other)| one.abs_diff(*other)).max();
        assert_eq!(most, Some(0), "{what}");
    }
}

#[test]
fn unusual_colours_are_as_libtiff_shows_them_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    make("make_colours.py", &[directory.path()]);
    let refused = [
        ("jpeg-cut", "has no end"),
        ("jpeg-inks", "photometric interpretation 5 by Jpeg"),
        ("jpeg-four-as-rgb", "4 samples of a pixel"),
        ("jpeg-four-as-three", "4 components of 8 bits, not 3 of 8"),
        ("jpeg-grey-as-three", "1 components of 8 bits, not 3 of 8"),
    ];
    let mut seen = 0;
    for turbojpeg in [false, true] {
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "tif") {
                continue;
            }
            let name = path.file_stem().unwrap().to_str().unwrap();
            let all = Region { x: 0, y: 0, width: 64, height: 64 };
            let limits = Limits { turbojpeg, ..Limits::default() };
            let slide = Slide::open(path.to_str().unwrap(), limits);
            let read = slide.and_then(|slide| {
                // The undecoded tile is the same picture, or an error.
                let stored = slide.stored_jpeg(0, all)?;
                Ok((slide.read(0, all)?, stored))
            });
            if let Some((_, why)) = refused.iter().find(|(refused, _)| *refused == name) {
                let error = read.err().unwrap_or_else(|| panic!("{name} was read")).to_string();
                assert!(error.contains(why), "{name}: {error}");
                continue;
            }
            let (ours, stored) = read.unwrap_or_else(|error| panic!("{name}: {error}"));
            // Pillow reads units only if they are compressed.
            let theirs = path.with_file_name(format!("{}.rgb", name.replace("-none", "-lzw")));
            let theirs = std::fs::read(theirs).unwrap();
            let pairs = ours.pixels().iter().zip(&theirs);
            let most = pairs.map(|(one, other)| one.abs_diff(*other)).max();
            assert!(
                most <= Some(if name.starts_with("units") { 1 } else { 4 }),
                "{name}: {most:?}"
            );
            assert_eq!(stored.is_some(), ["jpeg-grey", "jpeg-rgb", "jpeg-ycbcr"].contains(&name));
            if let Some(stored) = stored {
                let seen = image::load_from_memory(&stored).unwrap().into_rgb8();
                assert!(psnr(&ours, &seen) > 45.0, "{name}");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 2 * 14);
}

#[test]
fn samples_of_less_than_a_byte_are_as_vips_wrote_them() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    vips(directory, "colourspace base.v grey.v b-w");
    for (bits, options) in [
        (1, "--compression packbits"),
        (1, "--tile --compression none --miniswhite"),
        (2, "--tile --tile-width 48 --tile-height 16 --compression lzw --predictor none"),
        (4, "--compression deflate --predictor none"),
    ] {
        vips(directory, &format!("tiffsave grey.v bits.tif --bitdepth {bits} {options}"));
        let theirs = ppm(directory, "bits.tif");
        let ours = whole(&open(&directory.join("bits.tif")), 0);
        assert_eq!(psnr(&ours, &theirs), f64::INFINITY, "{bits} {options}");
    }
}
