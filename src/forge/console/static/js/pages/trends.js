// Cost, tokens, errors, times, refused calls and questions: by day, and by agent, model, user and tool.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { amount, cost, count, duration, short } from "../format.js";
import { barChart, shortDay } from "../parts/bar_chart.js";
import { copyMenu, forgeCommand, jsonText, linkTo, markdownTable } from "../parts/copy_menu.js";
import { empty } from "../parts/marks.js";
import { report, say } from "../parts/notices.js";
import { address, push } from "../router.js";
import { brief } from "../text.js";

const RANGES = [7, 14, 30, 90];
const SUBJECTS = ["agent", "model", "user"];
const TITLES = { agent: "Agent", model: "Model", user: "User", tool: "Tool" };
const DAY_NAMES = ["Day", "Runs", "Failed runs", "Unlisted runs", "Calls", "Errors", "Denied", "p50", "p95", "Tokens", "Cost"];
const TOOL_NAMES = ["Tool", "Calls", "Errors", "Denied", "p50", "p95", "Questions", "Refused", "Wait p50", "Wait p95"];
const GROUP_NAMES = [
    "Runs",
    "Failed",
    "Cost",
    "Tokens",
    "Cache hits",
    "Run p50",
    "Run p95",
    "Calls",
    "Errors",
    "Denied",
    "Questions",
    "Refused",
    "Wait p50",
    "Wait p95",
];

export function openTrends(place, { query }, scope) {
    const wanted = { days: query.get("days") ?? "14" };
    for (const name of ["tool", ...SUBJECTS]) wanted[name] = query.get(name) ?? "";
    const ranges = h(
        "select",
        { "aria-label": "Range", onchange: () => change({ days: ranges.value }) },
        RANGES.map((days) => h("option", { value: String(days) }, `Last ${days} days`)),
    );
    ranges.value = RANGES.includes(Number(wanted.days)) ? wanted.days : "14";
    const selects = Object.fromEntries(
        [...SUBJECTS, "tool"].map((name) => [
            name,
            h("select", { "aria-label": TITLES[name], onchange: ({ target }) => change({ [name]: target.value }) }),
        ]),
    );
    const copies = h("div", { class: "actions" });
    const found = h("div", {});
    fill(
        place,
        h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Trends"), copies),
        h("div", { class: "filters trend-filters" }, ranges, Object.values(selects)),
        found,
    );
    const known = {}; // what can be chosen: all that was seen without that filter

    function change(more) {
        Object.assign(wanted, more);
        push(["trends"], wanted);
        return look();
    }

    async function look() {
        const mine = { ...wanted };
        try {
            const told = await get("/api/trends", mine, scope.signal);
            if (Object.keys(mine).some((name) => mine[name] !== wanted[name])) return null;
            for (const [name, select] of Object.entries(selects)) setChoices(name, select, told.by[name]);
            fill(copies, copyMenu(copiesOf(told, mine)));
            fill(found, isEmpty(told) ? nothing() : view(told, mine));
            return say(`${count(told.tools.length, "tool")} in the last ${told.days.length} days`);
        } catch (error) {
            return report(error);
        }
    }

    function setChoices(name, select, groups) {
        if (!wanted[name]) known[name] = groups.map((one) => one.name).filter(Boolean);
        const names = [...new Set([...(known[name] ?? []), wanted[name]].filter(Boolean))];
        fill(
            select,
            h("option", { value: "" }, `All ${TITLES[name].toLowerCase()}s`),
            names.map((one) => h("option", { value: one }, brief(one, 60))),
        );
        select.value = wanted[name];
    }

    return look();
}

const isEmpty = ({ tools, series }) =>
    !tools.length && !["runs", "unlisted", "questions"].some((name) => series[name].some(Boolean));

const nothing = () => empty("No figures yet.", "Runs and tool calls of this project appear here by day.");

