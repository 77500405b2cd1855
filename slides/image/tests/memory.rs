//! No uninitialised memory reaches a picture: a buffer that is not fully written is an error.
//! Before each slide is opened, memory is filled with a pattern and freed, so that the next buffers
//! contain it.

use crate::common::{base, make, vips};
use seekwire_slides_image::{Format, Limits, Raster, Region, Result, Slide};
use std::path::Path;
use std::process::Command;

/// Set if the test runs in a process whose memory is filled.
const FILLED: &str = "SEEKWIRE_TEST_FILLED";
/// The pattern: an opaque pixel in OpenSlide's byte order (blue, green, red, alpha).
const PATTERN: [u8; 4] = [93, 162, 94, 255];
/// The pattern as shown in OpenSlide's pixels.
const SHOWN: [u8; 3] = [94, 162, 93];
/// Number of consecutive patterns that rules out a coincidence.
const RUN: usize = 8;
/// Number of modified copies of each file that are read.
const CHANGED: u32 = 5;

#[test]
fn no_picture_has_memory_of_the_process() {
    let own = std::env::current_exe().unwrap();
    let name = "memory::read_all_kinds_of_files_with_memory_filled";
    let mut command = Command::new(own);
    command.args(["--exact", "--ignored", "--nocapture", name]).env(FILLED, "1");
    // GLib has its own allocator for small blocks, which OpenSlide uses for tiles.
    command.env("G_SLICE", "always-malloc");
    // Memory is not returned to the system, which would clear it.
    for name in ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"] {
        command.env(name, "1000000000");
    }
    let output = crate::common::run(&mut command);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
#[ignore = "the test above runs it, with memory filled"]
fn read_all_kinds_of_files_with_memory_filled() {
    assert!(std::env::var_os(FILLED).is_some());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    make("make_layouts.py", &[directory, Path::new("7"), Path::new("16")]);
    make("make_colours.py", &[directory]);
    for kind in ["plain", "philips", "small"] {
        make("make_tiff.py", &[Path::new(kind), &directory.join(format!("{kind}.tif"))]);
    }
    // Values that do not match the pattern.
    base(directory);
    vips(directory, "extract_area base.v part.v 100 100 400 300");
    vips(directory, "linear part.v soft.v 0.2 100");
    vips(directory, "cast soft.v even.v uchar");
    for (number, compression) in ["jpeg", "deflate", "none", "webp"].into_iter().enumerate() {
        let options = format!("--tile --pyramid --properties --compression {compression}");
        vips(directory, &format!("tiffsave even.v pyramid{number}.tif {options}"));
        let svs = directory.join(format!("pyramid{number}.svs.tif"));
        std::fs::copy(directory.join(format!("pyramid{number}.tif")), &svs).unwrap();
        make("make_tiff.py", &[Path::new("aperio"), Path::new("9"), &svs]);
    }
    let mut read = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "tif") {
            continue;
        }
        let whole = std::fs::read(&path).unwrap();
        let changed = directory.join("changed");
        let mut state = whole.len() as u32 | 1;
        let mut next = |below: usize| {
            // Numerical Recipes' generator: good enough to choose an offset.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for number in 0..=CHANGED {
            let mut bytes = whole.clone();
            match number {
                0 => {}
                1..=3 => bytes.truncate(next(whole.len())),
                _ => (0..4).for_each(|_| bytes[next(whole.len())] = next(256) as u8),
            }
            std::fs::write(&changed, &bytes).unwrap();
            let turbojpeg = number % 2 == 0;
            fill_memory();
            let slide = Slide::open(changed.to_str().unwrap(), Limits { turbojpeg, ..limits() });
            read += look(slide, &path, number);
            fill_memory();
            read += look(Slide::through_openslide(&changed, limits()), &path, number);
        }
    }
    assert!(read > 200, "{read} pictures");
}

fn limits() -> Limits {
    Limits { openslide: true, tile_pixels: 1 << 20, region_pixels: 1 << 22, ..Limits::default() }
}

/// Looks for patterns in everything that a slide shows. Returns the number of pictures.
fn look(slide: Result<Slide>, path: &Path, number: u32) -> usize {
    let Ok(slide) = slide else { return 0 };
    let mut pictures: Vec<Result<Raster>> = Vec::new();
    for (number, level) in slide.levels().iter().enumerate() {
        let (width, height) = (level.width.min(512), level.height.min(512));
        pictures.push(slide.read(number, Region { x: 0, y: 0, width, height }));
        let (x, y) = (i64::from(level.width) - 100, i64::from(level.height) - 100);
        pictures.push(slide.read(number, Region { x, y, width: 128, height: 128 }));
    }
    let size = slide.levels()[0];
    let all = Region { x: 0, y: 0, width: size.width, height: size.height };
    pictures.push(slide.render(all, 64, 64));
    for name in slide.associated_names() {
        pictures.extend(slide.associated(name).transpose());
    }
    let mut read = 0;
    for picture in pictures.into_iter().flatten() {
        read += 1;
        let what = format!("{}, change {number}", path.display());
        assert!(!has_pattern(picture.pixels()), "{what}");
        if picture.width() <= 64 {
            let file = picture
                .encode(
                    Format::Jpeg { quality: 80, full_colour: false },
                    None,
                    number.is_multiple_of(2),
                )
                .unwrap();
            assert!(!has_pattern(&file), "{what}: as JPEG");
        }
    }
    read
}

fn has_pattern(bytes: &[u8]) -> bool {
    [PATTERN.repeat(RUN), SHOWN.repeat(RUN)]
        .iter()
        .any(|pattern| bytes.windows(pattern.len()).any(|part| part == pattern))
}

/// Fills free memory with the pattern: blocks as large as tiles, and many smaller ones.
fn fill_memory() {
    let pieces = [(1 << 20, 4), (1 << 18, 16), (1 << 16, 16), (1 << 12, 64)];
    let filled = pieces.map(|(size, count)| vec![PATTERN.repeat(size / 4); count]);
    std::hint::black_box(&filled);
}
