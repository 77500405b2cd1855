//! dicom-microscopy-viewer, with which Slim displays slides, in a real browser.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::made_slides::{dicom, pyramid};
use crate::common::{Service, odd, script};
use crate::driver::Browser;
use image::RgbImage;

/// Size of the window.
const WIDTH: u32 = 700;
const HEIGHT: u32 = 500;

/// How long the viewer may take to draw a slide.
const DRAW_TIMEOUT: Duration = Duration::from_secs(240);

/// A server for the viewer's page, which ends on drop.
struct Pages(Child);

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The mean colour difference of points that are many pixels apart.
fn difference(one: &RgbImage, other: &RgbImage) -> f64 {
    let pairs =
        one.pixels().zip(other.pixels()).flat_map(|(one, other)| one.0.into_iter().zip(other.0));
    let all: Vec<f64> = pairs.map(|(one, other)| f64::from(one.abs_diff(other))).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
fn in_a_browser_another_viewer_shows_a_slide_by_dicomweb() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    odd(path);
    let slide = pyramid(path, "a.tif", "jpeg");
    dicom(&slide, path, &path.join("root/study"), "a", "1.2.826.0.1.2");
    let service = Service::of(&path.join("root"));

    // The page comes from another server, as in practice.
    let pages = path.join("pages");
    std::fs::create_dir(&pages).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/microscopy.html");
    std::fs::copy(page, pages.join("index.html")).unwrap();
    let packages = script("dicomweb-javascript").join("node_modules");
    std::os::unix::fs::symlink(&packages, pages.join("packages")).unwrap();
    // Where the viewer looks for decoders of frames.
    let decoders = packages.join("dicom-microscopy-viewer/dist/dynamic-import");
    std::fs::create_dir(pages.join("static")).unwrap();
    std::os::unix::fs::symlink(decoders, pages.join("static/js")).unwrap();
    let server = Command::new(script("slide-tools"))
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
        .arg(&pages)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Pages(server);
    let mut said = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let address = said.split_whitespace().find(|word| word.starts_with("(http://")).unwrap();
    let address = address.trim_matches(['(', ')']);

    let mut browser = Browser::with_webgl();
    let mut page = browser.page(WIDTH, HEIGHT, false);
    page.open(&format!("{address}?http://{}/dicomweb", service.address));
    page.until("state.shown || state.failed");
    assert_eq!(page.value("state.failed"), "");

    // The slide is in the middle, as wide as the window, and oriented as on the glass; overlays are
    // in the corners.
    let height = WIDTH * 199 / 301;
    let address = format!("/iiif/3/study/full/^{WIDTH},{height}/180/default.png");
    let expected = service.get(&address).pixels();
    let part = |whole: &RgbImage, top: u32| {
        image::imageops::crop_imm(whole, 160, top, WIDTH - 160, 200).to_image()
    };
    // The viewer does not report when it has drawn all frames.
    let began = Instant::now();
    let (seen, off) = loop {
        let picture = page.pixels();
        let seen = part(&picture, (HEIGHT - height) / 2 + 120);
        let off = difference(&seen, &part(&expected, 120));
        if off < 12.0 {
            break (seen, off);
        }
        let complaints = page.complaints();
        if began.elapsed() > DRAW_TIMEOUT {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("microscopy.png");
            picture.save(&kept).unwrap();
            panic!("{off}: {}, {complaints:?}", kept.display());
        }
    };
    // Another part is not as similar.
    assert!(difference(&seen, &part(&expected, 60)) > 2.0 * off, "{off}");
}
