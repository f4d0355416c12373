// Short messages: shown for a while, and said by a screen reader. They have a place of their own and cover nothing: in the
// column of the pages, or below their names where there is little room.

import { fill, h } from "../dom.js";

const STAYS = 7_000;
let shown = null;
let spoken = null;

const isNarrow = matchMedia("(max-width: 860px)");

export function noticePlace() {
    shown = h("div", { class: "notices" });
    spoken = h("div", { class: "unseen", "aria-live": "polite", role: "status" });
    return [shown, spoken];
}

/** Only for those who listen. */
export function say(text) {
    if (spoken) spoken.textContent = text;
}

export function notify(text, more = null) {
    show(text, more, "notice");
}

/** What went wrong, and what to do next. It stays until it is closed. */
export function report(error) {
    if (error?.name === "AbortError") return;
    if (!error?.told) console.error(error);
    if (error?.status !== 401 && error?.why !== "security_error") show(error.message, error.next, "notice bad");
}

/** In the place of a page that has nothing to show, unless another one is shown there by now. */
export function showMissing(place, title, error, scope) {
    if (!scope.isOpen()) return;
    fill(
        place,
        h("h1", { tabindex: "-1" }, title),
        h("p", { class: "bad" }, error.message),
        h("p", { class: "quiet" }, error.next ?? ""),
    );
}

function show(text, more, kind) {
    const close = () => box.remove();
    const box = h(
        "div",
        { class: kind },
        h("div", {}, text, more ? h("p", { class: "quiet" }, more) : null),
        h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: close }, "×"),
    );
    if (!shown?.isConnected) return;
    const before = belowHead();
    shown.append(box);
    while (shown.children.length > 4) shown.firstElementChild.remove();
    if (isNarrow.matches) makeRoom(before);
    say(more ? `${text}. ${more}` : text);
    if (!kind.includes("bad")) setTimeout(() => leave(close), STAYS);
}

/** The head became higher: what is below it moves down, although a browser would rather keep it where it is. */
function makeRoom(before) {
    const move = () => scrollBy({ top: belowHead() - before, behavior: "instant" });
    requestAnimationFrame(() => requestAnimationFrame(move));
}

function belowHead() {
    const head = shown.closest("header");
    return head.nextElementSibling.getBoundingClientRect().top - head.getBoundingClientRect().bottom;
}

/** Where the page moves up when a message goes, it goes with the next movement of the person: nobody's finger is misled. */
function leave(close) {
    if (!isNarrow.matches) return close();
    return addEventListener("scroll", close, { once: true, passive: true });
}
