// The project's notes, and a search in them.

import { get, post } from "../api.js";
import { fill, h } from "../dom.js";
import { amount, bytes, count } from "../format.js";
import { bindKeys } from "../keys.js";
import { settled, soon } from "../pace.js";
import { changeDialog } from "../parts/change_dialog.js";
import { button, field } from "../parts/controls.js";
import { copyMenu, forgeCommand, jsonText, linkTo } from "../parts/copy_menu.js";
import { differenceBox } from "../parts/diff.js";
import { badge, empty } from "../parts/marks.js";
import { notify, report, say } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { redraw } from "../redraw.js";
import { address, note } from "../router.js";
import { listen } from "../stream.js";

const MOST_NOTES = 1_000;

export function openMemory(place, { query }, scope) {
    const search = h("input", {
        type: "search",
        placeholder: "Search notes",
        "aria-label": "Search notes",
        value: query.get("q") ?? "",
    });
    const facts = h("p", { class: "quiet" });
    const results = h("div", {});
    const names = h("div", {});
    const shown = h("div", {});
    const adding = button("Add a note…", () => noteDialog((name) => open(name).then(look)));
    let chosen = query.get("note") ?? "";
    fill(
        place,
        h(
            "header",
            { class: "page-head" },
            h("h1", { tabindex: "-1" }, "Memory"),
            facts,
            h("div", { class: "actions" }, adding),
        ),
        h("div", { class: "filters", role: "search" }, search),
        results,
        h("div", { class: "split" }, names, shown),
    );
    adding.hidden = true;

    async function look() {
        const q = search.value.trim();
        note(["memory"], { q, note: chosen });
        try {
            const told = await get("/api/memory", { q, limit: 20 }, scope.signal);
            if (q !== search.value.trim()) return null; // the next search was answered sooner
            adding.hidden = !told.can_write;
            if (!told.enabled) {
                search.disabled = true;
                return fill(
                    results,
                    empty("The memory is off.", "Turn it on in forge.yaml: memory: {enabled: true}. Then start the console again."),
                );
            }
            setFacts(told);
            redraw(
                results,
                [...(told.remarks ?? [])].map((one) => h("p", { class: "hint-line" }, one)),
                q ? resultList(q, told.results, open) : null,
            );
            if (q) say(count(told.results.length, "result"));
            return redraw(names, noteNames(told.notes));
        } catch (error) {
            return report(error);
        }
    }

    function setFacts({ stats, notes }) {
        const words = [
            count(stats.notes ?? notes.length, "note"),
            count(stats.chunks ?? 0, "indexed section"),
            stats.embedder && stats.embedder !== "none" ? `Embedder: ${stats.embedder}` : "Keyword search only",
            stats.index_bytes ? `Index: ${bytes(stats.index_bytes)}` : "",
        ];
        fill(facts, words.filter(Boolean).join(" · "));
    }

    function noteNames(all) {
        const one = (name) =>
            h(
                "li",
                { "data-key": name },
                h(
                    "button",
                    {
                        type: "button",
                        class: "row-button",
                        "data-key": "open",
                        "aria-current": String(name === chosen),
                        onclick: () => open(name),
                    },
                    name,
                ),
            );
        if (!all.length) return empty("No notes yet.", "Add one here. Agents add notes with the tool memory_write.");
        return [
            h("h2", {}, "Notes"),
            h("ul", { class: "rows", "aria-label": "Notes" }, all.slice(0, MOST_NOTES).map(one)),
            all.length > MOST_NOTES
                ? h("p", { class: "quiet" }, `${amount(all.length - MOST_NOTES)} more notes are not listed. Search for them.`)
                : null,
        ];
    }

    async function open(name) {
        try {
            const told = await get("/api/memory/note", { name }, scope.signal);
            chosen = name;
            note(["memory"], { q: search.value.trim(), note: chosen });
            for (const one of names.querySelectorAll(".row-button"))
                one.setAttribute("aria-current", String(one.textContent === name));
            const choices = [
                ["Link", () => linkTo(address(["memory"], { note: name }))],
                ["Markdown", told.text],
                ["forge command", () => forgeCommand("memory", "show", name)],
            ];
            fill(
                shown,
                h("header", { class: "note-head" }, h("h2", {}, told.name), copyMenu(choices)),
                textBox(told.text, { isOutput: true, lines: 200, label: told.name }),
            );
            shown.scrollIntoView({ block: "nearest" });
        } catch (error) {
            report(error);
        }
    }

    search.addEventListener("input", settled(look, 250, scope));
    bindKeys(scope, [["/", "search", () => search.focus()]]);
    const again = soon(look, 300, scope);
    scope.add(listen("changed", ({ what }) => what.includes("memory") && scope.isOpen() && again()));
    return look().then(() => chosen && open(chosen));
}

function resultList(query, results, open) {
    if (!results.length) return empty("No notes match.", "Try other words.");
    const best = Math.max(...results.map((one) => one.score), 0.000001);
    const one = ({ text, source, line_start: first, line_end: last, score }) =>
        h(
            "li",
            { class: "found" },
            h(
                "p",
                {},
                h("meter", { min: "0", max: "1", value: String(Math.max(0, score / best)), "aria-label": "Score" }),
                " ",
                badge(score.toFixed(3)),
                " ",
                h(
                    "button",
                    { type: "button", class: "link", onclick: () => open(source) },
                    `${source}, lines ${first} to ${last}`,
                ),
            ),
            textBox(text, { isOutput: true, lines: 8, label: "Excerpt" }),
        );
    const choices = [
        ["Link", () => linkTo(address(["memory"], { q: query }))],
        ["forge command", () => forgeCommand("memory", "search", query)],
        ["JSON", () => jsonText(results)],
    ];
    return [copyMenu(choices), h("ol", { class: "plain" }, results.map(one))];
}

// Adds a note to the memory.

/** `added(name)` is called with the name of the note. */
function noteDialog(added) {
    const content = h("textarea", { rows: "5", autofocus: true, placeholder: "Ada looks after releases." });
    const target = h(
        "select",
        {},
        h("option", { value: "memory" }, "MEMORY.md: facts that stay true"),
        h("option", { value: "today" }, "Today’s note: what happened today"),
    );
    const values = () => ({ content: content.value, target: target.value });
    return changeDialog("Add a note", {
        words: "Add note",
        fields: [
            field("Note", content, "Markdown. The agents of this project can read it. Write no secrets."),
            field("Where", target),
        ],
        isComplete: () => Boolean(content.value.trim()),
        preview: () => post("/api/memory/note", values()),
        show: ({ diff, problem }) => (problem ? h("p", { class: "bad" }, problem) : differenceBox(diff)),
        make: async () => {
            const { note } = await post("/api/memory/note", { ...values(), write: true });
            notify(`The note is in ${note.source}, lines ${note.line_start} to ${note.line_end}.`);
            added(note.source);
        },
    });
}
