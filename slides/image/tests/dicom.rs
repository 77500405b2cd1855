//! DICOM slides that pydicom makes from the tiles of a TIFF, compared with that TIFF and with
//! pydicom's own reading.

use crate::common::{aperio, base, make, make_of, open, vips, whole};
use seekwire_slides_image::{Codec, Colours, Instance, Layout, Limits, Region, Slide, StoredTile};
use seekwire_slides_image::{FileSource, sniff};
use serde_json::{Value, json};
use std::path::Path;

/// Writes the tiles of a level as frames, each to a file, and returns their description.
fn frames(slide: &Slide, level: usize, directory: &Path) -> Value {
    let level_size = slide.levels()[level];
    let directory = directory.join(format!("frames-{level}"));
    std::fs::create_dir(&directory).unwrap();
    let (columns, rows) = (
        level_size.width.div_ceil(level_size.tile_width),
        level_size.height.div_ceil(level_size.tile_height),
    );
    let mut layout = None;
    for number in 0..columns * rows {
        let tile = slide.tile(level, number % columns, number / columns).unwrap();
        layout = Some(tile.layout());
        std::fs::write(directory.join(format!("{number:06}")), stored(&tile)).unwrap();
    }
    let Some(Layout { colours, codec, samples, bits, .. }) = layout else { panic!("no tile") };
    let photometric = match colours {
        Colours::YCbCr => "YBR_FULL_422",
        Colours::Rgb => "RGB",
        _ => "MONOCHROME2",
    };
    json!({
        "frames": directory, "jpeg": codec == Codec::Jpeg, "photometric": photometric,
        "samples": samples, "bits": bits, "tile": [level_size.tile_width, level_size.tile_height],
        "size": [level_size.width, level_size.height], "kind": "VOLUME", "organization": "TILED_FULL",
        "table": "basic", "study": "1.2.826.0.1.1", "series": "1.2.826.0.1.2",
    })
}

/// The bytes of a frame.
fn stored(tile: &StoredTile) -> Vec<u8> {
    tile.jpeg().unwrap().unwrap_or_else(|| tile.bytes().to_vec())
}

/// A description with some changed values.
fn with(mut of: Value, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("{changes}") };
    for (key, value) in changes {
        of[key] = value;
    }
    of
}

fn make_dicom(directory: &Path, of: &[Value]) {
    make_of("make_dicom.py", &[Path::new("make")], directory, &json!(of));
}

fn same(slide: &Slide, level: usize, other: &Slide, of: usize) {
    assert!(whole(slide, level) == whole(other, of), "level {level} has other pixels");
}

#[test]
fn a_series_is_the_tiff_that_it_was_made_of() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    let options = "--tile --pyramid --tile-width 240 --tile-height 208 --compression jpeg --Q 85";
    vips(directory, &format!("tiffsave base.v made.tif {options}"));
    let tiff = open(&directory.join("made.tif"));
    assert!(tiff.levels().len() >= 3);
    let [large, middle, small] = [0, 1, 2].map(|level| frames(&tiff, level, directory));
    let series = directory.join("series");
    std::fs::create_dir(&series).unwrap();
    let file = |name: &str| series.join(name);
    // The largest in two files, the next without some of its tiles and in another order, and all
    // three methods to find a frame.
    let parts = json!({"concatenation": "1.2.826.0.1.3", "spacing": ["0.0006", "0.0005"]});
    let large = with(large, parts);
    make_dicom(
        directory,
        &[
            with(large.clone(), json!({"file": file("b"), "uid": "1.2.826.0.1.4", "count": 7})),
            with(large, json!({"file": file("a"), "first": 7, "fragments": 3})),
            with(
                middle,
                json!({"file": file("c"), "organization": "TILED_SPARSE", "table": "none",
                       "fragments": 2, "reversed": true, "without": [1]}),
            ),
            with(small.clone(), json!({"file": file("d"), "table": "extended"})),
            with(small.clone(), json!({"file": file("e"), "kind": "THUMBNAIL", "table": "none"})),
            // Not part of a slide.
            with(small, json!({"file": file("f"), "class": "1.2.840.10008.5.1.4.1.1.2"})),
        ],
    );
    std::fs::write(file("notes.txt"), "about the slide").unwrap();

    assert_eq!((sniff(&series), sniff(&file("a"))), (Some("dicom"), Some("dicom")));
    assert_eq!(sniff(&file("notes.txt")), None);
    for slide in [open(&series), open(&file("c"))] {
        assert_eq!(slide.format(), "dicom");
        let levels = slide.levels();
        assert_eq!(levels.len(), 3, "{levels:?}");
        for (level, of) in [(0, 0), (2, 2)] {
            assert_eq!(levels[level], tiff.levels()[of]);
            same(&slide, level, &tiff, of);
        }
        // One tile was not scanned.
        let absent = Region { x: 240, y: 0, width: 240, height: 208 };
        assert_eq!(slide.read(1, absent).unwrap().pixels(), vec![255; 240 * 208 * 3]);
        for (x, y, width, height) in [(0, 0, 240, 389), (0, 208, 556, 181), (480, 0, 76, 389)] {
            let region = Region { x, y, width, height };
            assert_eq!(slide.read(1, region).unwrap(), tiff.read(1, region).unwrap());
        }
        assert_eq!(slide.associated_names().collect::<Vec<_>>(), ["thumbnail"]);
        assert_eq!(slide.associated("thumbnail").unwrap().unwrap(), whole(&tiff, 2));
        let (x, y) = slide.microns_per_pixel().unwrap();
        assert!((x - 0.5).abs() < 1e-9 && (y - 0.6).abs() < 1e-9, "{x}, {y}");
        assert_eq!(slide.icc(), Some(&b"profile!"[..]));
        assert_eq!(slide.properties()["dicom.ObjectiveLensPower"], "20");
        assert!(!slide.properties().values().any(|value| value.contains("Anna")));
        web(&slide, &tiff);
    }

    // A single file, as on a web server, with some of its frames.
    let alone = Slide::from_source(FileSource::open(&file("d")).unwrap(), Limits::default());
    same(&alone.unwrap(), 0, &tiff, 2);
    let alone = Slide::from_source(FileSource::open(&file("a")).unwrap(), Limits::default());
    let alone = alone.unwrap();
    assert!(alone.tile(0, 0, 0).is_err());
    assert!(alone.tile(0, 2, 1).is_ok());
    let error = Slide::open(file("f").to_str().unwrap(), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("5.1.4.1.1.2"), "{error}");
}

