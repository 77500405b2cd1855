//! Slides that only OpenSlide reads, in a browser.

use crate::common::{Service, run, script};
use std::path::Path;
use std::process::Command;

#[test]
fn slides_that_only_openslide_reads_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("slide.tiff");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/make/make_tiff.py");
    let python = script("slide-tools");
    run(Command::new(python).arg(program).arg("philips").arg(&file));
    std::fs::write(directory.path().join("broken.mrxs"), "").unwrap();

    let service = Service::of(directory.path());
    let properties = service.get("/slides/slide.tiff/properties.json").json();
    assert_eq!(properties["format"], "openslide");
    assert_eq!(properties["properties"]["openslide.vendor"], "philips");
    let tile = service.get("/slide.tiff_files/9/0_1.png").pixels();
    assert_eq!((tile.dimensions(), tile.get_pixel(7, 44).0), ((256, 256), [7, 44, 9]));
    let absent = service.get("/iiif/3/slide.tiff/256,0,256,256/max/0/default.png").pixels();
    assert_eq!(absent.get_pixel(7, 7).0, [255; 3], "the area that was not scanned");
    let broken = service.get("/slides/broken.mrxs/properties.json");
    assert_eq!(broken.status, 501, "{}", broken.text());
    drop(service);

    let service = Service::start(directory.path(), |settings| settings.openslide = false);
    let refused = service.get("/slide.tiff_files/9/0_1.png");
    assert_eq!(refused.status, 501);
    let said = "slide.tiff: not supported: Philips TIFF (OpenSlide, which may read it, is not";
    assert!(refused.text().starts_with(said), "{}", refused.text());
}
