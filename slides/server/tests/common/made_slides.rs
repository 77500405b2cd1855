//! DICOM and OME-Zarr slides that pydicom and zarr make from the tiles and pixels of others.

use std::fs;
use std::path::Path;
use std::process::Command;

use seekwire_slides_image::{Codec, Colours, Level, Limits, Region, Slide};
use serde_json::{Value, json};

use super::{run, script, vips};

pub(crate) fn open(path: &Path) -> Slide {
    Slide::open(path.to_str().unwrap(), Limits::default()).unwrap()
}

/// Runs one of the programs of the reader's tests.
fn make(program: &str, words: &[&str], directory: &Path, of: &Value) {
    let specification = directory.join("specification.json");
    fs::write(&specification, of.to_string()).unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/make");
    let mut command = Command::new(script("slide-tools"));
    run(command.arg(programs.join(program)).args(words).arg(&specification));
}

/// Creates slides with channels, and numpy's pictures of them: `said.zarr` has three channels,
/// three focal planes and two times.
pub(crate) fn channels(directory: &Path) {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/make");
    let mut command = Command::new(script("slide-tools"));
    run(command.arg(programs.join("make_channels.py")).arg(directory));
}

/// A pyramid in tiles of 64 x 64, of the part of the real slide that `odd` creates.
pub(crate) fn pyramid(directory: &Path, name: &str, compression: &str) -> Slide {
    let options = "--tile --pyramid --tile-width 64 --tile-height 64";
    vips(directory, &format!("tiffsave part.v {name} {options} --compression {compression}"));
    open(&directory.join(name))
}

/// Writes a series into the directory `to`: an instance for each level, numbered in the last digits
/// of its UID, in files that begin with `name`.
pub(crate) fn dicom(slide: &Slide, directory: &Path, to: &Path, name: &str, series: &str) {
    fs::create_dir_all(to).unwrap();
    let levels = slide.levels().into_iter().enumerate();
    let instances =
        levels.map(|level| instance(slide, level, directory, &Target { to, name, series }, None));
    let all: Value = instances.collect::<Vec<Value>>().into();
    make("make_dicom.py", &["make"], directory, &all);
}

/// Adds a label to such a series, with the pixels of the smallest level; its UID ends in 99.
pub(crate) fn label(slide: &Slide, directory: &Path, to: &Path, series: &str) {
    let last = slide.levels().into_iter().enumerate().next_back().unwrap();
    let of = instance(slide, last, directory, &Target { to, name: "label", series }, Some("99"));
    make("make_dicom.py", &["make"], directory, &json!([of]));
}

/// Where the files of a series go, how their names begin, and the UID of the series.
struct Target<'a> {
    to: &'a Path,
    name: &'a str,
    series: &'a str,
}

/// The specification of an instance: a level, or a label whose UID ends in the given number.
fn instance(
    slide: &Slide,
    level: (usize, Level),
    directory: &Path,
    target: &Target<'_>,
    label: Option<&str>,
) -> Value {
    let (level, size) = level;
    let Target { to, name, series } = target;
    let frames = directory.join(format!("frames-{name}-{level}"));
    fs::create_dir(&frames).unwrap();
    let columns = size.width.div_ceil(size.tile_width);
    let count = columns * size.height.div_ceil(size.tile_height);
    for number in 0..count {
        let tile = slide.tile(level, number % columns, number / columns).unwrap();
        let bytes = tile.jpeg().unwrap().unwrap_or_else(|| tile.bytes().to_vec());
        fs::write(frames.join(format!("{number:06}")), bytes).unwrap();
    }
    let layout = slide.tile(level, 0, 0).unwrap().layout();
    let photometric = match layout.colours {
        Colours::YCbCr => "YBR_FULL_422",
        _ => "RGB",
    };
    // Clients assume that each level is half as large as the previous one, ignoring rounding.
    let spacing = (0.0005 * f64::from(1_u32 << level)).to_string();
    let mut specification = json!({
        "frames": frames, "jpeg": layout.codec == Codec::Jpeg, "photometric": photometric,
        "samples": 3, "tile": [size.tile_width, size.tile_height],
        "size": [size.width, size.height],
        "kind": if label.is_some() { "LABEL" } else { "VOLUME" },
        "organization": "TILED_FULL", "table": "basic", "spacing": [spacing, spacing], "placed": true,
        "study": "1.2.826.0.1.1", "number": level + 1, "series": series,
        "uid": format!("{series}.{}", label.map_or_else(|| (level + 1).to_string(), str::to_owned)),
        "file": to.join(format!("{name}{level}.dcm")),
    });
    if let Some(icc) = slide.icc() {
        let file = directory.join("profile.icc");
        fs::write(&file, icc).unwrap();
        specification["icc"] = json!(file);
    }
    specification
}

/// Writes an OME-Zarr image of the levels.
pub(crate) fn zarr(slide: &Slide, directory: &Path, to: &Path) {
    let levels = slide.levels().into_iter().enumerate().map(|(level, size)| {
        let file = directory.join(format!("level-{level}"));
        let whole = Region { x: 0, y: 0, width: size.width, height: size.height };
        fs::write(&file, slide.read(level, whole).unwrap().pixels()).unwrap();
        json!({"file": file, "size": [size.width, size.height]})
    });
    let levels: Vec<Value> = levels.collect();
    let of = json!([{"version": 2, "type": "|u1", "axes": "cyx", "chunks": [1, 64, 64],
        "compressor": {"id": "blosc", "cname": "lz4", "shuffle": 1}, "separator": "/",
        "levels": levels, "out": to}]);
    make("make_zarr.py", &[], directory, &of);
}
