//! Slides with channels, compared with pixels that numpy makes from samples read by another program
//! (make/blend.py).

use super::{make, open};
use seekwire_slides_image::{
    Ink, Layer, Limits, Plane, Raster, Region, Rendering, Slide, Tile, Window,
};
use serde_json::Value;
use std::path::Path;

/// Runs a program that makes slides in a directory, and checks each against its description.
/// Returns their number.
pub(crate) fn check(program: &str, arguments: &[&Path], directory: &Path) -> usize {
    let mut all = arguments.to_vec();
    all.push(directory);
    make(program, &all);
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let described =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    described.map(|path| one(&path)).count()
}

fn one(path: &Path) {
    let described: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let name = path.file_stem().unwrap().to_str().unwrap();
    let slide = open(&path.with_extension(""));
    let (depth, times) = slide.planes();
    assert_eq!(serde_json::json!([depth, times]), described["planes"], "{name}");
    let channels = described["channels"].as_array().unwrap();
    assert_eq!(slide.channels().len(), channels.len(), "{name}");
    for (ours, theirs) in slide.channels().iter().zip(channels) {
        assert_eq!(ours.name.as_deref(), theirs["name"].as_str(), "{name}");
        let ink = ink(&theirs["color"], &theirs["window"]);
        assert_eq!(
            (ours.ink, Some(ours.is_measured)),
            (ink, theirs["measured"].as_bool()),
            "{name}"
        );
        assert_eq!(Some(ours.is_visible), theirs["shown"].as_bool(), "{name}");
    }
    for case in described["cases"].as_array().unwrap() {
        let rendering = rendering(case);
        let level = case["level"].as_u64().unwrap() as usize;
        let size = &slide.levels()[level];
        assert_eq!(serde_json::json!([size.width, size.height]), case["size"], "{name}");
        let whole = Region { x: 0, y: 0, width: size.width, height: size.height };
        let ours = slide.read_as(level, whole, &rendering).unwrap();
        let theirs = std::fs::read(case["pixels"].as_str().unwrap()).unwrap();
        assert!(ours.pixels() == theirs, "{name}: {}", differs(&ours, &theirs, case));
        if case["default"] == true {
            assert_eq!(slide.rendering(), rendering, "{name}");
            assert_eq!(slide.read(level, whole).unwrap(), ours, "{name}");
        }
        // As a process without the file sees it.
        let tile = slide.tile_of(level, (0, 0), &rendering).unwrap();
        let block = tile.to_block().into();
        assert_eq!(Tile::from_block(&block).unwrap(), tile, "{name}");
        let (width, height) = (size.width.min(tile.size().0), size.height.min(tile.size().1));
        let corner = slide.read_as(level, Region { width, height, ..whole }, &rendering).unwrap();
        let decoded = tile.decode(&Limits::default()).unwrap();
        let inside = (0.0, 0.0, f64::from(width), f64::from(height));
        assert_eq!(decoded.scale(inside, width, height).unwrap(), corner, "{name}");
    }
    if !channels.is_empty() {
        raw(&slide, &path.with_extension("raw"), name);
    }
}

fn differs(ours: &Raster, theirs: &[u8], case: &Value) -> String {
    let wrong =
        ours.pixels().iter().zip(theirs).enumerate().filter(|(_, (one, other))| one != other);
    let first: Vec<_> = wrong.clone().take(5).collect();
    format!("{case}: {} wrong, {first:?}", wrong.count())
}

fn ink(colour: &Value, window: &Value) -> Ink {
    let number = u32::from_str_radix(colour.as_str().unwrap(), 16).unwrap();
    let [_, red, green, blue] = number.to_be_bytes();
    let window = Window::new(window[0].as_f64().unwrap(), window[1].as_f64().unwrap());
    Ink { colour: [red, green, blue], window: window.unwrap() }
}

fn rendering(case: &Value) -> Rendering {
    let number = |value: &Value| value.as_u64().unwrap() as u32;
    let layers = case["layers"].as_array().unwrap().iter();
    let layers = layers.map(|of| Layer { channel: number(&of[0]), ink: ink(&of[1], &of[2]) });
    let plane = Plane { z: number(&case["z"]), t: number(&case["t"]) };
    Rendering { plane, layers: layers.collect() }
}

/// The samples of the last channel.
fn raw(slide: &Slide, file: &Path, name: &str) {
    let (depth, times) = slide.planes();
    let (channel, plane) =
        (slide.channels().len() as u32 - 1, Plane { z: depth - 1, t: times - 1 });
    let level = slide.levels()[0];
    let each = usize::from(slide.sample().1.max(8) / 8);
    let mut whole = vec![0; level.width as usize * level.height as usize * each];
    for row in 0..level.height.div_ceil(level.tile_height) {
        for column in 0..level.width.div_ceil(level.tile_width) {
            let raw = slide.raw(0, (column, row), channel, plane).unwrap();
            let length = raw.width as usize * each;
            for (y, line) in raw.bytes.chunks_exact(length).enumerate() {
                let y = row as usize * level.tile_height as usize + y;
                let x = column as usize * level.tile_width as usize;
                let at = (y * level.width as usize + x) * each;
                whole[at..at + length].copy_from_slice(line);
            }
            assert_eq!(raw.bytes.len(), length * raw.height as usize, "{name}");
        }
    }
    assert!(whole == std::fs::read(file).unwrap(), "{name}: other samples");
}
