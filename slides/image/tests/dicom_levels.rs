//! DICOM series with images that are not levels of the slide, or not all of whose frames are there.

use crate::common::open;
use crate::common::seeds::{Dataset, NATIVE, element, sequence};
use seekwire_slides_image::{DatasetSummary, Limits, MemorySource, Region, Slide};
use std::path::Path;

/// An image of this size in tiles of 64 x 64, and its pixels, all of one brightness.
fn image(uid: &str, size: (u32, u32), grey: u8) -> (Dataset, Vec<u8>) {
    let mut dataset = Dataset::slide();
    let frames = size.0.div_ceil(64) * size.1.div_ceil(64);
    dataset.set(0x0008_0018, "UI", uid.as_bytes());
    dataset.set(0x0028_0008, "IS", frames.to_string().as_bytes());
    dataset.long(0x0048_0006, size.0);
    dataset.long(0x0048_0007, size.1);
    (dataset, element(0x7fe0_0010, "OB", &vec![grey; frames as usize * 64 * 64]))
}

fn write(directory: &Path, name: &str, (dataset, pixels): &(Dataset, Vec<u8>)) {
    std::fs::write(directory.join(name), dataset.file(NATIVE, pixels)).unwrap();
}

type Change = fn(&mut Dataset);

fn volume(dataset: &mut Dataset, wide: f32, high: f32) {
    dataset.set(0x0048_0001, "FL", &wide.to_le_bytes());
    dataset.set(0x0048_0002, "FL", &high.to_le_bytes());
}

fn origin(dataset: &mut Dataset, x: &str, y: &str) {
    let (x, y) =
        (element(0x0040_072a, "DS", x.as_bytes()), element(0x0040_073a, "DS", y.as_bytes()));
    dataset.insert(0x0048_0008, sequence(0x0048_0008, &[[x, y].concat()], true));
}

/// Values of the largest image.
fn main(dataset: &mut Dataset) {
    dataset.set(0x0008_0019, "UI", b"1.2.7");
    volume(dataset, 40.0, 30.0);
    origin(dataset, "20.0", "40.0");
}

#[test]
fn only_images_of_the_largest_pyramid_are_levels() {
    let same: Change = main;
    let rows: &[((u32, u32), Change, &str)] = &[
        ((100, 75), same, ""),
        ((100, 75), |_| {}, ""),
        ((101, 75), same, ""),
        ((90, 68), same, ""),
        // Within a pixel of this level, which has 0.4 mm.
        (
            (100, 75),
            |of| {
                main(of);
                volume(of, 40.3, 29.7);
                origin(of, "20.2", "39.8");
            },
            "",
        ),
        ((80, 200), |_| {}, "80 x 200 pixels: not the largest image at a smaller scale"),
        ((100, 70), same, "100 x 70 pixels: not the largest image"),
        ((600, 20), |_| {}, "600 x 20 pixels: not the largest image"),
        ((400, 299), same, "400 x 299 pixels: not the largest image"),
        ((300, 400), same, "300 x 400 pixels: not the largest image"),
        ((100, 75), |of| of.set(0x0008_0019, "UI", b"1.2.8"), "of another pyramid"),
        ((400, 300), |of| of.set(0x0008_0019, "UI", b"1.2.8"), "of another pyramid"),
        ((100, 75), |of| volume(of, 41.0, 30.0), "of an area of another size"),
        ((100, 75), |of| volume(of, 40.0, 12.0), "of an area of another size"),
        ((100, 75), |of| origin(of, "20.0", "41.0"), "of another place on the glass"),
        ((400, 300), |of| origin(of, "-20.0", "40.0"), "of another place on the glass"),
        ((200, 149), same, "200 x 149 pixels: as wide as another level"),
    ];
    for (number, (size, change, why)) in rows.iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        // The first and the last by name and by UID. Of two as large, the first is the slide.
        for uid in ["1.2.1", "1.2.9"].into_iter().skip(usize::from(size.0 * size.1 == 400 * 300)) {
            let mut large = image("1.2.4", (400, 300), 4);
            main(&mut large.0);
            write(directory, "b", &large);
            let mut middle = image("1.2.5", (200, 150), 5);
            main(&mut middle.0);
            write(directory, "c", &middle);
            let mut other = image(uid, *size, 9);
            change(&mut other.0);
            let name = if uid < "1.2.4" { "a" } else { "d" };
            write(directory, name, &other);
            let slide = open(directory);
            let levels: Vec<_> = slide.levels().iter().map(|of| (of.width, of.height)).collect();
            let shown = slide.properties().get("dicom.NotShown");
            let case = format!("row {number}, {uid}: {levels:?}, {shown:?}");
            if why.is_empty() {
                assert_eq!(levels, [(400, 300), (200, 150), *size], "{case}");
                assert_eq!(shown, None, "{case}");
            } else if size.0 == 200 {
                // Either could be the level.
                assert_eq!(levels.len(), 2, "{case}");
                assert!(shown.unwrap().contains("as wide as another level"), "{case}");
            } else {
                assert_eq!(levels, [(400, 300), (200, 150)], "{case}");
                assert!(shown.unwrap().contains(why), "{case}");
                assert_eq!(slide.tile(0, 0, 0).unwrap().bytes()[0], 4, "{case}");
            }
            std::fs::remove_file(directory.join(name)).unwrap();
        }
    }
}

