//! The ruler, and two slides side by side, in a real browser.

use std::fs;
use std::path::Path;

use crate::common::made_slides::channels;
use crate::common::{Service, aperio};
use crate::driver::{Browser, Page};
use crate::viewer::{VIEWER, check_layout, keep, settle, settle_by};
use serde_json::{Value, json};

/// The positions in the window of points of the slide.
fn seen(page: &mut Page<'_>, points: [(f64, f64); 2]) -> [(f64, f64); 2] {
    points.map(|(x, y)| {
        let position = page.value(&format!(
            "(() => {{ const point = {VIEWER}.viewport.imageToWindowCoordinates(new OpenSeadragon.Point({x}, {y}));
                return [point.x, point.y]; }})()"
        ));
        (position[0].as_f64().unwrap(), position[1].as_f64().unwrap())
    })
}

const LENGTH: &str = "document.getElementById('length').textContent";
const IS_MEASURED: &str = "!document.getElementById('length').hidden";

/// The number before that unit.
fn length(page: &mut Page<'_>, unit: &str) -> f64 {
    let text = page.value(LENGTH);
    let number = text.as_str().unwrap().strip_suffix(unit).unwrap_or_else(|| panic!("{text}"));
    number.trim_end().parse().unwrap()
}

#[test]
fn in_a_browser_a_ruler_measures_by_clicks_and_by_a_drag() {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(aperio(), directory.path().join("aperio.svs")).unwrap();
    let service = Service::of(directory.path());
    let properties = service.get("/slides/aperio.svs/properties.json").json();
    let [across, down] = [0, 1].map(|at| properties["micronsPerPixel"][at].as_f64().unwrap());
    let (from, to) = ((700.0, 900.0), (1500.0, 1500.0));
    let expected = (800.0 * across).hypot(600.0 * down);
    let mut browser = Browser::start();
    for (width, height) in [(1280, 800), (390, 844)] {
        let has_touch = width < 500;
        let mut page = browser.page(width, height, has_touch);
        page.open(&format!("http://{}/slides/aperio.svs", service.address));
        settle(&mut page);
        let centre = page.value(&format!("{VIEWER}.viewport.getCenter()"));
        page.click("#ruler");
        assert_eq!(page.value(IS_MEASURED), false);
        // A pixel of the screen covers several of the slide.
        let zoom = page
            .number(&format!("{VIEWER}.viewport.viewportToImageZoom({VIEWER}.viewport.getZoom())"));
        let near = 3.0 * across / zoom;
        let [one, other] = seen(&mut page, [from, to]);
        page.drag(one, other, has_touch);
        page.until(IS_MEASURED);
        let dragged = length(&mut page, "µm");
        assert!((dragged - expected).abs() < near, "{dragged} {expected}");
        check_layout(&mut page);
        keep(&mut page, &format!("ruler-{width}"));

        // With two clicks, also in a rotated view; the ruler stays in place.
        page.click("#right");
        page.until(&format!("{VIEWER}.viewport.getRotation(true) === 90"));
        settle(&mut page);
        assert_eq!(length(&mut page, "µm"), dragged);
        let half = (1100.0, 1200.0);
        let [one, other] = seen(&mut page, [from, half]);
        page.press(one, has_touch);
        page.until(&format!("{LENGTH} === '0.00 µm'"));
        page.press(other, has_touch);
        page.until(&format!("{LENGTH} !== '0.00 µm'"));
        let clicked = length(&mut page, "µm");
        assert!((clicked - expected / 2.0).abs() < near, "{clicked} {expected}");
        // Neither has moved the slide.
        settle(&mut page);
        assert_eq!(page.value(&format!("{VIEWER}.viewport.getCenter()")), centre);
        page.key("Escape", 27);
        page.until("document.getElementById('length').hidden");
        // OpenSeadragon would mirror the slide.
        page.value(&format!("{VIEWER}.canvas.focus()"));
        page.key("f", 70);
        assert_eq!(page.value(&format!("{VIEWER}.viewport.getFlip()")), false);
        assert_eq!(page.value("document.getElementById('ruler').ariaPressed"), "false");
        // From now on, a drag moves the slide again.
        page.drag(one, other, has_touch);
        page.until(&format!("{VIEWER}.viewport.getCenter().x !== {}", centre["x"]));
        assert_eq!(page.value(IS_MEASURED), false);
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

#[test]
fn in_a_browser_a_slide_without_microns_is_measured_in_pixels() {
    let directory = tempfile::tempdir().unwrap();
    channels(directory.path());
    let image = directory.path().join("said.zarr");
    without_units(&image);
    let service = Service::of(&image);
    let properties = service.get("/slides/said.zarr/properties.json").json();
    assert_eq!(properties["micronsPerPixel"], Value::Null);
    let mut browser = Browser::start();
    let mut page = browser.page(1000, 800, false);
    page.open(&format!("http://{}/slides/said.zarr", service.address));
    settle(&mut page);
    page.click("#ruler");
    let [one, other] = seen(&mut page, [(20.0, 20.0), (80.0, 20.0)]);
    page.drag(one, other, false);
    page.until(IS_MEASURED);
    let pixels = length(&mut page, "px");
    assert!((pixels - 60.0).abs() <= 2.0, "{pixels}");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// Removes the units of axes from an OME-Zarr image.
fn without_units(image: &Path) {
    let path = image.join(".zattrs");
    let mut attributes: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for axis in attributes["multiscales"][0]["axes"].as_array_mut().unwrap() {
        axis.as_object_mut().unwrap().remove("unit");
    }
    fs::write(path, attributes.to_string()).unwrap();
}

/// For each slide: the pixel in the centre, the size of a micron, and the angle.
fn views(page: &mut Page<'_>) -> [[f64; 4]; 2] {
    let views = page.value(
        "Array.from(frames).map((frame) => {
            const element = frame.document.getElementById('slide');
            const { viewport } = frame.OpenSeadragon.getViewer(element);
            const middle = viewport.getCenter(true).times(Number(element.dataset.width));
            const scale = viewport.getZoom(true) * viewport.getContainerSize().x / element.dataset.width;
            return [middle.x, middle.y, scale / element.dataset.microns, viewport.getRotation(true)];
        })",
    );
    [0, 1].map(|pane| [0, 1, 2, 3].map(|at| views[pane][at].as_f64().unwrap()))
}

/// Waits until both are drawn and at rest.
fn settle_both(page: &mut Page<'_>) {
    page.until("document.body.dataset.ready === 'yes'");
    let settled = "Array.from(frames).every((frame) => {
        const viewer = frame.OpenSeadragon.getViewer(frame.document.getElementById('slide'));
        const view = viewer.viewport;
        return viewer.world.getItemAt(0).getFullyLoaded() && !viewer.world.needsDraw()
            && Math.abs(view.getZoom(true) - view.getZoom()) < 1e-6
            && Math.abs(view.getRotation(true) - view.getRotation()) < 1e-6
            && view.getCenter(true).distanceTo(view.getCenter()) < 1e-6; })";
    settle_by(page, settled);
}

