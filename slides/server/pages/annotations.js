// Annotations over the slide: those in the view are requested by view and zoom, and redrawn as the
// view moves.
"use strict";

(function () {
    const place = document.getElementById("slide");
    const button = document.getElementById("outlines");
    const legend = document.getElementById("legend");
    if (typeof OpenSeadragon === "undefined" || place.dataset.annotated !== "yes") {
        return;
    }
    const viewer = OpenSeadragon.getViewer(place);
    const canvas = document.createElement("canvas");
    canvas.className = "annotations";
    // Below the navigator, which is outside this element.
    viewer.canvas.style.isolation = "isolate";
    viewer.canvas.appendChild(canvas);
    const context = canvas.getContext("2d");
    let isOn = true;

    // The features of the last answer, the part of the slide that they cover, and their zoom.
    let features = [];
    let asked = null;
    let request = null;

    // Margin requested around the view, as a fraction of it: room to move.
    const margin = 0.25;

    function view() {
        const viewport = viewer.viewport;
        const box = viewport.viewportToImageRectangle(viewport.getBounds()).getBoundingBox();
        const zoom = viewport.viewportToImageZoom(viewport.getZoom()) * devicePixelRatio;
        return { left: box.x, top: box.y, right: box.x + box.width, bottom: box.y + box.height, zoom };
    }

    function isCovered(wanted) {
        return asked !== null
            && asked.left <= wanted.left && asked.top <= wanted.top
            && asked.right >= wanted.right && asked.bottom >= wanted.bottom
            && asked.zoom * 1.1 >= wanted.zoom && asked.zoom <= wanted.zoom * 2;
    }

    async function ask() {
        const wanted = view();
        if (!isOn || isCovered(wanted)) {
            return;
        }
        const [across, down] = [wanted.right - wanted.left, wanted.bottom - wanted.top];
        const box = {
            left: Math.floor(wanted.left - across * margin),
            top: Math.floor(wanted.top - down * margin),
            right: Math.ceil(wanted.right + across * margin),
            bottom: Math.ceil(wanted.bottom + down * margin),
            zoom: wanted.zoom,
        };
        if (request !== null) {
            request.abort();
        }
        request = new AbortController();
        const bbox = [box.left, box.top, box.right, box.bottom].join(",");
        const address = place.dataset.address + "/annotations.json?bbox=" + bbox + "&zoom=" + box.zoom.toPrecision(4);
        try {
            const answer = await fetch(address, { signal: request.signal });
            if (!answer.ok) {
                tell([(await answer.text()).trim()]);
                return;
            }
            const collection = await answer.json();
            asked = box;
            features = collection.features.map(prepared);
            explain(collection);
            draw();
        } catch (error) {
            if (error.name !== "AbortError") {
                tell(["The annotations could not be read."]);
            }
        }
    }

    // Lines of each kind of geometry, in pixels of the slide.
    const lines = {
        Point: () => [],
        MultiPoint: () => [],
        LineString: (coordinates) => [coordinates],
        MultiLineString: (coordinates) => coordinates,
        Polygon: (coordinates) => coordinates,
        MultiPolygon: (coordinates) => coordinates.flat(),
    };

    function prepared(feature) {
        const { type, coordinates } = feature.geometry;
        const path = new Path2D();
        const isArea = type.endsWith("Polygon");
        const parts = lines[type](coordinates);
        let points = parts.flat();
        for (const part of parts) {
            part.forEach(([x, y], at) => (at === 0 ? path.moveTo(x, y) : path.lineTo(x, y)));
            if (isArea) {
                path.closePath();
            }
        }
        const dots = type === "Point" ? [coordinates] : type === "MultiPoint" ? coordinates : [];
        points = points.concat(dots);
        const xs = points.map((point) => point[0]);
        const ys = points.map((point) => point[1]);
        const least = (numbers) => numbers.reduce((one, other) => Math.min(one, other), Infinity);
        const most = (numbers) => numbers.reduce((one, other) => Math.max(one, other), -Infinity);
        return {
            path, dots, isArea,
            color: feature.properties.color,
            name: feature.properties.name || "",
            left: least(xs), right: most(xs), top: least(ys), bottom: most(ys),
        };
    }

    // The transformation from pixels of the slide to those of the canvas, in the form that canvases
    // take.
    function transformation() {
        const at = (x, y) => viewer.viewport.imageToViewerElementCoordinates(new OpenSeadragon.Point(x, y));
        const far = 1000;
        const [origin, right, down] = [at(0, 0), at(far, 0), at(0, far)];
        const ratio = devicePixelRatio;
        return [
            (right.x - origin.x) / far, (right.y - origin.y) / far,
            (down.x - origin.x) / far, (down.y - origin.y) / far,
            origin.x, origin.y,
        ].map((number) => number * ratio);
    }

    function draw() {
        const ratio = devicePixelRatio;
        const size = viewer.viewport.getContainerSize();
        const [width, height] = [Math.round(size.x * ratio), Math.round(size.y * ratio)];
        if (canvas.width !== width || canvas.height !== height) {
            canvas.width = width;
            canvas.height = height;
        }
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, width, height);
        if (!isOn) {
            return;
        }
        const matrix = transformation();
        const scale = Math.hypot(matrix[0], matrix[1]);
        const to = (x, y) => [
            matrix[0] * x + matrix[2] * y + matrix[4],
            matrix[1] * x + matrix[3] * y + matrix[5],
        ];
        context.setTransform(...matrix);
        context.lineWidth = 2 * ratio / scale;
        context.lineJoin = "round";
        for (const feature of features) {
            context.strokeStyle = context.fillStyle = feature.color;
            if (feature.isArea) {
                context.globalAlpha = 0.12;
                context.fill(feature.path, "evenodd");
                context.globalAlpha = 1;
            }
            context.stroke(feature.path);
        }
        context.setTransform(1, 0, 0, 1, 0, 0);
        for (const feature of features) {
            context.fillStyle = feature.color;
            for (const [x, y] of feature.dots) {
                const [across, down] = to(x, y);
                context.fillRect(across - 2 * ratio, down - 2 * ratio, 4 * ratio, 4 * ratio);
            }
        }
        label(to, ratio, scale, width, height);
    }

    // Maximum names drawn: those of features that are large enough, unless they would overlap.
    const names = 60;
    function label(to, ratio, scale, width, height) {
        const line = 13 * ratio;
        context.font = line + "px system-ui, sans-serif";
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.lineWidth = 3 * ratio;
        context.lineJoin = "round";
        context.strokeStyle = "#ffffff";
        const taken = [];
        for (const feature of features) {
            const isLarge = (feature.right - feature.left) * scale > 30 * ratio || feature.dots.length === 1;
            if (feature.name === "" || !isLarge || taken.length === names) {
                continue;
            }
            const corners = [to(feature.left, feature.top), to(feature.right, feature.top),
                to(feature.left, feature.bottom), to(feature.right, feature.bottom)];
            const x = (corners[0][0] + corners[3][0]) / 2;
            const y = Math.min(...corners.map((corner) => corner[1])) - line * 0.8;
            const half = context.measureText(feature.name).width / 2;
            const isFree = taken.every((other) => Math.abs(other.y - y) > line
                || Math.abs(other.x - x) > other.half + half);
            if (!isFree || x + half < 0 || x - half > width || y < 0 || y > height) {
                continue;
            }
            taken.push({ x, y, half });
            context.strokeText(feature.name, x, y);
            context.fillStyle = "#1b1f24";
            context.fillText(feature.name, x, y);
        }
    }

    function tell(texts) {
        legend.replaceChildren(...texts.map((text) => {
            const line = document.createElement("p");
            line.append(text);
            return line;
        }));
        legend.hidden = !isOn || texts.length === 0;
    }

    function explain(collection) {
        const classes = collection.classes.map((known) => {
            const swatch = document.createElement("span");
            swatch.className = "swatch";
            swatch.style.background = known.color;
            const line = document.createDocumentFragment();
            line.append(swatch, known.name);
            return line;
        });
        const shown = collection.features.length;
        if (shown < collection.total) {
            classes.push(`${shown} of ${collection.total} annotations here are shown. Zoom in for more.`);
        }
        tell(classes);
    }

    button.hidden = false;
    button.addEventListener("click", () => {
        isOn = !isOn;
        button.setAttribute("aria-pressed", String(isOn));
        legend.hidden = !isOn || legend.childElementCount === 0;
        draw();
        ask();
    });
    viewer.addHandler("open", ask);
    viewer.addHandler("animation-finish", ask);
    viewer.addHandler("update-viewport", draw);
    viewer.addHandler("resize", () => { viewer.forceRedraw(); ask(); });
})();
