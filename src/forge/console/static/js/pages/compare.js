// Two runs side by side: what they cost, what they said, what they called, and where they differ.

import { get, part } from "../api.js";
import { fill, h } from "../dom.js";
import { Fold } from "../fold.js";
import { ago, amount, cost, count, duration } from "../format.js";
import { textBox } from "../parts/text_view.js";
import { jsonBox, valuesList } from "../parts/diff.js";
import { badge, runState } from "../parts/marks.js";
import { showMissing } from "../parts/notices.js";
import { address, nameTab } from "../router.js";
import { asText, brief, briefArguments } from "../text.js";

const PAGE = 5_000;
const MOST_CELLS = 4_000_000; // of the table that finds what two runs have in common
const MOST_ROWS = 500; // at first; a button shows the rest
const NAMES = ["A", "B"];

/** `#/compare/A/B`; with one run, the other one is chosen here. */
export async function openCompare(place, { parts: [first, second] }, scope) {
    nameTab({ page: "Compare runs" });
    const head = h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Compare two runs"));
    fill(place, head);
    try {
        if (!first) return fill(place, head, h("p", {}, "Open a run and choose Compare, or name two runs in the address: #/compare/A/B"));
        if (!second) return await choose(place, head, first, scope);
        const both = await Promise.all([first, second].map((id) => readRun(id, scope)));
        if (!scope.isOpen()) return null;
        nameTab({ page: `Compare: ${both.map(({ run }) => brief(run.prompt || run.id, 30)).join(" / ")}` });
        return show(place, head, both);
    } catch (error) {
        return error.name === "AbortError" ? null : showMissing(place, "Compare two runs", error, scope);
    }
}

async function readRun(id, scope) {
    const base = `/api/runs/${part(id)}`;
    const run = await get(base, {}, scope.signal);
    const fold = new Fold(run.id);
    for (let after = ""; after !== null; ) {
        const told = await get(`${base}/events`, { after, limit: PAGE, family: 0 }, scope.signal);
        for (const entry of told.events) fold.add(entry);
        after = told.next ?? null;
    }
    const steps = fold.trunk.items.filter(({ kind }) => ["prompt", "text", "call", "end"].includes(kind));
    return { run, steps: steps.map(stepOf).filter(({ text, name }) => text || name), hasOthers: run.children.length > 0 };
}

/** A step as it is compared: `key` says what was done, `outcome` what came of it. */
function stepOf(item) {
    if (item.kind !== "call") {
        const text = asText(item.text ?? "") || asText(item.error ?? "");
        return { kind: item.kind === "prompt" ? "prompt" : "text", text, key: `${item.kind === "prompt"} ${text.trim()}`, outcome: "" };
    }
    const { name, arguments: given, state, seconds, result } = item;
    const told = asText(result?.for_llm ?? "");
    return { kind: "call", name, given, state, seconds, told, key: `${name} ${JSON.stringify(given)}`, outcome: `${state} ${told}` };
}

async function choose(place, head, first, scope) {
    const [run, { runs }] = await Promise.all([
        get(`/api/runs/${part(first)}`, {}, scope.signal),
        get("/api/runs", { limit: 100 }, scope.signal),
    ]);
    const others = runs.filter(({ id }) => id !== run.id);
    const isAlike = (one) => one.prompt === run.prompt || one.rerun_of === run.id || run.rerun_of === one.id;
    const sorted = [...others.filter(isAlike), ...others.filter((one) => !isAlike(one))];
    const row = (one) =>
        h(
            "li",
            {},
            h("a", { href: address(["compare", run.id, one.id]) }, brief(one.prompt || one.id, 120)),
            " ",
            runState(one),
            " ",
            isAlike(one) ? badge("same task") : null,
            h("span", { class: "quiet" }, " ", one.id, " · ", ago(one.created)),
        );
    return fill(
        place,
        head,
        h("p", {}, "Compare ", h("a", { href: address(["runs", run.id]) }, brief(run.prompt || run.id, 120)), " with:"),
        sorted.length ? h("ul", { class: "compare-choices" }, sorted.map(row)) : h("p", { class: "quiet" }, "There is no other run."),
    );
}

