//! Annotations of slides over HTTP.

use crate::common::{Service, odd};
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Writes to a file, and restores its modification time. The status change time differs; file
/// clocks advance in ticks, so this may take several attempts.
fn repair(file: &Path, bytes: &[u8]) {
    let before = fs::metadata(file).unwrap();
    assert_eq!(before.len(), bytes.len() as u64);
    let status = |data: &fs::Metadata| (data.ctime(), data.ctime_nsec());
    loop {
        fs::write(file, bytes).unwrap();
        let file = File::options().write(true).open(file).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        let after = file.metadata().unwrap();
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        if status(&after) != status(&before) {
            break;
        }
    }
}

#[test]
fn annotations_are_found_beside_a_slide_and_change_with_their_file() {
    let directory = tempfile::tempdir().unwrap();
    odd(directory.path());
    let service = Service::of(directory.path());
    let address = "/slides/odd.tif/annotations.json";
    assert_eq!(service.get(address).status, 404);
    assert!(service.get("/slides/odd.tif").text().contains("data-annotated=\"no\""));

    let point = |name: &str| {
        let geometry = json!({ "type": "Point", "coordinates": [20, 30] });
        json!({ "type": "Feature", "geometry": geometry, "properties": { "name": name } })
            .to_string()
    };
    let file = directory.path().join("odd.geojson");
    fs::write(&file, point("one")).unwrap();
    let one = service.get(address);
    assert_eq!(one.header("content-type"), "application/geo+json");
    assert_eq!(one.json()["features"][0]["properties"]["name"], "one");
    assert!(service.get("/slides/odd.tif").text().contains("data-annotated=\"yes\""));
    let etag = one.header("etag").to_owned();
    assert_eq!(service.ask("GET", address, &[("if-none-match", &etag)]).status, 304);
    let elsewhere = service.get(&format!("{address}?bbox=0,0,10,10&zoom=2"));
    assert_eq!((&elsewhere.json()["total"], elsewhere.header("etag") != etag), (&json!(0), true));
    assert!(service.count("cache_bytes{of=\"annotations\"}") > 0);

    fs::write(&file, point("another one")).unwrap();
    let other = service.ask("GET", address, &[("if-none-match", &etag)]);
    assert_eq!(other.json()["features"][0]["properties"]["name"], "another one");

    // A repair may preserve length and time.
    let is_old =
        || service.get(address).json()["features"][0]["properties"]["name"] == "another one";
    assert!(is_old());
    repair(&file, point("another two").as_bytes());
    assert!(!is_old());

    for query in ["bbox=1,2,3", "bbox=a,b,c,d", "bbox=5,5,1,1", "zoom=0", "zoom=-1", "zoom=x"] {
        assert_eq!(service.get(&format!("{address}?{query}")).status, 400, "{query}");
    }
    assert_eq!(service.get("/slides/none.tif/annotations.json").status, 404);

    // A malformed file affects nothing else.
    fs::write(&file, "[".repeat(1000)).unwrap();
    let broken = service.get(address);
    assert_eq!(broken.status, 500);
    assert!(broken.text().starts_with("odd.geojson: nested too deep"), "{}", broken.text());
    assert_eq!(service.get("/slides/odd.tif").status, 200);
    assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
}
