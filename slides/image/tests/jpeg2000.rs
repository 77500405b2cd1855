//! JPEG 2000 in TIFF, Aperio SVS and DICOM, compared with OpenJPEG; malformed streams, and streams
//! that need more resources than they may have.

use crate::common::seeds::{self, SHORT};
use crate::common::{make, make_of, open, run, vips, whole};
use seekwire_slides_image::{Codec, Error, Limits, MemorySource, Raster, Region, Result, Slide};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Set if the test runs in a process with little memory.
const BOUNDED: &str = "SEEKWIRE_TEST_BOUNDED";

/// How much pixels may differ, because lossy coefficients or colour differences are rounded.
fn tolerance(name: &str) -> u8 {
    match name {
        _ if name.contains("lossy") || name.contains("ict") => 1,
        _ if name.contains("ycc") || name.contains("full") => 1,
        _ => 0,
    }
}

fn assert_shows(slide: &Slide, directory: &Path, name: &str) {
    let ours = whole(slide, 0);
    let theirs = std::fs::read(directory.join(name).with_extension("rgb")).unwrap();
    assert_eq!(ours.pixels().len(), theirs.len(), "{name}");
    let most = ours.pixels().iter().zip(&theirs).map(|(one, other)| one.abs_diff(*other)).max();
    assert!(most.unwrap() <= tolerance(name), "{name}: {most:?}");
}

#[test]
fn tiles_are_as_openjpeg_decodes_them() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    make("make_jpeg2000.py", &[directory]);
    let refused = [
        ("subsampled-rgb.tif", "components for [(1, 1), (2, 2), (2, 2)] pixels"),
        ("subsampled-rgb.svs", "components for [(1, 1), (2, 2), (2, 2)] pixels"),
        ("grey-as-rgb.tif", "1 components, not 3"),
        ("deep-as-bytes.tif", "samples of 16 bits, not 8"),
    ];
    let mut read = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".tif") && !name.ends_with(".svs") {
            continue;
        }
        // Files supported here are not passed to OpenSlide.
        let limits = Limits { openslide: true, ..Limits::default() };
        let slide = Slide::open(path.to_str().unwrap(), limits).unwrap();
        assert_eq!(slide.format(), if name.ends_with(".svs") { "aperio" } else { "tiff" });
        assert_eq!(slide.tile(0, 0, 0).unwrap().layout().codec, Codec::Jpeg2000);
        match refused.iter().find(|(refused, _)| *refused == name) {
            Some((_, what)) => {
                let error = slide.read(0, AREA).unwrap_err();
                assert!(matches!(error, Error::Tile { .. }), "{name}: {error:?}");
                assert!(error.to_string().contains(what), "{name}: {error}");
            }
            None => assert_shows(&slide, directory, name),
        }
        read += 1;
    }
    assert_eq!(read, 21);
}

#[test]
fn frames_are_as_openjpeg_decodes_them() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    make("make_jpeg2000.py", &[directory]);
    let names = [
        "rct",
        "named-rgb",
        "no-transform",
        "ict",
        "ycc",
        "ycc-422",
        "ycc-420",
        "full",
        "grey",
        "inverted",
        "deep",
        "twelve",
    ];
    let file = |name: &str| directory.join(format!("{name}.dcm"));
    let of = |(number, name): (usize, &&str)| {
        let said = std::fs::read(directory.join(format!("{name}.json"))).unwrap();
        let mut of: Value = serde_json::from_slice(&said).unwrap();
        let is_lossy = tolerance(name) > 0;
        let table = ["basic", "extended", "none"][number % 3];
        let all = json!({
            "file": file(name), "frames": directory.join(name), "jpeg": true,
            "syntax": format!("1.2.840.10008.1.2.4.9{}", u8::from(is_lossy)),
            "tile": [64, 64], "size": [128, 128], "kind": "VOLUME", "organization": "TILED_FULL",
            "table": table, "study": "1.2.826.0.1.1",
            "series": format!("1.2.826.0.1.{}", number + 2), "spacing": ["0.0005", "0.0005"],
        });
        let Value::Object(all) = all else { panic!("{all}") };
        all.into_iter().for_each(|(key, value)| of[key] = value);
        of
    };
    let made: Vec<Value> = names.iter().enumerate().map(of).collect();
    make_of("make_dicom.py", &[Path::new("make")], directory, &json!(made));
    for name in names {
        let slide = open(&file(name));
        assert_eq!(slide.format(), "dicom");
        assert_shows(&slide, directory, name);
        let instance = slide.dicom().unwrap().instances().next().unwrap();
        assert_eq!(instance.media_type(), "image/jp2");
        assert_eq!(instance.frame(4).unwrap()[..4], [0xff, 0x4f, 0xff, 0x51]);
    }
}

