// Adds a schedule, or changes one.

import { post } from "../api.js";
import { h } from "../dom.js";
import { moment } from "../format.js";
import { changeDialog } from "../parts/change_dialog.js";
import { field } from "../parts/controls.js";
import { notify } from "../parts/notices.js";

const RULES = ["@hourly", "@daily", "@weekly", "30 9 * * MON-FRI", "0 */2 * * *", "@every 90m"];

/** `old`: the schedule to change; without it a new one is added. */
export function scheduleDialog(old = null) {
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
