// A ruler: measures the length between two clicks, or of a drag.
"use strict";

(function () {
    const place = document.getElementById("slide");
    const button = document.getElementById("ruler");
    const length = document.getElementById("length");
    if (typeof OpenSeadragon === "undefined") {
        return;
    }
    const viewer = OpenSeadragon.getViewer(place);
    const width = Number(place.dataset.width);
    const [across, down] = [place.dataset.microns, place.dataset.micronsDown].map(Number);

    const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    drawing.setAttribute("class", "ruler");
    // A light line below a dark one is visible on any slide.
    const lines = ["light", "dark"].map((name) => {
        const path = document.createElementNS(drawing.namespaceURI, "path");
        path.setAttribute("class", name);
        drawing.append(path);
        return path;
    });
    viewer.canvas.appendChild(drawing);

    let isOn = false;
    // Both ends, in pixels of the slide; null if nothing is measured.
    let ends = null;
    // True while the second click is awaited.
    let isOpen = false;
    // Where the pointer went down, on the screen and on the slide; null once it has moved the view.
    let pressed = null;
    let isDragged = false;

    // A press that moves less counts as a click.
    const threshold = 5;

    function onSlide(event) {
        const box = viewer.canvas.getBoundingClientRect();
        const pixel = new OpenSeadragon.Point(event.clientX - box.left, event.clientY - box.top);
        return viewer.viewport.pointFromPixel(pixel, true).times(width);
    }

    function onScreen(point) {
        return viewer.viewport.pixelFromPoint(point.divide(width), true);
    }

    function measured() {
        const { x, y } = ends[1].minus(ends[0]);
        if (!(across > 0 && down > 0)) {
            return Math.round(Math.hypot(x, y)) + " px";
        }
        const microns = Math.hypot(x * across, y * down);
        if (microns >= 1000) {
            return (microns / 1000).toFixed(3) + " mm";
        }
        return microns.toFixed(microns < 10 ? 2 : 1) + " \u00b5m";
    }

    function draw() {
        drawing.style.display = ends === null ? "none" : "";
        length.hidden = ends === null;
        if (ends === null) {
            return;
        }
        const [from, to] = ends.map(onScreen);
        const line = to.minus(from);
        const size = Math.hypot(line.x, line.y) || 1;
        // Strokes across each end.
        const half = new OpenSeadragon.Point(-line.y, line.x).times(7 / size);
        const words = (point) => point.x + " " + point.y;
        const stroke = (end) => "M" + words(end.minus(half)) + "L" + words(end.plus(half));
        const path = "M" + words(from) + "L" + words(to) + stroke(from) + stroke(to);
        lines.forEach((element) => element.setAttribute("d", path));
        const text = measured();
        if (length.textContent !== text) {
            length.textContent = text;
        }
        const middle = from.plus(to).divide(2);
        length.style.left = middle.x + "px";
        length.style.top = middle.y + "px";
    }

    function turn(on) {
        isOn = on;
        ends = null;
        isOpen = false;
        pressed = null;
        button.setAttribute("aria-pressed", String(isOn));
        place.classList.toggle("measuring", isOn);
        draw();
    }

    viewer.addHandler("canvas-press", ({ originalEvent }) => {
        pressed = { x: originalEvent.clientX, y: originalEvent.clientY, point: onSlide(originalEvent) };
        isDragged = false;
    });
    viewer.addHandler("canvas-drag", (event) => {
        if (!isOn) {
            return;
        }
        event.preventDefaultAction = true;
        const { clientX, clientY } = event.originalEvent;
        if (pressed === null || !isDragged && Math.hypot(clientX - pressed.x, clientY - pressed.y) < threshold) {
            return;
        }
        isDragged = true;
        isOpen = false;
        ends = [pressed.point, onSlide(event.originalEvent)];
        draw();
    });
    viewer.addHandler("canvas-drag-end", (event) => { event.preventDefaultAction = isOn; });
    viewer.addHandler("canvas-double-click", (event) => { event.preventDefaultAction = isOn; });
    viewer.addHandler("canvas-click", (event) => {
        if (!isOn) {
            return;
        }
        event.preventDefaultAction = true;
        if (pressed === null || isDragged) {
            return;
        }
        ends = [isOpen ? ends[0] : pressed.point, pressed.point];
        isOpen = !isOpen;
        draw();
    });
    // Two fingers move the view; lifting the last one measures nothing.
    viewer.addHandler("canvas-pinch", () => { pressed = null; });
    viewer.canvas.addEventListener("pointermove", (event) => {
        if (isOpen && event.pointerType === "mouse") {
            ends = [ends[0], onSlide(event)];
            draw();
        }
    });
    document.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && isOn) {
            turn(false);
        }
    });
    button.addEventListener("click", () => turn(!isOn));
    viewer.addHandler("update-viewport", draw);
})();
