use super::scan::FRESH;
use super::*;
use std::os::unix::fs::symlink;
use std::time::Duration;

fn ids(library: &SlideLibrary) -> Vec<String> {
    library.list().keys().cloned().collect()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn only_slides_inside_of_the_tree_are_listed() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("case 1/.hidden")).unwrap();
    for name in ["a.svs", "B.TIF", "notes.txt", "case 1/c.ome.tiff", "case 1/.hidden/d.svs"] {
        fs::write(root.join(name), "").unwrap();
    }
    for name in ["series/1.dcm", "series/2.dcm", "image.zarr/0/0.tif", "image.zarr/.zattrs"] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), "").unwrap();
    }
    fs::write(outer.path().join("secret.svs"), "").unwrap();
    symlink("a.svs", root.join("inside.svs")).unwrap();
    symlink("../secret.svs", root.join("outside.svs")).unwrap();
    symlink("/nowhere", root.join("dangling.svs")).unwrap();
    symlink("..", root.join("up.svs")).unwrap();
    symlink(".", root.join("case 1/loop")).unwrap();
    let library = SlideLibrary::new(&[text(&root)]).unwrap();
    let all = ["B.TIF", "a.svs", "case 1/c.ome.tiff", "image.zarr", "inside.svs", "series"];
    assert_eq!(ids(&library), all);
    let series = SlideLibrary::new(&[text(&root.join("series"))]).unwrap();
    assert_eq!(ids(&series), ["series"]);
    let image = SlideLibrary::new(&[text(&root.join("image.zarr"))]).unwrap();
    assert_eq!(ids(&image), ["image.zarr"]);
    // Two slides of one name in a directory do not prevent others from being served.
    let slides = outer.path().join("slides");
    for name in ["a.svs", "1.dcm", "slides/1.dcm"] {
        fs::create_dir_all(slides.join(name).parent().unwrap()).unwrap();
        fs::write(slides.join(name), "").unwrap();
    }
    assert_eq!(ids(&SlideLibrary::new(&[text(&slides)]).unwrap()), ["a.svs", "slides"]);

    for id in ["outside.svs", "../secret.svs", "case 1/../a.svs", "/etc/passwd", "", "a.svs\0"] {
        let failure = library.find(id).unwrap_err();
        assert_eq!(failure.status, axum::http::StatusCode::NOT_FOUND, "{id}");
    }
    // A file that later becomes a link.
    let slide = library.find("a.svs").unwrap();
    assert!(location(&slide, "a.svs").unwrap().ends_with("/root/a.svs"));
    fs::remove_file(root.join("a.svs")).unwrap();
    symlink("../secret.svs", root.join("a.svs")).unwrap();
    let failure = location(&slide, "a.svs").unwrap_err();
    assert_eq!(&*failure.what, "a.svs: it leads out of its directory");
    fs::remove_file(root.join("a.svs")).unwrap();
    let failure = location(&slide, "a.svs").unwrap_err();
    assert!(!failure.what.contains("root"), "{failure}");
}

#[test]
fn instances_behind_links_are_beside_the_links() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    let (hidden, study) = (root.join(".objects/a"), root.join("study"));
    fs::create_dir_all(&hidden).unwrap();
    fs::create_dir_all(&study).unwrap();
    fs::write(hidden.join("1.dcm"), "").unwrap();
    symlink("../.objects/a/1.dcm", study.join("1.dcm")).unwrap();
    let within = Some(Arc::from(root.as_path()));
    let slide = SlideLocation::File { path: study.join("1.dcm"), within };
    let found = location(&slide, "1.2.3").unwrap();
    assert_eq!(found, text(&study.join("1.dcm")));
    assert_eq!(instances(&found), Some(&*study));
    fs::remove_file(hidden.join("1.dcm")).unwrap();
    symlink("/etc/passwd", hidden.join("1.dcm")).unwrap();
    let failure = location(&slide, "1.2.3").unwrap_err();
    assert_eq!(&*failure.what, "1.2.3: it leads out of its directory");
}

