//! DICOMweb with clients from PyPI and npm and with pydicom, and invalid requests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::made_slides::{dicom, label, open, pyramid};
use crate::common::{Answer, Service, odd, run, script};
use seekwire_slides_image::{Region, Slide};

const STUDY: &str = "/dicomweb/studies/1.2.826.0.1.1";
const JPEG: &str = "1.2.840.10008.1.2.4.50";

/// A study of two series in one directory: JPEG in the first one, native pixels in the second.
struct Study {
    directory: tempfile::TempDir,
    jpeg: Slide,
    raw: Slide,
}

impl Study {
    fn new() -> Self {
        // Made once for all tests.
        static MADE: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path();
            odd(path);
            for (name, compression, series) in [("a", "jpeg", 2), ("b", "none", 3)] {
                let slide = pyramid(path, &format!("{name}.tif"), compression);
                let series = format!("1.2.826.0.1.{series}");
                dicom(&slide, path, &path.join("root/study"), name, &series);
            }
            let files = fs::read_dir(path.join("root/study")).unwrap();
            let files = files.map(|file| Path::new("root/study").join(file.unwrap().file_name()));
            let files = files.chain(["a.tif", "b.tif"].map(PathBuf::from));
            files.map(|file| (file.clone(), fs::read(path.join(file)).unwrap())).collect()
        });
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir_all(path.join("root/study")).unwrap();
        for (file, bytes) in made {
            fs::write(path.join(file), bytes).unwrap();
        }
        let [jpeg, raw] = ["a.tif", "b.tif"].map(|name| open(&path.join(name)));
        Self { directory, jpeg, raw }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root().join("study").join(name)
    }
}

/// The address of an instance: of series 2 or 3, counted from 1.
fn instance(series: u32, number: u32) -> String {
    format!("{STUDY}/series/1.2.826.0.1.{series}/instances/1.2.826.0.1.{series}.{number}")
}

#[test]
fn a_client_reads_all_that_pydicom_reads() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let python = script("dicomweb-client");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/dicomweb.py");
    let address = format!("http://{}/dicomweb", service.address);
    let mut command = Command::new(python);
    let output = run(command.arg(program).arg(address).arg(study.root().join("study")));
    let count = study.jpeg.levels().len() + study.raw.levels().len();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{count} instances"));
}

#[test]
fn a_client_in_javascript_reads_all_of_a_study() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/dicomweb.js");
    let address = format!("http://{}/dicomweb", service.address);
    let mut command = Command::new("node");
    let packages = script("dicomweb-javascript").join("node_modules");
    command.env("NODE_PATH", packages).arg(program).arg(address).arg(study.root().join("study"));
    let output = run(&mut command);
    let count = study.jpeg.levels().len() + study.raw.levels().len();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{count} instances"));
}

