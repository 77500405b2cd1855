//! The viewer in a page: waits until it is at rest, checks its layout, and saves screenshots in
//! `tmp/slides-in-a-browser` of the target directory.

use std::path::Path;

use image::RgbImage;
use serde_json::json;

use super::driver::Page;

/// OpenSeadragon's viewer, in the page.
pub(crate) const VIEWER: &str = "OpenSeadragon.getViewer(document.getElementById('slide'))";

/// Everything has been drawn, and nothing moves.
pub(crate) const SETTLED: &str = "(() => { const viewer = OpenSeadragon.getViewer(document.getElementById('slide'));
    const item = viewer.world.getItemAt(0);
    const is_near = (one, other) => Math.abs(one - other) < 1e-6;
    const view = viewer.viewport;
    return item.getFullyLoaded() && !viewer.world.needsDraw()
        && is_near(view.getZoom(true), view.getZoom()) && is_near(view.getRotation(true), view.getRotation())
        && view.getCenter(true).distanceTo(view.getCenter()) < 1e-6; })()";

pub(crate) fn settle(page: &mut Page<'_>) {
    settle_by(page, SETTLED);
}

/// Waits until a condition holds and the result is visible.
pub(crate) fn settle_by(page: &mut Page<'_>, condition: &str) {
    let frames = "new Promise((seen) => requestAnimationFrame(() => requestAnimationFrame(() => seen(true))))";
    loop {
        page.until(condition);
        page.value(frames);
        if page.value(condition) == true {
            return;
        }
    }
}

pub(crate) fn keep(page: &mut Page<'_>, name: &str) -> RgbImage {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slides-in-a-browser");
    std::fs::create_dir_all(&directory).unwrap();
    let picture = page.picture();
    std::fs::write(directory.join(format!("{name}.png")), &picture).unwrap();
    image::load_from_memory(&picture).unwrap().into_rgb8()
}

/// Checks that no element is outside the window, and that the elements over the slide do not
/// overlap.
pub(crate) fn check_layout(page: &mut Page<'_>) {
    let wrong = page.value(
        "(() => {
            const wrong = [];
            const root = document.documentElement;
            if (root.scrollWidth > innerWidth) wrong.push('wider than the window: ' + root.scrollWidth);
            const box = (element) => element.getBoundingClientRect();
            const seen = (selector) => [...document.querySelectorAll(selector)].filter((element) => box(element).width > 0);
            for (const element of seen('button, a, h1, input, .navigator, #scale, #legend, #channels')) {
                const { left, right, top, bottom } = box(element);
                if (left < 0 || top < 0 || right > innerWidth + 0.5 || bottom > innerHeight + 0.5) {
                    wrong.push('outside: ' + element.outerHTML.slice(0, 80));
                }
            }
            const over = seen('header, footer, .navigator, #scale, #legend, #channels');
            over.forEach((one, at) => over.slice(at + 1).forEach((other) => {
                const [p, q] = [box(one), box(other)];
                const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
                const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
                if (across > 1 && down > 1) wrong.push(one.outerHTML.slice(0, 60) + ' on ' + other.outerHTML.slice(0, 60));
            }));
            return wrong;
        })()",
    );
    assert_eq!(wrong, json!([]));
}