/// The middle of a pane in the window.
fn middle(page: &mut Page<'_>, pane: usize) -> (f64, f64) {
    let position = page.value(&format!(
        "(() => {{ const frame = document.querySelectorAll('iframe')[{pane}];
            const [outer, inner] = [frame, frame.contentDocument.getElementById('slide')].map((one) => one.getBoundingClientRect());
            return [outer.x + inner.x + inner.width / 2, outer.y + inner.y + inner.height / 2]; }})()"
    ));
    (position[0].as_f64().unwrap(), position[1].as_f64().unwrap())
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-3 * one.abs().max(1.0)
}

#[test]
fn in_a_browser_two_slides_are_chosen_and_moved_in_step() {
    let directory = tempfile::tempdir().unwrap();
    channels(directory.path());
    let slides = directory.path().join("slides");
    fs::create_dir(&slides).unwrap();
    fs::copy(aperio(), slides.join("aperio.svs")).unwrap();
    fs::copy(aperio(), slides.join("a second & last.svs")).unwrap();
    fs::rename(directory.path().join("said.zarr"), slides.join("said.zarr")).unwrap();
    let service = Service::of(&slides);
    let mut browser = Browser::start();
    for (width, height) in [(1280, 800), (390, 844)] {
        let has_touch = width < 500;
        let mut page = browser.page(width, height, has_touch);
        page.open(&format!("http://{}/slides/aperio.svs", service.address));
        settle(&mut page);
        page.click("#beside");
        page.until("location.search === '?beside=aperio.svs' && document.images.length === 3");
        assert_eq!(page.value("document.documentElement.scrollWidth <= innerWidth"), true);
        page.value("document.querySelector('input[type=search]').value = 'SECOND'");
        page.click("form button");
        page.until("location.search.includes('q=SECOND') && document.images.length === 1");
        page.click("li a");
        page.until("location.pathname === '/slides/aperio.svs'");
        settle_both(&mut page);
        check_layout(&mut page);
        keep(&mut page, &format!("beside-{width}"));
        let names =
            "Array.from(frames).map((frame) => frame.document.querySelector('h1').textContent)";
        assert_eq!(page.value(names), json!(["aperio.svs", "a second & last.svs"]));
        // Inside the frames, nothing is cut off.
        let outside = page.value(
            "Array.from(frames).flatMap((frame) => [...frame.document.querySelectorAll('button, #scale')]
                .filter((one) => one.getBoundingClientRect().right > frame.innerWidth + 0.5)).length",
        );
        assert_eq!(outside, 0);

        // Each moves the other.
        for pane in [0, 1] {
            let before = views(&mut page);
            let (x, y) = middle(&mut page, pane);
            page.drag((x + 50.0, y), (x - 50.0, y + 20.0), has_touch);
            page.until(&format!(
                "frames[{pane}].OpenSeadragon.getViewer(frames[{pane}].document.getElementById('slide'))
                    .viewport.getCenter(true).x * 2220 > {} + 10",
                before[pane][0]
            ));
            settle_both(&mut page);
            let after = views(&mut page);
            for at in 0..4 {
                let moved = [0, 1].map(|pane| after[pane][at] - before[pane][at]);
                assert!(near(moved[0], moved[1]), "{pane} {at}: {before:?} {after:?}");
            }
        }
        // The other slide zooms and rotates with it.
        let before = views(&mut page);
        for button in ["in", "right"] {
            page.value(&format!("frames[1].document.getElementById('{button}').click()"));
        }
        page.until(
            "frames[1].OpenSeadragon.getViewer(frames[1].document.getElementById('slide')).viewport.getRotation(true) === 90",
        );
        settle_both(&mut page);
        let after = views(&mut page);
        assert!(near(after[0][2], before[0][2] * 1.5) && near(after[0][3], 90.0), "{after:?}");
        for at in 0..4 {
            assert!(near(after[0][at], after[1][at]), "{after:?}");
        }

        // In a window of another size, both keep their scale.
        let narrower = if has_touch { width } else { width - 60 };
        page.size(narrower, height - 80, has_touch);
        page.until(&format!("innerWidth === {narrower} && innerHeight === {height} - 80"));
        settle_both(&mut page);
        let smaller = views(&mut page);
        for (pane, at) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)] {
            assert!(near(smaller[pane][at], after[pane][at]), "{smaller:?} {after:?}");
        }

        page.size(width, height, has_touch);
        page.until(&format!("innerWidth === {width} && innerHeight === {height}"));
        settle_both(&mut page);

        // Released, one moves alone; in step again, both keep that distance.
        page.click("#step");
        page.value("frames[0].document.getElementById('out').click()");
        settle_both(&mut page);
        let apart = views(&mut page);
        assert!(near(apart[1][2], after[1][2]) && apart[0][2] < apart[1][2] * 0.9, "{apart:?}");
        page.until("location.hash.endsWith('&step=no')");
        page.click("#step");
        page.value("frames[1].document.getElementById('left').click()");
        page.until(
            "frames[1].OpenSeadragon.getViewer(frames[1].document.getElementById('slide')).viewport.getRotation(true) === 0",
        );
        settle_both(&mut page);
        let turned = views(&mut page);
        for pane in [0, 1] {
            assert!(near(turned[pane][2], apart[pane][2]) && turned[pane][3] == 0.0, "{turned:?}");
        }
        page.until("!location.hash.includes('step')");
        let link = page.value("location.href").as_str().unwrap().to_owned();
        assert_eq!(page.complaints(), Vec::<String>::new());
        drop(page);

        // The link contains both views.
        let mut page = browser.page(width, height, has_touch);
        page.open(&link);
        settle_both(&mut page);
        let linked = views(&mut page);
        for (pane, at) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
            assert!(near(linked[pane][at], turned[pane][at]), "{linked:?} {turned:?}");
        }
        assert_eq!(page.complaints(), Vec::<String>::new());
    }
}