#[test]
fn a_codestream_in_several_tiles_is_put_together() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    crate::common::base(directory);
    // Not a multiple of the tile size in either direction.
    vips(directory, "extract_area base.v even.v 0 0 208 176");
    vips(directory, "jp2ksave even.v made.jp2 --lossless --tile-width 64 --tile-height 48");
    let file = std::fs::read(directory.join("made.jp2")).unwrap();
    let at = file.windows(4).position(|name| name == b"jp2c").unwrap();
    let stream = &file[at + 4..];
    let slide = colours((208, 176), stream).unwrap();
    let all = Region { x: 0, y: 0, width: 208, height: 176 };
    assert_eq!(
        crate::common::psnr(&slide.read(0, all).unwrap(), &crate::common::ppm(directory, "even.v")),
        f64::INFINITY
    );
    // The same in a JPEG 2000 file.
    let error = colours((208, 176), &file).unwrap().read(0, all).unwrap_err();
    assert!(error.to_string().contains("a file of JPEG 2000 (JP2), not a codestream"), "{error}");
    // A missing tile would be grey.
    let offsets: Vec<usize> =
        (0..stream.len() - 4).filter(|at| stream[*at..*at + 4] == [0xff, 0x90, 0, 10]).collect();
    assert_eq!(offsets.len(), 16);
    for without in [0, 7, 15] {
        let end = offsets.get(without + 1).copied().unwrap_or(stream.len() - 2);
        let rest = [&stream[..offsets[without]], &stream[end..]].concat();
        let error = colours((208, 176), &rest).unwrap().read(0, all).unwrap_err();
        assert!(error.to_string().contains("some of its tiles are missing"), "{error}");
    }
}

/// One tile of red, green and blue.
fn colours(size: (u32, u32), stream: &[u8]) -> Result<Slide> {
    let (width, height) = size;
    let size = [(256, width), (257, height), (322, width), (323, height)];
    let size = size.map(|(tag, side)| (tag, seeds::LONG, 1, side));
    let of = [(259, SHORT, 1, 34712), (262, SHORT, 1, 2), (277, SHORT, 1, 3)];
    let bytes = seeds::tiff(&[&size[..], &of].concat(), 0, stream);
    Slide::from_source(MemorySource::new("colours.tif", bytes), Limits::default())
}

const AREA: Region = Region { x: 0, y: 0, width: 64, height: 64 };

/// The picture of a grey tile of 64 x 64 pixels.
fn shown(stream: &[u8]) -> Result<Raster> {
    let bytes = seeds::tiff(&[(259, SHORT, 1, 34712)], 0, stream);
    let limits = Limits { tile_pixels: 1 << 16, ..Limits::default() };
    Slide::from_source(MemorySource::new("grey.tif", bytes), limits)?.read(0, AREA)
}

/// The waves with other bytes at an offset.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut stream = seeds::jpeg_2000();
    stream[at..at + bytes.len()].copy_from_slice(bytes);
    stream
}

/// Offsets in the waves of the sizes, the coding style, the steps and the only part.
const SIZ: usize = 6;
const COD: usize = 49;
const QCD: usize = 66;
const SOT: usize = 81;

