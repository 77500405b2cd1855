//! A slide on a real web server.

use crate::common::aperio;
use crate::common::nginx::Nginx;
use crate::common::seeds::{blosc, zarr_2, zarr_3};
use seekwire_slides_image::{HttpSource, Limits, Region, Slide, Source};
#[test]
fn a_slide_on_a_web_server_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("real.svs");
    std::fs::copy(aperio(), &file).unwrap();
    let server = Nginx::start(directory.path());
    let near = Slide::open(file.to_str().unwrap(), Limits::default()).unwrap();
    let address = server.address("real.svs?signature=secret");
    let far = Slide::open(&address, Limits::default()).unwrap();
    let region = Region { x: 100, y: 200, width: 501, height: 301 };
    assert_eq!(far.read(0, region).unwrap(), near.read(0, region).unwrap());
    let count = || {
        let text = std::fs::read_to_string(directory.path().join("access")).unwrap();
        text.lines().count()
    };
    let again = Slide::open(&address, Limits::default()).unwrap();
    assert!(again.state().is_some() && again.state() == far.state());
    let before = count();
    far.read(0, region).unwrap();
    assert_eq!(count(), before, "cached blocks were requested");
    assert!(before < 35, "{before} requests");

    for (path, what) in [
        ("none.svs", "404"),
        ("whole/real.svs", "does not support range requests"),
        ("broken/real.svs", "503 Service Unavailable (3 attempts)"),
    ] {
        let error = HttpSource::open(&server.address(path)).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains(path), "{error}");
    }

    // Replaced by another file of the same length.
    let source = HttpSource::open(&address).unwrap();
    let untagged = server.address("untagged/real.svs?signature=secret");
    let untagged = HttpSource::open(&untagged).unwrap();
    untagged.read_at(100_000, &mut [0; 10]).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.reverse();
    std::fs::write(directory.path().join("other"), bytes).unwrap();
    let old = std::fs::metadata(&file).unwrap().modified().unwrap();
    let other = std::fs::File::options().write(true).open(directory.path().join("other")).unwrap();
    other.set_modified(old + std::time::Duration::from_secs(60)).unwrap();
    std::fs::rename(directory.path().join("other"), &file).unwrap();
    for source in [source, untagged] {
        let error = source.read_at(100_000, &mut [0; 10]).unwrap_err().to_string();
        assert!(error.contains("has changed") && !error.contains("secret"), "{error}");
    }
}

#[test]
fn redirections_stay_with_the_server() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), [7; 100_000]).unwrap();
    let server = Nginx::start(directory.path());
    for path in ["moved/file?signature=secret", "plain/file"] {
        let source = HttpSource::open(&server.address(path)).unwrap();
        let mut bytes = [0; 10];
        source.read_at(90_000, &mut bytes).unwrap();
        assert_eq!((source.length(), bytes), (100_000, [7; 10]));
    }
    let count = || {
        let text = std::fs::read_to_string(directory.path().join("access")).unwrap();
        text.lines().filter(|line| line.contains("GET /file")).count()
    };
    let before = count();
    for (path, what) in [
        ("away/file", "302 Found: a redirection to another server"),
        ("around/file", "more than 10 redirections"),
    ] {
        let error = HttpSource::open(&server.address(path)).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert_eq!(count(), before);
}

#[test]
fn an_image_in_many_files_on_a_web_server_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let compressed = zarr_2(r#"{"id": "blosc"}"#, &blosc(4096));
    for (name, files) in [("two.zarr", compressed), ("three.zarr", zarr_3("", &[5; 3 * 4096]))] {
        for (file, bytes) in files {
            let path = directory.path().join(name).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let server = Nginx::start(directory.path());
    for (name, description) in [("two.zarr", "0/.zarray"), ("three.zarr", "0/zarr.json")] {
        let path = directory.path().join(name);
        let near = Slide::open(path.to_str().unwrap(), Limits::default()).unwrap();
        let address = server.address(&format!("{name}/?signature=secret"));
        let far = Slide::open(&address, Limits::default()).unwrap();
        let region = Region { x: 30, y: 20, width: 60, height: 40 };
        assert_eq!(far.read(0, region).unwrap(), near.read(0, region).unwrap());
        let states = || {
            [path.to_str().unwrap(), &address].map(|location| {
                let slide = Slide::open(location, Limits::default()).unwrap();
                slide.state().unwrap().to_owned()
            })
        };
        let before = states();
        assert_eq!(states(), before);
        let description = path.join(description);
        let longer = std::fs::read_to_string(&description).unwrap() + " ";
        std::fs::write(description, longer).unwrap();
        let after = states();
        assert!(after[0] != before[0] && after[1] != before[1], "{after:?}");
    }
    let access = std::fs::read_to_string(directory.path().join("access")).unwrap();
    assert!(access.lines().all(|line| line.contains("?signature=secret")), "{access}");
    let error = Slide::open(&server.address("none.zarr"), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("without an image"), "{error}");
}