/// A frame that states its position and perhaps its depth, and its brightness.
type Frame<'a> = ((i32, i32), Option<&'a str>, u8);

/// An image of 128 x 64 pixels in frames that state their positions.
fn sparse(frames: &[Frame<'_>]) -> (Dataset, Vec<u8>) {
    let (mut dataset, _) = image("1.2.3", (128, 64), 0);
    dataset.set(0x0020_9311, "CS", b"TILED_SPARSE");
    dataset.set(0x0028_0008, "IS", frames.len().to_string().as_bytes());
    let item = |((column, row), depth, _): &Frame<'_>| {
        let mut position = element(0x0048_021e, "SL", &column.to_le_bytes());
        position.extend(element(0x0048_021f, "SL", &row.to_le_bytes()));
        let depth = depth.map(|depth| element(0x0040_074a, "DS", depth.as_bytes()));
        sequence(0x0048_021a, &[[depth.unwrap_or_default(), position].concat()], true)
    };
    let items: Vec<Vec<u8>> = frames.iter().map(item).collect();
    dataset.insert(0x5200_9230, sequence(0x5200_9230, &items, true));
    let pixels: Vec<u8> = frames.iter().flat_map(|(.., grey)| vec![*grey; 64 * 64]).collect();
    (dataset, element(0x7fe0_0010, "OB", &pixels))
}

/// The brightness of both tiles.
fn shown(slide: &Slide) -> Result<[u8; 2], String> {
    let region = Region { x: 0, y: 0, width: 128, height: 64 };
    let raster = slide.read(0, region).map_err(|error| error.to_string())?;
    Ok([raster.pixels()[0], raster.pixels()[127 * 3]])
}

fn opened((dataset, pixels): &(Dataset, Vec<u8>)) -> Result<Slide, String> {
    let source = MemorySource::new("sparse.dcm", dataset.file(NATIVE, pixels));
    Slide::from_source(source, Limits::default()).map_err(|error| error.to_string())
}

#[test]
fn tiles_of_a_missing_instance_are_not_white() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let part = |number: u8, total: Option<u16>, frame: Frame<'_>| {
        let (mut dataset, pixels) = sparse(&[frame]);
        dataset.set(0x0008_0018, "UI", format!("1.2.3.{number}").as_bytes());
        dataset.set(0x0020_9161, "UI", b"1.2.4");
        dataset.long(0x0020_9228, number.into());
        if let Some(total) = total {
            dataset.short(0x0020_9163, total);
        }
        write(directory, &number.to_string(), &(dataset, pixels));
    };
    part(0, Some(2), ((1, 1), None, 7));
    let error = shown(&open(directory)).unwrap_err();
    assert!(error.contains("tile 1, 0") && error.contains("instance is missing"), "{error}");
    part(0, None, ((1, 1), None, 7));
    part(2, None, ((1, 1), None, 8));
    let error = shown(&open(directory)).unwrap_err();
    assert!(error.contains("instance is missing"), "{error}");
    part(1, Some(3), ((65, 1), None, 9));
    assert_eq!(shown(&open(directory)).unwrap(), [7, 9]);
    // Of a whole image, a tile without a frame was not scanned.
    assert_eq!(shown(&opened(&sparse(&[((65, 1), None, 9)])).unwrap()).unwrap(), [255, 9]);
    let (mut dataset, pixels) = sparse(&[((1, 1), None, 7), ((65, 1), None, 9)]);
    dataset.set(0x0028_0008, "IS", b"1");
    let error = opened(&(dataset, pixels)).err().unwrap();
    assert!(error.contains("2 positions of 1 frames"), "{error}");
}