function show(place, head, both) {
    const rows = align(both[0].steps, both[1].steps);
    const different = rows.filter(({ kind }) => kind !== "same").length;
    const list = h("ol", { class: "compare-steps", "aria-label": "Steps of both runs" });
    const draw = (most) => {
        const groups = grouped(rows);
        fill(list, groups.slice(0, most).map(groupView));
        more.hidden = groups.length <= most;
    };
    const more = h("button", { type: "button", class: "link", onclick: () => draw(Infinity) }, "Show all steps");
    const words = different ? `${count(different, "step")} of ${amount(rows.length)} differ` : "All steps are the same";
    fill(
        place,
        head,
        factsTable(both.map(({ run }) => run)),
        h("h2", {}, "Messages and calls"),
        h("p", { class: "quiet" }, `${words}. `, both.some(({ hasOthers }) => hasOthers) ? "The steps of sub-agents are not compared." : ""),
        h("div", { class: "compare-names", "aria-hidden": "true" }, both.map(({ run }, index) => h("strong", {}, `${NAMES[index]}: ${brief(run.prompt || run.id, 80)}`))),
        list,
        more,
    );
    draw(MOST_ROWS);
}

function factsTable(runs) {
    const plus = (format) => (one, other) => (one === other ? "" : `${other > one ? "+" : "−"}${format(Math.abs(other - one))}`);
    const facts = [
        ["State", ({ status }) => status],
        ["Agent", ({ agent }) => agent],
        ["Model", ({ model }) => model ?? ""],
        ["End", ({ reason }) => reason],
        ["Turns", ({ turns }) => turns ?? 0, amount],
        ["Calls", ({ calls }) => calls ?? 0, amount],
        ["Tokens in", ({ usage }) => usage?.input ?? 0, amount],
        ["Tokens out", ({ usage }) => usage?.output ?? 0, amount],
        ["Cost", (run) => run.cost ?? null, cost],
        ["Time worked", ({ seconds }) => seconds ?? null, duration],
    ];
    const row = ([name, valueOf, format = (value) => value || "–"]) => {
        const [one, other] = runs.map(valueOf);
        if (!one && !other && one !== 0) return null;
        const isNumber = typeof one === "number" && typeof other === "number";
        const difference = one === other ? "" : isNumber ? plus(format)(one, other) : "differs";
        return h(
            "tr",
            { class: difference ? "differs" : null },
            h("th", { scope: "row" }, name),
            [one, other].map((value) => h("td", {}, value === null ? "–" : format(value))),
            h("td", {}, difference || "same"),
        );
    };
    const column = (run, index) =>
        h("th", { scope: "col" }, `${NAMES[index]}: `, h("a", { href: address(["runs", run.id]) }, brief(run.prompt || run.id, 80)));
    return h(
        "div",
        { class: "wide-table", tabindex: "0", role: "region", "aria-label": "Figures of both runs" },
        h(
            "table",
            { class: "compare-facts" },
            h("thead", {}, h("tr", {}, h("td", {}), runs.map(column), h("th", { scope: "col" }, "Difference"))),
            h("tbody", {}, facts.map(row)),
        ),
    );
}

/** [{kind: "same" | "changed" | "only A" | "only B", steps: [of A, of B]}] in the order of both runs. */
function align(ones, others) {
    const pairs = common(ones, others);
    const rows = [];
    let [at, beside] = [0, 0];
    for (const [one, other] of [...pairs, [ones.length, others.length]]) {
        rows.push(...between(ones.slice(at, one), others.slice(beside, other)));
        if (one < ones.length) {
            const steps = [ones[one], others[other]];
            rows.push({ kind: steps[0].outcome === steps[1].outcome ? "same" : "changed", steps });
        }
        [at, beside] = [one + 1, other + 1];
    }
    return rows;
}

/** What stands between two steps that both have: steps of the same kind stand beside each other. */
function between(ones, others) {
    const left = [...others];
    const rows = [];
    for (const one of ones) {
        const at = left.findIndex((other) => other.kind === one.kind && other.name === one.name);
        if (at < 0) rows.push({ kind: "only A", steps: [one, null] });
        else {
            rows.push(...left.splice(0, at).map((other) => ({ kind: "only B", steps: [null, other] })));
            rows.push({ kind: "changed", steps: [one, left.shift()] });
        }
    }
    return [...rows, ...left.map((other) => ({ kind: "only B", steps: [null, other] }))];
}

