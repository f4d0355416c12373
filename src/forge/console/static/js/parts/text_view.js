// Texts of any size: a part of it first, and all of it, a window at a time, for whoever wants that.

import { fill, h } from "../dom.js";
import { amount } from "../format.js";
import { isWhole } from "../redraw.js";
import { readable, splitMarks, visible, visibleWithTabs } from "../text.js";
import { report } from "./notices.js";

const LONGEST_LINE = 2_000;
const ROW = 18; // pixels, as in the style sheet
const MOST_ROWS = 1_500_000; // higher than this no browser can scroll
const BIG_PACE = 1_000; // milliseconds between two looks at all of a text that grows

/**
 * A text in a box. `isOutput`: as a program wrote it; else every invisible character is written out. `lines`: how many
 * are shown at first (`fromEnd`: the last ones). `kindOf(line)`: a class for it. `whole()`: fetches a text that was cut.
 */
export function textView(
    text,
    { isOutput = false, keepsTabs = false, lines = 24, fromEnd = false, kindOf = null, whole = null, label = "Text" } = {},
) {
    const show = isOutput ? readable : keepsTabs ? visibleWithTabs : visible;
    const box = isWhole(h("div", { class: "text-view" }), text);
    const pre = h("pre", { class: "text", tabindex: "0", role: "group", "aria-label": label });
    const more = h("button", { type: "button", class: "link more", onclick: () => showAll() });
    box.append(pre, more);
    let isHeld = false; // somebody reads further up
    let big = null;
    let timer = 0;

    function update(now) {
        text = now;
        if (big) timer ||= setTimeout(() => ((timer = 0), big.update(all(text))), BIG_PACE);
        else if (!isHeld && !isMarked(pre)) draw();
    }

    function draw() {
        const part = (fromEnd ? lastLines : firstLines)(text, lines);
        const shown = part.lines.map((line, index) => lineNodes(line, show, kindOf, index < part.lines.length - 1));
        fill(pre, shown);
        const isCut = part.isCut || whole !== null;
        more.hidden = !isCut;
        if (isCut) more.textContent = `Show all${whole ? "" : ` ${amount(text.length)} characters`}`;
        if (fromEnd) pre.scrollTop = pre.scrollHeight;
    }

    const all = (found) => (isOutput ? plainLines(found) : found);

    async function showAll() {
        more.disabled = true;
        try {
            big = bigView(all(whole ? await whole() : text), { show, kindOf, label });
            fill(box, big.element);
            big.element.focus({ preventScroll: true });
        } catch (error) {
            more.disabled = false;
            report(error);
        }
    }

    if (fromEnd)
        pre.addEventListener("scroll", () => {
            const wasHeld = isHeld;
            isHeld = pre.scrollTop + pre.clientHeight < pre.scrollHeight - 20;
            if (wasHeld && !isHeld) draw();
        });
    draw();
    return { element: box, update };
}

function isMarked(element) {
    const marked = getSelection();
    return !marked.isCollapsed && marked.containsNode(element, true);
}

export const textBox = (text, options) => textView(text, options).element;

function lineNodes(line, show, kindOf, hasMore) {
    const isLong = line.length > LONGEST_LINE;
    const shown = show(isLong ? line.slice(0, LONGEST_LINE) : line);
    const nodes = withMarks(shown);
    if (isLong) nodes.push(h("span", { class: "mark" }, `… ${amount(line.length - LONGEST_LINE)} more characters`));
    const kind = kindOf?.(line);
    const end = hasMore ? document.createTextNode("\n") : null;
    return kind ? h("span", { class: kind }, nodes, end) : [nodes, end];
}

/** Nodes, because texts that `h` is given would be made visible once more. */
export function withMarks(shown) {
    return splitMarks(shown).map((piece, index) => {
        if (index % 2 === 0) return document.createTextNode(piece);
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.textContent = piece;
        return mark;
    });
}

function firstLines(text, most) {
    const found = [];
    let at = 0;
    while (found.length < most && at <= text.length) {
        const end = text.indexOf("\n", at);
        found.push(text.slice(at, end < 0 ? text.length : end));
        at = end < 0 ? text.length + 1 : end + 1;
    }
    if (found.length > 1 && found.at(-1) === "" && at > text.length) found.pop();
    return { lines: found, isCut: at < text.length || found.some((line) => line.length > LONGEST_LINE) };
}

function lastLines(text, most) {
    const found = [];
    let end = text.endsWith("\n") ? text.length - 1 : text.length;
    while (found.length < most && end >= 0) {
        const start = end === 0 ? -1 : text.lastIndexOf("\n", end - 1);
        found.unshift(text.slice(start + 1, end));
        end = start;
    }
    return { lines: found, isCut: end > 0 || found.some((line) => line.length > LONGEST_LINE) };
}

/** So that what is cut into rows has lost what may reach over several of them. */
function plainLines(text) {
    return text.includes("\r") || text.includes("\u001b") ? readable(text).replace(/⟨U\+([0-9A-F]+)⟩/g, back) : text;
}

const back = (_, code) => String.fromCodePoint(parseInt(code, 16));

/** All of a text, of which only the rows in sight are made: {element, update(text)}. */
function bigView(text, { show, kindOf, label }) {
    const rows = h("div", { class: "rows-in-sight" });
    const space = h("div", { class: "big-space" }, rows);
    const box = h("div", { class: "text big", tabindex: "0", role: "group", "aria-label": label }, space);
    let ends = [];
    let columns = 0;

    function measure() {
        const wide = Math.max(20, Math.floor((box.clientWidth - 24) / 7.6) || 100);
        if (wide === columns) return draw();
        columns = wide;
        ends = rowEnds(text, columns);
        space.style.height = `${ends.length * ROW}px`;
        box.style.height = `min(60vh, ${ends.length * ROW + 20}px)`;
        return draw();
    }

    function draw() {
        const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
        const last = Math.min(ends.length, first + Math.ceil((box.clientHeight || 600) / ROW) + 20);
        rows.style.transform = `translateY(${first * ROW}px)`;
        const made = [];
        for (let row = first; row < last; row += 1) {
            const line = text.slice(row ? ends[row - 1] : 0, ends[row]).replace(/\n$/, "");
            made.push(h("div", { class: `row ${kindOf?.(line) ?? ""}` }, withMarks(show(line))));
        }
        fill(rows, made);
    }

    function update(now) {
        text = now;
        columns = 0;
        if (!isMarked(box)) measure();
    }

    let asked = 0;
    const later = () => (asked ||= requestAnimationFrame(() => ((asked = 0), draw())));
    box.addEventListener("scroll", later, { passive: true });
    new ResizeObserver(measure).observe(box);
    return { element: box, update };
}

/** Not in the middle of a character. */
const cutAt = (text, at) => (/[\udc00-\udfff]/.test(text[at] ?? "") ? at + 1 : at);

function rowEnds(text, columns) {
    const ends = [];
    let at = 0;
    while (at < text.length && ends.length < MOST_ROWS) {
        const newline = text.indexOf("\n", at);
        const end = newline < 0 ? text.length : newline + 1;
        while (end - at > columns + 1 && ends.length < MOST_ROWS) ends.push((at = cutAt(text, at + columns)));
        ends.push((at = end));
    }
    return ends;
}