#[test]
fn depths_are_planes_only_if_frames_lie_above_each_other() {
    let focused = [((1, 1), Some("0.5"), 7), ((65, 1), Some("0.7"), 9)];
    let slide = opened(&sparse(&focused)).unwrap();
    assert_eq!((slide.planes(), shown(&slide)), ((1, 1), Ok([7, 9])));
    let zero = [((1, 1), Some("-0"), 7), ((65, 1), Some("0"), 9)];
    let slide = opened(&sparse(&zero)).unwrap();
    assert_eq!((slide.planes(), shown(&slide)), ((1, 1), Ok([7, 9])));

    let lower = [((1, 1), Some("0"), 7), ((65, 1), Some("-0"), 9)];
    let upper = [((1, 1), Some("1.5"), 17), ((65, 1), Some("1.5"), 19)];
    let planes = [lower, upper].concat();
    let slide = opened(&sparse(&planes)).unwrap();
    assert_eq!((slide.planes(), shown(&slide)), ((2, 1), Ok([17, 19])));
    // The file says that there is one plane: the first frame of each place is shown.
    let mut one = sparse(&planes);
    one.0.long(0x0048_0303, 1);
    let slide = opened(&one).unwrap();
    assert_eq!((slide.planes(), shown(&slide)), ((1, 1), Ok([7, 9])));
    assert!(slide.properties()["dicom.NotShown"].contains("2 frames at the position of another"));
    // Planes that are not flat.
    let bent = [&focused[..], &upper].concat();
    let error = opened(&sparse(&bent)).err().unwrap();
    assert!(error.contains("frames at 3 depths, but at most 2 at one place"), "{error}");
}

#[test]
fn properties_have_neither_paths_nor_text_in_unknown_characters() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("Doe_Jane.dcm");
    let (mut dataset, pixels) = sparse(&[((1, 1), None, 7), ((1, 1), None, 8)]);
    let russian = b"\xb8\xde\xd2\xd0\xdd";
    let json = |dataset: &Dataset| {
        std::fs::write(&file, dataset.file(NATIVE, &pixels)).unwrap();
        let slide = open(&file);
        let json = slide.dicom().unwrap().instance("1.2.3").unwrap().json("bulk");
        (slide.properties().clone(), json.map_err(|error| error.to_string()))
    };
    dataset.set(0x0008_0005, "CS", b"ISO_IR 100");
    dataset.set(0x0008_0070, "LO", b"M\xfcller");
    dataset.set(0x0010_0010, "PN", b"M\xc3\xbc");
    let (properties, text) = json(&dataset);
    let not_shown = "instance 1.2.3: 1 frames at the position of another, or in no optical path";
    assert_eq!(properties["dicom.NotShown"], not_shown);
    assert_eq!(properties["dicom.Manufacturer"], "M\u{fc}ller");
    let text: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
    assert_eq!(text["00100010"]["Value"][0]["Alphabetic"], "M\u{c3}\u{bc}");
    assert_eq!(text["00080005"]["Value"][0], "ISO_IR 192");

    dataset.set(0x0008_0005, "CS", b"ISO_IR 144");
    dataset.set(0x0008_0070, "LO", b"Miller");
    dataset.set(0x0010_0010, "PN", russian);
    let (properties, text) = json(&dataset);
    assert_eq!(properties["dicom.Manufacturer"], "Miller");
    let error = text.unwrap_err();
    assert!(error.contains("text in the character set \"ISO_IR 144\""), "{error}");
    let (summary, _) = DatasetSummary::read(&file, &Limits::default()).unwrap().unwrap();
    assert!(!summary.json.contains("00100010") && summary.json.contains("0020000D"));
    dataset.set(0x0008_0070, "LO", russian);
    assert!(!json(&dataset).0.contains_key("dicom.Manufacturer"));
}