/// Checks the data served by DICOMweb.
fn web(slide: &Slide, tiff: &Slide) {
    let dicom = slide.dicom().unwrap();
    assert_eq!((dicom.study(), dicom.series()), ("1.2.826.0.1.1", "1.2.826.0.1.2"));
    assert_eq!(dicom.instances().count(), 5);
    let one = dicom.instance("1.2.826.0.1.4").unwrap();
    assert_eq!((one.frames(), one.columns(), one.rows()), (7, 240, 208));
    assert_eq!(one.transfer_syntax(), "1.2.840.10008.1.2.4.50");
    assert_eq!(one.class(), "1.2.840.10008.5.1.4.1.1.77.1.6");
    assert_eq!(one.media_type(), "image/jpeg");
    for number in 1..=7 {
        let frame = one.frame(number).unwrap();
        let tile = stored(&tiff.tile(0, (number - 1) % 5, (number - 1) / 5).unwrap());
        assert_eq!(frame[..tile.len()], tile);
        // A fragment has an even length.
        assert!(frame.len() - tile.len() < 2);
    }
    assert!(one.frame(0).is_err() && one.frame(8).is_err());
    let region = Region { x: 240, y: 208, width: 240, height: 208 };
    let jpeg = slide.stored_jpeg(0, region).unwrap().unwrap();
    assert_eq!(jpeg, one.frame(7).unwrap());

    let parsed = |instance: &Instance| -> Value {
        serde_json::from_str(&instance.json("../bulk").unwrap()).unwrap()
    };
    let sparse = dicom.instances().map(parsed).find(|of| of.get("52009230").is_some()).unwrap();
    assert_eq!(sparse["7FE00010"], json!({"vr": "OB", "BulkDataURI": "../bulk"}));
    assert_eq!(sparse["00100010"]["Value"][0]["Ideographic"], "何^某");
}

#[test]
fn the_dataset_in_json_is_as_pydicom_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    vips(directory, "extract_area base.v small.v 0 0 300 200");
    vips(directory, "tiffsave small.v made.tif --tile --compression jpeg");
    let tiff = open(&directory.join("made.tif"));
    let sparse = json!({"file": directory.join("one"), "organization": "TILED_SPARSE",
                        "table": "extended", "spacing": ["0.0006", "0.0005"]});
    make_dicom(directory, &[with(frames(&tiff, 0, directory), sparse)]);
    let slide = open(&directory.join("one"));
    let instance = slide.dicom().unwrap().instances().next().unwrap();
    let mut ours: Value = serde_json::from_str(&instance.json("x").unwrap()).unwrap();
    ours.as_object_mut().unwrap().remove("7FE00010");
    let output = make("make_dicom.py", &[Path::new("json"), &directory.join("one")]);
    let theirs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ours, theirs);
}

