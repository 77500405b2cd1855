//! Access to labels, metadata and DICOMweb, which may name a patient.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::made_slides::{dicom, label, pyramid};
use crate::common::{Answer, Service, aperio, odd, run};
use seekwire_slides::LabelPolicy;

const SECRET: &str = "a secret that is long enough";
const SERIES: &str = "1.2.826.0.1.2";

/// A DICOM series with a label, and a TIFF whose description names a patient.
fn slides(directory: &Path) -> PathBuf {
    odd(directory);
    let root = directory.join("root");
    let slide = pyramid(directory, "a.tif", "jpeg");
    dicom(&slide, directory, &root.join("case"), "a", SERIES);
    label(&slide, directory, &root.join("case"), SERIES);
    fs::write(directory.join("secret"), SECRET).unwrap();
    root
}

fn sign(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"));
    let secret = directory.join("secret");
    command.args(["slides", "sign", "--secret-file", secret.to_str().unwrap()]).args(arguments);
    String::from_utf8(run(&mut command).stdout).unwrap().trim().to_owned()
}

/// The cookie that a browser gets from a link to the viewer.
fn cookie(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("set-cookie").split(';').next().unwrap().to_owned()
}

const LABEL: &str = "/slides/case/label.jpg";
const PROPERTIES: &str = "/slides/case/properties.json";
const VIEWER: &str = "/slides/case";

#[test]
fn a_link_shows_no_label_unless_it_was_signed_for_that() {
    let directory = tempfile::tempdir().unwrap();
    let root = slides(directory.path());
    let with_secret = |settings: &mut seekwire_slides::Settings| {
        settings.secret = Some(SECRET.to_owned());
        settings.token = Some("s3cret".to_owned());
    };
    let service = Service::start(&root, with_secret);
    let bearer = [("authorization", "Bearer s3cret")];
    assert!(service.ask("GET", LABEL, &bearer).pixels().width() > 0);

    let plain = cookie(&service.get(&sign(directory.path(), &[VIEWER])));
    let full_link = sign(directory.path(), &["--with-associated", VIEWER]);
    let full = cookie(&service.get(&full_link));
    let by = |cookie: &str, path: &str| service.ask("GET", path, &[("cookie", cookie)]);
    assert_eq!((by(&plain, VIEWER).status, by(&full, VIEWER).status), (200, 200));
    assert!(!by(&plain, VIEWER).text().contains("label.jpg"));
    assert!(by(&full, VIEWER).text().contains("label.jpg"));
    assert_eq!(by(&plain, PROPERTIES).json()["associated"], serde_json::json!([]));
    assert_eq!(by(&full, PROPERTIES).json()["associated"], serde_json::json!(["label"]));
    assert_eq!((by(&plain, LABEL).status, by(&full, LABEL).status), (404, 200));
    // By its name, in another format, or instead of a thumbnail.
    for path in
        ["label.png", "label.webp", "label.jpg?width=9", "label.jpg?associated=yes", "%6Cabel.jpg"]
    {
        assert_eq!(by(&plain, &format!("/slides/case/{path}")).status, 404, "{path}");
    }
    assert_eq!(by(&plain, "/slides/case/thumbnail.jpg").status, 200);

    // Links modified to get it.
    let link = sign(directory.path(), &[VIEWER]);
    let (expires, signature) = link.split_once("expires=").unwrap();
    assert_eq!(expires, "/slides/case?");
    for changed in [
        link.replace(VIEWER, LABEL),
        link.replace("?expires", "?associated=yes&expires"),
        format!("{link}&associated=yes"),
        format!("{LABEL}?x={VIEWER}&expires={signature}"),
        full_link.replace(VIEWER, LABEL),
        format!("{LABEL}?{}", link.split_once('?').unwrap().1),
        link.replace(VIEWER, "/slides/case%2F..%2Fcase/label.jpg"),
        link.replace(VIEWER, "//slides/case/label.jpg"),
    ] {
        assert_eq!(service.get(&changed).status, 401, "{changed}");
    }
    // A cookie of one kind turned into the other, and one with another time.
    let (name, value) = plain.split_once('=').unwrap();
    let (until, own) = value.split_once('.').unwrap();
    let other = full.rsplit_once('.').unwrap().1;
    for value in [
        format!("{until}0.{own}"),
        format!("{until}.{}", own.replace(own.chars().next().unwrap(), "f")),
        format!("{until}.associated.{own}"),
    ] {
        let changed = by(&format!("{name}={value}"), LABEL);
        assert!(changed.status == 401 || own.starts_with('f'), "{value}: {}", changed.status);
    }
    assert_ne!(own, other);
    // A link signed for the label alone shows it only if that was intended.
    assert_eq!(service.get(&sign(directory.path(), &[LABEL])).status, 404);
    let meant = sign(directory.path(), &["--with-associated", LABEL]);
    assert!(meant.contains("?associated=yes&expires="), "{meant}");
    assert_eq!(service.get(&meant).status, 200);
    assert_eq!(service.get(&meant.replace("associated=yes&", "")).status, 401);

    // All of DICOMweb contains files and names.
    for path in ["/dicomweb/studies", "/dicomweb/instances"] {
        assert_eq!(service.get(&sign(directory.path(), &[path])).status, 403, "{path}");
        let all = sign(directory.path(), &["--with-associated", path]);
        assert_eq!(service.get(&all).status, 200, "{path}");
        assert_eq!(by(&full, path).status, 401);
    }

    // A server that withholds labels from links, whatever they allow.
    let service = Service::start(&root, |settings| {
        with_secret(settings);
        settings.no_associated = Some(LabelPolicy::Links);
    });
    assert_eq!(service.get(&meant).status, 404);
    let all = sign(directory.path(), &["--with-associated", "/dicomweb/studies"]);
    assert_eq!(service.get(&all).status, 403);
    assert_eq!(service.ask("GET", LABEL, &bearer).status, 200);
}

