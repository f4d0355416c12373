// Looks for words in all that happened in a run, whether it is in the page or not.

import { fill, h, setText } from "../dom.js";
import { amount, count } from "../format.js";
import { settled } from "../pace.js";
import { asText, readable } from "../text.js";
import { withMarks } from "./text_view.js";

const BEFORE = 40; // characters of an excerpt before what was found
const AFTER = 120;
const PAUSE = 120; // milliseconds without a key
const MOST_LIT = 500; // places that are lit up at once
const lit = "highlights" in CSS && typeof Highlight === "function" ? new Highlight() : null;
if (lit) CSS.highlights.set("found", lit);

/**
 * {element, focus(), look(), begin(words)}. `fold()` gives what happened; `reveal(item)` brings a step into view and gives
 * its element; `noted(words)` is called with what is looked for.
 */
export function runSearch({ fold, reveal, noted, scope }) {
    const field = h("input", { type: "search", "aria-label": "Search this run", placeholder: "Search this run", autocomplete: "off", oninput: () => lookSoon(), onkeydown: pressed });
    const number = h("span", { class: "numbers quiet", role: "status" });
    const move = (words, label, by) => h("button", { type: "button", class: "small", "aria-label": label, hidden: true, onclick: () => go(by) }, words);
    const before = move("↑", "Previous match", -1);
    const after = move("↓", "Next match", 1);
    const excerpt = h("p", { class: "excerpt", hidden: true });
    const element = h("search", { class: "run-search" }, h("div", { class: "run-search-line" }, field, number, before, after), excerpt);
    let found = []; // [{item, label, text, at}]
    let current = null; // the item that is shown
    let isNew = false; // what is looked for changed: the first one is to be shown

    function pressed(event) {
        if (event.key === "Enter" && !event.isComposing) {
            event.preventDefault();
            if (isNew) look();
            else go(event.shiftKey ? -1 : 1);
        }
        if (event.key === "Escape" && field.value) {
            event.preventDefault();
            field.value = "";
            look();
        }
    }

    const lookSoon = () => {
        isNew = true;
        waiting();
    };
    const waiting = settled(() => look(), PAUSE, scope);

    /** Looks again: for other words, or because more happened. */
    function look() {
        const words = field.value.trim();
        noted(words);
        found = words ? matches(fold(), words) : [];
        element.classList.toggle("at-work", Boolean(words));
        before.hidden = after.hidden = !found.length;
        if (!found.some(({ item }) => item === current)) current = null;
        if (isNew && found.length) go(0);
        else showPlace();
        isNew = false;
    }

    function go(by) {
        if (!found.length) return;
        const here = found.findIndex(({ item }) => item === current);
        const next = by === 0 || here < 0 ? (by < 0 ? found.length - 1 : 0) : (here + by + found.length) % found.length;
        current = found[next].item;
        light(reveal(current), field.value.trim());
        showPlace();
    }

    function showPlace() {
        const words = field.value.trim();
        const here = found.findIndex(({ item }) => item === current);
        const all = count(found.length, "step");
        setText(number, !words ? "" : here < 0 ? all : `${amount(here + 1)} of ${all}`);
        excerpt.hidden = here < 0;
        if (here >= 0) showExcerpt(excerpt, found[here], words);
        else lit?.clear();
    }

    scope.add(() => lit?.clear());
    return {
        element,
        focus: () => field.select(),
        /** More happened. What is shown stays. */
        grown: () => field.value.trim() && look(),
        begin(words) {
            field.value = words;
            isNew = true;
            look();
        },
    };
}

const pattern = (words, flags) => new RegExp(words.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), flags);

/** The steps with these words, in the order of the page, each with the first place where they stand. */
function matches(fold, words) {
    const wanted = pattern(words, "iu");
    const found = [];
    const visit = (branch) => {
        for (const item of branch.items) {
            for (const [label, text] of textsOf(item)) {
                const at = text.search(wanted);
                if (at < 0) continue;
                found.push({ item, label, text, at });
                break;
            }
            for (const below of item.branches ?? []) visit(below);
        }
    };
    visit(fold.trunk);
    return found;
}

/** All that can be read of a step: [[what it is, text]]. */
function textsOf(item) {
    if (item.kind === "call") return callTexts(item).filter(([, text]) => text);
    if (item.kind === "draft") return []; // its call has the same
    if (item.kind === "event") return [[item.event.event, asText(item.event)]];
    const label = { prompt: "Prompt", text: "Text", reasoning: "Reasoning", end: "End" }[item.kind] ?? "Step";
    return [item.text, item.reason, item.error].filter((one) => typeof one === "string" && one).map((text) => [label, text]);
}

function callTexts(item) {
    const { name, arguments: given, result, output, asked } = item;
    const isObject = typeof given === "object" && given !== null;
    const values = isObject ? Object.entries(given).map(([key, value]) => `${key}: ${asText(value)}`) : [asText(given)];
    return [
        ["Tool", name],
        ...values.map((text) => [`Argument of ${name}`, text]),
        [`Question of ${name}`, asked ? `${asked.permission} ${asked.target ?? ""}` : ""],
        [`Output of ${name}`, output],
        ...["for_user", "for_llm", "error", "title"].map((key) => [`Result of ${name}`, asText(result?.[key] ?? "")]),
        [`Result of ${name}`, Object.keys(result?.data ?? {}).length ? asText(result.data) : ""],
    ];
}

function showExcerpt(place, { label, text, at, item }, words) {
    const from = Math.max(0, at - BEFORE);
    const length = pattern(words, "iu").exec(text.slice(at))?.[0].length ?? words.length;
    const plain = (piece) => withMarks(readable(piece.replace(/\s+/g, " ")));
    const isCut = item.resultCut || (item.argumentsCut ?? null) !== null;
    fill(
        place,
        h("span", { class: "quiet" }, `${label}: ${from ? "…" : ""}`),
        plain(text.slice(from, at)),
        h("mark", {}, plain(text.slice(at, at + length))),
        plain(text.slice(at + length, at + length + AFTER)),
        text.length > at + length + AFTER ? "…" : "",
        isCut ? h("span", { class: "quiet" }, " (of this long text, only the first part is searched)") : null,
    );
}

/** Marks the words in the step, without a change of the page. */
function light(element, words) {
    if (!lit || !element) return;
    lit.clear();
    const wanted = pattern(words, "giu");
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let first = null;
    for (let node = walker.nextNode(); node && lit.size < MOST_LIT; node = walker.nextNode()) {
        for (const { index, 0: hit } of node.data.matchAll(wanted)) {
            const range = new Range();
            range.setStart(node, index);
            range.setEnd(node, index + hit.length);
            lit.add(range);
            first ??= node.parentElement;
        }
    }
    if (first?.checkVisibility()) first.scrollIntoView({ block: "nearest" });
}
