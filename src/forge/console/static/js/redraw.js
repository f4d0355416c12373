// A place drawn anew without disturbing whoever is at it: what is the same stays, with its focus, its selection and what
// is scrolled or written in it.

import { fill, takeListeners } from "./dom.js";

const whole = new WeakMap(); // element → what it shows

/** Nothing looks into this element: it stays while what it shows is the same, and else is replaced. */
export function isWhole(element, shows) {
    whole.set(element, shows);
    return element;
}

/** Like `fill`, but what is there becomes what is wanted. Elements with a `data-key` are known by it, wherever they go. */
export function redraw(place, ...children) {
    const focused = document.activeElement;
    matchChildren(place, fill(document.createElement("div"), children));
    if (focused !== document.activeElement && place.contains(focused)) focused.focus({ preventScroll: true });
    return place;
}

function matchChildren(place, wanted) {
    const known = new Map([...place.children].filter(keyOf).map((one) => [keyOf(one), one]));
    const coming = new Set([...wanted.children].map(keyOf));
    const isStaying = (node) => Boolean(keyOf(node)) && coming.has(keyOf(node));
    let here = place.firstChild;
    const pass = (until) => {
        while (here && here !== until) {
            const next = here.nextSibling;
            here.remove();
            here = next;
        }
    };
    for (const next of [...wanted.childNodes]) {
        while (here && keyOf(here) && !isStaying(here)) pass(here.nextSibling);
        const found = keyOf(next) ? known.get(keyOf(next)) : likeFrom(here, next, isStaying);
        if (!found || !isLike(found, next)) {
            place.insertBefore(next, here);
            if (found && found === here) pass(here.nextSibling);
            else found?.remove();
            continue;
        }
        if (!keyOf(next)) pass(found);
        if (found === here) here = here.nextSibling;
        else place.insertBefore(found, here);
        become(found, next);
    }
    pass(null);
}

/** The next one without a key that can become it, before one that must stay. */
function likeFrom(here, next, isStaying) {
    for (let one = here; one && !isStaying(one); one = one.nextSibling)
        if (!keyOf(one) && isLike(one, next)) return one;
    return null;
}

function isLike(one, other) {
    if (one.nodeName !== other.nodeName || whole.get(one) !== whole.get(other)) return false;
    // a finger on its way to a button must not meet another one
    return keyOf(other) || one.nodeName !== "BUTTON" || one.textContent === other.textContent;
}

const keyOf = (node) => node.dataset?.key ?? "";

function become(one, other) {
    if (one.nodeType === Node.TEXT_NODE) {
        // what is marked in a text stays marked while it grows
        if (other.data.startsWith(one.data)) one.appendData(other.data.slice(one.data.length));
        else one.data = other.data;
        return;
    }
    if (whole.has(one)) return;
    for (const { name } of [...one.attributes])
        if (!other.hasAttribute(name) && !isOwn(one, name)) one.removeAttribute(name);
    for (const { name, value } of other.attributes)
        if (one.getAttribute(name) !== value && !isOwn(one, name)) one.setAttribute(name, value);
    if (one.style.cssText !== other.style.cssText) one.style.cssText = other.style.cssText;
    takeListeners(one, other);
    matchChildren(one, other);
}

/** What a person opened stays open; a style is no attribute under our Content-Security-Policy. */
const isOwn = (element, name) => name === "style" || (name === "open" && element.nodeName === "DETAILS");
