//! OME-TIFF written by another program.

use crate::common::{make, open, whole};
use seekwire_slides_image::{Limits, MemorySource, Slide};
use std::path::Path;

/// Red increases to the right, green downwards, until the range of values ends.
fn expected(width: u32, height: u32, step: u32) -> Vec<u8> {
    let rows = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    rows.flat_map(|(x, y)| [(x * step) as u8, (y * step) as u8, 9]).collect()
}

#[test]
fn levels_label_and_scale_of_an_ome_tiff() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("slide.ome.tif");
    for (unit, microns) in [
        ("µm", Some((0.5, 0.25))),
        ("nm", Some((0.0005, 0.00025))),
        // No scanner has pixels of half a millimetre.
        ("mm", None),
        ("pixel", None),
    ] {
        make("make_tiff.py", &[Path::new("ome"), Path::new(unit), &file]);
        let slide = open(&file);
        assert_eq!(slide.format(), "ome-tiff");
        assert_eq!(slide.microns_per_pixel(), microns, "{unit}");
        assert_eq!(slide.properties()["ome.Name"], "scan <1>");
        let sizes: Vec<_> =
            slide.levels().iter().map(|level| (level.width, level.height)).collect();
        assert_eq!(sizes, [(512, 512), (256, 256)]);
        assert_eq!(slide.levels()[0].tile_width, 256);
        for (level, (side, _)) in sizes.into_iter().enumerate() {
            assert!(whole(&slide, level).pixels() == expected(side, side, 512 / side), "{level}");
        }
        assert_eq!(slide.associated_names().collect::<Vec<_>>(), ["label"]);
        let label = slide.associated("label").unwrap().unwrap();
        assert_eq!((label.width(), label.height()), (256, 100));
        assert!(label.pixels() == expected(256, 100, 2));
    }

    // Cut in the middle of its last level, and with a description that is not XML.
    let bytes = std::fs::read(&file).unwrap();
    let opened = |bytes: Vec<u8>| {
        Slide::from_source(MemorySource::new("ome.tif", bytes), Limits::default()).map(drop)
    };
    let at = bytes.windows(5).position(|part| part == b"<OME ").unwrap();
    let mut broken = bytes.clone();
    broken[at + 4] = b'<';
    let error = opened(broken).unwrap_err().to_string();
    assert!(error.contains("OME-XML"), "{error}");
    let mut broken = bytes;
    let at = broken.windows(7).position(|part| part == b"IFD=\"0\"").unwrap();
    broken[at + 5] = b'9';
    let error = opened(broken).unwrap_err().to_string();
    assert!(error.contains("a directory that does not exist"), "{error}");
}
