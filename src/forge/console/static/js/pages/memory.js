// What the project's agents keep: notes, and a search with its scores.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { amount, bytes, count } from "../format.js";
import { bindKeys } from "../keys.js";
import { settled } from "../pace.js";
import { badge, empty } from "../parts/marks.js";
import { report, say } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { note } from "../router.js";

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
    fill(
        place,
        h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Memory"), facts),
        h("div", { class: "filters", role: "search" }, search),
        results,
        h("div", { class: "split" }, names, shown),
    );

    async function look() {
        const q = search.value.trim();
        note(["memory"], { q });
        try {
            const told = await get("/api/memory", { q, limit: 20 }, scope.signal);
            if (q !== search.value.trim()) return null; // the next search was answered sooner
            if (!told.enabled) {
                search.disabled = true;
                return fill(
                    results,
                    empty("This project has no memory.", "Turn it on in forge.yaml: memory: {enabled: true}."),
                );
            }
            const { stats } = told;
            fill(
                facts,
                [
                    count(stats.notes ?? told.notes.length, "note"),
                    `${amount(stats.chunks)} pieces`,
                    stats.embedder && stats.embedder !== "none" ? stats.embedder : "words only, no embedder",
                    stats.index_bytes ? bytes(stats.index_bytes) : "",
                ]
                    .filter(Boolean)
                    .join(" · "),
            );
            fill(
                results,
                [...(told.remarks ?? [])].map((one) => h("p", { class: "hint-line" }, one)),
                q ? resultList(told.results, open) : null,
            );
            if (q) say(count(told.results.length, "result"));
            const one = (name) =>
                h("li", {}, h("button", { type: "button", class: "row-button", onclick: () => open(name) }, name));
            return fill(
                names,
                told.notes.length
                    ? [
                          h("ul", { class: "rows", "aria-label": "Notes" }, told.notes.slice(0, MOST_NOTES).map(one)),
                          told.notes.length > MOST_NOTES
                              ? h("p", { class: "quiet" }, `and ${amount(told.notes.length - MOST_NOTES)} more`)
                              : null,
                      ]
                    : empty("There are no notes yet."),
            );
        } catch (error) {
            return report(error);
        }
    }

    async function open(name) {
        try {
            const told = await get("/api/memory/note", { name }, scope.signal);
            fill(shown, h("h2", {}, told.name), textBox(told.text, { isOutput: true, lines: 200, label: told.name }));
            shown.scrollIntoView({ block: "nearest" });
        } catch (error) {
            report(error);
        }
    }

    search.addEventListener("input", settled(look, 250, scope));
    bindKeys(scope, [["/", "search", () => search.focus()]]);
    return look();
}

function resultList(results, open) {
    if (!results.length) return empty("Nothing was found.");
    const best = Math.max(...results.map((one) => one.score), 0.000001);
    const one = ({ text, source, line_start: first, line_end: last, score }) =>
        h(
            "li",
            { class: "found" },
            h(
                "p",
                {},
                h("meter", { min: "0", max: "1", value: String(Math.max(0, score / best)), "aria-label": "score" }),
                " ",
                badge(score.toFixed(3)),
                " ",
                h(
                    "button",
                    { type: "button", class: "link", onclick: () => open(source) },
                    `${source}:${first}–${last}`,
                ),
            ),
            textBox(text, { isOutput: true, lines: 8, label: "Excerpt" }),
        );
    return h("ol", { class: "plain" }, results.map(one));
}
