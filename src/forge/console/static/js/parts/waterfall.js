// The waterfall of a run: a row for each step, with bars in proportion to their time.

import { h } from "../dom.js";
import { count, duration, timeOfDay } from "../format.js";
import { redraw } from "../redraw.js";
import { briefArguments } from "../text.js";

const MOST_ROWS = 300; // at first; a button shows the rest
const KINDS = {
    model: "Model",
    tool: "Tools",
    person: "Waiting for a person",
    run: "Waiting for sub-agents",
};

const KEPT = "forge-waterfall"; // in localStorage: "closed" where somebody closed it

/**
 * The waterfall in a panel that stays as a person leaves it: {element, draw(), toggle(), choose(item), setLive()}.
 * `fold()` gives what happened; `chosen(item)` is called when a step is followed; `linkOf(item)` is its address.
 */
export function waterfallPanel({ fold, chosen, linkOf }) {
    const view = waterfallView({ chosen, linkOf });
    const box = h("div", { class: "waterfall-box", tabindex: "0", role: "region", "aria-label": "Waterfall" }, view.element);
    const draw = () => element.open && view.update(fold(), Date.now() / 1_000);
    const element = h(
        "details",
        { class: "panel", open: localStorage.getItem(KEPT) !== "closed", ontoggle: () => opened() },
        h("summary", {}, "Waterfall"),
        box,
    );
    const opened = () => {
        if (element.open) localStorage.removeItem(KEPT);
        else localStorage.setItem(KEPT, "closed");
        draw();
    };
    return {
        element,
        draw,
        choose: view.choose,
        toggle: () => (element.open = !element.open),
        setLive: () => box.classList.add("live"), // a height that does not change moves nothing below it
    };
}

/** {element, update(fold, now), choose(item)} */
function waterfallView({ chosen, linkOf }) {
    const element = h("div", { class: "waterfall" });
    const shorten = h("input", { type: "checkbox", onchange: () => ((isChosen = true), draw()) });
    let isChosen = false; // somebody used the switch: it stays as they left it
    let most = MOST_ROWS;
    let latest = null;
    let current = ""; // the call that is shown
    let reached = ""; // the call that the arrow keys came to

    function draw() {
        const { fold, now } = latest ?? {};
        if (!fold) return;
        const model = waterfall(fold, now);
        if (model.isEmpty) return redraw(element, h("p", { class: "quiet" }, "No step has taken any time yet."));
        if (!isChosen) shorten.checked = waitsDominate(model);
        const scale = shorten.checked ? shortenedScale(model) : linearScale(model);
        const { rows } = model;
        const shown = rows.slice(0, most);
        const known = (id) => id && shown.find((one) => one.item?.id === id);
        const stop = known(reached) || known(current) || shown.find((one) => one.item); // of the Tab key
        return redraw(
            element,
            legendOf(model),
            axis(model, scale),
            h(
                "ol",
                { class: "steps-of-run", "aria-label": "Steps by time", onkeydown: move },
                shown.map((row) => stepRow(row, model, scale, row === stop)),
            ),
            rows.length > shown.length ? showMore(rows.length) : null,
        );
    }

    const showMore = (all) =>
        h(
            "button",
            { type: "button", class: "link", onclick: () => ((most = Infinity), draw()) },
            `Show all ${count(all, "step")}`,
        );

    function legendOf({ sums, from, to }) {
        const kinds = Object.entries(KINDS).filter(([kind]) => sums[kind] > 0);
        return h(
            "p",
            { class: "sums", "data-key": "sums" },
            h("span", {}, `Total: ${duration(to - from)}`),
            kinds.map(([kind, words]) =>
                h("span", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), `${words}: ${duration(sums[kind])}`),
            ),
            sums.person + sums.run > 0 ? h("label", { class: "check" }, shorten, " Shorten long waits") : null,
        );
    }

    function stepRow(row, model, scale, isStop) {
        const words = rowWords(row, model);
        const about = row.item ? h("span", { class: "quiet" }, ` ${briefArguments(row.item.arguments, 60)}`) : null;
        const name = h("span", { class: "step-name" }, row.label, about);
        name.style.paddingInlineStart = `${Math.min(row.depth, 8) * 12}px`;
        const content = [name, track(row, scale)];
        return h(
            "li",
            { "data-key": row.key, class: `step ${row.kind}` },
            row.item
                ? h(
                      "a",
                      {
                          class: "step-row",
                          href: linkOf(row.item),
                          title: words,
                          "aria-label": words,
                          "aria-current": row.item.id === current ? "step" : null,
                          tabindex: isStop ? "0" : "-1",
                          "data-call-id": row.item.id,
                          onclick: (event) => follow(event, row.item),
                      },
                      content,
                  )
                : h("div", { class: "step-row", title: words }, content),
        );
    }

    function follow(event, item) {
        if (event.ctrlKey || event.metaKey || event.shiftKey || event.button > 0) return; // a tab of its own
        event.preventDefault();
        choose(item);
        chosen(item);
    }

    function choose(item) {
        current = item.id;
        reached = "";
        draw();
    }

    /** Tab reaches one step, the arrow keys the others. */
    function move(event) {
        const links = [...element.querySelectorAll("a.step-row")];
        const at = links.indexOf(document.activeElement);
        const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
        if (at < 0 || next === undefined || !links[next]) return;
        event.preventDefault();
        reached = links[next].dataset.callId;
        links[next].focus();
        draw();
    }

    const update = (fold, now) => {
        latest = { fold, now };
        draw();
    };
    return { element, update, choose };
}

