//! OME-Zarr images that zarr makes from the pixels of a TIFF, compared with that TIFF.

use crate::common::seeds::{Files, blosc, zarr_2, zarr_3};
use crate::common::{base, make_of, open, vips, whole};
use seekwire_slides_image::{Codec, Error, Limits, Region, Slide, StoredTile, sniff};
use seekwire_slides_image::{MemorySource, Source, Store};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

fn with(mut of: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        of[key] = value.clone();
    }
    of
}

#[test]
fn every_level_is_as_in_the_tiff_it_was_made_of() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    vips(directory, "extract_area base.v part.v 0 0 511 333");
    vips(directory, "tiffsave part.v made.tif --tile --pyramid --tile-width 128 --tile-height 128");
    let tiff = open(&directory.join("made.tif"));
    let levels: Vec<Value> = (0..2)
        .map(|level| {
            let file = directory.join(format!("level-{level}"));
            let pixels = whole(&tiff, level);
            std::fs::write(&file, pixels.pixels()).unwrap();
            json!({"file": file, "size": [pixels.width(), pixels.height()]})
        })
        .collect();

    let old = json!({"version": 2, "type": "|u1", "axes": "tczyx", "chunks": [1, 1, 1, 100, 120],
                     "compressor": {"id": "blosc", "cname": "lz4", "shuffle": 1},
                     "separator": "/", "levels": levels});
    let new = json!({"version": 3, "type": "|u1", "axes": "cyx", "chunks": [1, 128, 128],
                     "compressor": [["zstd", {}]], "levels": levels});
    // 16-bit samples whose upper 8 bits are the value.
    let wide = json!({"type": "<u2", "times": 257});
    let codec = |name: &str, cname: &str, shuffle: u8| -> Value {
        json!({"compressor": {"id": name, "cname": cname, "shuffle": shuffle}})
    };
    let id = |name: &str| json!({"compressor": {"id": name}});
    let rows = [
        ("old", old.clone()),
        (
            "three-in-one",
            with(old.clone(), &json!({"axes": "cyx", "chunks": [3, 64, 256], "separator": "."})),
        ),
        (
            "two-and-one",
            with(with(old.clone(), &wide), &json!({"axes": "cyx", "chunks": [2, 99, 101]})),
        ),
        ("raw", with(old.clone(), &json!({"compressor": null}))),
        ("zlib", with(old.clone(), &id("zlib"))),
        ("gzip", with(old.clone(), &id("gzip"))),
        ("zstd", with(old.clone(), &id("zstd"))),
        ("lz4", with(old.clone(), &id("lz4"))),
        (
            "big",
            with(
                with(old.clone(), &json!({"type": ">u2", "times": 257})),
                &codec("blosc", "zstd", 2),
            ),
        ),
        ("split", with(with(old.clone(), &wide), &codec("blosc", "blosclz", 1))),
        ("bits", with(old.clone(), &codec("blosc", "lz4hc", 2))),
        (
            "odd-bits",
            with(
                with(old.clone(), &codec("blosc", "zlib", 2)),
                &json!({"chunks": [1, 1, 1, 99, 101]}),
            ),
        ),
        ("not-shuffled", with(with(old.clone(), &wide), &codec("blosc", "zlib", 0))),
        ("new", new.clone()),
        ("new-gzip", with(new.clone(), &json!({"compressor": [["gzip", {}], ["crc32c", {}]]}))),
        ("new-raw", with(new.clone(), &json!({"compressor": [], "separator": "."}))),
        (
            "new-blosc",
            with(
                with(new.clone(), &wide),
                &json!({"compressor": [["blosc", {"cname": "lz4", "shuffle": "bitshuffle"}]]}),
            ),
        ),
        ("new-big", with(with(new.clone(), &wide), &json!({"big": true}))),
        ("shards", with(new.clone(), &json!({"chunks": [1, 64, 64], "shards": [3, 256, 128]}))),
        ("beside", with(new.clone(), &json!({"axes": "yxc", "chunks": [150, 130, 3]}))),
        ("below", with(new.clone(), &json!({"below": true}))),
        // Values from 100 on, in steps of 16, and the ones to be shown as black and white.
        (
            "window",
            with(
                new.clone(),
                &json!({"type": "<u2", "times": 16, "plus": 100, "omero": {
            "channels": [{"window": {"start": 100.0, "end": 4180.0, "min": 0, "max": 65535}}]}}),
            ),
        ),
    ];
    let hole = json!({"from_row": 300, "fill": 200});
    let grey = json!({"axes": "yx", "grey": true, "chunks": [100, 100]});
    let other = [
        ("hole", with(new.clone(), &hole)),
        (
            "hole-in-shards",
            with(
                with(new.clone(), &hole),
                &json!({"chunks": [3, 50, 50], "shards": [3, 400, 400]}),
            ),
        ),
        ("grey", with(new.clone(), &grey)),
    ];
    let path_of = |name: &str| directory.join(format!("{name}.zarr"));
    let all: Vec<Value> = rows
        .iter()
        .chain(&other)
        .map(|(name, of)| with(of.clone(), &json!({"out": path_of(name)})))
        .collect();
    make_of("make_zarr.py", &[], directory, &json!(all));

    for (name, _) in &rows {
        let slide = open(&path_of(name));
        assert_eq!(slide.format(), "ome-zarr");
        assert_eq!(sniff(&path_of(name)), Some("ome-zarr"));
        for level in 0..2 {
            let size = |of: &Slide| (of.levels()[level].width, of.levels()[level].height);
            assert_eq!(size(&slide), size(&tiff), "{name}");
            assert!(whole(&slide, level) == whole(&tiff, level), "{name}: level {level} differs");
        }
        assert_eq!(slide.microns_per_pixel(), Some((0.5, 0.5)), "{name}");
        assert_eq!(slide.properties()["ome.Name"], "slide");
        // The block decodes elsewhere without the files.
        let tile = slide.tile(0, 1, 1).unwrap();
        let block = tile.to_block().into();
        assert_eq!(StoredTile::from_block(&block).unwrap(), tile);
        let region = Region { x: 130, y: 130, width: 9, height: 9 };
        assert_eq!(slide.read(0, region).unwrap(), tiff.read(0, region).unwrap());
        assert_eq!(slide.stored_jpeg(0, region).unwrap(), None);
    }
    let below = open(&path_of("below"));
    assert_eq!(below.associated("label").unwrap().unwrap(), whole(&tiff, 1));
    differs(&tiff, &path_of);
}

