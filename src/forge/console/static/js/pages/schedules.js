// What agents do by the clock.

import { get, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, duration, instant, moment } from "../format.js";
import { soon } from "../pace.js";
import { button } from "../parts/controls.js";
import { badge, empty, state } from "../parts/marks.js";
import { notify, report } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { redraw } from "../redraw.js";
import { address } from "../router.js";
import { listen } from "../stream.js";
import { brief } from "../text.js";

const STATES = { ok: "finished", success: "finished", error: "failed", timeout: "failed" };

export function openSchedules(place, at, scope) {
    const found = h("div", {});
    fill(place, h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, "Schedules")), found);

    async function look() {
        try {
            const { schedules, runner } = await get("/api/schedules", {}, scope.signal);
            redraw(
                found,
                schedules.length && !runner
                    ? h(
                          "p",
                          { class: "hint-line" },
                          "This console does not run what is due: a worker or `forge serve` does.",
                      )
                    : null,
                schedules.length
                    ? h(
                          "div",
                          { class: "stack" },
                          schedules.map((one) => scheduleBox(one, look)),
                      )
                    : empty(
                          "Nothing is scheduled.",
                          "An agent makes schedules with the tool schedule_set; forge.yaml declares them under schedules.",
                      ),
            );
        } catch (error) {
            report(error);
        }
    }

    const again = soon(look, 300, scope);
    scope.add(listen("changed", ({ what }) => (what.includes("schedules") || what.includes("runs")) && again()));
    return look();
}

function scheduleBox(one, look) {
    const base = `/api/schedules/${part(one.id)}`;
    const does = (words, path, told, key) =>
        button(
            words,
            async () => {
                await post(`${base}/${path}`);
                notify(told);
                await look();
            },
            { key },
        );
    return h(
        "section",
        { class: "panel-box schedule", "aria-label": one.id, "data-key": one.id },
        h(
            "header",
            {},
            h("h2", {}, one.id),
            one.running ? state("running") : one.enabled ? null : badge("paused"),
            h(
                "div",
                { class: "actions" },
                does("Run now", "run", "It is started.", "run"),
                one.enabled
                    ? does("Pause", "pause", `${one.id} is paused.`, "pause")
                    : does("Go on", "resume", `${one.id} goes on.`, "pause"),
            ),
        ),
        h(
            "p",
            {},
            h("code", { class: "value" }, one.cron),
            ` ${one.explained ?? ""}`,
            one.timezone && !one.explained?.includes(one.timezone)
                ? h("span", { class: "quiet" }, ` (${one.timezone})`)
                : null,
        ),
        textBox(one.task ?? "", { lines: 4, isOutput: true, label: "Task" }),
        h(
            "p",
            { class: "quiet" },
            "Next ",
            one.enabled && one.next ? [ago(instant(one.next)), ` (${moment(instant(one.next))})`] : "–",
            " · last ",
            one.last ? ago(instant(one.last)) : "never",
            one.origin ? ` · from ${one.origin}` : "",
        ),
        one.history.length
            ? h(
                  "details",
                  {},
                  h("summary", {}, `Last ${one.history.length}`),
                  history(one.history),
              )
            : null,
    );
}

function history(rows) {
    const row = (one) =>
        h(
            "tr",
            {},
            h("td", {}, state(STATES[one.status] ?? one.status, one.status)),
            h("td", {}, ago(instant(one.started || one.due))),
            h("td", {}, one.duration === null ? "" : duration(one.duration)),
            h(
                "td",
                {},
                one.run
                    ? h("a", { href: address(["runs", one.run]) }, brief(one.error || one.result || one.run, 120))
                    : brief(one.error || one.result || "", 160),
            ),
        );
    return h(
        "table",
        {},
        h(
            "thead",
            {},
            h(
                "tr",
                {},
                ["How", "When", "Took", "What came of it"].map((name) => h("th", { scope: "col" }, name)),
            ),
        ),
        h("tbody", {}, rows.map(row)),
    );
}
