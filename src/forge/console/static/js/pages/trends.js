// Cost, errors, times and refused calls by day and by tool.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { amount, cost, count, duration, short } from "../format.js";
import { barChart, shortDay } from "../parts/bar_chart.js";
import { copyMenu, forgeCommand, jsonText, linkTo, markdownTable } from "../parts/copy_menu.js";
import { empty } from "../parts/marks.js";
import { report, say } from "../parts/notices.js";
import { address, note } from "../router.js";

const RANGES = [7, 14, 30, 90];
const DAY_NAMES = ["Day", "Runs", "Failed runs", "Unlisted runs", "Calls", "Errors", "Denied", "p50", "p95", "Tokens", "Cost"];
const TOOL_NAMES = ["Tool", "Calls", "Errors", "Denied", "p50", "p95"];

export function openTrends(place, { query }, scope) {
    const wanted = { days: query.get("days") ?? "14", tool: query.get("tool") ?? "" };
    const ranges = h(
        "select",
        { "aria-label": "Range", onchange: () => change({ days: ranges.value }) },
        RANGES.map((days) => h("option", { value: String(days) }, `Last ${days} days`)),
    );
    ranges.value = RANGES.includes(Number(wanted.days)) ? wanted.days : "14";
    const tools = h("select", { "aria-label": "Tool", onchange: () => change({ tool: tools.value }) });
    const copies = h("div", { class: "actions" });
    const found = h("div", {});
    fill(
        place,
        h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Trends"), copies),
        h("div", { class: "filters" }, ranges, tools),
        found,
    );
    let names = wanted.tool ? [wanted.tool] : [];

    function change(more) {
        Object.assign(wanted, more);
        note(["trends"], wanted);
        return look();
    }

    async function look() {
        const mine = { ...wanted };
        try {
            const told = await get("/api/trends", mine, scope.signal);
            if (mine.days !== wanted.days || mine.tool !== wanted.tool) return null;
            if (!mine.tool) names = told.tools.map((one) => one.tool);
            fill(
                tools,
                h("option", { value: "" }, "All tools"),
                [...new Set([...names, mine.tool].filter(Boolean))].map((name) => h("option", { value: name }, name)),
            );
            tools.value = mine.tool;
            fill(copies, copyMenu(copiesOf(told, mine)));
            fill(found, isEmpty(told) ? nothing() : view(told));
            return say(`${count(told.tools.length, "tool")} in the last ${told.days.length} days`);
        } catch (error) {
            return report(error);
        }
    }

    return look();
}

const isEmpty = ({ tools, series }) => !tools.length && !series.runs.some(Boolean) && !series.unlisted.some(Boolean);

const nothing = () => empty("No figures yet.", "Runs and tool calls of this project appear here by day.");

function view({ days, series, tools, denials, notes }) {
    const milliseconds = (value) => duration(value);
    return [
        notes.map((one) => h("p", { class: "hint-line" }, one)),
        h(
            "div",
            { class: "charts" },
            barChart("Cost", days, [{ name: "Cost", kind: "model", values: series.cost }], cost),
            barChart(
                "Errors and denials",
                days,
                [
                    { name: "Errors", kind: "wrong", values: series.errors.map((one, index) => one + series.denied[index]) },
                    { name: "Denied", kind: "person", values: series.denied },
                ],
                amount,
            ),
            barChart(
                "Call duration",
                days,
                [
                    { name: "p95", kind: "run", values: series.p95 },
                    { name: "p50", kind: "tool", values: series.p50 },
                ],
                milliseconds,
            ),
            barChart("Calls", days, [{ name: "Calls", kind: "tool", values: series.calls }], amount),
        ),
        series.cost.every((one) => one === null)
            ? h("p", { class: "quiet" }, "Costs need the price of the model: limits: {price: {input: …, output: …}} in forge.yaml.")
            : null,
        h("h2", {}, "By tool"),
        tableOf("By tool", TOOL_NAMES, tools.map(toolRow)),
        h("h2", {}, "Denials by tool and day"),
        denials.length
            ? tableOf(
                  "Denials by tool and day",
                  ["Tool", ...days.map(shortDay), "Total"],
                  denials.map(({ tool, counts }) => [
                      h("code", {}, tool),
                      ...counts.map((one) => (one ? String(one) : "·")),
                      String(counts.reduce((sum, one) => sum + one, 0)),
                  ]),
              )
            : h("p", { class: "quiet" }, "No call was denied."),
        h("h2", {}, "By day"),
        tableOf("By day", DAY_NAMES, dayRows(days, series).reverse()),
    ];
}

const toolRow = ({ tool, calls, errors, denied, p50, p95 }) => [
    h("a", { href: address(["tools", tool]) }, h("code", {}, tool)),
    amount(calls),
    amount(errors),
    amount(denied),
    duration(p50),
    duration(p95),
];

function dayRows(days, series) {
    return days.map((day, index) => {
        const at = (name) => series[name][index];
        const tokens = at("input") + at("output");
        return [
            day,
            ...["runs", "failed"].map((name) => amount(at(name))),
            amount(at("unlisted")) + (at("unlisted_failed") ? ` (${amount(at("unlisted_failed"))} failed)` : ""),
            ...["calls", "errors", "denied"].map((name) => amount(at(name))),
            ...["p50", "p95"].map((name) => (at(name) === null ? "–" : duration(at(name)))),
            tokens ? short(tokens) : "–",
            cost(at("cost")) || "–",
        ];
    });
}

function tableOf(label, names, rows) {
    return h(
        "div",
        { class: "wide-table figures", tabindex: "0", role: "region", "aria-label": label },
        h(
            "table",
            {},
            h(
                "thead",
                {},
                h(
                    "tr",
                    {},
                    names.map((name) => h("th", { scope: "col" }, name)),
                ),
            ),
            h(
                "tbody",
                {},
                rows.map(([first, ...rest]) =>
                    h(
                        "tr",
                        {},
                        h("th", { scope: "row" }, first),
                        rest.map((one) => h("td", {}, one)),
                    ),
                ),
            ),
        ),
    );
}

function copiesOf(told, wanted) {
    const rows = () => dayRows(told.days, told.series);
    const csv = () => [DAY_NAMES, ...rows()].map((row) => row.map((one) => `"${one.replaceAll('"', '""')}"`).join(",")).join("\n");
    const since = ["--since", `${told.days.length}d`];
    return [
        ["Link", () => linkTo(address(["trends"], wanted))],
        ["forge command", () => forgeCommand("audit", "--summary", ...since, ...(wanted.tool ? ["--tool", wanted.tool] : []))],
        ["Markdown", () => markdownTable(DAY_NAMES, rows())],
        ["CSV", csv],
        ["JSON", () => jsonText(told)],
    ];
}
