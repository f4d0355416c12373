// Tasks that agents run at set times.

import { get, part, post } from "../api.js";
import { fill, h } from "../dom.js";
import { ago, duration, instant, moment } from "../format.js";
import { soon } from "../pace.js";
import { changeDialog } from "../parts/change_dialog.js";
import { button, dialog, field } from "../parts/controls.js";
import { copyMenu, forgeCommand, jsonText, linkTo } from "../parts/copy_menu.js";
import { badge, empty, state } from "../parts/marks.js";
import { notify, report } from "../parts/notices.js";
import { textBox } from "../parts/text_view.js";
import { redraw } from "../redraw.js";
import { address } from "../router.js";
import { listen } from "../stream.js";
import { brief } from "../text.js";

const STATES = {
    ok: "finished",
    success: "finished",
    completed: "finished",
    error: "failed",
    timeout: "failed",
    lost: "failed",
    skipped: "cancelled",
};

export function openSchedules(place, { parts }, scope) {
    const found = h("div", {});
    let wanted = parts[0] ?? "";
    fill(
        place,
        h(
            "header",
            { class: "page-head" },
            h("h1", { tabindex: "-1" }, "Schedules"),
            h("p", { class: "quiet" }, "A schedule runs a task with this project’s agent at set times."),
            h("div", { class: "actions" }, button("Add a schedule…", () => scheduleDialog())),
        ),
        found,
    );

    async function look() {
        try {
            const { schedules, runner } = await get("/api/schedules", {}, scope.signal);
            redraw(
                found,
                schedules.length && !runner
                    ? h(
                          "p",
                          { class: "hint-line" },
                          "This console does not run schedules, because it has no model or no worker. Start forge worker, or forge schedule run.",
                      )
                    : null,
                schedules.length
                    ? h(
                          "div",
                          { class: "stack" },
                          schedules.map((one) => scheduleBox(one, look, one.id === parts[0])),
                      )
                    : empty(
                          "No schedules yet.",
                          "Add one here, or declare it in forge.yaml under schedules. Agents add schedules with the tool schedule_set.",
                      ),
            );
            if (wanted) reveal(wanted);
            wanted = "";
        } catch (error) {
            report(error);
        }
    }

    function reveal(id) {
        const box = found.querySelector(`[data-key="${CSS.escape(id)}"]`);
        box?.scrollIntoView({ block: "center" });
        if (!box) notify(`There is no schedule ${id}.`);
    }

    const again = soon(look, 300, scope);
    scope.add(listen("changed", ({ what }) => (what.includes("schedules") || what.includes("runs")) && again()));
    return look();
}

function scheduleBox(one, look, isChosen) {
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
    const isDeclared = Boolean(one.origin) || one.source === "config";
    return h(
        "section",
        {
            class: `panel-box schedule${isChosen ? " chosen" : ""}`,
            "aria-label": one.id,
            "data-key": one.id,
        },
        h(
            "header",
            {},
            h("h2", {}, h("a", { href: address(["schedules", one.id]) }, one.id)),
            one.running ? state("running") : one.enabled ? null : badge("paused"),
            h(
                "div",
                { class: "actions" },
                does("Run now", "run", `${one.id} is started.`, "run"),
                switches(one, does),
                isDeclared ? null : button("Edit…", () => scheduleDialog(one), { key: "edit" }),
                isDeclared ? null : button("Remove…", () => removeDialog(one, base, look), { key: "remove" }),
                copyMenu(copies(one)),
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
        one.problem ? h("p", { class: "bad" }, `It does not run: ${one.problem}`) : null,
        textBox(one.task ?? "", { lines: 4, isOutput: true, label: "Task" }),
        h(
            "p",
            { class: "quiet" },
            "Next run: ",
            one.enabled && one.next ? [ago(instant(one.next)), ` (${moment(instant(one.next))})`] : "none",
            " · Last run: ",
            one.last ? ago(instant(one.last)) : "never",
            isDeclared ? ` · Declared in ${one.origin || "the configuration"}; change it there.` : "",
        ),
        one.history.length
            ? h("details", {}, h("summary", {}, `Last ${one.history.length} runs`), history(one.history))
            : null,
    );
}

const switches = (one, does) =>
    one.enabled
        ? does("Pause", "pause", `${one.id} is paused.`, "pause")
        : does("Resume", "resume", `${one.id} is resumed.`, "pause");

function copies(one) {
    const options = [
        ["--id", one.id],
        ["--timezone", one.timezone],
        ["--skill", one.skill],
        ["--channel", one.channel],
        ["--target", one.channel_target],
    ];
    const words = options.filter(([, value]) => value).flat();
    const { id, cron, task, timezone, skill, channel, one_shot: once } = one;
    const entry = Object.entries({ id, cron, task, timezone, skill, channel, one_shot: once });
    return [
        ["Link", () => linkTo(address(["schedules", one.id]))],
        ["forge command", () => forgeCommand("schedule", "add", cron, task, ...words, ...(once ? ["--one-shot"] : []))],
        ["JSON for forge.yaml", () => jsonText(Object.fromEntries(entry.filter(([, value]) => value)))],
    ];
}

function removeDialog(one, base, look) {
    const remove = async () => {
        await post(`${base}/remove`);
        close();
        notify(`${one.id} is removed.`);
        await look();
    };
    const close = dialog(
        `Remove ${one.id}?`,
        h("p", {}, h("code", { class: "value" }, one.cron), ` ${brief(one.task, 200)}`),
        h("p", { class: "quiet" }, "It will not run again. Its past runs stay under Runs."),
        h("div", { class: "actions" }, button("Remove schedule", remove, { kind: "danger" }), button("Cancel", () => close())),
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
                ["Status", "Started", "Duration", "Result"].map((name) => h("th", { scope: "col" }, name)),
            ),
        ),
        h("tbody", {}, rows.map(row)),
    );
}