#[test]
fn without_associated_images_nothing_shows_a_label() {
    let directory = tempfile::tempdir().unwrap();
    let root = slides(directory.path());
    let uid = format!("{SERIES}.99");
    let series = format!("/dicomweb/studies/1.2.826.0.1.1/series/{SERIES}");
    let label = format!("{series}/instances/{uid}");
    let service = Service::of(&root);
    assert_eq!(service.get(LABEL).status, 200);
    assert_eq!(service.get(&format!("{label}/rendered")).pixels(), service.get(LABEL).pixels());
    let has = |service: &Service, path: &str| {
        let answer = service.get(path);
        assert_eq!(answer.status, 200, "{path}");
        answer.body.windows(uid.len()).any(|part| part == uid.as_bytes())
    };
    let all = ["/instances", "/metadata", ""].map(|end| format!("{series}{end}"));
    assert!(all.iter().all(|path| has(&service, path)));

    let service =
        Service::start(&root, |settings| settings.no_associated = Some(LabelPolicy::Everybody));
    assert_eq!(service.get(LABEL).status, 404);
    assert_eq!(service.get(PROPERTIES).json()["associated"], serde_json::json!([]));
    assert!(!service.get(VIEWER).text().contains("label.jpg"));
    for path in all.iter().map(String::as_str).chain(["/dicomweb/instances"]) {
        assert!(!has(&service, path), "{path}");
    }
    for end in [
        "",
        "/metadata",
        "/rendered",
        "/thumbnail",
        "/frames/1",
        "/frames/1/rendered",
        "/bulkdata/7FE00010",
    ] {
        assert_eq!(service.get(&format!("{label}{end}")).status, 404, "{end}");
    }
    assert_eq!(service.get(&format!("{series}/instances/{SERIES}.1/frames/1")).status, 200);
    assert_eq!(service.get("/slides/case/thumbnail.jpg").status, 200);
}

#[test]
fn metadata_that_may_name_a_person_are_hidden_unless_asked_for() {
    let properties = "/slides/aperio.svs/properties.json";
    let shown = Service::start(&aperio(), |settings| settings.shows_persons = true);
    let all = shown.get(properties).json();
    let secret = ["aperio.Filename", "aperio.User"];
    let of = |key: &str| all["properties"][key].as_str().unwrap_or_default();
    assert!(secret.iter().all(|key| !of(key).is_empty()), "{all}");
    assert_eq!(all["hidden"], serde_json::json!([]));
    let answer = Service::of(&aperio()).get(properties);
    let hidden = answer.json();
    for key in secret {
        assert!(hidden["hidden"].as_array().unwrap().contains(&key.into()), "{hidden}");
        assert!(hidden["properties"].get(key).is_none());
        assert!(!answer.text().contains(of(key)), "{key}");
    }
    assert_eq!(hidden["properties"]["aperio.MPP"], all["properties"]["aperio.MPP"]);
}