#[test]
fn a_cut_codestream_is_an_error() {
    let stream = seeds::jpeg_2000();
    let picture = shown(&stream).unwrap();
    let at = |x: usize, y: usize| picture.pixels()[3 * (y * 64 + x)];
    // As OpenJPEG decodes it.
    let row: Vec<u8> = (30..36).map(|x| at(x, 40)).collect();
    assert_eq!((row, at(0, 63), at(3, 63)), (vec![159, 172, 182, 184, 182, 179], 120, 167));
    for length in (1..stream.len()).filter(|length| length + 2 != stream.len()) {
        let error = shown(&stream[..length]).unwrap_err();
        assert!(matches!(error, Error::Tile { .. }), "{length}: {error:?}");
        assert!(error.to_string().contains("its JPEG 2000: "), "{length}: {error}");
        // Ends at the cut, with a matching length, without the last packets: these are one byte
        // each, which means that they are empty.
        if length + 2 > stream.len() {
            continue;
        }
        let mut ended = [&stream[..length], &[0xff, 0xd9]].concat();
        assert!(shown(&ended).is_err(), "{length}");
        if length > SOT + 14 && length < stream.len() - 4 {
            ended[SOT + 6..SOT + 10].copy_from_slice(&((length - SOT) as u32).to_be_bytes());
            assert!(shown(&ended).is_err(), "{length}");
        }
    }
    // The part has the right length only if the end of the stream counts as data.
    for without in 1..4 {
        let ended = [&stream[..120], &stream[120 + without..]].concat();
        assert!(shown(&ended).is_err(), "{without}");
    }
    // Only the end marker is missing, or other bytes follow it.
    assert!(shown(&stream[..stream.len() - 2]).is_ok_and(|other| other == picture));
    // A part of two, with and without the end marker.
    let half = changed(SOT + 11, &[2]);
    for stream in [&half[..], &half[..half.len() - 2]] {
        let error = shown(stream).unwrap_err().to_string();
        assert!(error.contains("some of its tiles are missing"), "{error}");
    }
    // A part without packets, and one without the last of them: four resolutions in a layer.
    let body = SOT + 14;
    for length in [body, stream.len() - 3] {
        let mut cut = [&stream[..length], &[0xff, 0xd9]].concat();
        cut[SOT + 6..SOT + 10].copy_from_slice(&((length - SOT) as u32).to_be_bytes());
        let error = shown(&cut).unwrap_err().to_string();
        assert!(error.contains("some of its packets are missing"), "{length}: {error}");
    }
    // Parameters in the tile: the same as those of the whole, and others.
    let with = |own: &[u8]| {
        let mut stream = [&stream[..SOT + 12], own, &stream[SOT + 12..]].concat();
        let length = (stream.len() - 2 - SOT) as u32;
        stream[SOT + 6..SOT + 10].copy_from_slice(&length.to_be_bytes());
        shown(&stream)
    };
    let coding = &stream[COD - 4..QCD - 4];
    assert!(with(coding).is_ok_and(|other| other == picture));
    let steps = &stream[QCD - 4..SOT];
    assert!(with(steps).is_ok_and(|other| other == picture));
    // Those of a component follow those of all, which the decoder would use instead.
    let own = [&[0xff, 0x5d, 0, steps[3] + 1, 0], &steps[4..]].concat();
    assert!(with(&[steps, &own].concat()).is_ok_and(|other| other == picture));
    let error = with(&[&own[..], steps].concat()).unwrap_err().to_string();
    assert!(error.contains("a tile of it has an unsupported marker: ff5c"), "{error}");
    for (at, other) in [(4, 0), (6, 2), (8, 1), (9, 1), (10, 3), (12, 1), (13, 1), (14, 0x77)] {
        let mut own = coding.to_vec();
        own[at] = other;
        let error = with(&own).unwrap_err().to_string();
        assert!(error.contains("a tile of it has an unsupported marker: ff52"), "{at}: {error}");
    }
    assert!(shown(&[&stream[..], &[0; 9]].concat()).is_ok_and(|other| other == picture));
    let error = shown(&[]).unwrap_err().to_string();
    assert!(error.contains("nothing but empty tiles"), "{error}");
    for length in [1, 2, 64, 4096] {
        assert!(shown(&vec![0; length]).is_err());
    }
}