// Adds a schedule, or changes one.

const RULES = ["@hourly", "@daily", "@weekly", "30 9 * * MON-FRI", "0 */2 * * *", "@every 90m"];

/** `old`: the schedule to change; without it a new one is added. */
function scheduleDialog(old = null) {
    const input = (name, more = {}) => h("input", { type: "text", value: old?.[name] ?? "", autocomplete: "off", ...more });
    const cron = input("cron", { class: "code", list: "schedule-rules", placeholder: "30 9 * * MON-FRI", autofocus: true });
    const task = h("textarea", { rows: "3", placeholder: "Summarise what changed since yesterday." });
    task.value = old?.task ?? "";
    const zone = input("timezone", { placeholder: "UTC", list: "schedule-zones" });
    const id = input("id", { class: "code", placeholder: "derived from the task", disabled: Boolean(old) });
    const skill = input("skill");
    const channel = input("channel");
    const target = input("channel_target");
    const once = h("input", { type: "checkbox", checked: Boolean(old?.one_shot) });
    const values = () => ({
        cron: cron.value,
        task: task.value,
        id: id.value,
        timezone: zone.value,
        skill: skill.value,
        channel: channel.value,
        channel_target: target.value,
        one_shot: once.checked,
        ...(old ? { replaces: true } : {}),
    });
    const more = h(
        "details",
        { open: Boolean(old?.skill || old?.channel) },
        h("summary", {}, "More options"),
        h(
            "div",
            { class: "form" },
            field("Id", id, "Lower-case words with hyphens."),
            field("Skill", skill, "The agent reads this skill first."),
            field("Channel", channel, "The result is sent to this channel of forge.yaml."),
            field("Channel target", target, "A chat, a room or a file of that channel."),
        ),
    );
    return changeDialog(old ? `Change ${old.id}` : "Add a schedule", {
        words: old ? "Save changes" : "Add schedule",
        fields: [
            field("When", cron, "Five cron fields, an alias such as @daily, or an interval such as @every 90m."),
            options("schedule-rules", RULES),
            field("Time zone", zone, "UTC if it is empty."),
            options("schedule-zones", Intl.supportedValuesOf("timeZone")),
            field("Task", task, "The prompt that the agent runs with."),
            h("label", { class: "check" }, once, " Run only once"),
            more,
        ],
        isComplete: () => Boolean(cron.value.trim() && task.value.trim()),
        preview: () => post("/api/schedules", values()),
        show: showSchedule,
        make: async () => {
            const { schedule, notes } = await post("/api/schedules", { ...values(), write: true });
            notify(old ? `Schedule ${schedule.id} is changed.` : `Schedule ${schedule.id} is added.`, notes.join(" ") || null);
        },
    });
}

function showSchedule({ schedule, replaces, notes }) {
    const times = schedule.upcoming.map((at) => h("li", {}, moment(at)));
    return [
        h("p", {}, h("code", {}, schedule.id), ": ", schedule.explained),
        times.length ? [h("p", { class: "quiet" }, "Next runs, in your local time:"), h("ul", { class: "plain" }, times)] : null,
        replaces && replaces.cron !== schedule.cron
            ? h("p", { class: "quiet" }, `Until now: ${replaces.cron} (${replaces.timezone})`)
            : null,
        notes.map((one) => h("p", { class: "hint-line" }, one)),
    ];
}

const options = (id, values) =>
    h(
        "datalist",
        { id },
        values.map((value) => h("option", { value })),
    );
