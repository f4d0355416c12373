// The workers that process runs, and the queues.

import { get, me } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, duration } from "../format.js";
import { soon } from "../pace.js";
import { badge, empty, state } from "../parts/marks.js";
import { report } from "../parts/notices.js";
import { redraw } from "../redraw.js";
import { listen } from "../stream.js";

const STATES = { working: "running", draining: "waiting", silent: "failed", gone: "cancelled" };

export function openWorkers(place, at, scope) {
    const workers = h("div", {});
    const queues = h("div", {});
    fill(
        place,
        h(
            "header",
            { class: "page-head" },
            h("h1", { tabindex: "-1" }, "Workers"),
            h("p", { class: "quiet" }, `Database of runs: ${me.database ?? ""}`),
        ),
        workers,
        h("h2", {}, "Queues"),
        queues,
    );

    async function look() {
        try {
            const told = await get("/api/workers", {}, scope.signal);
            redraw(
                workers,
                told.workers.length
                    ? table(
                          ["Worker", "State", "Runs", "Queues", "Version", "Started", "Last heartbeat"],
                          told.workers.map(workerRow),
                      )
                    : empty("No workers.", "Start one with forge worker. A console with a model has a worker of its own."),
            );
            redraw(
                queues,
                told.queues.length
                    ? table(["Queue", "Queued", "Running", "Waiting", "Longest wait"], told.queues.map(queueRow))
                    : empty("No queues."),
            );
        } catch (error) {
            report(error);
        }
    }

    const again = soon(look, 300, scope);
    scope.add(listen("changed", ({ what }) => (what.includes("workers") || what.includes("runs")) && again()));
    return look();
}

const table = (names, rows) =>
    h(
        "div",
        { class: "wide-table", tabindex: "0", role: "region", "aria-label": names[0] },
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
            h("tbody", {}, rows),
        ),
    );

function workerRow(one) {
    const cells = [
        [
            h("code", {}, one.id),
            " ",
            one.here ? badge("this console") : h("span", { class: "quiet" }, `${one.host} ${one.pid}`),
        ],
        state(STATES[one.state] ?? one.state, one.state),
        `${one.running} of ${one.concurrency}`,
        one.queues.join(", "),
        h("code", {}, one.version),
        ago(one.started),
        `${duration(one.age)} ago`,
    ];
    return h(
        "tr",
        { "data-key": one.id },
        cells.map((cell) => h("td", {}, cell)),
    );
}

function queueRow(one) {
    const cells = [
        h("code", {}, one.name),
        one.queued,
        one.running,
        one.waiting,
        one.oldest === null ? "–" : duration(one.oldest),
    ];
    return h(
        "tr",
        { "data-key": one.name },
        cells.map((cell) => h("td", {}, typeof cell === "number" ? String(cell) : cell)),
    );
}
