// The gallery: a slide that cannot be opened is listed with the reason, below the others.
"use strict";

// Errors of images do not bubble, so they are caught in the capture phase; this handler is
// installed before they occur.
document.addEventListener("error", async (event) => {
    const picture = event.target;
    if (!(picture instanceof HTMLImageElement)) {
        return;
    }
    const place = picture.parentElement;
    let reason = "The server cannot be reached.";
    let isBroken = false;
    try {
        const answer = await fetch(picture.src);
        reason = answer.ok ? "This browser cannot show it." : await answer.text();
        // If the server is busy or asks for a token, the slide may be fine.
        isBroken = [404, 500, 501, 502].includes(answer.status);
    } catch {
        // As it says.
    }
    place.classList.add("reason");
    place.textContent = reason;
    if (isBroken) {
        const problems = document.getElementById("problems");
        problems.lastElementChild.append(place.closest("li"));
        problems.hidden = false;
    }
}, true);
