//! The pages in a real browser: a gallery and a viewer in use, at two widths.

use std::path::{Path, PathBuf};

use crate::common::made_slides::channels;
use crate::common::{Service, aperio};
use crate::driver::{Browser, Page};
use crate::viewer::{VIEWER, check_layout, keep, settle};
use image::RgbImage;
use serde_json::json;

/// The difference of colours, averaged over blocks first, so that an offset of half a pixel does
/// not matter.
fn difference(one: &RgbImage, other: &RgbImage) -> f64 {
    assert_eq!(one.dimensions(), other.dimensions());
    const SIDE: u32 = 8;
    let (mut sum, mut count) = (0.0, 0);
    for top in (0..one.height() / SIDE * SIDE).step_by(SIDE as usize) {
        for left in (0..one.width() / SIDE * SIDE).step_by(SIDE as usize) {
            for colour in 0..3 {
                let mean = |image: &RgbImage| {
                    let all = (0..SIDE * SIDE).map(|at| {
                        let pixel = image.get_pixel(left + at % SIDE, top + at / SIDE);
                        f64::from(pixel.0[colour])
                    });
                    all.sum::<f64>() / f64::from(SIDE * SIDE)
                };
                sum += (mean(one) - mean(other)).abs();
                count += 1;
            }
        }
    }
    sum / f64::from(count)
}

/// Checks the position of the slide: compares the picture around the centre of the view with
/// IIIF's.
fn check_pixels(page: &mut Page<'_>, service: &Service, picture: &RgbImage, quarters: u32) {
    let position = page.value(&format!(
        "(() => {{ const viewer = {VIEWER}, view = viewer.viewport, size = view.getContainerSize();
            const box = document.getElementById('slide').getBoundingClientRect();
            const middle = view.viewportToImageCoordinates(view.getCenter());
            return [box.x, box.y, size.x, size.y, middle.x, middle.y,
                view.viewportToImageZoom(view.getZoom())]; }})()"
    ));
    let of = |at: usize| position[at].as_f64().unwrap();
    // Without the controls at the borders.
    let side = (of(2).min(of(3)) * 0.5 / 16.0).floor() * 16.0;
    let (left, top) = (of(0) + (of(2) - side) / 2.0, of(1) + (of(3) - side) / 2.0);
    let extent = side / of(6);
    let address = format!(
        "/iiif/3/aperio.svs/{},{},{},{}/^{side},{side}/{}/default.png",
        (of(4) - extent / 2.0).round(),
        (of(5) - extent / 2.0).round(),
        extent.round(),
        extent.round(),
        quarters * 90
    );
    let expected = service.get(&address).pixels();
    let (left, top) = (left.round() as u32, top.round() as u32);
    let seen = image::imageops::crop_imm(picture, left, top, side as u32, side as u32).to_image();
    let off = difference(&seen, &expected);
    assert!(off < 7.0, "{address}: {off}");
    // They do not merely agree on an empty area.
    let flat = RgbImage::from_pixel(side as u32, side as u32, *expected.get_pixel(0, 0));
    assert!(difference(&expected, &flat) > 10.0, "{address}");
}

/// The length of the scale bar, relative to the length that it displays.
fn scale(page: &mut Page<'_>, microns: f64) -> f64 {
    let text = page.value("document.querySelector('#scale span').textContent");
    let (number, unit) = text.as_str().unwrap().split_once(' ').unwrap();
    let factor = match unit {
        "µm" => 1.0,
        "mm" => 1000.0,
        other => panic!("{other}"),
    };
    let says = number.parse::<f64>().unwrap() * factor;
    let pixels = page.number("document.getElementById('scale').getBoundingClientRect().width");
    // From the visible part of the slide, not from the source of the page's own length.
    let seen = page.number(&format!(
        "(() => {{ const viewer = {VIEWER};
            const one = viewer.viewport.imageToWindowCoordinates(new OpenSeadragon.Point(0, 0));
            const other = viewer.viewport.imageToWindowCoordinates(new OpenSeadragon.Point(1000, 0));
            return one.distanceTo(other) / 1000; }})()"
    ));
    pixels / seen * microns / says
}

