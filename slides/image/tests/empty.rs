//! Tiles without bytes in the file.

use crate::common::{make, open, psnr, whole};
use seekwire_slides_image::{Limits, Slide};

#[test]
fn empty_tiles_are_drawn_from_the_next_larger_level() {
    let directory = tempfile::tempdir().unwrap();
    make("make_empty.py", &[directory.path()]);
    let file = directory.path().join("scattered.tif");
    let ours = open(&file);
    assert_eq!(ours.empty_tiles(), [1, 3, 2]);
    assert_eq!([0, 1, 2, 3].map(|level| ours.draws(level)), [false, true, true, false]);
    let limits = Limits { openslide: true, ..Limits::default() };
    let theirs = Slide::through_openslide(&file, limits).unwrap();
    for level in 0..3 {
        let (ours, theirs) = (whole(&ours, level), whole(&theirs, level));
        let size = (theirs.width(), theirs.height());
        let seen = image::RgbImage::from_raw(size.0, size.1, theirs.into_pixels()).unwrap();
        let ratio = psnr(&ours, &seen);
        assert!(ratio > 45.0, "level {level}: {ratio} dB");
    }
    // The one tile that no level has is white, and so is a quarter of a tile drawn from it.
    let pixel = |level, x, y| {
        let region = seekwire_slides_image::Region { x, y, width: 1, height: 1 };
        ours.read(level, region).unwrap().into_pixels()
    };
    assert_eq!(pixel(0, 200, 200), [255; 3]);
    assert_eq!(pixel(1, 100, 100), [255; 3]);
    assert_ne!(pixel(1, 10, 10), [255; 3]);
    // As another process sees it that has only the tile.
    let tile = ours.tile(1, 0, 0).unwrap();
    let elsewhere = seekwire_slides_image::StoredTile::from_block(&tile.to_block().into()).unwrap();
    let elsewhere = elsewhere.decode(&Limits::default()).unwrap();
    let region = seekwire_slides_image::Region { x: 0, y: 0, width: 128, height: 128 };
    assert_eq!(elsewhere, ours.read(1, region).unwrap());
    assert_eq!(ours.stored_jpeg(1, region).unwrap(), None);
}

#[test]
fn levels_that_were_not_written_are_errors_that_name_them() {
    let directory = tempfile::tempdir().unwrap();
    make("make_empty.py", &[directory.path()]);
    for (name, why) in [
        ("level.tif", "an image of 512 x 512 pixels has nothing but empty tiles"),
        (
            "ended.tif",
            "an image of 1024 x 1024 pixels ends after 30 of 64 tiles: it was not written to its end",
        ),
    ] {
        let file = directory.path().join(name);
        let error = Slide::open(file.to_str().unwrap(), Limits::default()).err().unwrap();
        assert!(error.to_string().ends_with(why), "{name}: {error}");
    }
}
