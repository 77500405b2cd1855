//! Malformed and malicious DICOM: each gives an error, within the limits.

use crate::common::seeds::{
    Dataset, JPEG, NATIVE, RLE, encapsulated, head, jpeg, native, sequence,
};
use seekwire_slides_image::{Error, Limits, MemorySource, Region, Slide};
use std::os::unix::fs::symlink;

type Change<'a> = &'a dyn Fn(&mut Dataset);

fn open(bytes: Vec<u8>) -> Result<Slide, Error> {
    Slide::from_source(MemorySource::new("hostile.dcm", bytes), Limits::default())
}

fn read(slide: &Slide) -> Result<Vec<u8>, Error> {
    let region = Region { x: 0, y: 0, width: 100, height: 64 };
    slide.read(0, region).map(|raster| raster.pixels().to_vec())
}

/// Makes every kind of request to a slide and ignores the results.
fn ask(slide: &Slide) {
    let _ = read(slide);
    for instance in slide.dicom().unwrap().instances() {
        let _ = (instance.frame(1), instance.frame(2), instance.json("bulk"));
    }
}

fn changed(change: impl Fn(&mut Dataset)) -> Vec<u8> {
    let mut dataset = Dataset::slide();
    change(&mut dataset);
    dataset.file(NATIVE, &native(2 * 64 * 64))
}