#[test]
fn frames_come_as_they_are_stored_or_as_they_can_be_shown() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let ask = |path: &str, accept: &str| service.ask("GET", path, &[("accept", accept)]);
    let frame = format!("{}/frames/7", instance(2, 1));
    let tile = study.jpeg.tile(0, 1, 1).unwrap();
    let stored = tile.jpeg().unwrap().unwrap();
    let alone = ask(&frame, "image/jpeg");
    let kind = format!("image/jpeg; transfer-syntax={JPEG}");
    assert_eq!((alone.status, alone.header("content-type")), (200, &*kind));
    assert_eq!((alone.header("vary"), &alone.body[..stored.len()]), ("accept", &*stored));

    let parts = ask(&frame, "multipart/related; type=\"image/jpeg\"");
    let kind = parts.header("content-type");
    let outer =
        format!("multipart/related; type=\"image/jpeg\"; transfer-syntax={JPEG}; boundary=");
    let boundary = kind.strip_prefix(&outer).unwrap_or_else(|| panic!("{kind}"));
    let head = format!("--{boundary}\r\nContent-Type: image/jpeg; transfer-syntax={JPEG}\r\n\r\n");
    let tail = format!("\r\n--{boundary}--\r\n");
    assert_eq!(parts.body, [head.as_bytes(), &alone.body, tail.as_bytes()].concat());
    // Both have entity tags, which differ.
    for (answer, accept) in [(&alone, "image/jpeg"), (&parts, "*/*")] {
        let etag = answer.header("etag");
        let headers = [("accept", accept), ("if-none-match", etag)];
        assert_eq!(service.ask("GET", &frame, &headers).status, 304, "{accept}");
    }
    assert_ne!(alone.header("etag"), parts.header("etag"));

    let native = format!("{}/frames/1", instance(3, 1));
    for (path, accept, status) in [
        (&frame, "multipart/related; type=application/octet-stream; transfer-syntax=*", 200),
        (&frame, "multipart/related; type=application/octet-stream", 406),
        (&frame, "multipart/related; type=\"image/jp2\"", 406),
        (&frame, "image/jpeg; transfer-syntax=1.2.840.10008.1.2.4.70", 406),
        (&frame, "text/html", 406),
        (&frame, "*/*", 200),
        (&native, "multipart/related; type=application/octet-stream", 200),
        (&native, "application/octet-stream", 200),
        (&native, "multipart/related; type=\"image/jpeg\"", 406),
        (&format!("{}/frames/1,2", instance(3, 1)), "application/octet-stream", 406),
        (&instance(2, 1), "application/dicom+json", 406),
        (&format!("{}/metadata", instance(2, 1)), "application/dicom+xml", 406),
        (&format!("{}/metadata", instance(2, 1)), "application/json", 200),
        (&STUDY.replace("/1.2.826.0.1.1", ""), "text/html", 406),
    ] {
        let answer = ask(path, accept);
        assert_eq!(answer.status, status, "{path} {accept}: {}", said(&answer));
        assert_eq!(answer.header("access-control-allow-origin"), "*");
    }
    let bytes = ask(&native, "application/octet-stream");
    assert_eq!(bytes.body, study.raw.tile(0, 0, 0).unwrap().bytes()[..]);

    // Pixels of rendered frames.
    let shown = ask(&format!("{native}/rendered"), "image/png").pixels();
    let region = Region { x: 0, y: 0, width: 64, height: 64 };
    assert_eq!(shown.as_raw(), study.raw.read(0, region).unwrap().pixels());
    let jpeg = service.get(&format!("{frame}/rendered"));
    assert_eq!(jpeg.header("content-type"), "image/jpeg");
    // The stored length is even.
    assert_eq!(jpeg.body, alone.body);
    assert_eq!(ask(&format!("{frame}/rendered"), "image/gif").status, 406);
    assert_eq!(service.get(&format!("{frame}/rendered?window=1,1")).status, 501);
    let part = ask(&format!("{native}/rendered?viewport=20,16,8,4,20,16"), "image/png").pixels();
    let region = Region { x: 8, y: 4, width: 20, height: 16 };
    assert_eq!(part.as_raw(), study.raw.read(0, region).unwrap().pixels());
    let half = ask(&format!("{frame}/rendered?viewport=32,99"), "image/png").pixels();
    assert_eq!(half.dimensions(), (32, 32));
    assert_eq!(service.get(&format!("{}/frames/1,2/rendered", instance(2, 1))).status, 400);
    assert_eq!(service.get(&format!("{frame}/rendered?accept=image/webp")).pixels().width(), 64);
}

fn said(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).chars().take(200).collect()
}

