// The gallery: a slide that cannot be opened is listed with the reason, below the others.
"use strict";

// Errors of pictures do not rise, so they are seen on their way down; this is here before they are.
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
        // A server that is busy or asks for a token says nothing about the slide.
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
