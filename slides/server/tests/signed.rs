//! Signed addresses: the access that they give, and how they are made.

use std::fs;
use std::process::{Command, Output};

use crate::common::{Service, odd};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const SECRET: &str = "a secret that is long enough";

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seekwire-slides"))
        .arg("slides")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_signed_viewer_lets_in_to_its_slide_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::rename(odd(directory.path()), root.join("odd.tif")).unwrap();
    fs::copy(root.join("odd.tif"), root.join("other.tif")).unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let secret = secret.to_str().unwrap();
    let sign = |addresses: &[&str]| -> Vec<String> {
        let arguments = [&["sign", "--secret-file", secret, "--valid", "10m"], addresses].concat();
        let output = program(&arguments);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let service = Service::start(&root, |settings| settings.secret = Some(SECRET.to_owned()));
    let tile = "/odd.tif_files/9/0_0.png?icc=raw";
    let base = format!("http://{}", service.address);
    let signed = sign(&["/slides/odd.tif", tile, &format!("{base}/slides.json")]);
    for path in ["/", "/slides/odd.tif", tile, "/slides.json", "/static/viewer.js", "/metrics"] {
        let answer = service.get(path);
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.text().contains("signed address"), "{}", answer.text());
    }
    assert_eq!(service.get("/healthz").status, 200);

    // Any address except a viewer's gives access only to itself.
    let answer = service.get(&signed[1]);
    assert_eq!((answer.status, answer.header("set-cookie")), (200, ""));
    assert_eq!(answer.header("cache-control"), "private, max-age=3600");
    assert_eq!(service.get(signed[2].strip_prefix(&base).unwrap()).status, 200);
    for (from, to) in [("9/0_0", "9/1_0"), ("icc=raw", "icc=srgb"), ("signature=", "signature=0")] {
        assert_eq!(service.get(&signed[1].replace(from, to)).status, 403, "{to}");
    }
    // Nor is another slide shown beside it.
    let [both] = &sign(&["/slides/odd.tif?beside=other.tif"])[..] else { panic!() };
    assert_eq!(service.get(both).status, 403);
    let viewer = service.get(&signed[0]);
    assert_eq!(viewer.status, 200);
    assert!(!viewer.text().contains("id=\"beside\""));
    assert_eq!(viewer.header("referrer-policy"), "same-origin");
    // It has no link to pages that its reader may not see.
    assert!(!viewer.text().contains("All slides"), "{}", viewer.text());
    let cookie = viewer.header("set-cookie");
    assert!(cookie.ends_with("Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = [("cookie", cookie.split(';').next().unwrap())];
    for (path, status) in [
        ("/slides/odd.tif", 200),
        ("/slides/odd.tif/properties.json", 200),
        ("/odd.tif.dzi", 200),
        (tile, 200),
        ("/iiif/3/odd.tif/info.json", 200),
        ("/static/viewer.js", 200),
        ("/slides/other.tif", 403),
        ("/other.tif.dzi", 403),
        ("/iiif/3/other.tif/info.json", 403),
        ("/", 403),
        ("/slides.json", 403),
        ("/dicomweb/studies", 403),
        ("/metrics", 403),
    ] {
        assert_eq!(service.ask("GET", path, &cookie).status, status, "{path}");
    }
    // Access to a part of a slide is not access to the slide: a thumbnail's link does not show the
    // label.
    let parts = sign(&["/slides/odd.tif/thumbnail.jpg?width=5", "/slides/odd.tif/properties.json"]);
    for part in &parts {
        let answer = service.get(part);
        assert_eq!((answer.status, answer.header("set-cookie")), (200, ""), "{part}");
    }
    // A failed request gives no cookie.
    let nothing = service.get(&sign(&["/slides/nothing.tif"])[0]);
    assert_eq!((nothing.status, nothing.header("set-cookie")), (404, ""));
}

#[test]
fn a_token_opens_what_is_signed_too_and_the_other_way_round() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(&odd(directory.path()), |settings| {
        settings.secret = Some(SECRET.to_owned());
        settings.token = Some("s3cret".to_owned());
    });
    let secret = directory.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    let arguments = ["sign", "--secret-file", secret.to_str().unwrap(), "/odd.tif.dzi"];
    let signed = String::from_utf8(program(&arguments).stdout).unwrap();
    assert_eq!(service.get(signed.trim()).status, 200);
    let bearer = [("authorization", "Bearer s3cret")];
    assert_eq!(service.ask("GET", "/odd.tif.dzi", &bearer).status, 200);
    assert!(service.ask("GET", "/slides/odd.tif", &bearer).text().contains("All slides"));
    // Only an expired address is reported as such.
    let over = "/odd.tif.dzi?expires=1000";
    let mut key = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    key.update(format!("address\n{over}").as_bytes());
    let signature = key.finalize().into_bytes().into_iter().map(|byte| format!("{byte:02x}"));
    let over = format!("{over}&signature={}", signature.collect::<String>());
    let refused = service.get(&over);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("this link has expired"), "{}", refused.text());
    assert_eq!(service.get(&over.replace("=1000", "=1001")).status, 401);
    let refused = service.get("/odd.tif.dzi");
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").starts_with("Bearer"));
}

#[test]
fn wrong_secrets_and_addresses_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (short, long) = (file("short", "secret"), file("long", SECRET));
    let said = |arguments: &[&str]| {
        let output = program(arguments);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["sign", "--secret-file", "/nowhere", "/"]).contains("/nowhere"));
    assert!(said(&["sign", "--secret-file", &short, "/"]).contains("openssl rand"));
    assert!(said(&["sign", "--secret-file", &long, "a.svs"]).contains("an address such as"));
    assert!(said(&["sign", "--secret-file", &long, "/", "--valid", "x"]).contains("12h or 7d"));
    assert!(said(&["sign", "/"]).contains("--secret-file"));
    assert!(said(&["sign", "--secret-file", &long]).contains("ADDRESS"));
    assert!(said(&[".", "--secret-file", &short]).contains("openssl rand"));
    assert!(said(&[]).contains("DIR|FILE|URL"));
}
