//! DICOM and OME-Zarr, found in directories and served through Deep Zoom and IIIF.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::made_slides::{dicom, pyramid, zarr};
use crate::common::{Service, odd, vips};
use image::RgbImage;
use seekwire_slides_image::{Region, Slide};

fn render(slide: &Slide, region: (u32, u32, u32, u32), to: (u32, u32)) -> RgbImage {
    let (x, y, width, height) = region;
    let region = Region { x: x.into(), y: y.into(), width, height };
    let raster = slide.render(region, to.0, to.1).unwrap();
    RgbImage::from_raw(to.0, to.1, raster.into_pixels()).unwrap()
}

#[test]
fn series_and_images_in_directories_have_the_pixels_they_were_made_of() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    odd(directory);
    let root = directory.join("root");
    let study = root.join("case/study");
    let jpeg = pyramid(directory, "jpeg.tif", "jpeg");
    let raw = pyramid(directory, "raw.tif", "none");
    dicom(&jpeg, directory, &study, "a", "1.2.826.0.1.2");
    dicom(&raw, directory, &study, "b", "1.2.826.0.1.3");
    dicom(&raw, directory, &root.join("case/alone"), "c", "1.2.826.0.1.4");
    zarr(&raw, directory, &root.join("image.zarr"));
    // A file that is not a slide does not prevent the others from being served.
    fs::write(study.join("broken.dcm"), "no DICOM").unwrap();

    // Pixels are compared with those of the built-in decoder.
    let service = Service::start(&root, |settings| settings.turbojpeg = false);
    let listed = service.get("/slides.json").json();
    let ids: Vec<_> =
        listed.as_array().unwrap().iter().map(|slide| slide["id"].as_str().unwrap()).collect();
    let study = "case/study/1.2.826.0.1.";
    let all = ["case/alone".to_owned(), format!("{study}2"), format!("{study}3")];
    assert_eq!(ids[..3], all);
    assert_eq!(ids[3..], ["image.zarr"]);
    for (id, of, format) in [
        (ids[0], &raw, "dicom"),
        (ids[1], &jpeg, "dicom"),
        (ids[2], &raw, "dicom"),
        (ids[3], &raw, "ome-zarr"),
    ] {
        let id = id.replace('/', "%2F");
        let properties = service.get(&format!("/slides/{id}/properties.json")).json();
        assert_eq!(properties["format"], format, "{id}");
        assert_eq!((&properties["width"], &properties["height"]), (&301.into(), &199.into()));
        assert_eq!(properties["micronsPerPixel"], serde_json::json!([0.5, 0.5]), "{id}");
        let descriptor = service.get(&format!("/{id}.dzi"));
        assert!(descriptor.text().contains("TileSize=\"64\""), "{}", descriptor.text());
        for (tile, part, to) in [
            ("9/0_0", (0, 0, 64, 64), (64, 64)),
            ("9/4_3", (256, 192, 45, 7), (45, 7)),
            ("8/1_1", (128, 128, 128, 71), (64, 36)),
            ("0/0_0", (0, 0, 301, 199), (1, 1)),
        ] {
            let theirs = service.get(&format!("/{id}_files/{tile}.png")).pixels();
            assert_eq!(theirs, render(of, part, to), "{id}: {tile}");
        }
        let region = service.get(&format!("/iiif/3/{id}/11,23,200,150/100,75/0/default.png"));
        assert_eq!(region.pixels(), render(of, (11, 23, 200, 150), (100, 75)), "{id}");
        let region = service.get(&format!("/iiif/2/{id}/11,23,99,77/full/0/default.webp"));
        assert_eq!(region.pixels(), render(of, (11, 23, 99, 77), (99, 77)), "{id}");
    }
    // A DICOM frame is served as it is stored.
    let id = ids[1].replace('/', "%2F");
    let before = service.count("tiles_decoded_total");
    let tile = service.get(&format!("/{id}_files/9/1_2.jpg"));
    let stored = jpeg.tile(0, 1, 2).unwrap().jpeg().unwrap().unwrap();
    assert_eq!(tile.body[..stored.len()], stored);
    assert_eq!(service.count("tiles_decoded_total"), before);
}

