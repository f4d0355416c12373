// The command palette: any page, run, tool or rule by a few letters of its name, with the keyboard alone.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { settled } from "./pace.js";
import { PAGES } from "./pages.js";
import { dialog } from "./parts/controls.js";
import { report } from "./parts/notices.js";
import { address, makeScope } from "./router.js";
import { brief } from "./text.js";

const MOST = 9; // of each kind
const PAUSE = 150; // milliseconds without a key, before runs are asked for
export const PALETTE_KEY = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";

/** Opens with Ctrl-K or Cmd-K, wherever one is. */
export function listenToPalette() {
    addEventListener("keydown", (event) => {
        if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
        event.preventDefault();
        if (!document.querySelector("dialog[open]")) openPalette();
    });
}

export function openPalette() {
    const scope = makeScope();
    const field = h("input", {
        type: "text",
        role: "combobox",
        "aria-label": "Go to a page, run, tool or rule",
        "aria-expanded": "true",
        "aria-controls": "palette-list",
        "aria-autocomplete": "list",
        autocomplete: "off",
        placeholder: "Page, run, tool or rule",
        autofocus: true,
        oninput: () => changed(),
        onkeydown: pressed,
    });
    const list = h("div", { id: "palette-list", role: "listbox", "aria-label": "Matches" });
    const number = h("p", { class: "quiet palette-number", role: "status" });
    const close = dialog("Go to", h("div", { class: "palette" }, field, list, number));
    const box = field.closest("dialog");
    box.addEventListener("close", () => scope.close());
    const known = { Pages: PAGES.map(([path, words]) => ({ words, more: "", parts: path ? [path] : [] })), Runs: [], Tools: [], Rules: [] };
    let chosen = 0;
    let options = [];

    const changed = () => {
        chosen = 0;
        draw();
        askForRuns();
    };

    function draw() {
        options = [];
        fill(
            list,
            Object.entries(known).map(([kind, all]) => {
                const found = best(all, field.value, kind === "Runs");
                if (!found.length) return null;
                const title = `palette-${kind}`;
                const made = found.map((one) => optionOf(one));
                return h("div", { role: "group", "aria-labelledby": title }, h("div", { class: "palette-kind", id: title }, kind), made);
            }),
        );
        number.textContent = options.length ? `${options.length} found` : "Nothing found";
        choose(Math.min(chosen, options.length - 1));
    }

    function optionOf({ words, more, parts, query }) {
        const at = options.length;
        const element = h(
            "div",
            { role: "option", id: `palette-${at}`, class: "palette-option", onclick: () => take(at), onmousemove: () => at !== chosen && choose(at) },
            h("span", { class: "palette-words" }, brief(words, 100)),
            more ? h("span", { class: "quiet palette-more" }, brief(more, 80)) : null,
        );
        options.push({ element, where: address(parts, query) });
        return element;
    }

    function choose(at) {
        chosen = Math.max(0, at);
        options.forEach(({ element }, index) => element.setAttribute("aria-selected", String(index === chosen)));
        const current = options[chosen]?.element;
        if (current) field.setAttribute("aria-activedescendant", current.id);
        else field.removeAttribute("aria-activedescendant");
        current?.scrollIntoView({ block: "nearest" });
    }

    function take(at) {
        const wanted = options[at];
        if (!wanted) return;
        close();
        location.hash = wanted.where;
    }

    function pressed(event) {
        if (event.isComposing) return;
        const last = options.length - 1;
        const next = {
            ArrowDown: chosen === last ? 0 : chosen + 1,
            ArrowUp: chosen === 0 ? last : chosen - 1,
            PageDown: Math.min(last, chosen + MOST),
            PageUp: Math.max(0, chosen - MOST),
        }[event.key];
        if (event.key === "Enter") take(chosen);
        else if (next !== undefined && options.length) choose(next);
        else return;
        event.preventDefault();
    }

    /** Runs are looked for by the server, which knows all of them. */
    async function readRuns() {
        const text = field.value.trim();
        const { runs } = await get("/api/runs", { text, limit: MOST }, scope.signal);
        if (text !== field.value.trim()) return;
        known.Runs = runs.map(({ id, prompt, status }) => ({ words: prompt || id, more: `${status} · ${id}`, parts: ["runs", id] }));
        draw();
    }

    async function read(path, kind, listed) {
        known[kind] = listed(await get(path, {}, scope.signal));
        if (scope.isOpen()) draw();
    }

    const askForRuns = settled(() => readRuns().catch(report), PAUSE, scope);
    draw();
    for (const reading of [
        readRuns(),
        read("/api/tools", "Tools", ({ tools }) => tools.map(({ name, description }) => ({ words: name, more: description, parts: ["tools", name] }))),
        read("/api/policy", "Rules", ({ layers }) =>
            layers.flatMap(({ name, rules }) => rules.map(({ text }) => ({ words: text, more: name, parts: ["policy"], query: { rule: text } }))),
        ),
    ])
        reading.catch(report);
}

/** Those that have all the words; first those that begin with them. Runs are chosen already. */
function best(all, text, isChosen) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (isChosen || !words.length) return all.slice(0, MOST);
    const rank = ({ words: name, more }) => {
        const low = name.toLowerCase();
        if (low.startsWith(words[0])) return words.every((one) => low.includes(one)) ? 3 : 0;
        if (words.every((one) => low.includes(one))) return 2;
        return words.every((one) => `${low} ${more.toLowerCase()}`.includes(one)) ? 1 : 0;
    };
    const ranked = all.map((one) => [rank(one), one]).filter(([points]) => points);
    return ranked.sort(([one], [other]) => other - one).slice(0, MOST).map(([, one]) => one);
}