function track({ spans }, { place, ticks, breaks }) {
    const bars = spans.map(({ kind, from, to }) => {
        const bar = h("span", { class: `bar ${kind}` });
        bar.style.insetInlineStart = `${place(from) * 100}%`;
        bar.style.width = `${Math.max(0, place(to) - place(from)) * 100}%`;
        return bar;
    });
    const lines = [...ticks, ...breaks].map(({ at, seconds }) => {
        const line = h("span", { class: breaks.length && seconds ? "grid break" : "grid" });
        line.style.insetInlineStart = `${at * 100}%`;
        return line;
    });
    return h("span", { class: "track", "aria-hidden": "true" }, lines, bars);
}

function axis({ from, to }, { ticks, breaks }) {
    const marks = ticks.map(({ at, seconds }) => {
        const mark = h("span", {}, seconds ? duration(seconds) : "0");
        mark.style.insetInlineStart = `${at * 100}%`;
        return mark;
    });
    return h(
        "div",
        { class: "wf-axis quiet", "aria-hidden": "true", "data-key": "axis" },
        h("span", { class: "wf-start" }, `from ${timeOfDay(from)}`),
        h("span", { class: "wf-marks" }, breaks.length ? h("span", {}, `not to scale, ends ${timeOfDay(to)}`) : marks),
    );
}

/** All that the bars show, in words. */
function rowWords({ label, item, spans, kind }, { from }) {
    if (kind === "agent") return `Sub-agent ${label}`;
    const sum = (wanted) => spans.filter((one) => one.kind === wanted).reduce((total, one) => total + one.to - one.from, 0);
    const works = kind === "model" ? sum("model") : sum("tool");
    const waits = [
        sum("person") > 0 ? `waited ${duration(sum("person"))} for a person` : "",
        sum("run") > 0 ? `waited ${duration(sum("run"))} for a sub-agent` : "",
    ];
    const what = item ? `${label} ${briefArguments(item.arguments, 80)}` : label;
    const start = `starts after ${duration(spans[0].from - from)}`;
    return [`${what}: ${duration(works)}`, ...waits, start].filter(Boolean).join(", ");
}

// The steps of a run as rows with times, and scales for them, from folded events. Nothing here knows of the page.

const MOST_TICKS = 6;
const CONTINUED = 0.05; // seconds between two spans of the model that are shown as one
const STEPS = [
    ...[0.001, 0.01, 0.1, 1].flatMap((one) => [one, 2 * one, 5 * one]),
    ...[10, 20, 30, 60, 120, 300, 600, 900, 1_800],
    ...[3_600, 7_200, 14_400, 21_600, 43_200, 86_400],
];

/** {rows: [{key, label, depth, kind, item, spans: [{kind, from, to}]}], sums, from, to}; open ends are `now`. */
function waterfall(fold, now) {
    const rows = [];
    visit(fold.trunk, 0, rows, now);
    for (const branch of fold.branches.values())
        if (branch !== fold.trunk && !branch.below) visit(branch, 1, rows, now);
    const sums = { model: 0, tool: 0, person: 0, run: 0 };
    let from = Infinity;
    let to = -Infinity;
    for (const { spans } of rows) {
        for (const span of spans) {
            sums[span.kind] += span.to - span.from;
            from = Math.min(from, span.from);
            to = Math.max(to, span.to);
        }
    }
    return { rows, sums, from, to, isEmpty: from === Infinity };
}

