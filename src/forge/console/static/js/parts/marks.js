// Small signs: states, badges, icons.

import { h, svg } from "../dom.js";

const PATHS = {
    home: "M3 9.5 10 4l7 5.5V16a1 1 0 0 1-1 1h-4v-5H8v5H4a1 1 0 0 1-1-1z",
    approvals: "M10 3l6 2.5v4c0 3.8-2.5 6.4-6 7.5-3.5-1.1-6-3.7-6-7.5v-4zM7.3 10l2 2 3.5-4",
    runs: "M4 5h12M4 10h12M4 15h7",
    tools: "M12.5 3.5a3.8 3.8 0 0 0-3.6 5l-5.4 5.4 2.6 2.6 5.4-5.4a3.8 3.8 0 0 0 5-3.6l-2.3 2.3-2.3-.7-.7-2.3z",
    policy: "M10 3v14M4 6h12M4 6l-2 5h4zM16 6l-2 5h4zM6.5 17h7",
    schedules: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM10 6v4l3 2",
    memory: "M5 3h9l2 2v12H5zM8 7h5M8 10h5M8 13h3",
    workers: "M3 5h14v4H3zM3 11h14v4H3zM6 7h.01M6 13h.01",
    trends: "M3 16.5h14M5 16v-4M9 16V7M13 16v-6M17 16V4",
    search: "M9 4a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM13 13l4 4",
    theme: "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14",
};

const WORDS = {
    queued: "queued",
    running: "running",
    waiting: "waiting",
    finished: "finished",
    failed: "failed",
    cancelled: "stopped",
    done: "done",
    denied: "denied",
};

const PINS = { changed: "changed since approved", new: "not approved yet", unknown: "approval missing" };

export function icon(name) {
    const attributes = { viewBox: "0 0 20 20", class: "icon-drawing", "aria-hidden": "true", focusable: "false" };
    return svg("svg", attributes, svg("path", { d: PATHS[name] }));
}

/** A dot with a shape of its own for each state, and the word for it. */
export function state(name, words = WORDS[name] ?? name) {
    return h(
        "span",
        { class: `state ${name}` },
        h("span", { class: "dot", "aria-hidden": "true" }),
        h("span", { class: "word" }, words),
    );
}

/** Of a run: what it waits for counts more than that it waits. */
export function runState(run) {
    if (run.cancelling && !["finished", "failed", "cancelled"].includes(run.status))
        return state("cancelled", "stopping");
    if (run.status === "waiting") return state("waiting", waitWords(run.waits ?? []));
    return state(run.status);
}

function waitWords(waits) {
    const kinds = new Set(waits.map((one) => one.kind));
    if (kinds.has("approval")) return "needs approval";
    if (kinds.has("question")) return "needs an answer";
    if (kinds.has("run")) return "waiting for a sub-agent";
    if (kinds.has("time")) return "waiting for a set time";
    return "waiting";
}

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

export const decision = (name) => badge(name || "?", `decision ${["allow", "ask", "deny"].includes(name) ? name : ""}`);

export function permissionBadges(tool) {
    return [
        tool.permissions.map((one) => badge(one, `permission ${one}`)),
        tool.optional_permissions.map((one) => badge(`${one}?`, "permission maybe")),
    ];
}

export const pinBadge = (pin) => badge(PINS[pin] ?? pin, pin === "pinned" ? "" : "bad");

export function empty(title, ...more) {
    return h(
        "div",
        { class: "empty" },
        h("p", {}, h("strong", {}, title)),
        more.map((one) => h("p", { class: "quiet" }, one)),
    );
}