#[test]
fn files_come_whole_and_in_ranges() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let file = fs::read(study.file("a0.dcm")).unwrap();
    let path = instance(2, 1);
    let whole = service.get(&path);
    let kind = format!("application/dicom; transfer-syntax={JPEG}");
    assert_eq!((whole.status, whole.header("content-type")), (200, &*kind));
    assert_eq!(whole.header("content-length"), file.len().to_string());
    assert_eq!(whole.header("accept-ranges"), "bytes");
    assert!(whole.body == file);
    let head = service.ask("HEAD", &path, &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), file.len().to_string());

    let etag = whole.header("etag");
    assert_eq!(service.ask("GET", &path, &[("if-none-match", etag)]).status, 304);
    let (length, middle) = (file.len(), file.len() / 2);
    for (range, from, to) in [
        ("bytes=128-131".to_owned(), 128, 132),
        (format!("bytes={middle}-"), middle, length),
        ("bytes=-99".to_owned(), length - 99, length),
    ] {
        let part = service.ask("GET", &path, &[("range", &range), ("if-range", etag)]);
        assert_eq!(part.status, 206, "{range}");
        let range = format!("bytes {from}-{}/{length}", to - 1);
        assert_eq!(part.header("content-range"), range);
        assert!(part.body == file[from..to], "{range}");
        let other = service.ask("GET", &path, &[("range", &range), ("if-range", "\"x\"")]);
        assert_eq!((other.status, other.body.len()), (200, length));
    }
    let head = service.ask("HEAD", &path, &[("range", "bytes=0-0")]);
    assert_eq!((head.status, head.header("content-length")), (200, &*length.to_string()));
    let beyond = service.ask("GET", &path, &[("range", "bytes=999999999-")]);
    assert_eq!((beyond.status, beyond.body.len()), (416, 0));
    assert_eq!(beyond.header("content-range"), format!("bytes */{length}"));

    // A series consists of the files in sequence.
    let accept = [("accept", "multipart/related; type=\"application/dicom\"; transfer-syntax=*")];
    let series = service.ask("GET", &format!("{STUDY}/series/1.2.826.0.1.2"), &accept);
    let kind = series.header("content-type");
    let boundary = format!("--{}", kind.rsplit_once("boundary=").unwrap().1);
    let starts: Vec<usize> = (0..series.body.len() - boundary.len())
        .filter(|at| series.body[*at..].starts_with(boundary.as_bytes()))
        .collect();
    assert_eq!(starts.len(), study.jpeg.levels().len() + 1);
    for (level, bounds) in starts.windows(2).enumerate() {
        let part = &series.body[bounds[0]..bounds[1] - 2];
        let file = fs::read(study.file(&format!("a{level}.dcm"))).unwrap();
        assert!(part.ends_with(&file), "{level}");
    }
    // The pixels of native frames are bytes of the file.
    let bulk = format!("{}/bulkdata/7FE00010", instance(3, 1));
    let headers = [("accept", "application/octet-stream"), ("range", "bytes=12288-24575")];
    let part = service.ask("GET", &bulk, &headers);
    assert_eq!((part.status, part.body.len()), (206, 12_288));
    assert_eq!(part.body, study.raw.tile(0, 1, 0).unwrap().bytes()[..]);
}

#[test]
fn a_viewer_of_a_series_shows_no_part_of_its_replacement() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let slide = "study%2F1.2.826.0.1.2";
    let page = service.get(&format!("/slides/{slide}"));
    let (_, version) = page.text().split_once("data-version=\"").unwrap();
    let (version, _) = version.split_once('"').unwrap();
    let address = format!("/{slide}.dzi?v={version}");
    let descriptor = || service.get(&address);
    // A file of another slide changes only the stamp.
    let before = descriptor();
    fs::write(study.file("b0.dcm"), "no slide any more").unwrap();
    let mut after = descriptor();
    while after.header("etag") == before.header("etag") {
        std::thread::yield_now();
        after = descriptor();
    }
    assert_eq!((before.status, after.status), (200, 200));
    let replacement = study.directory.path().join("new");
    fs::copy(study.file("a0.dcm"), &replacement).unwrap();
    fs::rename(replacement, study.file("a0.dcm")).unwrap();
    while after.status == 200 {
        std::thread::yield_now();
        after = descriptor();
    }
    assert_eq!(after.status, 409);
}

