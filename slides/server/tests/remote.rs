//! Slides on another web server.

use crate::common::{Service, aperio};
use crate::nginx::Nginx;
use std::path::Path;
use std::time::Duration;

/// Replaces the file by one of another length and time with the same tiles.
fn replace(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let old = std::fs::metadata(file).unwrap().modified().unwrap();
    bytes.extend([0; 100]);
    let other = file.with_extension("new");
    std::fs::write(&other, bytes).unwrap();
    let opened = std::fs::File::options().write(true).open(&other).unwrap();
    opened.set_modified(old + Duration::from_secs(60)).unwrap();
    std::fs::rename(&other, file).unwrap();
}

#[test]
fn a_file_that_changes_on_its_server_is_another_slide() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let file = directory.join("slide.svs");
    std::fs::copy(aperio(), &file).unwrap();
    let server = Nginx::start(directory);
    let service = Service::of(Path::new(&server.address("slide.svs")));
    let first = service.get("/slide.svs_files/12/2_1.jpg");
    assert_eq!(first.status, 200);

    replace(&file);
    // A request for an uncached tile detects the change, and the next one gets the new slide.
    let failed = service.get("/slide.svs_files/12/8_11.jpg");
    assert_eq!(failed.status, 502, "{}", String::from_utf8_lossy(&failed.body));
    assert!(failed.text().contains("slide.svs: the file has changed since"), "{}", failed.text());
    let again = service.get("/slide.svs_files/12/8_11.jpg");
    assert_eq!(again.status, 200, "{}", String::from_utf8_lossy(&again.body));
    let first_again = service.get("/slide.svs_files/12/2_1.jpg");
    assert_eq!(first_again.body, first.body);
    assert_ne!(first_again.header("etag"), first.header("etag"));

    // Both kinds detect it: a tile that is decoded, and one that is served as stored.
    replace(&file);
    let failed = service.get("/slide.svs_files/12/4_4.png");
    assert_eq!(failed.status, 502, "{}", String::from_utf8_lossy(&failed.body));
    let again = service.get("/slide.svs_files/12/4_4.png");
    assert_eq!(again.status, 200, "{}", String::from_utf8_lossy(&again.body));
}
