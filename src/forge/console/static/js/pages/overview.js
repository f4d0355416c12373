// The first page: open questions, figures and the latest runs.

import { get, me, post } from "../api.js";
import { fill, h } from "../dom.js";
import { soon } from "../pace.js";
import { button } from "../parts/controls.js";
import { empty } from "../parts/marks.js";
import { notify, report } from "../parts/notices.js";
import { redraw } from "../redraw.js";
import { address } from "../router.js";
import { listen } from "../stream.js";
import { newChat, noModel, runRow } from "./runs.js";

export function openOverview(place, at, scope) {
    const numbers = h("div", { class: "tiles" });
    const recent = h("div", { class: "run-rows" });
    const leftAlone = h("div", {});
    fill(
        place,
        h(
            "header",
            { class: "page-head" },
            h("h1", { tabindex: "-1" }, me.project || "Forge"),
            h("p", { class: "quiet" }, me.workspace, me.model ? ` · ${me.model}` : ""),
        ),
        (me.notes ?? []).map((one) => h("p", { class: "hint-line" }, one)),
        leftAlone,
        me.model ? newChat() : noModel(),
        numbers,
        h("h2", {}, "Latest runs"),
        recent,
    );

    async function look() {
        try {
            const [overview, runs] = await Promise.all([
                get("/api/overview", {}, scope.signal),
                get("/api/runs", { limit: 12 }, scope.signal),
            ]);
            redraw(numbers, tiles(overview));
            redraw(leftAlone, overview.left_alone.runs ? takeThem(overview.left_alone, again) : null);
            redraw(recent, runs.runs.length ? runs.runs.map((run) => runRow({ run }).element) : begin());
        } catch (error) {
            report(error);
        }
    }

    const again = soon(look, 250, scope);
    scope.add(listen("changed", () => again()));
    return look();
}

/** Runs of another version of the project, which no worker continues. */
function takeThem({ runs, versions, version }, again) {
    const give = async () => {
        const { migrated } = await post("/api/runs/migrate", {});
        notify(`${migrated.length} ${migrated.length === 1 ? "run was" : "runs were"} moved to this version.`);
        again();
    };
    const words = `${runs} ${runs === 1 ? "run needs" : "runs need"} a worker of version ${versions.join(", ")}, and no such worker is running. `;
    return h("p", { class: "hint-line" }, words, button("Move them to this version", give, { title: version }));
}

function tiles({ counts, waiting, tools, schedules, workers, sessions }) {
    const tile = (number, words, where, query) =>
        h(
            "a",
            { class: `tile${words === "to approve or answer" && number ? " waits" : ""}`, href: address([where], query) },
            h("strong", {}, String(number)),
            h("span", {}, words),
        );
    return [
        tile(waiting, "to approve or answer", "approvals"),
        tile(counts.running + counts.queued, "running", "runs", { status: "queued,running" }),
        tile(counts.finished, "finished", "runs", { status: "finished" }),
        tile(counts.failed + counts.cancelled, "failed or stopped", "runs", { status: "failed,cancelled" }),
        tile(tools, "tools", "tools"),
        tile(schedules, schedules === 1 ? "schedule" : "schedules", "schedules"),
        tile(workers, workers === 1 ? "worker" : "workers", "workers"),
        tile(sessions, sessions === 1 ? "session" : "sessions", "runs", { show: "sessions" }),
    ];
}

function begin() {
    const to = (words, ...parts) => h("a", { href: address(parts) }, words);
    return h(
        "div",
        {},
        empty("No runs yet."),
        h(
            "ul",
            { class: "steps" },
            me.demo
                ? h(
                      "li",
                      {},
                      to("The demo session", "sessions", me.demo),
                      " is an example of a run: texts, calls, questions and their times.",
                  )
                : null,
            h(
                "li",
                {},
                to("Tools", "tools"),
                ": call any tool from a form. The same policy applies as for an agent.",
            ),
            h("li", {}, to("Policy", "policy"), ": see the rules, and what they decide about a call."),
        ),
    );
}