/** The turns of the model and the calls of one agent by their beginning; sub-agents come after their call. */
function visit(branch, depth, rows, now) {
    const end = branch.isOver ? branch.last : now;
    if (depth) rows.push({ key: `agent ${branch.key}`, label: branch.agent || "agent", depth, kind: "agent", item: null, spans: [] });
    const turns = branch.spans.map((span) => ({ span, at: span.from }));
    if (branch.thinking !== null && !branch.isOver)
        turns.push({ span: { kind: "model", from: branch.thinking, to: end }, at: branch.thinking });
    const calls = branch.items.filter((item) => item.kind === "call").map((item) => ({ item, at: item.at }));
    const steps = [...turns, ...calls].sort((one, other) => one.at - other.at);
    for (const { span, item, at } of steps) {
        if (span) {
            const [before] = rows.at(-1)?.kind === "model" ? rows.at(-1).spans : [];
            if (before && span.from - before.to < CONTINUED) {
                before.to = Math.max(before.to, span.to);
                continue;
            }
            rows.push({ key: `${branch.key} ${at}`, label: "model", depth, kind: "model", item: null, spans: [{ ...span }] });
            continue;
        }
        const spans = item.spans.map((one) => ({ ...one, to: one.to ?? end }));
        rows.push({ key: `${branch.key} ${item.id}`, label: item.name, depth, kind: "call", item, spans });
        for (const one of item.branches) visit(one, depth + 1, rows, now);
    }
}

/** True proportions: a function from a time to 0…1, and the marks of the axis. */
function linearScale({ from, to }) {
    const whole = to - from || 1;
    const step = STEPS.find((one) => whole / one <= MOST_TICKS) ?? 86_400 * Math.ceil(whole / 86_400 / MOST_TICKS);
    const ticks = [];
    for (let at = 0; at <= whole; at += step) ticks.push({ at: at / whole, seconds: at });
    return { place: (time) => (time - from) / whole, ticks, breaks: [] };
}

const isWork = ({ kind }) => kind === "model" || kind === "tool";

/** More than half of the time nothing worked, so that true proportions would hide what did. */
function waitsDominate({ rows, from, to }) {
    const busy = union(rows.flatMap((row) => row.spans.filter(isWork)));
    return busy.reduce((sum, [start, end]) => sum + end - start, 0) < (to - from) / 2;
}

/** The same with long waits shortened; `breaks` are the shortened places. */
function shortenedScale({ rows, from, to }) {
    const busy = union(rows.flatMap((row) => row.spans.filter(isWork)));
    const total = busy.reduce((sum, [start, end]) => sum + end - start, 0);
    const longest = Math.max(total * 0.15, 0.5);
    const points = [[from, 0]];
    const breaks = [];
    let at = 0;
    let last = from;
    for (const [start, end] of [...busy, [to, to]]) {
        const gap = Math.max(0, start - last);
        if (gap > longest * 1.5) breaks.push({ at: at + longest / 2, seconds: gap });
        at += gap > longest * 1.5 ? longest : gap;
        points.push([start, at]);
        at += end - start;
        points.push([end, at]);
        last = end;
    }
    const whole = at || 1;
    return {
        place: (time) => between(points, time) / whole,
        ticks: [],
        breaks: breaks.map((one) => ({ ...one, at: one.at / whole })),
    };
}

function between(points, time) {
    let low = 0;
    let high = points.length - 1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle][0] <= time) low = middle;
        else high = middle;
    }
    const [[start, first], [end, second]] = [points[low], points[high]];
    const share = end > start ? Math.min(1, Math.max(0, (time - start) / (end - start))) : 1;
    return first + share * (second - first);
}

function union(bars) {
    const found = [];
    for (const { from, to } of [...bars].sort((one, other) => one.from - other.from)) {
        const last = found.at(-1);
        if (last && from <= last[1]) last[1] = Math.max(last[1], to);
        else found.push([from, to]);
    }
    return found;
}
