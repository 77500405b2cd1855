// Controls for channels, focal planes and times: checkboxes, colours, windows and sliders. The choice
// becomes the query of tile addresses.
"use strict";

(async function () {
    const place = document.getElementById("slide");
    const panel = document.getElementById("channels");
    const button = document.getElementById("mix");
    if (typeof OpenSeadragon === "undefined" || place.dataset.choices !== "yes") {
        return;
    }
    const address = "../slides/" + place.dataset.address + "/properties.json";
    let properties = null;
    async function fetched(settings) {
        const answer = await fetch(address + (settings === "" ? "" : "?" + settings));
        return answer.ok ? answer.json() : null;
    }
    try {
        // The settings of a link may no longer fit the slide.
        properties = await fetched(place.dataset.settings) ?? await fetched("");
    } catch {
        properties = null;
    }
    if (properties === null) {
        return;
    }

    function made(name, attributes, parent) {
        const element = Object.assign(document.createElement(name), attributes);
        parent.append(element);
        return element;
    }

    const rows = properties.channels.map((channel) => {
        const row = made("div", { className: "channel" }, panel);
        const name = channel.name ?? "Channel " + channel.number;
        const label = made("label", {}, row);
        const shown = made("input", { type: "checkbox", checked: channel.shown }, label);
        made("span", { textContent: name, title: name }, label);
        const colour = made("input", { type: "color", value: "#" + channel.color, title: "Color" }, row);
        const [low, high] = ["Black", "White"].map((title, at) => {
            const input = made("input", { type: "number", step: "any", value: channel.window[at], title }, row);
            input.setAttribute("aria-label", name + ": " + title);
            return input;
        });
        colour.setAttribute("aria-label", name + ": color");
        return { channel, shown, colour, low, high };
    });
    const planes = [["z", "Focal plane"], ["t", "Time"]].map(([key, title]) => {
        const { count, shown } = properties[key];
        if (count < 2) {
            return null;
        }
        const label = made("label", { className: "plane" }, panel);
        made("span", { textContent: title }, label);
        const slider = made("input", { type: "range", min: 0, max: count - 1, value: shown }, label);
        const told = made("output", { textContent: shown + 1 + " of " + count }, label);
        return { key, count, slider, told };
    }).filter((plane) => plane !== null);

    // A plus sign means a space in addresses.
    const number = (input) => String(Number(input.value)).replace("+", "");

    function settings() {
        const words = [];
        if (rows.length > 0) {
            const shown = rows.filter((row) => row.shown.checked).map(({ channel, colour, low, high }) =>
                channel.number + ":" + colour.value.slice(1) + ":" + number(low) + "-" + number(high));
            words.push("c=" + (shown.join(",") || "none"));
        }
        for (const { key, slider } of planes) {
            words.push(key + "=" + slider.value);
        }
        return words.join("&");
    }

    let timer = 0;
    panel.addEventListener("input", () => {
        for (const { slider, count, told } of planes) {
            told.textContent = Number(slider.value) + 1 + " of " + count;
        }
        let isRight = true;
        for (const { low, high } of rows) {
            const isWindow = low.value !== "" && high.value !== "" && Number(low.value) < Number(high.value);
            high.setCustomValidity(isWindow ? "" : "White is more than black.");
            isRight = isRight && isWindow;
        }
        clearTimeout(timer);
        if (isRight) {
            // A moving slider does not request every position.
            timer = setTimeout(() => {
                place.dispatchEvent(new CustomEvent("settings", { detail: settings() }));
            }, 100);
        }
    });
    // The area beyond the border of the slide must not shine.
    document.querySelector("main").classList.toggle("dark", rows.length > 0);
    button.hidden = false;
    button.addEventListener("click", () => {
        panel.hidden = !panel.hidden;
        button.setAttribute("aria-pressed", String(!panel.hidden));
    });
    // In a small window, the slide is shown first.
    panel.hidden = window.matchMedia("(max-width: 40rem)").matches;
    button.setAttribute("aria-pressed", String(!panel.hidden));
})();
