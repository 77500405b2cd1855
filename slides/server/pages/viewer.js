// The page of one slide: OpenSeadragon with its Deep Zoom tiles, a scale bar, and links to views.
"use strict";

(function () {
    const place = document.getElementById("slide");
    const message = document.getElementById("message");
    if (typeof OpenSeadragon === "undefined") {
        return;
    }
    const microns = Number(place.dataset.microns);

    // Beside another slide, this page is in a frame: the page around it has the back link and the
    // link button.
    const isFramed = window.frameElement !== null && window.frameElement.className === "pane";
    if (isFramed) {
        document.documentElement.classList.add("framed");
        [...document.links].forEach((anchor) => { anchor.target = "_top"; });
    }

    // Channels and planes in the link, as a query.
    function settingsOf(words) {
        const said = ["c", "z", "t"].filter((key) => words.has(key));
        return said.map((key) => key + "=" + words.get(key)).join("&");
    }
    let settings = settingsOf(new URLSearchParams(location.hash.slice(1)));
    place.dataset.settings = settings;

    // OpenSeadragon appends the query to the addresses of tiles, so the browser never shows cached
    // tiles of an earlier slide of this name.
    function source() {
        const mix = settings === "" ? "" : "&" + settings;
        return "../" + place.dataset.address + ".dzi?v=" + place.dataset.version + mix;
    }

    const viewer = OpenSeadragon({
        element: place,
        tileSources: source(),
        showNavigationControl: false,
        showNavigator: !isFramed,
        // Slides that move in step keep their scale when the window is resized.
        preserveImageSizeOnResize: isFramed,
        navigatorPosition: "TOP_RIGHT",
        navigatorAutoFade: false,
        navigatorOpacity: 1,
        navigatorBackground: "#ffffff",
        navigatorBorderColor: "#d5d9de",
        navigatorDisplayRegionColor: "#0b57a4",
        gestureSettingsTouch: { pinchRotate: true },
        maxZoomPixelRatio: 4,
        // Slides are for viewing, not for comparison pixel by pixel: tiles do not fade in.
        blendTime: 0,
        timeout: 60000,
    });

    // Parses the centre, as fractions of the width; the zoom; degrees.
    function fromLink() {
        const words = new URLSearchParams(location.hash.slice(1));
        const view = ["x", "y", "zoom"].map((name) => parseFloat(words.get(name)));
        const degrees = parseFloat(words.get("rotation"));
        if (view.every(Number.isFinite) && view[2] > 0) {
            viewer.viewport.setRotation(Number.isFinite(degrees) ? degrees : 0, true);
            viewer.viewport.zoomTo(view[2], undefined, true);
            viewer.viewport.panTo(new OpenSeadragon.Point(view[0], view[1]), true);
        }
    }

    function toLink() {
        const middle = viewer.viewport.getCenter();
        const words = new URLSearchParams({
            x: middle.x.toFixed(6),
            y: middle.y.toFixed(6),
            zoom: viewer.viewport.getZoom().toPrecision(6),
        });
        const degrees = viewer.viewport.getRotation();
        if (degrees % 360 !== 0) {
            words.set("rotation", String(degrees));
        }
        return "#" + words + (settings === "" ? "" : "&" + settings);
    }

    let link = "";
    function keepLink() {
        link = toLink();
        history.replaceState(null, "", link);
    }

    const magnification = document.getElementById("magnification");
    magnification.addEventListener("change", () => {
        const zoom = magnification.value * microns / 10;
        viewer.viewport.zoomTo(viewer.viewport.imageToViewportZoom(zoom));
        viewer.viewport.applyConstraints();
        magnification.value = "";
    });

    // The longest bar of 1, 2 or 5 times a power of ten that fits.
    const longest = 150;
    function drawScale() {
        const bar = document.getElementById("scale");
        if (!(microns > 0)) {
            return;
        }
        const zoom = viewer.viewport.viewportToImageZoom(viewer.viewport.getZoom(true));
        const perPixel = microns / zoom;
        const most = perPixel * longest;
        const power = Math.pow(10, Math.floor(Math.log10(most)));
        const length = power * [5, 2, 1].find((factor) => factor * power <= most);
        const text = length >= 1000 ? length / 1000 + " mm" : Number(length.toPrecision(1)) + " \u00b5m";
        bar.firstElementChild.textContent = text;
        bar.style.width = length / perPixel + "px";
        // Named as on microscopes: 40 times means a quarter of a micron per pixel.
        magnification.options[0].textContent = Number((10 / perPixel).toPrecision(2)) + "\u00d7";
        magnification.hidden = false;
        bar.hidden = false;
    }

    let timer = 0;
    function say(text) {
        message.textContent = text;
        clearTimeout(timer);
        timer = setTimeout(() => { message.textContent = ""; }, 4000);
    }

    viewer.addHandler("open", () => {
        fromLink();
        drawScale();
        viewer.addHandler("animation-finish", keepLink);
    });
    viewer.addHandler("update-viewport", drawScale);
    viewer.addHandler("open-failed", (event) => { message.textContent = event.message; });
    viewer.addHandler("tile-load-failed", () => {
        say("A part of the slide could not be read. If it was replaced, load the page again.");
    });
    window.addEventListener("hashchange", () => {
        if (location.hash !== link) {
            if (settingsOf(new URLSearchParams(location.hash.slice(1))) !== settings) {
                // This also rebuilds the controls.
                location.reload();
                return;
            }
            fromLink();
        }
    });

    // The new image is drawn over the old one, which is removed once the new one has loaded, or a
    // part of it could not be read: the old one must not show through.
    function removeBelow(item) {
        for (let at = viewer.world.getIndexOfItem(item) - 1; at >= 0; at -= 1) {
            viewer.world.removeItem(viewer.world.getItemAt(at));
        }
    }
    viewer.addHandler("tile-load-failed", (event) => removeBelow(event.tiledImage));
    place.addEventListener("settings", (event) => {
        if (event.detail === settings) {
            return;
        }
        settings = event.detail;
        place.dataset.settings = settings;
        keepLink();
        viewer.addTiledImage({
            tileSource: source(),
            success: (added) => added.item.whenFullyLoaded(() => removeBelow(added.item)),
            error: (event) => {
                viewer.world.removeAll();
                say(event.message);
            },
        });
    });

    // OpenSeadragon mirrors the view with this key. No link records that, and the slide would look
    // different.
    viewer.addHandler("canvas-key", (event) => {
        if (event.originalEvent.keyCode === 70) {
            event.preventDefaultAction = true;
        }
    });

    function press(name, action) {
        document.getElementById(name).addEventListener("click", action);
    }
    function zoomBy(factor) {
        viewer.viewport.zoomBy(factor);
        viewer.viewport.applyConstraints();
    }
    press("in", () => zoomBy(1.5));
    press("out", () => zoomBy(1 / 1.5));
    press("home", () => { viewer.viewport.setRotation(0); viewer.viewport.goHome(); });
    press("left", () => viewer.viewport.rotateBy(-90));
    press("right", () => viewer.viewport.rotateBy(90));
    press("share", async () => {
        keepLink();
        try {
            await navigator.clipboard.writeText(location.href);
            say("The link is copied.");
        } catch {
            // Without encryption, browsers let no page write to the clipboard.
            say(location.href);
        }
    });
})();