/// The real slide, with annotations, in a directory of its own.
fn slide(directory: &Path) -> PathBuf {
    let square = |left: u32, top: u32, side: u32| {
        let (right, bottom) = (left + side, top + side);
        json!([[[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]])
    };
    let feature = |name: &str, class: &str, color: [u8; 3], coordinates| {
        json!({
            "type": "Feature",
            "geometry": { "type": "Polygon", "coordinates": coordinates },
            "properties": { "name": name, "classification": { "name": class, "color": color } },
        })
    };
    let features = json!([
        feature("Region 1", "Tumor", [200, 0, 0], square(300, 500, 900)),
        feature("Region 2 <b>", "Stroma", [0, 110, 60], square(1300, 1900, 500)),
    ]);
    let collection = json!({ "type": "FeatureCollection", "features": features });
    std::fs::copy(aperio(), directory.join("aperio.svs")).unwrap();
    std::fs::write(directory.join("aperio.geojson"), collection.to_string()).unwrap();
    directory.to_owned()
}

#[test]
fn in_a_browser_slides_are_found_and_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::of(&slide(directory.path()));
    let properties = service.get("/slides/aperio.svs/properties.json").json();
    let microns = properties["micronsPerPixel"][0].as_f64().unwrap();
    let mut browser = Browser::start();
    for (width, height) in [(1280, 800), (390, 844)] {
        let has_touch = width < 500;
        let mut page = browser.page(width, height, has_touch);
        page.open(&format!("http://{}/", service.address));
        page.until("document.images.length === 1 && document.images[0].naturalWidth > 100");
        check_layout(&mut page);
        keep(&mut page, &format!("gallery-{width}"));

        page.click("li a");
        page.until("location.pathname === '/slides/aperio.svs'");
        settle(&mut page);
        page.until("document.querySelectorAll('#legend .swatch').length === 2");
        check_layout(&mut page);
        let picture = keep(&mut page, &format!("viewer-{width}"));
        let colours: std::collections::HashSet<_> = picture.pixels().map(|pixel| pixel.0).collect();
        assert!(colours.len() > 1000, "{} colours", colours.len());
        assert!((scale(&mut page, microns) - 1.0).abs() < 0.02);
        // The overview of the slide, at the top right.
        let small = page.value(
            "(() => { const small = document.querySelector('.navigator');
                return [small.getBoundingClientRect().width, getComputedStyle(small).opacity]; })()",
        );
        assert!(small[0].as_f64() > Some(50.0) && small[1] == "1", "{small}");

        page.click("#outlines");
        page.until("document.getElementById('legend').hidden");
        let picture = keep(&mut page, &format!("viewer-plain-{width}"));
        check_pixels(&mut page, &service, &picture, 0);

        // Closer, and to the side.
        let middle = page.value(
            "(() => { const box = document.getElementById('slide').getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2]; })()",
        );
        let (x, y) = (middle[0].as_f64().unwrap(), middle[1].as_f64().unwrap());
        let zoom = format!("{VIEWER}.viewport.getZoom()");
        let before = page.number(&zoom);
        if has_touch {
            page.click("#in");
            page.click("#in");
        } else {
            // Wheel events that follow another one too soon are ignored.
            while page.number(&zoom) < before * 1.6 {
                page.wheel((x, y));
            }
        }
        assert!(page.number(&zoom) > before * 1.5);
        let centre = format!("{VIEWER}.viewport.getCenter().x");
        let before = page.number(&centre);
        page.drag((x + 60.0, y), (x - 60.0, y + 20.0), has_touch);
        page.until(&format!("{centre} > {before} + 0.01"));
        settle(&mut page);
        // How far the view drifts after a drag depends on its speed; from here on its position is
        // fixed.
        page.value(&format!(
            "{VIEWER}.viewport.panTo(new OpenSeadragon.Point(0.52, 0.6), true) && undefined"
        ));
        settle(&mut page);
        let picture = keep(&mut page, &format!("viewer-closer-{width}"));
        check_pixels(&mut page, &service, &picture, 0);
        assert!((scale(&mut page, microns) - 1.0).abs() < 0.02);

        // A quarter to the right, and the link to that view.
        page.click("#right");
        page.until(&format!("{VIEWER}.viewport.getRotation(true) === 90"));
        settle(&mut page);
        page.until("location.hash.includes('rotation=90')");
        let picture = keep(&mut page, &format!("viewer-turned-{width}"));
        check_pixels(&mut page, &service, &picture, 1);
        let view = format!(
            "(() => {{ const view = {VIEWER}.viewport, middle = view.getCenter();
                return [middle.x, middle.y, view.getZoom(), view.getRotation()]; }})()"
        );
        let expected = page.value(&view);
        let link = page.value("location.href").as_str().unwrap().to_owned();
        assert_eq!(page.complaints(), Vec::<String>::new());
        drop(page);

        let mut page = browser.page(width, height, has_touch);
        page.open(&link);
        settle(&mut page);
        let shown = page.value(&view);
        for at in 0..4 {
            let (shown, expected) = (shown[at].as_f64().unwrap(), expected[at].as_f64().unwrap());
            assert!(
                (shown - expected).abs() < 1e-4 * expected.abs().max(1.0),
                "{shown} {expected}"
            );
        }
        page.until("document.querySelectorAll('#legend .swatch').length === 2");
        check_layout(&mut page);
        let again = keep(&mut page, &format!("viewer-linked-{width}"));
        assert!(difference(&again, &picture) < 30.0);
        page.click("#share");
        page.until("document.getElementById('message').textContent.length > 0");
        page.click("#home");
        page.until(&format!("{VIEWER}.viewport.getRotation(true) === 0"));
        settle(&mut page);
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
    assert_eq!(service.count("decoded_twice_total"), 0);
}