function view({ days, series, by, denials, notes }, wanted) {
    const added = (...names) => days.map((_, index) => names.reduce((sum, name) => sum + (series[name][index] ?? 0), 0));
    const times = (name) => [
        { name: "p95", kind: "run", values: series[`${name}p95`] },
        { name: "p50", kind: "tool", values: series[`${name}p50`] },
    ];
    const ofAll = wanted.model || wanted.user ? ", all models and users" : ""; // the event log has neither
    const hits = days.map((_, index) => (series.input[index] ? series.cached[index] / series.input[index] : null));
    const charts = [
        ["Cost", [{ name: "Cost", kind: "model", values: series.cost }], cost],
        [
            "Runs",
            [
                { name: "Ended", kind: "tool", values: series.runs },
                { name: "Failed", kind: "wrong", values: series.failed },
            ],
            amount,
        ],
        [
            "Tokens",
            [
                { name: "All", kind: "run", values: added("input", "output") },
                { name: "From cache", kind: "model", values: series.cached },
            ],
            short,
        ],
        ["Cache hits", [{ name: "Share of the input", kind: "model", values: hits }], percent],
        ["Run duration", times("run_"), duration],
        [`Calls${ofAll}`, [{ name: "Calls", kind: "tool", values: series.calls }], amount],
        [`Call duration${ofAll}`, times(""), duration],
        [
            `Errors and denials${ofAll}`,
            [
                { name: "Errors", kind: "wrong", values: added("errors", "denied"), shown: series.errors },
                { name: "Denied", kind: "person", values: series.denied },
            ],
            amount,
        ],
        [
            "Questions",
            [
                { name: "Asked", kind: "person", values: series.questions },
                { name: "Refused", kind: "wrong", values: series.refused },
            ],
            amount,
        ],
        ["Wait for an answer", times("wait_"), duration],
    ];
    return [
        notes.map((one) => h("p", { class: "hint-line" }, one)),
        h(
            "div",
            { class: "charts trend-charts" },
            charts.map(([title, lines, show]) => chartWithTable(title, days, lines, show)),
        ),
        series.cost.every((one) => one === null)
            ? h("p", { class: "quiet" }, "Costs need the price of the model: limits: {price: {input: …, output: …}} in forge.yaml.")
            : null,
        SUBJECTS.map((subject) => [
            h("h2", {}, `By ${subject}`),
            tableOf(
                `By ${subject}`,
                [TITLES[subject], ...GROUP_NAMES],
                by[subject].map((row) => groupRow(row, subject, wanted)),
            ),
        ]),
        h("h2", {}, `By tool${ofAll && ": calls of all models and users, questions of the chosen ones"}`),
        tableOf("By tool", TOOL_NAMES, by.tool.map(toolRow)),
        h("h2", {}, `Denials by tool and day${ofAll}`),
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
        h("h2", {}, `By day${ofAll && ": calls, errors and denials of all models and users"}`),
        tableOf("By day", DAY_NAMES, dayRows(days, series).reverse()),
    ];
}

/** A chart, and its numbers as a table beneath it. `shown` are the numbers of bars that stand behind others. */
function chartWithTable(title, days, lines, show) {
    const values = lines.map(({ values: all, shown }) => shown ?? all);
    const rows = days.map((day, index) => [
        shortDay(day),
        ...values.map((one) => (one[index] === null ? "–" : show(one[index]))),
    ]);
    return h(
        "div",
        { class: "chart-part" },
        barChart(title, days, lines, show),
        h(
            "details",
            { class: "chart-table" },
            h("summary", { "aria-label": `${title} as a table` }, "Table"),
            tableOf(`${title} by day`, ["Day", ...lines.map(({ name }) => name)], rows.reverse()),
        ),
    );
}

const percent = (share) => `${Math.round((share ?? 0) * 100)} %`;
const orDash = (text) => text || "–";

function groupRow(row, subject, wanted) {
    const name = row.name
        ? h("a", { href: address(["trends"], { ...wanted, [subject]: row.name }), title: row.name }, brief(row.name, 48))
        : h("span", { class: "quiet" }, "unknown");
    const tokens = row.input + row.output;
    return [
        name,
        amount(row.runs),
        amount(row.failed),
        orDash(cost(row.cost)),
        tokens ? short(tokens) : "–",
        row.input ? percent(row.cached / row.input) : "–",
        ...["run_p50", "run_p95"].map((one) => orDash(duration(row[one]))),
        ...["calls", "errors", "denied", "questions", "refused"].map((one) => amount(row[one])),
        ...["wait_p50", "wait_p95"].map((one) => orDash(duration(row[one]))),
    ];
}

const toolRow = (row) => [
    h("a", { href: address(["tools", row.name]) }, h("code", {}, row.name)),
    ...["calls", "errors", "denied"].map((one) => amount(row[one])),
    ...["p50", "p95"].map((one) => orDash(duration(row[one]))),
    ...["questions", "refused"].map((one) => amount(row[one])),
    ...["wait_p50", "wait_p95"].map((one) => orDash(duration(row[one]))),
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
    const flags = ["tool", "agent"].flatMap((name) => (wanted[name] ? [`--${name}`, wanted[name]] : []));
    return [
        ["Link", () => linkTo(address(["trends"], wanted))],
        ["forge command", () => forgeCommand("audit", "--summary", ...since, ...flags)],
        ["Markdown", () => markdownTable(DAY_NAMES, rows())],
        ["CSV", csv],
        ["JSON", () => jsonText(told)],
    ];
}