#[test]
fn what_is_asked_for_wrongly_is_refused_and_the_server_goes_on() {
    let study = Study::new();
    // Truncated in the middle of its frames.
    let whole = fs::read(study.file("b0.dcm")).unwrap();
    let root = study.root();
    fs::create_dir(root.join("cut")).unwrap();
    let mut cut = whole[..whole.len() / 2].to_vec();
    let uid = b"1.2.826.0.1.3";
    for at in 0..cut.len() - uid.len() {
        if cut[at..].starts_with(uid) {
            cut[at + uid.len() - 1] = b'9';
        }
    }
    fs::write(root.join("cut/a.dcm"), cut).unwrap();
    let service = Service::of(&root);
    let list = |count: usize| format!("{}/frames/{}1", instance(2, 1), "1,".repeat(count));
    for (path, status) in [
        (format!("{}/frames/0", instance(2, 1)), 400),
        (format!("{}/frames/-1", instance(2, 1)), 400),
        (format!("{}/frames/1-3", instance(2, 1)), 400),
        (format!("{}/frames/1,,2", instance(2, 1)), 400),
        (format!("{}/frames/", instance(2, 1)), 404),
        (format!("{}/frames/21", instance(2, 1)), 404),
        (format!("{}/frames/4294967297", instance(2, 1)), 404),
        (format!("{}/frames/99999999999999999999999", instance(2, 1)), 400),
        (list(1023), 200),
        (list(1024), 400),
        (list(15_000), 400),
        (instance(2, 99), 404),
        (instance(2, 1).replace(".1.2/", ".1.3/"), 404),
        (instance(2, 1).replace("1.2.826.0.1.1", "1.2.826.0.1.7"), 404),
        (instance(2, 1).replace("1.2.826.0.1.2.1", "..%2F..%2Fa0.dcm"), 400),
        (format!("{STUDY}/series/..%2F.."), 400),
        (format!("{STUDY}/series/%00"), 400),
        (format!("{STUDY}/series/%ff"), 400),
        (format!("{STUDY}/series/{}", "1".repeat(65)), 400),
        (format!("{STUDY}/series/{}", "1".repeat(64)), 404),
        ("/dicomweb/studies/a".to_owned(), 400),
        ("/dicomweb/studies/1.2.3".to_owned(), 404),
        ("/dicomweb/studies/1.2.3/metadata".to_owned(), 404),
        ("/dicomweb/studies?limit=-1".to_owned(), 400),
        ("/dicomweb/nothing".to_owned(), 404),
        ("/dicomweb".to_owned(), 404),
        (format!("{}/bulkdata/00100010", instance(2, 1)), 404),
        (format!("{}/thumbnail?viewport=1,1,0,0,1,1", instance(2, 1)), 400),
        (format!("{}/rendered?viewport=0,1", instance(2, 1)), 400),
        (format!("{}/rendered?viewport=99999,99999", instance(2, 1)), 400),
        (format!("{}/rendered?viewport=9,9,999,0,1,1", instance(2, 1)), 400),
        (format!("{}/rendered", instance(2, 99)), 404),
        (format!("{STUDY}/rendered"), 404),
        (format!("{STUDY}/series/1.2.826.0.1.9"), 500),
    ] {
        let answer = service.get(&path);
        assert_eq!(answer.status, status, "{path:.200}: {}", said(&answer));
        assert!(!said(&answer).contains(root.to_str().unwrap()), "{path}");
    }
    let broken = service.get(&format!("{STUDY}/series/1.2.826.0.1.9/metadata"));
    assert!(broken.text().starts_with("cut/"), "{}", broken.text());
    // The series is found, and so is the rest of the study.
    let series = service.get(&format!("{STUDY}/series")).json();
    assert_eq!(series.as_array().unwrap().len(), 3);
    let limited = service.get("/dicomweb/series?limit=1&offset=1");
    assert!(limited.header("warning").contains("1 more results"), "{limited:?}");
    assert_eq!(service.get(&instance(2, 1)).status, 200);
    assert_eq!(service.ask("POST", "/dicomweb/studies", &[]).status, 405);
}