#[test]
fn several_locations_have_names_of_their_own() {
    let outer = tempfile::tempdir().unwrap();
    for name in ["one", "two", "three/one"] {
        fs::create_dir_all(outer.path().join(name)).unwrap();
        fs::write(outer.path().join(name).join("a.svs"), "").unwrap();
    }
    fs::write(outer.path().join("any-name"), "").unwrap();
    let path = |name: &str| text(&outer.path().join(name));
    let address = "http://host/dir/b%20c.tif?key=x".to_owned();
    let object = "s3://bucket/dir/100% a?.svs".to_owned();
    let named = [path("one"), path("two"), path("any-name"), address, object];
    let library = SlideLibrary::new(&named).unwrap();
    let all = ["100% a?.svs", "any-name", "b c.tif", "one/a.svs", "two/a.svs"];
    assert_eq!(ids(&library), all);
    let directories = SlideLibrary::new(&[path("one"), path("three/one")]).unwrap();
    assert_eq!(ids(&directories), ["one/a.svs", "three/one/a.svs"]);
    let case = |number: u8| format!("s3://a/case{number}/slide.svs");
    let file = path("one/a.svs");
    fs::write(outer.path().join("slide.svs"), "").unwrap();
    let named = [case(1), case(2), "http://host/slide.svs".to_owned(), path("slide.svs"), file];
    let objects = SlideLibrary::new(&named).unwrap();
    let own = outer.path().file_name().unwrap().to_str().unwrap();
    let all = ["a.svs", "case2/slide.svs", "host/slide.svs", "slide.svs"].map(String::from);
    let mut all = all.to_vec();
    all.push(format!("{own}/slide.svs"));
    all.sort();
    assert_eq!(ids(&objects), all);
    // The same twice; a possible signature is not shown.
    let address = |query: &str| format!("http://host/one/a.svs?key={query}");
    let prefixed = [address("s3cret"), address("s4cret"), path("one"), path("two")];
    for same in [&[path("one"), path("one")][..], &[case(1), case(1)], &prefixed] {
        let same = SlideLibrary::new(same).unwrap_err().to_string();
        let is_reported = ["two slides are called one/a.svs", "given twice"];
        let is_reported = is_reported.iter().any(|text| same.contains(text));
        assert!(is_reported && !same.contains("cret"), "{same}");
    }
    for wrong in ["s3://", "s3:///", "s3://../", "ftp://host/a.svs", "http://"] {
        let error = SlideLibrary::new(&[wrong.to_owned()]).unwrap_err().to_string();
        assert!(
            ["key", "address", "name of the bucket"].iter().any(|part| error.contains(part)),
            "{error}"
        );
    }
    assert!(SlideLibrary::new(&[path("none")]).unwrap_err().to_string().contains("none"));
    assert!(SlideLibrary::new(&["http://".to_owned()]).is_err());
}

#[test]
fn a_directory_in_a_bucket_is_distinguished_from_a_slide() {
    for (location, parts) in [
        ("s3://bucket", Some("bucket")),
        ("s3://bucket/", Some("bucket")),
        ("s3://bucket/a/b/", Some("bucket|a|b")),
        ("s3://bucket/a.zarr/", None),
        ("s3://bucket/a.svs", None),
        ("https://bucket/a/", None),
        ("/bucket/", None),
    ] {
        let parsed = bucket(location).map(|parts| parts.join("|"));
        assert_eq!(parsed.as_deref(), parts, "{location}");
    }
}