#[test]
fn in_a_browser_each_of_two_slides_has_its_own_channels() {
    let directory = tempfile::tempdir().unwrap();
    channels(directory.path());
    let slides = directory.path().join("slides");
    fs::create_dir(&slides).unwrap();
    fs::rename(directory.path().join("said.zarr"), slides.join("said.zarr")).unwrap();
    let service = Service::of(&slides);
    let mut browser = Browser::start();
    let mut page = browser.page(1280, 800, false);
    page.open(&format!("http://{}/slides/said.zarr?beside=said.zarr", service.address));
    settle_both(&mut page);
    let boxes = "frames[1].document.querySelectorAll('#channels input[type=checkbox]')";
    page.until(&format!("{boxes}.length === 3"));
    page.value(&format!("{boxes}[1].click()"));
    let shown = |pane: usize| {
        format!(
            "String(frames[{pane}].OpenSeadragon.getViewer(frames[{pane}].document.getElementById('slide'))
                .world.getItemAt(0).source.queryParams)"
        )
    };
    page.until(&format!("{}.includes('1:00ff00')", shown(1)));
    settle_both(&mut page);
    assert_eq!(page.value(&format!("{}.includes('c=')", shown(0))), false);
    page.until("new URLSearchParams(location.hash.slice(1)).get('right').includes('1:00ff00')");
    keep(&mut page, "beside-channels");
    let link = page.value("location.href").as_str().unwrap().to_owned();
    assert_eq!(page.complaints(), Vec::<String>::new());
    drop(page);
    let mut page = browser.page(1280, 800, false);
    page.open(&link);
    settle_both(&mut page);
    assert_eq!(page.value(&format!("{}.includes('1:00ff00')", shown(1))), true);
    assert_eq!(page.value(&format!("{}.includes('c=')", shown(0))), false);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn a_slide_beside_another_one_must_be_there_and_allowed() {
    let directory = tempfile::tempdir().unwrap();
    fs::copy(aperio(), directory.path().join("aperio.svs")).unwrap();
    fs::write(directory.path().join("broken.svs"), "II*").unwrap();
    let service = Service::of(directory.path());
    for (beside, status) in [("aperio.svs", 200), ("", 200), ("none.svs", 404), ("broken.svs", 501)]
    {
        let answer = service.get(&format!("/slides/aperio.svs?beside={beside}"));
        assert_eq!(answer.status, status, "{beside}");
    }
    // Names are escaped, even those of no slide.
    let page = service.get("/?beside=%22%3E%3Cscript%3E");
    assert!(page.status == 200 && !page.text().contains("<script>"), "{}", page.text());
    assert!(page.text().contains("href=\"slides/%22%3E%3Cscript%3E?beside=aperio.svs\""));
}
