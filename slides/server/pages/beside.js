// Two slides side by side: the viewer of each in a frame, moved in step.
"use strict";

(function () {
    const button = document.getElementById("step");
    const message = document.getElementById("message");
    const linked = new URLSearchParams(location.hash.slice(1));
    let isInStep = linked.get("step") !== "no";
    let link = "";

    // A view: its centre in pixels of the slide, pixels of the screen per pixel of the slide, and
    // degrees.
    function viewOf(pane) {
        const { viewport } = pane.viewer;
        const middle = viewport.getCenter(true).times(pane.width);
        const scale = viewport.getZoom(true) * viewport.getContainerSize().x / pane.width;
        return { x: middle.x, y: middle.y, scale, degrees: viewport.getRotation(true) };
    }

    function show(pane, { x, y, scale, degrees }) {
        const { viewport } = pane.viewer;
        viewport.setRotation(degrees, true);
        viewport.zoomTo(scale * pane.width / viewport.getContainerSize().x, null, true);
        viewport.panTo(new pane.window.OpenSeadragon.Point(x / pane.width, y / pane.width), true);
    }

    function isSame(one, other) {
        return Object.keys(one).every((key) => Math.abs(one[key] - other[key]) <= 1e-9 * Math.abs(one[key]));
    }

    // From here on, both pan by the same distance on the screen, zoom by the same factor, and
    // rotate alike.
    function begin(panes) {
        for (const pane of panes) {
            pane.from = pane.seen = viewOf(pane);
        }
    }

    // Moves the other slide from its starting point as far as this one has moved.
    function follow(leader, other) {
        const [from, now, to] = [leader.from, viewOf(leader), other.from];
        const turn = (from.degrees - to.degrees) * Math.PI / 180;
        const factor = from.scale / to.scale;
        const [right, down] = [now.x - from.x, now.y - from.y];
        show(other, {
            x: to.x + factor * (right * Math.cos(turn) - down * Math.sin(turn)),
            y: to.y + factor * (right * Math.sin(turn) + down * Math.cos(turn)),
            scale: to.scale * now.scale / from.scale,
            degrees: to.degrees + now.degrees - from.degrees,
        });
        [leader.seen, other.seen] = [now, viewOf(other)];
    }

    // If both have microns per pixel, shows both at the scale of the one that is smaller on the
    // screen.
    function match(panes) {
        const perPixel = panes.map((pane) => pane.microns / viewOf(pane).scale);
        if (perPixel.every((microns) => microns > 0)) {
            const largest = Math.max(...perPixel);
            panes.forEach((pane) => show(pane, { ...viewOf(pane), scale: pane.microns / largest }));
        }
    }

    // The viewer in a frame, once its slide is open; null if it cannot be shown.
    async function opened(frame) {
        const name = frame === frames[0] ? "left" : "right";
        const hash = linked.get(name) ?? "";
        await new Promise((resolve) => {
            frame.addEventListener("load", resolve, { once: true });
            frame.src = frame.dataset.address + (hash === "" ? "" : "#" + hash);
        });
        const { contentWindow: window, contentDocument: document } = frame;
        const place = document.getElementById("slide");
        if (place === null || typeof window.OpenSeadragon === "undefined") {
            return null;
        }
        const viewer = window.OpenSeadragon.getViewer(place);
        if (!viewer.isOpen()) {
            await new Promise((resolve) => viewer.addOnceHandler("open", resolve));
        }
        const { width, microns } = place.dataset;
        return { name, hash, window, place, viewer, width: Number(width), microns: Number(microns) };
    }

    const frames = [...document.querySelectorAll("iframe")];
    Promise.all(frames.map(opened)).then((panes) => {
        if (panes.includes(null)) {
            // The frame of a slide that cannot be shown reports why.
            button.disabled = true;
            return;
        }
        if (panes.every((pane) => pane.hash === "")) {
            match(panes);
        }
        begin(panes);

        function keepLink() {
            const words = panes.map((pane) => [pane.name, pane.window.location.hash.slice(1)]);
            link = "#" + new URLSearchParams([...words, ...(isInStep ? [] : [["step", "no"]])]);
            history.replaceState(null, "", link);
        }
        panes.forEach((pane, at) => {
            pane.viewer.addHandler("viewport-change", () => {
                // A view caused by the other slide moves nothing.
                if (isInStep && !isSame(viewOf(pane), pane.seen)) {
                    follow(pane, panes[1 - at]);
                }
            });
            pane.viewer.addHandler("animation-finish", keepLink);
            pane.place.addEventListener("settings", keepLink);
        });
        button.addEventListener("click", () => {
            isInStep = !isInStep;
            button.setAttribute("aria-pressed", String(isInStep));
            begin(panes);
            keepLink();
        });
        document.body.dataset.ready = "yes";
    });
    button.setAttribute("aria-pressed", String(isInStep));
    window.addEventListener("hashchange", () => {
        if (location.hash !== link) {
            location.reload();
        }
    });

    let timer = 0;
    document.getElementById("share").addEventListener("click", async () => {
        let text = "The link is copied.";
        try {
            await navigator.clipboard.writeText(location.href);
        } catch {
            // Without encryption, browsers let no page write to the clipboard.
            text = location.href;
        }
        message.textContent = text;
        clearTimeout(timer);
        timer = setTimeout(() => { message.textContent = ""; }, 4000);
    });
})();
