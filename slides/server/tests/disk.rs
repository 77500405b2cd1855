//! Images on disk: after a restart, with two servers, and without space.

use crate::common::{Service, odd};
use std::fs;
use std::path::Path;

fn start(slide: &Path, cache: &Path) -> Service {
    Service::start(slide, |settings| settings.disk_cache = Some((cache.to_owned(), 16 << 20)))
}

/// Waits until so many have been written.
fn written(service: &Service, count: u64) {
    while service.count("disk_written_total") < count {
        std::thread::yield_now();
    }
}

#[test]
fn what_was_made_once_is_there_after_a_restart_and_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let (slide, cache) = (odd(directory.path()), directory.path().join("cache"));
    let addresses = ["/odd.tif_files/9/0_0.jpg", "/iiif/3/odd.tif/full/100,/90/gray.png"];
    let first = start(&slide, &cache);
    let second = start(&slide, &cache);
    let made = addresses.map(|address| first.get(address));
    written(&first, 2);
    // Another server with the same directory, and the next run.
    for service in [second, start(&slide, &cache)] {
        for (address, made) in addresses.iter().zip(&made) {
            let answer = service.get(address);
            assert_eq!((answer.status, &answer.body), (200, &made.body));
            assert_eq!(answer.header("etag"), made.header("etag"));
        }
        assert_eq!(service.count("disk_found_total"), 2);
        assert_eq!(service.count("tiles_decoded_total"), 0);
    }
    let bytes = first.count("cache_bytes{of=\"disk\"}");
    assert!(0 < bytes && bytes <= first.count("cache_limit_bytes{of=\"disk\"}"));
    drop(first);

    // A different slide of the same name is not confused with it.
    crate::common::vips(directory.path(), "invert part.v inverted.v");
    crate::common::vips(directory.path(), "tiffsave inverted.v other.tif --tile --pyramid");
    fs::rename(directory.path().join("other.tif"), &slide).unwrap();
    let service = start(&slide, &cache);
    let other = service.get(addresses[0]);
    assert!(other.status == 200 && other.body != made[0].body);
    assert_eq!(service.count("disk_found_total"), 0);
}

#[test]
fn without_room_everything_else_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let slide = odd(directory.path());
    // A file instead of the directory.
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let service = start(&slide, &file);
    assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
    assert_eq!(service.count("cache_limit_bytes{of=\"disk\"}"), 0);
    let cache = directory.path().join("cache");
    let service = start(&slide, &cache);
    fs::remove_dir_all(&cache).unwrap();
    fs::write(&cache, "").unwrap();
    assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
    while service.count("disk_failed_total") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(service.get("/odd.tif_files/9/0_0.webp").status, 200);
}