/// Images that differ from the TIFF.
fn differs(tiff: &Slide, path_of: &dyn Fn(&str) -> PathBuf) {
    for name in ["hole", "hole-in-shards"] {
        let slide = open(&path_of(name));
        let region = Region { x: 0, y: 0, width: 511, height: 300 };
        assert_eq!(slide.read(0, region).unwrap().pixels(), vec![200; 511 * 300 * 3], "{name}");
        let region = Region { x: 0, y: 300, width: 511, height: 33 };
        assert_eq!(slide.read(0, region).unwrap(), tiff.read(0, region).unwrap(), "{name}");
    }
    assert_eq!(open(&path_of("hole")).tile(0, 0, 0).unwrap().layout().codec, Codec::Absent);
    let (grey, colour) = (whole(&open(&path_of("grey")), 1), whole(tiff, 1));
    let reds = colour.pixels().chunks(3).flat_map(|pixel| [pixel[0]; 3]);
    assert!(reds.eq(grey.pixels().iter().copied()));
}

/// Files in memory.
struct Memory(Files);

impl Store for Memory {
    fn name(&self) -> &str {
        "hostile.zarr"
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>, Error> {
        let bytes = self.0.get(key).cloned();
        Ok(bytes.map(|bytes| Arc::new(MemorySource::new(key, bytes)) as Arc<dyn Source>))
    }
}

fn read(files: &Files) -> Result<Vec<u8>, Error> {
    let slide = Slide::from_store(Memory(files.clone()), Limits::default())?;
    let region = Region { x: 0, y: 0, width: 100, height: 64 };
    slide.read(0, region).map(|raster| raster.pixels().to_vec())
}

#[test]
fn what_is_wrong_is_said() {
    let chunk = vec![5; 64 * 64];
    let old = zarr_2("null", &chunk);
    let new = zarr_3("", &chunk.repeat(3));
    let frame = zarr_2(r#"{"id": "blosc"}"#, &blosc(4096));
    for files in [&old, &new, &frame] {
        let pixels = read(files).unwrap();
        for (at, value) in pixels.iter().enumerate() {
            assert_eq!(*value, if at / 3 % 100 < 64 { 5 } else { 9 });
        }
    }
    let rows = [
        (&old, ".zattrs", r#""path": "0""#, r#""path": "1""#, "no array \"1\""),
        (&old, ".zattrs", "multiscales", "plate", "without an image"),
        (&old, ".zattrs", r#""name": "x""#, r#""name": "q""#, "the axes"),
        (&old, ".zattrs", "{", "[", "zattrs"),
        (&old, "0/.zarray", "[3, 64, 100]", "[3, 64]", "a shape"),
        (&old, "0/.zarray", "[3, 64, 100]", "[3, 64, 0]", "a shape"),
        (&old, "0/.zarray", "[3, 64, 100]", "[3, 1000000000, 1000000000]", "beyond the limit"),
        (&old, "0/.zarray", "[1, 64, 64]", "[1, 1000000000, 1000000000]", "beyond the limit"),
        (&old, "0/.zarray", "[1, 64, 64]", "[1, 0, 64]", "a shape"),
        (&old, "0/.zarray", "[1, 64, 64]", "[100, 64, 64]", "of 409600"),
        (&old, "0/.zarray", "|u1", "<c8", "c8"),
        (&old, "0/.zarray", "|u1", "<f4", "of 16384"),
        (&old, "0/.zarray", "\"C\"", "\"X\"", "order"),
        (&old, "0/.zarray", "\"filters\": null", "\"filters\": [{}]", "filters"),
        (&old, "0/.zarray", "null", r#"{"id": "bz2"}"#, "bz2"),
        (&old, "0/.zarray", "null", r#"{"id": "zlib"}"#, "tile 0, 0"),
        (&old, "0/.zarray", "null", r#"{"id": "zstd"}"#, "tile 0, 0"),
        (&old, "0/.zarray", "null", r#"{"id": "lz4"}"#, "tile 0, 0"),
        (&old, "0/.zarray", "null", r#"{"id": "blosc"}"#, "tile 0, 0"),
        (&new, "0/zarr.json", "regular", "rectilinear", "rectilinear"),
        (&new, "0/zarr.json", "\"default\"", "\"other\"", "other"),
        (&new, "0/zarr.json", "[3, 64, 64]", "[3, 60, 64]", "shards of"),
        (&new, "0/zarr.json", "[3, 64, 64]", "[3, 0, 64]", "shards of"),
        (&new, "0/zarr.json", "sharding_indexed", "transpose", "transposition"),
        (
            &new,
            "0/zarr.json",
            "[{\"name\": \"bytes\"}",
            "[{\"name\": \"bytes\"}, {\"name\": \"zfp\"}",
            "zfp",
        ),
    ];
    for (files, file, from, to, what) in rows {
        let mut files = files.clone();
        let text = String::from_utf8(files[file].clone()).unwrap();
        assert!(text.contains(from), "{from}");
        files.insert(file.into(), text.replacen(from, to, 1).into());
        let error = read(&files).err().unwrap_or_else(|| panic!("{to}: read")).to_string();
        assert!(error.contains(what) && error.contains("hostile.zarr"), "{what}: {error}");
    }
    let mut large = new.clone();
    let text = String::from_utf8(large["0/zarr.json"].clone()).unwrap();
    let text = text.replace("[3, 64, 128]", "[3, 64, 4611686018427387904]");
    large.insert("0/zarr.json".into(), text.into());
    assert!(read(&large).unwrap_err().to_string().contains("shorter than its index"));
    let mut snappy = blosc(4096);
    snappy[2] |= 2 << 5;
    let error = read(&zarr_2(r#"{"id": "blosc"}"#, &snappy)).unwrap_err().to_string();
    assert!(error.contains("Snappy"), "{error}");
    let mut cut = new.clone();
    cut.insert("0/c/0/0/0".into(), vec![0; 31]);
    assert!(read(&cut).unwrap_err().to_string().contains("shorter than its index"));
    let mut checked = zarr_3(r#", {"name": "crc32c"}"#, &chunk.repeat(3));
    assert!(read(&checked).unwrap_err().to_string().contains("checksum"));
    // A chunk that exists is not an absent one, which would be of one colour.
    for files in [zarr_2("null", &[]), zarr_3("", &[])] {
        assert!(read(&files).unwrap_err().to_string().contains("a chunk without bytes"));
    }
    checked.clear();
    assert!(read(&checked).unwrap_err().to_string().contains("without an image"));
}

#[test]
fn the_name_of_an_array_may_be_a_number() {
    let mut files = zarr_2("null", &[5; 64 * 64]);
    let expected = read(&files).unwrap();
    let attributes = String::from_utf8(files[".zattrs"].clone()).unwrap();
    let attributes = attributes.replace(r#""path": "0""#, r#""path": 0"#);
    files.insert(".zattrs".into(), attributes.into());
    assert_eq!(read(&files).unwrap(), expected);
}

#[test]
fn the_resolution_is_that_of_the_largest_level() {
    let mut files = zarr_2("null", &[5; 64 * 64]);
    let array = String::from_utf8(files["0/.zarray"].clone()).unwrap();
    files.insert("1/.zarray".into(), array.replace("[3, 64, 100]", "[3, 32, 50]").into());
    for channel in 0..3 {
        files.insert(format!("1/{channel}.0.0"), vec![5; 64 * 64]);
    }
    let attributes = String::from_utf8(files[".zattrs"].clone()).unwrap();
    let level = r#"{"path": "1", "coordinateTransformations": [
        {"type": "scale", "scale": [1.0, 1.0, 1.0]}]}"#;
    let (start, end) = (r#""datasets": ["#, r#"[1.0, 0.5, 0.5]}]}]"#);
    let first = attributes.replace(start, &format!("{start}{level}, "));
    let last = attributes.replace(end, &format!("[1.0, 0.5, 0.5]}}]}}, {level}]"));
    for attributes in [first, last] {
        files.insert(".zattrs".into(), attributes.into());
        let store = Memory(files.clone());
        let slide = Slide::from_store(store, Limits::default()).unwrap();
        let levels: Vec<u32> = slide.levels().iter().map(|level| level.width).collect();
        assert_eq!((levels, slide.microns_per_pixel()), (vec![100, 50], Some((0.5, 0.5))));
    }
}

#[test]
fn a_name_does_not_lead_out_of_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("inside.zarr");
    for (name, bytes) in zarr_2("null", &[5; 64 * 64]) {
        for root in [directory.path(), &inside] {
            let file = root.join(&name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, &bytes).unwrap();
        }
    }
    open(&inside);
    let attributes = std::fs::read_to_string(inside.join(".zattrs")).unwrap();
    for path in ["../0", "0/../../0", directory.path().join("0").to_str().unwrap()] {
        let changed = attributes.replace(r#""path": "0""#, &format!(r#""path": "{path}""#));
        std::fs::write(inside.join(".zattrs"), changed).unwrap();
        let error = Slide::open(inside.to_str().unwrap(), Limits::default()).err().unwrap();
        assert!(error.to_string().contains("not the name of a file"), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    let error = Slide::open(empty.path().to_str().unwrap(), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("neither"), "{error}");
    assert_eq!(sniff(empty.path()), None);
}

#[test]
fn frames_of_blosc_changed_anywhere_do_no_harm() {
    let slide = |chunk: &[u8]| read(&zarr_2(r#"{"id": "blosc"}"#, chunk));
    let frame = blosc(4096);
    slide(&frame).unwrap();
    for at in 0..200 {
        for value in [0, 1, 0x1f, 0x20, 0x7f, 0xe0, 0xff] {
            let mut changed = frame.clone();
            changed[at] = value;
            let _ = slide(&changed);
        }
        assert!(slide(&frame[..at]).is_err());
    }
}