#[test]
fn names_that_are_not_known_have_no_directory_looked_at_again_before_long() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.svs"), "").unwrap();
    let library = SlideLibrary::new(&[text(directory.path())]).unwrap();
    // As if a scan that took so long had just ended.
    let scanned = |took: Duration| {
        let at = Instant::now() + Duration::from_secs(3600);
        let last_scan = ScanResult { at, took, ..library.last_scan() };
        *library.state() = last_scan;
        at
    };
    fs::write(directory.path().join("new.svs"), "").unwrap();
    for (took, pause) in [(0, 2), (1, 2), (60, 60), (3600, 60)] {
        let (at, pause) = (scanned(Duration::from_secs(took)), Duration::from_secs(pause));
        assert!(library.find("new.svs").is_err(), "{took}");
        assert!(library.find("a.svs").is_ok());
        let short = Duration::from_millis(1);
        for (now, is_known) in [(at, true), (at + pause - short, true), (at + pause, false)] {
            assert_eq!(library.is_unknown("new.svs", now), is_known, "{took}");
            assert!(!library.is_unknown("a.svs", now));
            // The known series are up to date, so no thread is needed.
            assert_eq!(library.fresh_series(now).is_some(), is_known, "{took}");
        }
    }
    // When the time has come, a new slide is found.
    let long_ago = Instant::now().checked_sub(2 * FRESH).unwrap();
    *library.state() = ScanResult { at: long_ago, took: Duration::ZERO, ..library.last_scan() };
    assert!(library.find("new.svs").is_ok());
}

#[test]
fn a_scan_that_fails_is_not_made_again_at_once() {
    let outer = tempfile::tempdir().unwrap();
    let [one, file] = ["one", "a.svs"].map(|name| outer.path().join(name));
    fs::create_dir(&one).unwrap();
    fs::write(&file, "").unwrap();
    let library = SlideLibrary::new(&[text(&one), text(&file)]).unwrap();
    // A location for an existing slide.
    let roots = [("a.svs", one.clone()), ("a.svs", file)].map(|(id, path)| {
        let location = SlideLocation::File { path, within: None };
        Root::Slide { id: id.to_owned(), location }
    });
    let long_ago = Instant::now().checked_sub(2 * FRESH).unwrap();
    let last_scan = Mutex::new(ScanResult { at: long_ago, ..library.last_scan() });
    let scanning = Mutex::new(Headings::default());
    let library = SlideLibrary { roots: roots.into(), last_scan, scanning };
    assert_eq!(ids(&library), ["a.svs"]);
    let at = library.state().at;
    assert!(at > long_ago && library.is_unknown("b.svs", at));
}

#[test]
fn a_bucket_that_cannot_be_listed_keeps_its_slides_and_holds_up_no_others() {
    let outer = tempfile::tempdir().unwrap();
    fs::write(outer.path().join("new.svs"), "").unwrap();
    // No bucket has this name, so it cannot be listed, and nothing is asked.
    let bucket = |prefix: &str| Root::Bucket {
        address: "s3://../slides/".to_owned(),
        prefix: prefix.to_owned(),
    };
    let directory = || Root::Directory { path: outer.path().to_owned(), prefix: "b/".to_owned() };
    let address = |address: &str| SlideLocation::Address(address.to_owned());
    let slide = Root::Slide { id: "a/1.svs".to_owned(), location: address("http://host/1.svs") };
    let before = List::from([
        ("a/1.svs".to_owned(), address("http://host/1.svs")),
        ("a/2.svs".to_owned(), address("s3://../slides/2.svs")),
        ("a/c/3.svs".to_owned(), address("s3://../slides/c/3.svs")),
        ("a/4.svs".to_owned(), address("s3://../others/4.svs")),
        ("b/old.svs".to_owned(), address("s3://../slides/old.svs")),
    ]);
    let mut headings = Headings::default();
    let roots = [bucket("a/"), directory(), slide];
    let last_scan = scan(&roots, Some(&before), &mut headings).unwrap();
    let ids: Vec<&str> = last_scan.list.keys().map(String::as_str).collect();
    assert_eq!(ids, ["a/1.svs", "a/2.svs", "a/c/3.svs", "b/new.svs"]);
    // At the start, it is an error.
    assert!(scan(&[bucket(""), directory()], None, &mut headings).is_err());
}