#[test]
fn links_in_slides_do_not_lead_out_of_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    odd(directory);
    let raw = pyramid(directory, "raw.tif", "none");
    let root = directory.join("root");
    dicom(&raw, directory, &root.join("series"), "a", "1.2.826.0.1.2");
    zarr(&raw, directory, &root.join("image.zarr"));
    // A level of the series, and one chunk.
    fs::rename(root.join("series/a1.dcm"), directory.join("level.dcm")).unwrap();
    symlink("../../level.dcm", root.join("series/a1.dcm")).unwrap();
    let chunk = root.join("image.zarr/0/0/1/1");
    fs::rename(&chunk, directory.join("chunk")).unwrap();
    symlink(directory.join("chunk"), &chunk).unwrap();

    let service = Service::of(&root);
    let levels = |id: &str| {
        let properties = service.get(&format!("/slides/{id}/properties.json")).json();
        properties["levels"].as_array().unwrap().len()
    };
    assert_eq!(levels("series"), raw.levels().len() - 1);
    assert_eq!(levels("image.zarr"), raw.levels().len());
    assert_eq!(service.get("/image.zarr_files/9/0_0.png").status, 200);
    let error = service.get("/image.zarr_files/9/1_1.png");
    assert_eq!(error.status, 500);
    assert!(error.text().starts_with("image.zarr/0/0/1/1: a symbolic link"), "{}", error.text());
    // A file added to a series is noticed.
    fs::remove_file(root.join("series/a1.dcm")).unwrap();
    fs::copy(directory.join("level.dcm"), root.join("series/a1.dcm")).unwrap();
    while levels("series") < raw.levels().len() {
        std::thread::yield_now();
    }
}

#[test]
fn an_image_that_is_written_anew_in_its_place_is_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    odd(directory);
    let raw = pyramid(directory, "raw.tif", "none");
    let image = directory.join("image.zarr");
    zarr(&raw, directory, &image);
    let service = Service::start(&image, |settings| {
        settings.disk_cache = Some((directory.join("cache"), 16 << 20));
    });
    let get = |tile: &str| service.get(&format!("/image.zarr_files/{tile}.png"));
    let (first, other) = (get("9/0_0"), get("9/1_1"));
    assert!(first.status == 200 && first.body != other.body);
    for channel in ["0", "1", "2"] {
        let chunks = image.join("0").join(channel);
        fs::copy(chunks.join("1/1"), chunks.join("0/0")).unwrap();
    }
    // Like programs that rewrite the file, which leave names and directory unchanged.
    let array = image.join("0/.zarray");
    fs::write(&array, fs::read_to_string(&array).unwrap() + "\n").unwrap();
    let mut again = get("9/0_0");
    while again.body == first.body {
        again = get("9/0_0");
    }
    assert_eq!(again.body, other.body);
    assert_ne!(again.header("etag"), first.header("etag"));
    // Nor does anything prove that chunks are unchanged after a restart.
    drop(service);
    let images = fs::read_dir(directory.join("cache")).unwrap();
    assert_eq!(images.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 0);
}

#[test]
fn a_tile_of_8192_pixels_is_shown_if_it_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let slide = odd(directory.path());
    let options = "--tile --tile-width 8192 --tile-height 8192 --compression deflate";
    vips(directory.path(), &format!("tiffsave part.v large.tif {options}"));
    let large = directory.path().join("large.tif");
    let service = Service::of(&large);
    let refused = service.get("/large.tif.dzi");
    assert_eq!(refused.status, 501);
    let what = "tiles of 8192 x 8192 pixels, of 16777216 in all at most; --max-tile allows more, up to 67108864";
    assert!(refused.text().contains(what), "{}", refused.text());
    let service = Service::start(&large, |settings| settings.max_tile = 8192 * 8192);
    let whole = |service: &Service, name: &str| {
        service.get(&format!("/iiif/3/{name}/full/max/0/default.png")).pixels()
    };
    assert_eq!(whole(&service, "large.tif"), whole(&Service::of(&slide), "odd.tif"));
}
