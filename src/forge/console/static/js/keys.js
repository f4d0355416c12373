// Keyboard shortcuts. They can be turned off.

import { h } from "./dom.js";
import { dialog } from "./parts/controls.js";

const KEPT = "forge-keys";
const everywhere = [];
let here = [];

const keysAreOn = () => localStorage.getItem(KEPT) !== "off";

/** Keys of a page: [[key, words, work]]. They are forgotten when the page is left. */
export function bindKeys(scope, keys) {
    here = keys;
    scope.add(() => {
        if (here === keys) here = [];
    });
}

export function listenToKeys(keys) {
    everywhere.push(...keys, ["?", "keyboard shortcuts", showKeys], ["Ctrl K", "go to a page, run, tool or rule", () => {}]);
    addEventListener("keydown", noteWriting, { capture: true });
    addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isWriting(event.target)) return;
        if (!keysAreOn() || document.querySelector("dialog[open]") || isStillMeantForText(event)) return;
        const found = [...here, ...everywhere].find(([key]) => key === event.key);
        if (!found) return;
        event.preventDefault();
        if (!event.repeat || "jk".includes(event.key)) found[2](event);
    });
}

/** What can be pressed here, as a line at the foot of a page. */
export function legend(keys) {
    return h(
        "p",
        { class: "legend", "aria-label": "Keyboard shortcuts" },
        keys.filter(([, words]) => words).map(([key, words]) => h("span", {}, h("kbd", {}, key), ` ${words}`)),
        h("span", {}, h("kbd", {}, "?"), " all shortcuts"),
    );
}

export function showKeys() {
    const keys = [...here, ...everywhere].filter(([, words]) => words);
    const turn = (event) => localStorage.setItem(KEPT, event.target.checked ? "on" : "off");
    dialog(
        "Keyboard shortcuts",
        h(
            "dl",
            { class: "key-list" },
            keys.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)]),
        ),
        h(
            "label",
            { class: "check" },
            h("input", { type: "checkbox", checked: keysAreOn(), onchange: turn }),
            " Use keyboard shortcuts",
        ),
    );
}

const PAUSE = 1_500; // milliseconds without a key: whoever was writing has noticed
const writing = { field: null, at: 0 };

function noteWriting(event) {
    if (!isWriting(event.target)) return;
    const isDone = (event.key === "Enter" && !event.shiftKey) || event.key === "Escape" || event.key === "Tab";
    writing.field = isDone ? null : event.target;
    writing.at = event.timeStamp;
}

/** The field somebody was writing in went away under their hands: the rest of the word is no answer to anything. */
function isStillMeantForText({ timeStamp }) {
    if (!writing.field || writing.field.isConnected || timeStamp - writing.at > PAUSE) return false;
    writing.at = timeStamp;
    return true;
}

function isWriting(target) {
    return (
        target instanceof Element &&
        Boolean(target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select"))
    );
}