#[test]
fn pixels_of_all_kinds_are_read_native_and_in_rle() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    let save = "--tile --tile-width 240 --tile-height 208 --compression none";
    vips(directory, &format!("tiffsave base.v colour.tif {save}"));
    vips(directory, "cast base.v wide.v ushort --shift");
    vips(directory, &format!("tiffsave wide.v wide.tif {save}"));
    // Twelve bits of sixteen.
    vips(directory, "linear wide.v twelve.v 0.0625 0");
    vips(directory, "cast twelve.v twelve-bits.v ushort");
    vips(directory, &format!("tiffsave twelve-bits.v twelve.tif {save}"));
    vips(directory, "colourspace base.v grey.v b-w");
    vips(directory, &format!("tiffsave grey.v grey.tif {save}"));
    vips(directory, "invert grey.v inverted.v");
    vips(directory, &format!("tiffsave inverted.v inverted.tif {save}"));
    // Planes instead of pixels: three images below each other, stored as one of a third of the
    // height.
    vips(directory, "extract_area base.v tile.v 0 0 240 208");
    for band in 0..3 {
        vips(directory, &format!("extract_band tile.v band-{band}.v {band}"));
    }
    vips(directory, "join band-0.v band-1.v bands.v vertical");
    vips(directory, "join bands.v band-2.v planes.v vertical");
    vips(directory, "tiffsave planes.v planes.tif --tile --tile-width 240 --tile-height 624");
    vips(directory, &format!("tiffsave tile.v tile.tif {save}"));

    let rows = [
        ("colour", "colour", json!({})),
        ("wide", "wide", json!({})),
        ("twelve", "wide", json!({"stored": 12})),
        ("grey", "grey", json!({})),
        ("inverted", "grey", json!({"photometric": "MONOCHROME1"})),
        (
            "planes",
            "tile",
            json!({"samples": 3, "photometric": "RGB", "planar": 1, "tile": [240, 208],
                   "size": [240, 208]}),
        ),
    ];
    let mut made = Vec::new();
    for (name, _, changes) in &rows {
        let directory_path = directory.join(name);
        std::fs::create_dir(&directory_path).unwrap();
        let tiff = open(&directory.join(format!("{name}.tif")));
        let of =
            with(frames(&tiff, 0, &directory_path), json!({"file": directory_path.join("native")}));
        let of = with(of, changes.clone());
        let rle =
            json!({"file": directory_path.join("rle"), "rle": true, "series": "1.2.826.0.1.5"});
        made.push(with(of.clone(), rle));
        made.push(of);
    }
    make_dicom(directory, &made);
    for (name, of, _) in &rows {
        let slide = open(&directory.join(name).join("native"));
        let tiff = open(&directory.join(format!("{of}.tif")));
        let (ours, theirs) = (whole(&slide, 0), whole(&tiff, 0));
        // With twelve bits, only the largest value is white; with sixteen, everything from 255 *
        // 256 on.
        let most = if *name == "twelve" { 1 } else { 0 };
        let far = ours.pixels().iter().zip(theirs.pixels()).filter(|(a, b)| a.abs_diff(**b) > most);
        assert_eq!(far.count(), 0, "{name}");
        assert_eq!(
            slide.dicom().unwrap().instances().next().unwrap().media_type(),
            "application/octet-stream"
        );
        let rle = open(&directory.join(name).join("rle"));
        same(&rle, 0, &slide, 0);
        let instance = rle.dicom().unwrap().instances().next().unwrap();
        assert_eq!(instance.media_type(), "image/dicom-rle");
        assert_eq!(instance.transfer_syntax(), "1.2.840.10008.1.2.5");
        let (x, y) = slide.microns_per_pixel().unwrap();
        let width = f64::from(slide.levels()[0].width);
        assert!((x - f64::from(0.1_f32) * 1000.0 / width).abs() < 1e-9 && y > 0.0, "{x}, {y}");
    }
}

#[test]
fn the_tiles_of_a_real_slide_are_the_same_in_dicom() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let real = open(&aperio());
    let of = frames(&real, 0, directory);
    let one = |name: &str, changes: Value| {
        let position =
            json!({"file": directory.join(name), "series": format!("1.2.826.{}", name.len())});
        with(with(of.clone(), position), changes)
    };
    make_dicom(
        directory,
        &[
            one("a", json!({})),
            one("jpeg2000", json!({"syntax": "1.2.840.10008.1.2.4.92"})),
            one("lossless", json!({"syntax": "1.2.840.10008.1.2.4.70"})),
            one("label", json!({"kind": "LABEL"})),
        ],
    );
    same(&open(&directory.join("a")), 0, &real, 0);
    let fails = |path: &Path| Slide::open(path.to_str().unwrap(), Limits::default()).err().unwrap();
    for (name, what) in [
        ("jpeg2000", "compression by the extensions of JPEG 2000"),
        ("lossless", "compression by lossless JPEG"),
        ("label", "without an image of the type VOLUME"),
        ("", "a directory of several series: 1.2.826.1, 1.2.826.5, 1.2.826.8"),
    ] {
        let error = fails(&directory.join(name)).to_string();
        assert!(error.contains(what), "{error}");
    }
}
