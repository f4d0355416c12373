// The time line of a run: a lane for each agent, a bar for each thing that took time.

import { h, svg } from "../dom.js";
import { duration, timeOfDay } from "../format.js";
import { redraw } from "../redraw.js";
import { briefArguments } from "../text.js";
import { scale, timeline } from "../timeline_model.js";

const ROW = 12;
const WIDE = 1_000; // units of the drawing; it is stretched to the page
const KINDS = { model: "model", tool: "tools", person: "waited for a person", run: "waited for sub-agents" };

/** {element, update(fold, now)}; `chosen(item)` when a bar is clicked. */
export function timelineView(chosen) {
    const element = h("div", { class: "timeline" });
    const update = (fold, now) => {
        const model = timeline(fold, now);
        if (model.isEmpty) return redraw(element, h("p", { class: "quiet" }, "Nothing took any time yet."));
        const { place, breaks } = scale(model);
        return redraw(
            element,
            sums(model),
            h(
                "div",
                { class: "lanes" },
                model.lanes.slice(0, 60).map((lane) => laneRow(lane, place, breaks, chosen)),
            ),
            axis(model),
            slowest(model, chosen),
        );
    };
    return { element, update };
}

function sums({ sums: found, from, to }) {
    const kinds = Object.entries(KINDS).filter(([kind]) => found[kind] > 0);
    const parts = kinds.map(([kind, words]) =>
        h(
            "span",
            {},
            h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }),
            `${words} ${duration(found[kind])}`,
        ),
    );
    return h("p", { class: "sums" }, h("span", {}, `${duration(to - from)} in all`), parts);
}

function laneRow(lane, place, breaks, chosen) {
    const height = lane.rows * ROW;
    const drawing = svg("svg", {
        viewBox: `0 0 ${WIDE} ${height}`,
        preserveAspectRatio: "none",
        class: "lane",
        role: "img",
        "aria-label": `${lane.label}: ${lane.bars.length} spans`,
    });
    drawing.style.height = `${height}px`;
    for (const { at } of breaks)
        drawing.append(svg("line", { class: "break", x1: at * WIDE, x2: at * WIDE, y1: 0, y2: height }));
    for (const bar of lane.bars) {
        const x = place(bar.from) * WIDE;
        const width = Math.max(1.5, place(bar.to) * WIDE - x);
        const look = { class: `bar ${bar.kind}`, x, y: bar.row * ROW + 1, width, height: ROW - 2 };
        const onclick = bar.item ? () => chosen(bar.item) : null;
        drawing.append(svg("rect", { ...look, onclick }, svg("title", {}, barWords(bar))));
    }
    const label = h("span", { class: "lane-name", title: lane.label }, lane.label);
    label.style.paddingInlineStart = `${lane.depth * 10}px`;
    return h("div", { class: "lane-row" }, label, drawing);
}

function barWords({ kind, from, to, item }) {
    const what = item ? `${item.name} ${briefArguments(item.arguments, 80)}` : "model";
    const waits = kind === "person" ? " waited for a person" : kind === "run" ? " waited for a sub-agent" : "";
    return `${what}${waits}: ${duration(to - from)}, from ${timeOfDay(from)}`;
}

const axis = ({ from, to }) =>
    h("div", { class: "axis quiet" }, h("span", {}, timeOfDay(from)), h("span", {}, timeOfDay(to)));

/** The same in words, for whoever cannot see or point at the bars. */
function slowest({ lanes }, chosen) {
    const bars = lanes.flatMap((lane) => lane.bars.map((bar) => ({ ...bar, agent: lane.label })));
    const longest = bars.sort((one, other) => other.to - other.from - (one.to - one.from)).slice(0, 12);
    const row = (bar) =>
        h(
            "li",
            {},
            h("span", { class: `swatch ${bar.kind}`, "aria-hidden": "true" }),
            bar.item
                ? h("button", { type: "button", class: "link", onclick: () => chosen(bar.item) }, barWords(bar))
                : barWords(bar),
        );
    return h("details", {}, h("summary", {}, "What took longest"), h("ol", { class: "slowest" }, longest.map(row)));
}