#[test]
fn what_is_made_here_is_read() {
    let tile = jpeg();
    for dataset in [Dataset::slide(), Dataset::sparse(true), Dataset::sparse(false)] {
        let pixels = read(&open(dataset.file(NATIVE, &native(2 * 64 * 64))).unwrap()).unwrap();
        assert_eq!(pixels, vec![7; 100 * 64 * 3]);
        for table in [true, false] {
            let file = dataset.file(JPEG, &encapsulated(&[&tile, &tile], table));
            let slide = open(file).unwrap();
            assert_eq!(read(&slide).unwrap(), vec![128; 100 * 64 * 3]);
            assert_eq!(slide.icc(), Some(&b"profile!"[..]));
            let instance = slide.dicom().unwrap().instance("1.2.3").unwrap();
            assert_eq!(instance.frame(2).unwrap(), tile);
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let million = 1_000_000_000;
    let rows: &[(Change, &str)] = &[
        (&|of| of.long(0x0048_0006, million), "beyond the limit"),
        (&|of| of.long(0x0048_0006, 0), "without pixels"),
        (&|of| of.long(0x0048_0006, 1000), "16 tiles, but only 2 frames"),
        (&|of| of.short(0x0028_0010, 0), "without pixels"),
        (&|of| of.short(0x0028_0010, 65535), "frames of"),
        (&|of| of.set(0x0028_0008, "IS", b"4000000000"), "4000000000 frames"),
        (&|of| of.set(0x0028_0008, "IS", b"3"), "3 frames of 4096 bytes"),
        (&|of| of.set(0x0028_0008, "IS", b"many"), "no number of frames"),
        (&|of| of.short(0x0028_0100, 12), "12 bits"),
        (&|of| of.short(0x0028_0103, 1), "sign"),
        (&|of| of.short(0x0028_0002, 3), "3 samples"),
        (&|of| of.set(0x0028_0004, "CS", b"PALETTE COLOR"), "PALETTE"),
        (&|of| of.set(0x0008_0016, "UI", b"1.2.840.10008.5.1.4.1.1.2"), "of the class"),
        (&|of| of.set(0x0008_0008, "CS", b"ORIGINAL\\PRIMARY\\OTHER"), "VOLUME"),
        (&|of| of.insert(0x0010_0010, head(0x0010_0010, "??", 4)), "no value representation"),
        (&|of| of.insert(0x0010_0010, head(0x0010_0010, "LO", 60000)), "the file ends"),
        (&|of| of.insert(0x0010_0010, head(0x0010_0010, "UN", u32::MAX)), "has no length"),
        (&|of| of.insert(0x0010_0010, head(0x0010_0010, "SQ", u32::MAX)), "instead of an item"),
        (&|of| of.insert(0x0010_0010, deep(40)), "deep"),
        (&|of| of.insert(0x0010_0010, head(0xfffe_e000, "", 0)), "out of place"),
    ];
    for (change, what) in rows {
        let error = open(changed(change)).err();
        let error = error.unwrap_or_else(|| panic!("{what}: opened")).to_string();
        assert!(error.contains(what) && error.contains("hostile.dcm"), "{what}: {error}");
    }
    let source = MemorySource::new("hostile.dcm", changed(|_| {}));
    let slide = Slide::from_source(source, Limits { profile: 7, ..Limits::default() }).unwrap();
    assert_eq!(slide.icc(), None);
    let property = &slide.properties()["dicom.ColourProfile"];
    assert_eq!(property, "not applied: it has 8 bytes, of 7 at most");

    let mut far = Dataset::sparse(true);
    far.long(0x0048_0006, 64);
    let error = open(far.file(NATIVE, &native(2 * 64 * 64))).err().unwrap().to_string();
    assert!(error.contains("a frame at"), "{error}");

    let tile = jpeg();
    let whole = encapsulated(&[&tile, &tile], true);
    let mut loops = whole.clone();
    // The offset of the second frame equals that of the first.
    loops[12 + 8 + 4..12 + 8 + 8].fill(0);
    let mut beyond = whole.clone();
    beyond[12 + 8 + 7] = 0x7f;
    let few = encapsulated(&[&tile], true);
    for (pixels, what) in [
        (&native(2 * 64 * 64), "do not match the transfer syntax"),
        (&loops, "not in order"),
        (&beyond, "beyond the end"),
        (&few, "offsets of 1 frames"),
        (&head(0x7fe0_0010, "OB", u32::MAX), "the file ends"),
    ] {
        let error = open(Dataset::slide().file(JPEG, pixels)).err();
        let error = error.unwrap_or_else(|| panic!("{what}: opened")).to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    let slide = open(Dataset::slide().file(JPEG, &encapsulated(&[&tile], false))).unwrap();
    let error = read(&slide).unwrap_err().to_string();
    assert!(error.contains("the frames end before frame 2"), "{error}");
    for syntax in ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99", "1.2.3"] {
        let error = open(Dataset::slide().file(syntax, &native(8192))).err().unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

#[test]
fn frames_in_jpeg_that_end_too_early_are_errors() {
    let whole = jpeg();
    let (data, end) = whole.split_at(whole.len() - 2);
    // A mark of the end in a segment before the scan.
    let mut marked = whole[..2].to_vec();
    marked.extend([0xff, 0xe1, 0, 4, 0xff, 0xd9]);
    marked.extend(&whole[2..whole.len() - 8]);
    let cut = [&data[..data.len() - 6], end].concat();
    for turbojpeg in [false, true] {
        let opened = |frame: &[u8]| {
            let limits = Limits { turbojpeg, ..Limits::default() };
            let file = Dataset::slide().file(JPEG, &encapsulated(&[frame, frame], true));
            Slide::from_source(MemorySource::new("hostile.dcm", file), limits).unwrap()
        };
        assert_eq!(read(&opened(&whole)).unwrap(), vec![128; 100 * 64 * 3]);
        for (frame, why) in [(data, "has no end"), (&marked, "has no end"), (&cut, "tile 0, 0")] {
            let slide = opened(frame);
            let error = read(&slide).unwrap_err().to_string();
            assert!(error.contains(why), "{turbojpeg}: {error}");
            // Such a tile is not sent as it is stored.
            let tile = slide.dicom().unwrap().instance("1.2.3").unwrap().tile(1).unwrap();
            assert_eq!(tile.jpeg().is_err(), why == "has no end", "{turbojpeg}");
        }
    }
}

#[test]
fn a_frame_without_bytes_is_not_one_that_is_absent() {
    let tile = jpeg();
    for table in [true, false] {
        let file = Dataset::slide().file(JPEG, &encapsulated(&[b"", &tile], table));
        let slide = open(file).unwrap();
        let error = read(&slide).unwrap_err();
        assert!(matches!(error, Error::Tile { .. } | Error::Malformed { .. }), "{error}");
        let one = slide.dicom().unwrap().instance("1.2.3").unwrap();
        assert!(one.tile(1).and_then(|tile| tile.decode(&Limits::default())).is_err());
    }
}

#[test]
fn samples_that_are_not_in_the_lowest_bits_are_refused() {
    let file = |codec, pixels: &[u8], stored, high| {
        let mut dataset = Dataset::slide();
        dataset.short(0x0028_0101, stored);
        dataset.short(0x0028_0102, high);
        open(dataset.file(codec, pixels)).map(drop).map_err(|error| error.to_string())
    };
    let raw = native(2 * 64 * 64);
    file(NATIVE, &raw, 8, 7).unwrap();
    for (stored, high) in [(8, 8), (7, 7), (8, 0), (8, u16::MAX)] {
        let error = file(NATIVE, &raw, stored, high).unwrap_err();
        assert!(error.contains(&format!("the highest is bit {high}")), "{error}");
    }
    // The codestream says where they are.
    let tile = jpeg();
    file(JPEG, &encapsulated(&[&tile, &tile], true), 8, 0).unwrap();
}

/// An RLE frame: the number of segments, their offsets, and the bytes that follow.
fn rle(segments: u32, starts: &[u32], bytes: &[u8]) -> Vec<u8> {
    let numbers = [segments].into_iter().chain(starts.iter().copied()).chain([0; 15]).take(16);
    numbers.flat_map(u32::to_le_bytes).chain(bytes.iter().copied()).collect()
}

#[test]
fn frames_in_rle_are_whole_or_an_error() {
    // 32 runs of 128 bytes of the value 7: 64 x 64 pixels. Bytes after them are ignored.
    let runs = [129, 7].repeat(32);
    let more = [&runs[..], &[128, 128, 255, 9, 0]].concat();
    let read_with = |dataset: &Dataset, frame: &[u8], table| {
        read(&open(dataset.file(RLE, &encapsulated(&[frame, frame], table))).unwrap())
    };
    let read = |dataset: &Dataset, frame: &[u8]| read_with(dataset, frame, true);
    let dataset = Dataset::slide();
    for (bytes, table) in [(&runs, true), (&more, true), (&runs, false), (&more, false)] {
        let pixels = read_with(&dataset, &rle(1, &[64], bytes), table).unwrap();
        assert_eq!(pixels, vec![7; 100 * 64 * 3]);
    }
    for (frame, what) in [
        (vec![1; 62], "no header"),
        (rle(0, &[], &runs), "0 segments"),
        (rle(2, &[64, 64], &runs), "2 segments"),
        (rle(u32::MAX, &[64], &runs), "4294967295 segments"),
        (rle(1, &[63], &runs), "out of place"),
        (rle(1, &[0], &runs), "out of place"),
        (rle(1, &[u32::MAX], &runs), "out of place"),
        (rle(1, &[128], &runs), "0 bytes of 4096"),
        (rle(1, &[64], &runs[2..]), "3968 bytes of 4096"),
        (rle(1, &[64], &runs[..63]), "3968 bytes of 4096"),
        (rle(1, &[64], &[127, 1, 2]), "2 bytes of 4096"),
        (rle(1, &[64], &[128; 4096]), "0 bytes of 4096"),
    ] {
        let error = read(&dataset, &frame).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    // Segments out of order, of 16-bit samples; then in order, with 7 as the upper byte.
    let mut wide = Dataset::slide();
    wide.short(0x0028_0100, 16);
    wide.short(0x0028_0101, 16);
    let both = [&runs[..], &[129, 200].repeat(32)].concat();
    let error = read(&wide, &rle(2, &[128, 64], &both)).unwrap_err().to_string();
    assert!(error.contains("out of place"), "{error}");
    assert_eq!(read(&wide, &rle(2, &[64, 128], &both)).unwrap(), vec![7; 100 * 64 * 3]);
    let error = open(Dataset::slide().file(RLE, &native(2 * 64 * 64))).err().unwrap().to_string();
    assert!(error.contains("do not match the transfer syntax"), "{error}");
}

/// Nested sequences.
fn deep(levels: usize) -> Vec<u8> {
    // A sequence that is entered.
    let start = sequence(0x0048_0105, &[], true);
    (0..levels).fold(start, |inner, _| sequence(0x0048_0105, &[inner], false))
}

#[test]
fn a_dataset_has_a_limit() {
    let mut dataset = Dataset::slide();
    // A sequence of many useless items.
    dataset.set(0x0020_9311, "CS", b"TILED_SPARSE");
    let items = vec![Vec::new(); 10_000];
    dataset.insert(0x5200_9230, sequence(0x5200_9230, &items, false));
    let file = dataset.file(NATIVE, &native(2 * 64 * 64));
    let small = Limits { tables: 100_000, ..Limits::default() };
    let source = MemorySource::new("hostile.dcm", file);
    let error = Slide::from_source(source.clone(), small).err().unwrap();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    ask(&Slide::from_source(source, Limits::default()).unwrap());
}

#[test]
fn values_in_json_are_counted_while_they_are_written() {
    let mut dataset = Dataset::slide();
    // A million empty values, which become null.
    dataset.set(0x0008_0119, "UC", &vec![b'\\'; 1 << 20]);
    let file = dataset.file(NATIVE, &native(2 * 64 * 64));
    let open = |tables: u64| {
        let limits = Limits { tables, ..Limits::default() };
        Slide::from_source(MemorySource::new("hostile.dcm", file.clone()), limits).unwrap()
    };
    let json = |slide: &Slide| slide.dicom().unwrap().instance("1.2.3").unwrap().json("bulk");
    let error = json(&open(2 << 20)).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    // Refused before all of them are written.
    assert!(error.to_string().contains("a dataset of 209715"), "{error}");
    let whole: serde_json::Value = serde_json::from_str(&json(&open(16 << 20)).unwrap()).unwrap();
    let values = whole["00080119"]["Value"].as_array().unwrap();
    assert_eq!(values.len(), (1 << 20) + 1);
    assert!(values.iter().all(serde_json::Value::is_null));
}

#[test]
fn frames_behind_many_items_are_found_in_several_calls() {
    let mut dataset = Dataset::slide();
    // With fewer frames, so many items are an error.
    dataset.set(0x0028_0008, "IS", b"70000");
    let tile = jpeg();
    let mut frames: Vec<&[u8]> = vec![b""; (1 << 20) + 100];
    frames[0] = &tile;
    frames.push(&tile);
    let slide = open(dataset.file(JPEG, &encapsulated(&frames, false))).unwrap();
    let instance = slide.dicom().unwrap().instance("1.2.3").unwrap();
    let error = instance.frame(2).unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert_eq!(instance.frame(2).unwrap(), tile);
    let error = instance.frame(3).unwrap_err().to_string();
    assert!(error.contains("the frames end before frame 3"), "{error}");
}

#[test]
fn a_series_has_one_limit_and_copies_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let write = |uid: &str| {
        let mut dataset = Dataset::slide();
        dataset.set(0x0008_0018, "UI", uid.as_bytes());
        dataset.set(0x0028_0008, "IS", b"2000");
        let frames = vec![&[0xff, 0xd8][..]; 2000];
        std::fs::write(directory.join(uid), dataset.file(JPEG, &encapsulated(&frames, true)))
    };
    let open = |name: &str| {
        // The offsets of 2000 frames, twice.
        let limits = Limits { tables: 40_000, ..Limits::default() };
        Slide::open(directory.join(name).to_str().unwrap(), limits)
    };
    write("1.2.3").unwrap();
    write("1.2.4").unwrap();
    for number in 0..100 {
        symlink("1.2.3", directory.join(format!("link-{number}"))).unwrap();
    }
    for name in ["", "1.2.4", "link-7"] {
        let slide = open(name).unwrap();
        assert_eq!(slide.dicom().unwrap().instances().count(), 2);
        assert_eq!(slide.icc(), Some(&b"profile!"[..]));
    }
    write("1.2.5").unwrap();
    for name in ["", "1.2.4"] {
        let error = open(name).err().unwrap();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
        assert!(error.to_string().contains("another 16"), "{error}");
    }
}

#[test]
fn files_cut_or_changed_anywhere_do_no_harm() {
    let tile = jpeg();
    let files = [
        Dataset::slide().file(NATIVE, &native(2 * 64 * 64)),
        Dataset::sparse(true).file(JPEG, &encapsulated(&[&tile, &tile], true)),
        Dataset::sparse(false).file(JPEG, &encapsulated(&[&tile, &tile], false)),
    ];
    for file in &files {
        for length in 0..file.len().min(1200) {
            if let Ok(slide) = open(file[..length].to_vec()) {
                ask(&slide);
            }
        }
        for at in 128..file.len().min(1200) {
            for flip in [0x55, 0xff] {
                let mut bytes = file.clone();
                bytes[at] ^= flip;
                if let Ok(slide) = open(bytes) {
                    ask(&slide);
                }
            }
        }
    }
}