#[test]
fn headers_that_do_not_fit_the_tile_are_refused() {
    let word = |number: u32| number.to_be_bytes();
    for (stream, what) in [
        (changed(SIZ + 2, &word(65)), "it is 65 x 64, the tile 64 x 64"),
        (changed(SIZ + 6, &word(u32::MAX)), "it is 64 x 4294967295, the tile"),
        (changed(SIZ + 2, &word(0)), "its SIZ is broken"),
        (changed(SIZ + 10, &word(1)), "left upper corner"),
        (changed(SIZ + 30, &word(1)), "left upper corner"),
        (changed(SIZ + 18, &word(0)), "its SIZ is broken"),
        (changed(SIZ + 18, &word(32)), "some of its tiles are missing"),
        (changed(SIZ + 18, &[word(1), word(1)].concat()), "it is in 4096 tiles, of 16 at most"),
        (changed(SIZ + 34, &[0x40, 0]), "it has 16384 components"),
        (changed(SIZ + 34, &[0, 3]), "its SIZ is broken"),
        (changed(SIZ + 36, &[0x87]), "its samples have a sign"),
        (changed(SIZ + 36, &[11]), "samples of 12 bits, not 8"),
        (changed(SIZ + 37, &[2, 2]), "components for [(2, 2)] pixels"),
        (changed(SIZ + 37, &[0]), "its SIZ is broken"),
        (changed(COD - 2, &[0, 16]), "its COD is broken"),
        (changed(COD, &[9]), "its COD is broken"),
        (changed(COD + 8, &[0x48]), "its COD is broken"),
        (changed(COD + 5, &[33]), "its COD is broken"),
        (changed(COD - 4, &[0xff, 0x50]), "High-Throughput JPEG 2000"),
        (changed(COD - 4, &[0xff, 0x60]), "an unsupported marker: ff60"),
        (changed(QCD, &[0x43]), "an unsupported marker: ff5c"),
        // More bit-planes than samples can have.
        (changed(QCD, &[0xe2, 0xff]), "an unsupported marker: ff5c"),
        (changed(SOT + 4, &[0, 1]), "a part belongs to no tile"),
        (changed(SOT + 10, &[1]), "not in order"),
        (changed(SOT + 6, &word(13)), "it is cut"),
        (changed(SOT + 6, &word(74)), "wrong length"),
        (changed(SOT + 6, &word(u32::MAX)), "it is cut"),
    ] {
        let error = shown(&stream).unwrap_err();
        assert!(matches!(error, Error::Tile { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
    // Fewer bits than the slide declares would be shown dark.
    let of = [(258, SHORT, 1, 16), (259, SHORT, 1, 34712)];
    let bytes = seeds::tiff(&of, 0, &changed(SIZ + 36, &[11]));
    let slide = Slide::from_source(MemorySource::new("deep.tif", bytes), Limits::default());
    let error = slide.unwrap().read(0, AREA).unwrap_err().to_string();
    assert!(error.contains("samples of 12 bits, not 16"), "{error}");
    // Many tiles within a large one.
    let stream =
        changed(SIZ + 2, &[word(128), word(128), [0; 4], [0; 4], word(1), word(1)].concat());
    let size = [256, 257, 322, 323].map(|tag| (tag, seeds::LONG, 1, 128));
    let bytes = seeds::tiff(&[&size[..], &[(259, SHORT, 1, 34712)]].concat(), 0, &stream);
    let slide = Slide::from_source(MemorySource::new("many.tif", bytes), Limits::default());
    let error = slide.unwrap().read(0, AREA).unwrap_err().to_string();
    assert!(error.contains("it is in 16384 tiles, of 16 at most"), "{error}");
}

#[test]
fn broken_codestreams_take_little_memory() {
    let own = std::env::current_exe().unwrap();
    // Memory for the program itself, its threads, and a little for decoding.
    let run_bounded = "ulimit -v 400000 && exec \"$0\" \"$@\"";
    let output = run(Command::new("sh")
        .args(["-c", run_bounded])
        .arg(own)
        .args(["--exact", "--ignored", "--nocapture", "jpeg2000::read_broken_codestreams"])
        .args(["--test-threads", "1"])
        .env(BOUNDED, "1"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
#[ignore = "the test above runs it, with little memory"]
fn read_broken_codestreams() {
    assert!(std::env::var_os(BOUNDED).is_some());
    let stream = seeds::jpeg_2000();
    // The decoder is expected to panic often.
    std::panic::set_hook(Box::new(|_| {}));
    let look = |stream: &[u8], what: String| match shown(stream) {
        Ok(raster) => assert_eq!((raster.width(), raster.height()), (64, 64), "{what}"),
        Err(Error::Tile { .. }) => {}
        Err(error) => panic!("{what}: {error:?}"),
    };
    for at in 0..stream.len() {
        for change in [0x01, 0x10, 0x55, 0x80, 0xff] {
            let mut stream = stream.clone();
            stream[at] ^= change;
            look(&stream, format!("byte {at} xor {change}"));
        }
    }
    // Many resolutions, layers and small precincts in a large tile.
    for (levels, layers, precinct, block) in
        [(2, 32, 0x11, 0), (2, 1, 0x11, 0), (32, 32, 0x11, 0), (32, 1, 0xff, 4), (5, 32, 0xff, 0)]
    {
        let side = 2048_u32.to_be_bytes();
        let mut large = changed(SIZ + 2, &[side, side, [0; 4], [0; 4], side, side].concat());
        let precincts = vec![precinct; levels + 1];
        let style =
            [0xff, 0x52, 0, 13 + levels as u8, 1, 1, 0, layers, 0, levels as u8, block, block];
        let coding = [&style[..], &[0, 0], &precincts].concat();
        let steps = vec![0x67; 2 * (3 * levels + 1)];
        let quantization = [&[0xff, 0x5c, 0, 5 + 6 * levels as u8, 0x42], &steps[..]].concat();
        large.splice(COD - 4..SOT, [coding, quantization].concat());
        let size = [256, 257, 322, 323].map(|tag| (tag, seeds::LONG, 1, 2048));
        let bytes = seeds::tiff(&[&size[..], &[(259, SHORT, 1, 34712)]].concat(), 0, &large);
        let limits = Limits { tile_pixels: 1 << 22, ..Limits::default() };
        let slide = Slide::from_source(MemorySource::new("large.tif", bytes), limits).unwrap();
        let what = format!("{levels} levels, {layers} layers, {precinct}, {block}");
        let error = slide.read(0, AREA).unwrap_err().to_string();
        assert!(error.contains("its JPEG 2000: "), "{what}: {error}");
        if precinct == 0x11 || block == 0 {
            assert!(error.contains("its precincts and code-blocks may take"), "{what}: {error}");
        }
    }
    // A strip of many small code-blocks, whose tag trees are much larger than their contents.
    let (width, height) = (4_u32, 1_u32 << 15);
    let [wide, high] = [width, height].map(u32::to_be_bytes);
    let mut strip = changed(SIZ + 2, &[wide, high, [0; 4], [0; 4], wide, high].concat());
    let style = [0xff, 0x52, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let quantization = [0xff, 0x5c, 0, 4, 0x40, 0x40];
    strip.splice(COD - 4..SOT, [&style[..], &quantization].concat());
    let size = [(256, width), (257, height), (322, width), (323, height)];
    let size = size.map(|(tag, side)| (tag, seeds::LONG, 1, side));
    let bytes = seeds::tiff(&[&size[..], &[(259, SHORT, 1, 34712)]].concat(), 0, &strip);
    let limits = Limits { tile_pixels: 1 << 22, ..Limits::default() };
    let slide = Slide::from_source(MemorySource::new("strip.tif", bytes), limits).unwrap();
    let error = slide.read(0, Region { x: 0, y: 0, width: 4, height: 4 }).unwrap_err().to_string();
    assert!(error.contains("it is in too many pieces"), "{error}");
}