/** The longest row of steps that both have: [[index, index]]. */
function common(ones, others) {
    let from = 0;
    while (from < Math.min(ones.length, others.length) && ones[from].key === others[from].key) from += 1;
    const pairs = Array.from({ length: from }, (_, at) => [at, at]);
    const [rows, columns] = [ones.length - from, others.length - from];
    if (rows * columns > MOST_CELLS) return pairs; // too long to compare step by step: their beginnings are
    const table = Array.from({ length: rows + 1 }, () => new Uint16Array(columns + 1));
    for (let row = rows - 1; row >= 0; row -= 1)
        for (let column = columns - 1; column >= 0; column -= 1)
            table[row][column] =
                ones[from + row].key === others[from + column].key
                    ? table[row + 1][column + 1] + 1
                    : Math.max(table[row + 1][column], table[row][column + 1]);
    for (let [row, column] = [0, 0]; row < rows && column < columns; ) {
        if (ones[from + row].key === others[from + column].key) pairs.push([from + row++, from + column++]);
        else if (table[row + 1][column] >= table[row][column + 1]) row += 1;
        else column += 1;
    }
    return pairs;
}

/** Rows that follow each other and are the same are one group. */
function grouped(rows) {
    const groups = [];
    for (const row of rows) {
        const last = groups.at(-1);
        if (row.kind === "same" && last?.kind === "same") last.rows.push(row);
        else groups.push({ kind: row.kind, rows: [row] });
    }
    return groups;
}

const WORDS = { changed: "differs", "only A": "only in A", "only B": "only in B" };

function groupView({ kind, rows }) {
    if (kind !== "same") return h("li", { class: `compare-row ${kind.replace(" ", "-")}` }, badge(WORDS[kind], "differs"), sides(rows[0].steps));
    const open = () => box.open && box.childElementCount === 1 && box.append(...rows.map(({ steps }) => h("div", { class: "compare-row" }, sides([steps[0], null], true))));
    const names = rows.map(({ steps: [one] }) => one.name ?? one.kind);
    const box = h("details", { ontoggle: open }, h("summary", {}, `${count(rows.length, "step")} the same: ${brief(names.join(", "), 120)}`));
    return h("li", { class: "compare-same" }, box);
}

function sides(steps, isSame = false) {
    const [one, other] = steps;
    const named = one && other && one.kind === "call" ? differentNames(one.given, other.given) : new Set();
    const cell = (step, index) =>
        h(
            "div",
            { class: `compare-side${step ? "" : " missing"}`, role: "group", "aria-label": isSame ? "Both" : NAMES[index] },
            step ? stepView(step, named, one && other && one.told !== other.told) : h("span", { class: "quiet" }, "–"),
        );
    return h("div", { class: isSame ? "" : "compare-sides" }, isSame ? cell(one, 0) : steps.map(cell));
}

function differentNames(one, other) {
    const isObject = (value) => typeof value === "object" && value !== null;
    if (!isObject(one) || !isObject(other)) return new Set();
    const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
    return new Set(names.filter((name) => JSON.stringify(one[name]) !== JSON.stringify(other[name])));
}

function stepView(step, named, isOtherResult) {
    if (step.kind !== "call") return [h("p", { class: "who" }, step.kind === "prompt" ? "Prompt" : "Model"), textBox(step.text, { isOutput: true, lines: 12, label: "Text" })];
    const { name, given, state, seconds, told } = step;
    const isObject = typeof given === "object" && given !== null;
    const changed = isObject ? Object.fromEntries(Object.entries(given).filter(([one]) => named.has(one))) : {};
    return [
        h("p", {}, h("code", { class: "tool" }, name), " ", h("span", { class: "quiet" }, [state, duration(seconds)].filter(Boolean).join(" · "))),
        named.size ? [h("p", { class: "who" }, `Different arguments: ${[...named].join(", ")}`), valuesList(changed, { lines: 8 })] : h("p", { class: "quiet compare-given" }, briefArguments(given)),
        isOtherResult || !named.size ? [h("p", { class: "who" }, isOtherResult ? "Different result" : "Result"), told ? textBox(told, { lines: 6, label: `Result of ${name}` }) : h("p", { class: "quiet" }, "–")] : null,
        isObject && named.size ? h("details", {}, h("summary", { class: "quiet" }, "All arguments"), jsonBox(given)) : null,
    ];
}