#[test]
fn series_and_instances_are_rendered() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let levels = study.raw.levels();
    let png = |path: &str| service.ask("GET", path, &[("accept", "image/png")]).pixels();
    let series = format!("{STUDY}/series/1.2.826.0.1.3");
    // Each level in its own size, and the slide as its largest level.
    for (at, level) in levels.iter().enumerate() {
        let shown = png(&format!("{}/rendered", instance(3, at as u32 + 1)));
        let whole = Region { x: 0, y: 0, width: level.width, height: level.height };
        assert_eq!(shown.dimensions(), (level.width, level.height), "{at}");
        assert_eq!(shown.as_raw(), study.raw.read(at, whole).unwrap().pixels(), "{at}");
    }
    assert_eq!(
        png(&format!("{series}/rendered")).as_raw().len() as u32,
        levels[0].width * levels[0].height * 3
    );
    // A part of a level is in pixels of that level.
    let part = png(&format!("{}/rendered?viewport=50,40,30,20,50,40", instance(3, 2)));
    let region = Region { x: 30, y: 20, width: 50, height: 40 };
    let expected = study.raw.read(1, region).unwrap();
    let off = part.as_raw().iter().zip(expected.pixels()).map(|(one, other)| one.abs_diff(*other));
    let mean = off.map(u64::from).sum::<u64>() as f64 / part.as_raw().len() as f64;
    assert!(mean < 3.0, "{mean}");
    // As large as fits, in proportion.
    let small = png(&format!("{series}/rendered?viewport=100,100"));
    assert_eq!(small.dimensions(), (100, 66));
    assert_eq!(png(&format!("{series}/thumbnail")).dimensions(), (256, 169));
    assert_eq!(png(&format!("{}/thumbnail?viewport=60,9", instance(3, 1))).dimensions(), (14, 9));
    let thumbnail = service.get(&format!("{series}/thumbnail"));
    assert_eq!(thumbnail.header("content-type"), "image/jpeg");
    let etag = [("if-none-match", thumbnail.header("etag"))];
    assert_eq!(service.ask("GET", &format!("{series}/thumbnail"), &etag).status, 304);
    for path in [&series, &instance(3, 1)] {
        let wrong = [("accept", "application/dicom+xml")];
        for of in ["rendered", "thumbnail", "metadata"] {
            assert_eq!(
                service.ask("GET", &format!("{path}/{of}"), &wrong).status,
                406,
                "{path}/{of}"
            );
        }
    }
}

#[test]
fn instances_are_searched_by_what_the_standard_requires() {
    let study = Study::new();
    let service = Service::of(&study.root());
    let class = "1.2.840.10008.5.1.4.1.1.77.1.6";
    let (jpeg, raw) = (study.jpeg.levels().len(), study.raw.levels().len());
    let count = |query: &str| {
        let answer = service.get(&format!("/dicomweb/{query}"));
        (answer.json().as_array().unwrap().len(), answer.header("warning").to_owned())
    };
    let of = "studies/1.2.826.0.1.1/instances";
    for (query, expected) in [
        ("instances".to_owned(), jpeg + raw),
        (of.to_owned(), jpeg + raw),
        (format!("instances?SOPClassUID={class}"), jpeg + raw),
        (format!("{of}?00080016={class}&Modality=SM"), jpeg + raw),
        ("instances?SOPClassUID=1.2.840.10008.5.1.4.1.1.91.1".to_owned(), 0),
        (format!("{of}?SOPInstanceUID=1.2.826.0.1.3.1"), 1),
        ("instances?SOPInstanceUID=1.2.826.0.1.3.1,1.2.826.0.1.2.1".to_owned(), 2),
        ("instances?SeriesInstanceUID=1.2.826.0.1.3".to_owned(), raw),
        ("instances?StudyInstanceUID=1.2.3".to_owned(), 0),
        ("instances?PatientID=2".to_owned(), 0),
        ("instances?InstanceNumber=1".to_owned(), 2),
        (format!("{of}?InstanceNumber=9999"), 0),
        (format!("{of}?InstanceNumber=a"), 0),
    ] {
        assert_eq!(count(&query), (expected, String::new()), "{query}");
    }
    let (count_found, warning) = count("instances?limit=1");
    assert_eq!((count_found, warning.is_empty()), (1, false));
    let rest = jpeg + raw - 1;
    assert_eq!(count(&format!("instances?offset={rest}")).0, 1);
    // Attributes that cannot be matched are ignored, and a warning names them.
    for (query, name) in [
        ("studies?PixelData=1", "PixelData"),
        ("series?00400512=a", "00400512"),
        ("studies?SOPInstanceUID=1.2", "SOPInstanceUID"),
        (
            "instances?FillerOrderNumberImagingServiceRequest=1",
            "FillerOrderNumberImagingServiceRequest",
        ),
    ] {
        let (count_found, warning) = count(query);
        assert!(
            count_found > 0 && warning.starts_with("299 ") && warning.contains(name),
            "{query}: {warning}"
        );
    }
    let hostile = count("studies?A%0d%0aSet-Cookie:%20a=1");
    assert_eq!(hostile.1, "299 seekwire \"these attributes were not matched:  and 1 more\"");
    for kind in ["application/dicom+xml", "multipart/related; type=\"application/dicom+xml\""] {
        for path in ["studies", "series", "instances", of] {
            let answer = service.ask("GET", &format!("/dicomweb/{path}"), &[("accept", kind)]);
            assert_eq!(answer.status, 406, "{path}");
        }
    }
}

