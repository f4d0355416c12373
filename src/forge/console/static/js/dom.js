// Elements, made of text only: there is no way here to turn a text into markup.

import { visible } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "open", "hidden", "selected", "indeterminate", "multiple"]);
const FORBIDDEN = new Set(["style", "srcdoc", "innerHTML", "outerHTML"]);
const LONGEST = 20_000; // characters: what may be longer has a box of its own (text_view)
const listeners = new WeakMap(); // element → {name: listener}

/** An element. Attributes whose names begin with `on` are listeners; children are texts, elements, or lists of them. */
export function h(tag, attributes, ...children) {
    return filled(document.createElement(tag), attributes, children);
}

/** The same for drawings. */
export function svg(tag, attributes, ...children) {
    return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Put these children in the place of those that are there. */
export function fill(element, ...children) {
    element.textContent = "";
    append(element, children);
    return element;
}

/** Change a text without touching the page where it is the same. */
export function setText(element, text) {
    const shown = visible(String(text));
    if (element.textContent !== shown) element.textContent = shown;
}

export function setClass(element, name) {
    if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

/** Listen to what `other` listens to, and to nothing else. */
export function takeListeners(element, other) {
    for (const name of Object.keys(listeners.get(element) ?? {})) listeners.get(element)[name] = null;
    for (const [name, listener] of Object.entries(listeners.get(other) ?? {})) heed(element, name, listener);
}

function heed(element, name, listener) {
    const known = listeners.get(element) ?? {};
    listeners.set(element, known);
    if (!(name in known)) element.addEventListener(name, (event) => known[name]?.(event));
    known[name] = listener;
}

function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
    append(element, children);
    return element;
}

function append(element, children) {
    for (const child of children) {
        if (child === null || child === undefined || child === false || child === true) continue;
        if (Array.isArray(child)) append(element, child);
        else element.append(child instanceof Node ? child : document.createTextNode(visible(bounded(String(child)))));
    }
}

function set(element, name, value) {
    if (value === null || value === undefined) return;
    if (typeof value === "function") heed(element, name.replace(/^on/, ""), value);
    else if (FORBIDDEN.has(name) || name.startsWith("on")) throw new Error(`${name} is not set here`);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (value === false && !name.startsWith("aria-")) return;
    else element.setAttribute(name, allowed(name, value === true && !name.startsWith("aria-") ? "" : String(value)));
}

const bounded = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);

function allowed(name, value) {
    if (name === "href" && !/^(#|\/api\/)/.test(value)) throw new Error("links lead to this console only");
    if (name === "src" && !/^(\/static\/|\/apps\/[\w.%-]+$|data:image\/(png|jpeg|gif|webp);base64,)/.test(value))
        throw new Error("no such picture");
    return name === "href" || name === "src" ? value : visible(bounded(value));
}
