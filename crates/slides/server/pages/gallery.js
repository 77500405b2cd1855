// The gallery: a slide that cannot be shown says why, in the place of its picture.
"use strict";

// Errors of pictures do not rise, so they are seen on their way down; this is here before they are.
document.addEventListener("error", async (event) => {
    const picture = event.target;
    if (!(picture instanceof HTMLImageElement)) {
        return;
    }
    const place = picture.parentElement;
    let reason = "The server cannot be reached.";
    try {
        const answer = await fetch(picture.src);
        reason = answer.ok ? "This browser cannot show it." : await answer.text();
    } catch {
        // As it says.
    }
    place.classList.add("reason");
    place.textContent = reason;
}, true);