#[test]
fn in_a_browser_a_slide_that_cannot_be_shown_says_why() {
    let directory = tempfile::tempdir().unwrap();
    // Its name sorts first.
    std::fs::write(directory.path().join("a broken.svs"), "no slide").unwrap();
    let service = Service::of(&slide(directory.path()));
    let mut browser = Browser::start();
    let mut page = browser.page(390, 844, false);
    page.open(&format!("http://{}/", service.address));
    let reason = "document.querySelector('#problems .reason').textContent";
    page.until(&format!("{reason}.startsWith('a broken.svs: not supported')"));
    let names = |selector: &str| {
        format!("[...document.querySelectorAll('{selector} .name')].map((one) => one.textContent)")
    };
    assert_eq!(page.value(&names("main > ul")), json!(["aperio.svs"]));
    assert_eq!(page.value(&names("#problems")), json!(["a broken.svs"]));
    assert_eq!(page.value(FITS), true);
    keep(&mut page, "gallery-broken");
}

/// Number of nonempty pixels of the annotation canvas.
const DRAWN: &str = "(() => { const canvas = document.querySelector('canvas.annotations');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return pixels.reduce((sum, value, at) => sum + (at % 4 === 3 && value > 0 ? 1 : 0), 0); })()";

#[test]
fn in_a_browser_annotations_are_where_they_belong() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::of(&slide(directory.path()));
    let mut browser = Browser::start();
    let mut page = browser.page(1000, 800, false);
    page.open(&format!("http://{}/slides/aperio.svs", service.address));
    settle(&mut page);
    page.until(&format!("{DRAWN} > 1000"));
    // The corners of the first region have its colour, also when the slide is rotated.
    for turn in 0..2 {
        if turn == 1 {
            page.click("#left");
            page.until(&format!("{VIEWER}.viewport.getRotation(true) === -90"));
            settle(&mut page);
        }
        let corners = page.value(&format!(
            "[[300, 500], [1200, 500], [1200, 1400], [300, 1400]].map(([x, y]) => {{
                const point = {VIEWER}.viewport.imageToViewerElementCoordinates(new OpenSeadragon.Point(x, y));
                const context = document.querySelector('canvas.annotations').getContext('2d');
                return [...context.getImageData(Math.round(point.x), Math.round(point.y), 1, 1).data];
            }})"
        ));
        for corner in corners.as_array().unwrap() {
            assert!(corner[0].as_u64() > Some(150) && corner[1].as_u64() < Some(60), "{corners}");
        }
    }
    keep(&mut page, "annotations-turned");
    let legend = "[...document.querySelectorAll('#legend p')].map((line) => line.textContent)";
    assert_eq!(page.value(legend), json!(["Tumor", "Stroma"]));
    page.click("#outlines");
    page.until(&format!("{DRAWN} === 0"));
    page.click("#outlines");
    page.until(&format!("{DRAWN} > 1000"));
    assert_eq!(page.complaints(), Vec::<String>::new());

    // A malformed file is reported; the slide is shown all the same.
    std::fs::write(directory.path().join("aperio.geojson"), "{\"features\": [7]}").unwrap();
    page.open(&format!("http://{}/slides/aperio.svs", service.address));
    settle(&mut page);
    page.until("document.getElementById('legend').innerText.startsWith('aperio.geojson: ')");
    keep(&mut page, "annotations-broken");
    // A file that is gone is not requested.
    std::fs::remove_file(directory.path().join("aperio.geojson")).unwrap();
    page.complaints();
    drop(page);
    let mut page = browser.page(1000, 800, false);
    page.open(&format!("http://{}/slides/aperio.svs", service.address));
    settle(&mut page);
    assert_eq!(page.value("document.getElementById('outlines').hidden"), true);
    // A chosen magnification is the one shown.
    page.value(
        "(() => { const select = document.getElementById('magnification'); select.value = '10';
            select.dispatchEvent(new Event('change')); })()",
    );
    settle(&mut page);
    let shown = page.value("document.getElementById('magnification').options[0].textContent");
    assert_eq!(shown, "10×");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// The mean colour in the middle of the slide's picture.