#[test]
fn files_of_the_same_uids_are_slides_of_their_own_and_that_is_said() {
    let study = Study::new();
    let (root, file) = (study.root(), study.file("b0.dcm"));
    let bytes = fs::read(&file).unwrap();
    // The same series in another directory, an instance with the same UID and other pixels, a link
    // to a file, which adds nothing, and a series with the same UID in another study.
    fs::create_dir(root.join("other")).unwrap();
    fs::copy(study.file("a0.dcm"), root.join("other/a0.dcm")).unwrap();
    let mut twin = bytes.clone();
    let length = twin.len();
    twin[length - 3 * 64 * 64..].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(study.file("twin.dcm"), twin).unwrap();
    std::os::unix::fs::symlink("b0.dcm", study.file("link.dcm")).unwrap();
    let at = bytes.windows(13).position(|text| text == b"1.2.826.0.1.1").unwrap();
    let mut foreign = bytes;
    foreign[at + 12] = b'9';
    fs::write(study.file("foreign.dcm"), foreign).unwrap();

    let service = Service::of(&root);
    let slides = service.get("/slides.json").json();
    let ids: Vec<&str> =
        slides.as_array().unwrap().iter().map(|slide| slide["id"].as_str().unwrap()).collect();
    let all = [
        "other",
        "study/1.2.826.0.1.2",
        "study/1.2.826.0.1.3",
        "study/foreign.dcm",
        "study/twin.dcm",
    ];
    assert_eq!(ids, all);
    let properties = |id: &str| service.get(&format!("/slides/{id}/properties.json")).json();
    let other = properties("study%2Fforeign.dcm");
    assert_eq!(other["properties"]["dicom.StudyInstanceUID"], "1.2.826.0.1.9");
    assert_eq!(other["levels"].as_array().unwrap().len(), 1);
    // The rest of its series belongs to both.
    let levels = study.raw.levels().len();
    for id in ["study%2F1.2.826.0.1.3", "study%2Ftwin.dcm"] {
        assert_eq!(properties(id)["levels"].as_array().unwrap().len(), levels, "{id}");
    }
    let image = |id: &str| service.get(&format!("/iiif/3/{id}/full/max/0/default.png")).pixels();
    assert_ne!(image("study%2F1.2.826.0.1.3"), image("study%2Ftwin.dcm"));

    let status = service.get("/status").json();
    let notes: Vec<&str> =
        status["sameUids"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    for names in [["other", "study/1.2.826.0.1.2"], ["study/b0.dcm", "study/twin.dcm"]] {
        let names_both = |note: &&str| names.iter().all(|name| note.contains(name));
        assert!(notes.iter().any(names_both), "{names:?} in {notes:?}");
    }
    // DICOMweb serves the first one; the file of another study counts as the first of that.
    assert_eq!(service.get(&format!("{}/metadata", instance(3, 1))).status, 200);
}

#[test]
fn frames_of_a_label_have_the_colours_that_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    odd(path);
    let slide = pyramid(path, "a.tif", "jpeg --profile p3");
    let root = path.join("root");
    let series = "1.2.826.0.1.2";
    dicom(&slide, path, &root.join("case"), "a", series);
    label(&slide, path, &root.join("case"), series);
    let service = Service::of(&root);
    let shown = |number: u32, what: &str| {
        let instance = format!("{STUDY}/series/{series}/instances/{series}.{number}");
        service.get(&format!("{instance}/{what}")).pixels()
    };
    let stored = |number: u32| shown(number, "frames/1?accept=image/jpeg");
    // The profile is that of the levels.
    assert_ne!(shown(1, "frames/1/rendered"), stored(1));
    assert_eq!(shown(99, "frames/1/rendered"), stored(99));
    let (frame, whole) = (stored(99), shown(99, "rendered?accept=image/png"));
    assert_eq!(frame.get_pixel(0, 0), whole.get_pixel(0, 0));
}