fn mean(page: &mut Page<'_>, name: &str) -> [f64; 3] {
    settle(page);
    let picture = keep(page, name);
    let position = page.value(
        "(() => { const box = document.getElementById('slide').getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; })()",
    );
    let middle = |at: usize| position[at].as_f64().unwrap() as u32;
    let side = 40;
    let part =
        image::imageops::crop_imm(&picture, middle(0) - side, middle(1) - side, 2 * side, 2 * side);
    let count = f64::from(4 * side * side);
    let sum = part
        .to_image()
        .pixels()
        .fold([0.0; 3], |sum, pixel| [0, 1, 2].map(|at| sum[at] + f64::from(pixel.0[at])));
    sum.map(|sum| sum / count)
}

/// Waits until the slide is shown with settings that end like this, and the link contains them.
fn until_shown(page: &mut Page<'_>, settings: &str) {
    page.until(&format!("location.hash.endsWith('{settings}')"));
    page.until(&format!(
        "{VIEWER}.world.getItemCount() === 1
            && String({VIEWER}.world.getItemAt(0).source.queryParams).endsWith('{settings}')"
    ));
}

#[test]
fn in_a_browser_channels_and_planes_are_chosen() {
    let directory = tempfile::tempdir().unwrap();
    channels(directory.path());
    let service = Service::of(&directory.path().join("said.zarr"));
    let mut browser = Browser::start();
    for (width, height) in [(1280, 800), (390, 844)] {
        let mut page = browser.page(width, height, width < 500);
        page.open(&format!("http://{}/slides/said.zarr", service.address));
        page.until("!document.getElementById('mix').hidden");
        let before = mean(&mut page, &format!("channels-{width}"));
        assert!(before[0] > 20.0 && before[1] < 8.0 && before[2] > 20.0, "{before:?}");
        // In a small window, the controls are behind a button.
        if page.value("document.getElementById('channels').hidden") == true {
            assert!(width < 500);
            page.click("#mix");
        }
        let names =
            "[...document.querySelectorAll('#channels .channel')].map((row) => row.textContent)";
        assert_eq!(page.value(names), json!(["DAPI", "FITC", "Cy5"]));
        check_layout(&mut page);
        let row = "#channels .channel:nth-child";
        page.click(&format!("{row}(2) input[type=checkbox]"));
        page.click(&format!("{row}(1) input[type=checkbox]"));
        until_shown(&mut page, "&c=1:00ff00:50.5-900,2:0000ff:0-2500&z=1&t=0");
        let after = mean(&mut page, &format!("channels-others-{width}"));
        assert!(
            after[0] < 8.0 && after[1] > 20.0 && (after[2] - before[2]).abs() < 8.0,
            "{after:?}"
        );
        let set = |selector: &str, value: &str| {
            format!(
                "(() => {{ const input = document.querySelector('#channels {selector}');
                    input.value = '{value}';
                    input.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
            )
        };
        // A window whose black is above its white is not requested.
        page.value(&set(".channel:nth-child(3) input[title=White]", "-1"));
        page.value(&set(".channel:nth-child(3) input[title=White]", "100"));
        page.value(&set(".plane input", "2"));
        until_shown(&mut page, "2:0000ff:0-100&z=2&t=0");
        let bright = mean(&mut page, &format!("channels-bright-{width}"));
        assert!(bright[2] > 230.0, "{bright:?}");
        let text = page.value("document.querySelector('#channels output').textContent");
        assert_eq!(text, "3 of 3");
        let link = page.value("location.href").as_str().unwrap().to_owned();
        assert_eq!(page.complaints(), Vec::<String>::new());
        drop(page);

        // The link contains all settings.
        let mut page = browser.page(width, height, width < 500);
        page.open(&link);
        page.until("!document.getElementById('mix').hidden");
        let again = mean(&mut page, &format!("channels-linked-{width}"));
        for at in 0..3 {
            assert!((again[at] - bright[at]).abs() < 2.0, "{again:?} {bright:?}");
        }
        let shown = "[...document.querySelectorAll('#channels input[type=checkbox]')].map((one) => one.checked)";
        assert_eq!(page.value(shown), json!([false, true, true]));
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

/// Nothing makes the page wider than the window.
const FITS: &str = "document.documentElement.scrollWidth <= innerWidth";

#[test]
fn the_gallery_and_its_errors_are_readable_on_a_telephone() {
    let directory = tempfile::tempdir().unwrap();
    let name = "a folder of a long name/<b>Case</b> \"1\" {{cards}}.svs";
    let name = name.replace("</b>", "<b>");
    let path = slide(directory.path()).join(&name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::copy(aperio(), path).unwrap();
    let service = Service::of(directory.path());
    let mut browser = Browser::start();
    for (width, height) in [(1280, 800), (390, 844)] {
        let mut page = browser.page(width, height, width < 500);
        page.open(&format!("http://{}/", service.address));
        page.until("document.readyState === 'complete'");
        assert_eq!(page.value(FITS), true);
        page.value("document.querySelector('input[type=search]').value = 'CASE'");
        page.click("form button");
        page.until("location.search.includes('q=CASE') && document.readyState === 'complete'");
        let names =
            page.value("[...document.querySelectorAll('.name')].map((one) => one.textContent)");
        assert_eq!(names, json!([name]));
        assert_eq!(page.value(FITS), true);
        keep(&mut page, &format!("search-{width}"));
        assert_eq!(page.complaints(), Vec::<String>::new());
        page.open(&format!("http://{}/slides/nothing", service.address));
        page.until("document.querySelector('h1') !== null");
        assert_eq!(page.value(FITS), true);
        let size = page.number("parseFloat(getComputedStyle(document.body).fontSize)");
        assert!(size >= 16.0 && page.value("innerWidth") == width, "{size}");
        keep(&mut page, &format!("error-{width}"));
        page.click("p a");
        page.until("document.querySelectorAll('.name').length === 2");
    }
}
